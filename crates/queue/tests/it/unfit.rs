//! Databases that cannot be used, and what we say about them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use telecine_queue::{OpenOptions, QueueError, open_with, pending_migrations};

use crate::ground::{Database, Ground, push_one, run, work};
use crate::postgres_server::{PostgresServer, free_port};

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    type Test = fn(Ground);
    let tests: [(&str, Database, Test); 15] = [
        ("an_unknown_scheme_is_refused", Database::Sqlite, |_| an_unknown_scheme_is_refused()),
        ("a_missing_folder_is_named", Database::Sqlite, a_missing_folder_is_named),
        (
            "a_file_that_is_no_database_is_left_alone",
            Database::Sqlite,
            a_file_that_is_no_database_is_left_alone,
        ),
        ("a_foreign_database_is_left_alone", Database::Sqlite, a_foreign_database_is_left_alone),
        ("a_read_only_file_is_named", Database::Sqlite, a_read_only_file_is_named),
        ("a_locked_file_is_waited_for_and_named", Database::Sqlite, a_locked_file_is_waited_for_and_named),
        ("a_full_disk_refuses_and_goes_on", Database::Sqlite, a_full_disk_refuses_and_goes_on),
        ("a_newer_schema_is_refused", Database::Sqlite, a_newer_schema_is_refused),
        ("a_newer_schema_is_refused", Database::Postgres, a_newer_schema_is_refused),
        ("a_newer_schema_is_refused", Database::Bouncer, a_newer_schema_is_refused),
        (
            "a_schema_that_is_behind_is_refused_if_asked",
            Database::Sqlite,
            a_schema_that_is_behind_is_refused_if_asked,
        ),
        (
            "a_schema_that_is_behind_is_refused_if_asked",
            Database::Postgres,
            a_schema_that_is_behind_is_refused_if_asked,
        ),
        (
            "a_schema_that_is_behind_is_refused_if_asked",
            Database::Bouncer,
            a_schema_that_is_behind_is_refused_if_asked,
        ),
        ("a_server_that_is_not_there_is_named", Database::Postgres, |_| {
            a_server_that_is_not_there_is_named()
        }),
        ("a_server_without_fsync_is_refused", Database::Postgres, |_| a_server_without_fsync_is_refused()),
    ];
    tests
        .into_iter()
        .map(|(name, database, test)| {
            let server = server.clone();
            Trial::test(format!("{}::unfit::{name}", database.name()), move || {
                test(Ground::new(database, &server));
                Ok(())
            })
            .with_ignored_flag(needs_root(name) && !rustix::process::geteuid().is_root())
        })
        .chain([{
            let server = server.clone();
            Trial::test("postgres::unfit::a_read_only_server_is_refused", move || {
                a_read_only_server_is_refused(&Ground::new(Database::Postgres, &server));
                Ok(())
            })
        }])
        .collect()
}

/// Mounting a small file system is for root only.
fn needs_root(name: &str) -> bool {
    name == "a_full_disk_refuses_and_goes_on"
}

fn impatient() -> OpenOptions {
    OpenOptions { patience: Duration::from_millis(200), ..OpenOptions::default() }
}

/// The error of opening a URL.
fn refusal(url: &str, options: &OpenOptions) -> QueueError {
    let mut found = None;
    run(async { found = open_with(url, options).await.err() }).expect("the runtime starts");
    found.unwrap_or_else(|| panic!("{url} should be refused"))
}

