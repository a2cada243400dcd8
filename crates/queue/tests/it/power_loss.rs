//! What a loss of power leaves of the pushes that were acknowledged.
//!
//! `kill -9` says nothing about `fsync`: the page cache outlives the process. So the database lives on a disk of its own,
//! an ext4 image behind a loop device, and power is lost like this:
//!
//! 1. every process that writes is stopped, each of its threads seen standing still;
//! 2. the image is copied, which takes what had reached the device and nothing of what the page cache still held; a copy
//!    during which the device was written to is thrown away;
//! 3. the copy is mounted elsewhere (ext4 replays its journal), and the database on it is opened as after a crash.
//!
//! Every push that was acknowledged before 1 must be there after 3. That the rig sees a loss at all is shown with rows
//! written at `synchronous=NORMAL` and `synchronous_commit=off`, which must be missed.
//!
//! Not shown: a disk that acknowledges writes and loses them before a flush. The copy has every write that the device
//! completed, flushed or not. And a stopped thread first ends its system call, so no cut falls inside an `fsync`.

mod disk;
mod pusher;

use std::collections::HashSet;
use std::time::Duration;

use libtest_mimic::{Completion, Failed, Trial};
use telecine_queue::{JobFilter, OpenOptions, open_with};

use crate::ground::{Database, check_invariants, list_all, run};
use crate::postgres_server::PostgresServer;
use disk::{Disk, Stopped};
pub(crate) use pusher::main_if_pusher;
use pusher::{Pusher, Pushes};

/// How often each writer meets a loss of power.
const CUTS: usize = 5;

/// Run by `make power-loss` only: they take 60 to 85 s in a debug build and mount things.
pub(crate) fn trials() -> Vec<Trial> {
    type Test = fn();
    let tests: [(&str, Database, Test); 5] = [
        ("no_acknowledged_push_is_lost", Database::Sqlite, || {
            no_acknowledged_push_is_lost(&Site::new(Database::Sqlite), "queue");
        }),
        ("no_acknowledged_push_is_lost", Database::Postgres, || {
            no_acknowledged_push_is_lost(&Site::new(Database::Postgres), "queue");
        }),
        (
            "no_acknowledged_push_is_lost_where_commits_are_lazy_by_default",
            Database::Postgres,
            no_acknowledged_push_is_lost_where_commits_are_lazy_by_default,
        ),
        ("the_rig_sees_what_normal_loses", Database::Sqlite, the_rig_sees_what_normal_loses),
        ("the_rig_sees_what_lazy_commits_lose", Database::Postgres, the_rig_sees_what_lazy_commits_lose),
    ];
    tests
        .into_iter()
        .map(|(name, database, test)| {
            let name = format!("{}::power_loss::{name}", database.name());
            Trial::ignorable_test(name, move || as_root(test)).with_ignored_flag(true)
        })
        .collect()
}

fn as_root(test: fn()) -> Result<Completion, Failed> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Completion::ignored_with("only root may mount the image of a disk"));
    }
    test();
    Ok(Completion::Completed)
}

fn no_acknowledged_push_is_lost(site: &Site, what: &str) {
    let tally = lose_power_repeatedly(site, &Pushes::Jobs { url: site.url.clone() }, what);

    assert_eq!(tally.lost(), 0, "{tally:?}");
}

/// A session of ours asks for durable commits, whatever the database's own setting.
fn no_acknowledged_push_is_lost_where_commits_are_lazy_by_default() {
    let site = Site::new(Database::Postgres);
    site.make_commits_lazy();

    no_acknowledged_push_is_lost(&site, "queue, synchronous_commit=off by default");
}

fn the_rig_sees_what_normal_loses() {
    let tally_at = |synchronous: &str| {
        let site = Site::new(Database::Sqlite);
        let rows = Pushes::SqliteRows { url: site.url.clone(), synchronous: synchronous.into() };
        lose_power_repeatedly(&site, &rows, &format!("rows, synchronous={synchronous}"))
    };

    let (full, normal) = (tally_at("FULL"), tally_at("NORMAL"));

    assert_eq!(full.lost(), 0, "{full:?}");
    assert!(normal.lost() > 0, "{normal:?}");
}

