//! `make bench`: what the queue does in a second, beside what its databases can do at most.
//!
//! Every figure has its limit measured in the same run: the same durable row changes, issued directly on the same
//! tables, batched the same way. Rounds go through all figures before the next begins, ours and the limit in turn, so
//! that a machine which slows down slows both; medians are told. Durability is on throughout.
//!
//! ```text
//! cargo bench -p telecine-queue --bench queue                      # everything, up to 3 rounds, about 5 minutes
//! cargo bench -p telecine-queue --bench queue -- --quick drain     # one round of what has `drain` in its name
//! cargo bench -p telecine-queue --bench queue -- sqlite pickup     # one database, one subject
//! ```

mod child;
mod figure;
mod ground;
mod limit;
mod ours;
mod peer;
mod pickup;
#[path = "../../tests/it/postgres_server.rs"]
#[allow(dead_code, reason = "the tests do more with their server")]
mod postgres_server;

use std::process::ExitCode;
use std::sync::Arc;

use figure::{Figure, Name, Samples};
use ground::{Database, Ground};
use limit::Limit;
use postgres_server::PostgresServer;

/// As in the `telecine` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// More than one figure of 20,000 jobs says, fewer than one waits for.
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    if let Some(code) = child::main_if_child() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` only wants to know that it links.
    if !arguments.iter().any(|argument| argument == "--bench") || arguments.iter().any(|it| it == "--test") {
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure_all(&Wanted::of(&arguments)));
    ExitCode::SUCCESS
}

/// What the command line asks for.
struct Wanted {
    filters: Vec<String>,
    rounds: usize,
}

impl Wanted {
    fn of(arguments: &[String]) -> Self {
        let quick = arguments.iter().any(|argument| argument == "--quick");
        let filters = arguments.iter().filter(|argument| !argument.starts_with("--")).cloned().collect();
        Self { filters, rounds: if quick { 1 } else { ROUNDS } }
    }

    /// Every word must fit: the name of a database exactly, others as a part of the figure's name.
    fn includes(&self, database: Database, name: Name) -> bool {
        self.filters.iter().all(|filter| match Database::named(filter) {
            Some(only) => only == database,
            None => name.as_str().contains(filter.as_str()),
        })
    }

    fn names(&self, database: Database) -> Vec<Name> {
        let mut names: Vec<Name> =
            Name::ALL.into_iter().filter(|name| self.includes(database, *name)).collect();
        if names.contains(&Name::PickupP50) {
            names.retain(|name| *name != Name::PickupP99);
        }
        names
    }
}

async fn measure_all(wanted: &Wanted) {
    let mut figures = Vec::new();
    for database in Database::ALL {
        let names = wanted.names(database);
        if names.is_empty() {
            continue;
        }
        figures.extend(measure(database, &names, wanted.rounds).await);
    }
    figure::print_table(&figures);
    figure::write_json(&figures);
}

async fn measure(database: Database, names: &[Name], rounds: usize) -> Vec<Figure> {
    // A checkpoint in the middle would hit whoever is being measured.
    let server = (database == Database::Postgres)
        .then(|| PostgresServer::start_with(&["max_wal_size=8GB", "checkpoint_timeout=1h"]));
    let bench = Bench { database, server, deep: tokio::sync::OnceCell::new() };
    let mut samples = Samples::default();
    for round in 0..rounds {
        for name in names.iter().filter(|name| round < name.rounds()) {
            eprintln!("{} {name} {}/{}", database.name(), round + 1, rounds.min(name.rounds()));
            bench.sample(*name, &mut samples).await;
        }
    }
    samples.figures(database)
}

/// One database server and what is kept on it between rounds.
struct Bench {
    database: Database,
    server: Option<PostgresServer>,
    /// The database with 1,000,000 scheduled rows, which take long to make.
    deep: tokio::sync::OnceCell<Ground>,
}

impl Bench {
    fn ground(&self) -> Ground {
        Ground::new(self.database, self.server.as_ref())
    }

    /// A migrated database and the direct way into it.
    async fn raw(&self) -> (Ground, Arc<dyn Limit>) {
        let ground = self.ground();
        ground.open().await.close().await;
        let limit = ground.limit();
        (ground, limit)
    }

    async fn sample(&self, name: Name, samples: &mut Samples) {
        match name {
            Name::PushOne => {
                samples.ours(name, ours::push_one(&self.ground()).await);
                samples.limit(name, self.raw().await.1.push_one().await);
            }
            Name::PushBulk => {
                samples.ours(name, ours::push_bulk(&self.ground()).await);
                samples.limit(name, self.raw().await.1.push_bulk().await);
            }
            Name::Drain20k => {
                self.sample_drain(name, 20_000, samples).await;
                if let Some(jobs_per_s) = self.peer() {
                    samples.peer(name, jobs_per_s);
                }
            }
            Name::Drain200k => self.sample_drain(name, 200_000, samples).await,
            Name::DrainDeep => self.sample_deep(samples).await,
            Name::DrainPinned => self.sample_pinned(samples).await,
            // One measurement gives both.
            Name::PickupP50 | Name::PickupP99 => {
                samples.ours_latency(pickup::ours(&self.ground()).await);
                let (ground, limit) = self.raw().await;
                samples.limit_latency(pickup::limit(&ground, &*limit).await);
            }
            Name::IdleCpu | Name::IdleMemory => {
                let idle = ours::idle(&self.ground(), name == Name::IdleCpu).await;
                samples.ours(name, if name == Name::IdleCpu { idle.cpu_percent } else { idle.memory_mb });
                samples.limit(name, if name == Name::IdleCpu { 1.0 } else { 40.0 });
            }
        }
    }

    async fn sample_drain(&self, name: Name, jobs: u64, samples: &mut Samples) {
        samples.ours(name, ours::drain(&self.ground(), jobs).await);
        let (_ground, limit) = self.raw().await;
        samples.limit(name, limit.drain(jobs).await);
    }

    async fn sample_deep(&self, samples: &mut Samples) {
        let ground = self.deep.get_or_init(|| async {
            eprintln!("  storing 1,000,000 scheduled rows");
            let (ground, limit) = self.raw().await;
            limit.schedule(1_000_000).await;
            ground
        });
        let ground = ground.await;
        samples.ours(Name::DrainDeep, ours::drain(ground, 20_000).await);
        samples.limit(Name::DrainDeep, ground.limit().drain(20_000).await);
    }

    async fn sample_pinned(&self, samples: &mut Samples) {
        let (ground, limit) = self.raw().await;
        let pin = limit.pin().await;
        samples.ours(Name::DrainPinned, ours::drain(&ground, 20_000).await);
        drop(pin);
        let (_ground, limit) = self.raw().await;
        let pin = limit.pin().await;
        samples.limit(Name::DrainPinned, limit.drain(20_000).await);
        drop(pin);
    }

    fn peer(&self) -> Option<f64> {
        let server = self.server.as_ref()?;
        peer::drain(&server.new_database())
    }
}