fn says(error: &QueueError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{text}` should say `{part}`");
    }
}

fn file(ground: &Ground) -> &Path {
    Path::new(ground.url.trim_start_matches("sqlite:"))
}

fn an_unknown_scheme_is_refused() {
    let error = refusal("mysql://user:secret@host/db", &impatient());

    says(&error, &["`mysql` is not a database URL", "sqlite:FILE", "postgres://"]);
    assert!(!error.to_string().contains("secret"));
}

fn a_missing_folder_is_named(ground: Ground) {
    let url = format!("sqlite:{}/no/such/folder/queue.db", ground.folder.path().display());

    says(&refusal(&url, &impatient()), &["no/such/folder", "check that its folder exists"]);
}

fn a_file_that_is_no_database_is_left_alone(ground: Ground) {
    let text = "a diary, and by no means a database. ".repeat(100);
    fs::write(file(&ground), &text).expect("write");

    says(&refusal(&ground.url, &impatient()), &["not a SQLite database", "another file name"]);
    assert_eq!(fs::read_to_string(file(&ground)).expect("read"), text);
}

fn a_foreign_database_is_left_alone(ground: Ground) {
    let other = rusqlite::Connection::open(file(&ground)).expect("open");
    other
        .execute_batch("CREATE TABLE recipe (name TEXT); INSERT INTO recipe VALUES ('soup');")
        .expect("write");

    says(&refusal(&ground.url, &impatient()), &["another program", "another file name"]);
    let kept: i64 =
        other.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0)).expect("read");
    assert_eq!(kept, 1);
}

/// Root may write anything, so the file is made immutable by its mode only where that binds.
fn a_read_only_file_is_named(ground: Ground) {
    run(async { ground.open().await.close().await }).expect("the runtime starts");
    let url = if rustix::process::geteuid().is_root() {
        read_only_mount(&ground)
    } else {
        fs::set_permissions(file(&ground), fs::Permissions::from_mode(0o400)).expect("chmod");
        ground.url.clone()
    };

    let error = refusal(&url, &impatient());
    unmount(&ground);

    says(&error, &["queue.db", "let this user write the file and its folder"]);
}

/// The same folder seen through a read-only mount, which binds root too.
fn read_only_mount(ground: &Ground) -> String {
    let target = ground.folder.path().join("read-only");
    fs::create_dir(&target).expect("mkdir");
    for arguments in [vec!["--bind"], vec!["-o", "remount,bind,ro"]] {
        let done = std::process::Command::new("mount")
            .args(arguments)
            .args([ground.folder.path(), &target])
            .status()
            .expect("mount runs");
        assert!(done.success());
    }
    format!("sqlite:{}", target.join("queue.db").display())
}

fn unmount(ground: &Ground) {
    let target = ground.folder.path().join("read-only");
    if target.exists() {
        let done = std::process::Command::new("umount").arg("-l").arg(&target).status().expect("umount runs");
        assert!(done.success());
    }
}

fn a_locked_file_is_waited_for_and_named(ground: Ground) {
    run(async { ground.open().await.close().await }).expect("the runtime starts");
    let other = rusqlite::Connection::open(file(&ground)).expect("open");
    other.execute_batch("BEGIN IMMEDIATE").expect("lock");

    run(async {
        // A file that is up to date can be opened; the write waits, then says why.
        let queue = open_with(&ground.url, &impatient()).await.expect("open");
        let refused = queue.push(vec![work(1).into()]).await.expect_err("the file is locked");
        assert!(refused.is_transient());
        says(&refused, &["another process holds the lock"]);

        other.execute_batch("ROLLBACK").expect("unlock");
        push_one(&queue, work(1)).await;
        assert_eq!(queue.counts().await.expect("counts")[0].jobs, 1, "the refused push left nothing");
    })
    .expect("the runtime starts");
}

/// A file system of 2 MB fills up, refuses, and takes jobs again once there is room.
fn a_full_disk_refuses_and_goes_on(ground: Ground) {
    let small = ground.folder.path().join("small");
    fs::create_dir(&small).expect("mkdir");
    let mount = |arguments: &[&str]| {
        let done =
            std::process::Command::new("mount").args(arguments).arg(&small).status().expect("mount runs");
        assert!(done.success());
    };
    mount(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"]);
    let url = format!("sqlite:{}", small.join("queue.db").display());
    let outcome = std::panic::catch_unwind(|| {
        run(async {
            let queue = open_with(&url, &impatient()).await.expect("open");
            let (mut accepted, mut refused) = (0_u64, 0);
            while refused < 3 {
                match queue.push(vec![telecine_queue::Push::jobs((0..50).map(work))]).await {
                    Ok(_) => accepted += 50,
                    Err(error) => {
                        assert!(error.is_transient(), "{error:?}");
                        refused += 1;
                    }
                }
            }
            assert!(accepted > 0);

            mount(&["-o", "remount,size=20m"]);
            push_one(&queue, work(1)).await;
            let counts = queue.counts().await.expect("counts");
            assert_eq!(counts[0].jobs, accepted + 1, "what was accepted is there, what was refused is not");
            queue.close().await;
        })
        .expect("the runtime starts");
    });
    let done = std::process::Command::new("umount").arg("-l").arg(&small).status().expect("umount runs");
    assert!(done.success());
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn a_newer_schema_is_refused(ground: Ground) {
    run(async { ground.open().await.close().await }).expect("the runtime starts");
    match ground.database {
        Database::Sqlite => {
            let other = rusqlite::Connection::open(file(&ground)).expect("open");
            other.execute_batch("INSERT INTO schema_version VALUES (99, 'future', 'x')").expect("write");
        }
        Database::Postgres | Database::Bouncer => {
            let sql = "INSERT INTO telecine.schema_version (version, name, checksum, applied_at) \
                       VALUES (99, 'future', 'x', now())";
            ground.psql(sql);
        }
    }

    let error = refusal(&ground.url, &impatient());

    assert!(matches!(error, QueueError::Schema { .. }));
    says(&error, &["version 99", "run a newer telecine"]);
}

fn a_schema_that_is_behind_is_refused_if_asked(ground: Ground) {
    let careful = OpenOptions { migrate: false, ..impatient() };

    let error = refusal(&ground.url, &careful);
    says(&error, &["step(s), up to version", "run `telecine migrate`"]);

    run(async {
        let pending = pending_migrations(&ground.url).await.expect("look");
        assert_eq!(pending[..2], ["0001_queue", "0002_runs"]);
        says(&error, &[&format!("lacks {} step", pending.len())]);
        ground.open().await.close().await;
        assert!(pending_migrations(&ground.url).await.expect("look").is_empty());
        open_with(&ground.url, &careful).await.expect("it is up to date").close().await;
    })
    .expect("the runtime starts");
}

fn a_server_that_is_not_there_is_named() {
    let port = free_port();
    let url = format!("postgres://user:secret@127.0.0.1:{port}/db");

    let error = refusal(&url, &impatient());

    assert!(error.is_transient());
    says(&error, &[&format!("127.0.0.1:{port}"), "is the server running"]);
    assert!(!error.to_string().contains("secret"));
}

fn a_server_without_fsync_is_refused() {
    let server = PostgresServer::start_with(&["fsync=off"]);

    let error = refusal(&server.new_database(), &impatient());
    server.stop();

    assert!(matches!(error, QueueError::Unsuitable { .. }));
    says(&error, &["fsync"]);
}

fn a_read_only_server_is_refused(ground: &Ground) {
    let name = ground.database_name();
    ground.psql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));

    let error = refusal(&ground.url, &impatient());

    assert!(matches!(error, QueueError::Unsuitable { .. }), "{error:?}");
    says(&error, &["read-only"]);
}