fn the_rig_sees_what_lazy_commits_lose() {
    let site = Site::new(Database::Postgres);
    site.psql("CREATE TABLE acknowledged (n BIGINT NOT NULL)");
    let rows = Pushes::PostgresRows { url: site.url.clone() };

    let durable = lose_power_repeatedly(&site, &rows, "rows, synchronous_commit=on");
    site.psql("TRUNCATE acknowledged");
    site.make_commits_lazy();
    let lazy = lose_power_repeatedly(&site, &rows, "rows, synchronous_commit=off");

    assert_eq!(durable.lost(), 0, "{durable:?}");
    assert!(lazy.lost() > 0, "{lazy:?}");
}

/// What each loss of power left; a push is looked for after every one that it came before.
#[derive(Debug, Default)]
struct Tally {
    acknowledged: Vec<usize>,
    lost: Vec<usize>,
}

impl Tally {
    fn lost(&self) -> usize {
        self.lost.iter().sum()
    }
}

fn lose_power_repeatedly(site: &Site, pushes: &Pushes, what: &str) -> Tally {
    let mut pusher = Pusher::start(pushes);
    let mut tally = Tally::default();
    for _ in 0..CUTS {
        pusher.wait_for(fastrand::usize(20..120));
        let stopped = Stopped::all(pusher.id(), site.server.as_ref().map(PostgresServer::id));
        let remains = site.after_power_loss();
        let found = remains.found(pushes);
        let acknowledged = pusher.acknowledged();
        tally.acknowledged.push(acknowledged.len());
        tally.lost.push(acknowledged.iter().filter(|id| !found.contains(id)).count());
        // In this order: left to run during the unmount, rows at NORMAL lost nothing in 1 or 2 of 5 cuts, presumably
        // those right behind a checkpoint, which syncs at any setting.
        drop(remains);
        drop(stopped);
    }
    println!("{}, {what}: {tally:?}", site.database.name());
    tally
}

/// A database on a disk of its own. Dropped in this order: what uses the disk goes before it.
struct Site {
    database: Database,
    url: String,
    server: Option<PostgresServer>,
    disk: Disk,
}

impl Site {
    fn new(database: Database) -> Self {
        match database {
            Database::Sqlite => Self::on(Disk::new(256), database, None),
            Database::Postgres | Database::Bouncer => {
                let disk = Disk::new(512);
                let server = PostgresServer::start_in(disk.folder());
                server.new_database();
                Self::on(disk, database, Some(server))
            }
        }
    }

    fn on(disk: Disk, database: Database, server: Option<PostgresServer>) -> Self {
        let url = match &server {
            None => format!("sqlite:{}", disk.folder().join("queue.db").display()),
            Some(server) => format!("postgres://postgres@127.0.0.1:{}/t0", server.port()),
        };
        Self { database, url, server, disk }
    }

    /// What another machine would find on the disk if this one lost power now.
    fn after_power_loss(&self) -> Self {
        let disk = self.disk.copy();
        let server = self.server.as_ref().map(|_| PostgresServer::resume_in(disk.folder()));
        Self::on(disk, self.database, server)
    }

    /// The ids of all pushes that are there.
    fn found(&self, pushes: &Pushes) -> HashSet<i64> {
        match pushes {
            Pushes::Jobs { .. } => self.jobs(),
            Pushes::SqliteRows { .. } => {
                let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
                let mut select = file.prepare("SELECT n FROM acknowledged").expect("the table is there");
                let rows = select.query_map([], |row| row.get(0)).expect("query");
                rows.map(|n| n.expect("a number")).collect()
            }
            Pushes::PostgresRows { .. } => self
                .psql("SELECT n FROM acknowledged")
                .lines()
                .map(|n| n.parse().expect("a number"))
                .collect(),
        }
    }

    fn jobs(&self) -> HashSet<i64> {
        let mut found = HashSet::new();
        run(async {
            let options = OpenOptions { patience: Duration::from_secs(60), ..OpenOptions::default() };
            let queue = open_with(&self.url, &options).await.expect("the database opens");
            check_invariants(&queue).await;
            found.extend(list_all(&queue, &JobFilter::default()).await.into_iter().map(|job| job.id.0));
            queue.close().await;
        })
        .expect("the runtime starts");
        found
    }

    /// From the next connection on, the server acknowledges a commit before it is on the disk.
    fn make_commits_lazy(&self) {
        self.psql("ALTER DATABASE t0 SET synchronous_commit = off");
    }

    fn psql(&self, sql: &str) -> String {
        let told = self.server.as_ref().expect("a Postgres").psql("t0", sql);
        assert!(told.status.success(), "{sql}: {}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).expect("UTF-8")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.stop();
        }
    }
}
