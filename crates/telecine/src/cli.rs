//! The command line, defined once: parser, help and completions come from here.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::Value;
use telecine_queue::{JobId, JobState, Missed, RunId, RunState, Timestamp, WorkerId};
use telecine_server::Scope;

use crate::config::{Key, Layer};
use crate::human;

/// Durable media jobs: nothing that was accepted is ever lost.
#[derive(Debug, Parser)]
#[command(name = "telecine", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Debug)]
pub(crate) struct Global {
    /// Configuration file [default: telecine.toml, if it is there; env: TELECINE_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// sqlite:FILE or postgres://USER@HOST/DATABASE [env: TELECINE_DATABASE]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) database: Option<String>,
    /// A folder or s3://BUCKET/PREFIX for inputs and outputs [env: TELECINE_STORE]
    #[arg(long, global = true, value_name = "STORE", help_heading = "Global options")]
    pub(crate) store: Option<String>,
    /// pretty or json, a filter such as info,telecine_queue=debug, or both [env: TELECINE_LOG]
    #[arg(long, global = true, value_name = "LOG", help_heading = "Global options")]
    pub(crate) log: Option<String>,
    /// Let ffmpeg, ffprobe and vips do whatever this user may, hostile files included [env: TELECINE_SANDBOX=off]
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) no_sandbox: bool,
    /// Print one JSON document instead of text
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Process files here and now; the same command again goes on where it stopped
    #[command(after_help = EXIT_CODES_OF_RUN)]
    Run(Box<RunFlags>),
    /// Process files as they appear in a folder, until asked to stop
    Watch(Box<WatchFlags>),
    /// API and worker in one process, on SQLite unless told; SIGTERM or Ctrl-C finishes what is running first
    Up(UpFlags),
    /// The API alone, for workers elsewhere on the same database
    Serve(ServeFlags),
    /// Run jobs until asked to stop; SIGTERM or Ctrl-C finishes what is running first
    Worker(WorkerFlags),
    /// Take requests in from Kafka and tell results to it, for workers elsewhere on the same database; needs [kafka]
    Kafka(KafkaFlags),
    /// Make, list and revoke keys of the API
    #[command(subcommand)]
    Key(KeyCommand),
    /// Print the description of the API (OpenAPI 3.1, JSON)
    Openapi,
    /// Hand an input to the workers on the database; prints the run's id
    Submit(Box<SubmitFlags>),
    /// Look at and steer runs
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Push, look at and steer jobs
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Look at and steer workers
    #[command(subcommand)]
    Workers(WorkersCommand),
    /// Bound how many jobs of a key run at once or start in a minute, over all workers
    #[command(subcommand)]
    Limits(LimitsCommand),
    /// Set tenants' shares, and how many jobs of a tenant run at once, over all workers
    #[command(subcommand)]
    Tenants(TenantsCommand),
    /// Pause and resume lanes
    #[command(subcommand)]
    Lanes(PauseCommand),
    /// Pause and resume kinds
    #[command(subcommand)]
    Kinds(PauseCommand),
    /// Look at and change what is pushed again and again
    #[command(subcommand)]
    Schedules(SchedulesCommand),
    /// How many jobs there are, by lane, kind and state
    Counts,
    /// Bring the database's schema up to date
    Migrate {
        /// Change nothing; list what is missing and exit 1 if anything is
        #[arg(long)]
        check: bool,
    },
    /// Copy a SQLite database into a new file while others work on it (Postgres has pg_dump)
    Backup {
        #[arg(value_name = "FILE")]
        into: PathBuf,
    },
    /// Compare what the database tells of with what the store has; changes nothing unless told to
    #[command(after_help = EXIT_CODES_OF_RECONCILE)]
    Reconcile(ReconcileFlags),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure how fast the queue is on this database; its jobs are forgotten at the end
    Bench {
        /// Jobs of each measurement
        #[arg(long, value_name = "N", default_value_t = 5_000)]
        jobs: u64,
    },
    /// See the queue at work: ten jobs through three slots, then a worker killed half-way and nothing lost
    Demo,
    /// Say what is in a media file: its type by content, its streams, and whether the limits allow it
    Probe { file: PathBuf },
    /// Check what this machine offers: programs, codecs, kernel, sandbox, space, database; exit 1 if anything fails
    Doctor,
    /// Say what would be done with a media file, and why; nothing is decoded or written
    Plan {
        file: PathBuf,
        #[command(flatten)]
        recipe: RecipeFlags,
    },
    /// Look at and check recipes
    #[command(subcommand)]
    Recipes(RecipesCommand),
    /// Print a completion script for a shell
    Completions { shell: Shell },
}

/// What to make of files, and where to put it.
#[derive(Args, Debug)]
pub(crate) struct WorkFlags {
    /// A built-in recipe (web-video, mp4, vertical, audio, image, thumbnail) or a TOML file
    #[arg(long, value_name = "RECIPE", default_value = "web-video")]
    pub(crate) recipe: String,
    /// The folder for results: OUT/NAME OF THE FILE/STEP/…; database, store and scratch are in OUT/.telecine
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Another value for a key of a step, such as hls.segment_seconds=2; may be repeated
    #[arg(long, value_name = "STEP.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Slots per lane, such as cpu=2,io=4 [default: cpu=CORES,io=4,net=8,scan=4; env: TELECINE_SLOTS]
    #[arg(long, value_name = "LANE=N,…")]
    slots: Option<String>,
    /// Say nothing but what went wrong
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

const EXIT_CODES_OF_RUN: &str = "\
Exit codes: 0 all succeeded, 3 something optional is missing (see the warnings), 1 something failed, 130 stopped by
Ctrl-C or SIGTERM, 2 an error: nothing was started, or this program could not go on.";

const EXIT_CODES_OF_RECONCILE: &str = "\
Finds outputs of runs that are missing or not what they were, blobs that no run owns, entries of the cache that name
nobody, and puts that never ended. --mend starts steps over and removes what is nobody's; runs that are not over are left
alone, and so is what was stored lately.

Exit codes: 0 nothing is left to be seen to, 1 something is (without --mend: something was found; with it: something
cannot be mended), 130 stopped, 2 an error.";

#[derive(Args, Debug)]
pub(crate) struct ReconcileFlags {
    /// Mend what was found, instead of telling of it only
    #[arg(long)]
    pub(crate) mend: bool,
    /// Read every output from end to end and compare its hash
    #[arg(long)]
    pub(crate) deep: bool,
    /// This is the only database that uses the store, after a restore or with a copy that is gone for good
    #[arg(long)]
    pub(crate) claim_store: bool,
    /// What was stored, or first found to be unknown, less than this long ago is not removed
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = human::parse_duration)]
    pub(crate) older_than: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct RunFlags {
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) work: WorkFlags,
    /// Publish the outputs of one file under this prefix of keys, such as u42/{media}/m7
    #[arg(long, value_name = "PREFIX", value_parser = publish_prefix)]
    pub(crate) publish_to: Option<String>,
    /// Make everything anew, though it was made before
    #[arg(long)]
    pub(crate) fresh: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WatchFlags {
    /// The folder to watch
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) work: WorkFlags,
    /// Look into its folders too
    #[arg(long)]
    pub(crate) nested: bool,
    /// A file is complete when its size and time have not changed for this long
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = human::parse_duration)]
    pub(crate) settle: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct WorkerFlags {
    /// Slots per lane, such as cpu=2,net=8 [default: cpu=CORES,io=4,net=8,scan=4; env: TELECINE_SLOTS]
    #[arg(long, value_name = "LANE=N,…", conflicts_with = "concurrency")]
    slots: Option<String>,
    /// So many slots in every lane [env: TELECINE_CONCURRENCY]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Run only these kinds [env: TELECINE_KINDS]
    #[arg(long, value_name = "KIND,…")]
    kinds: Option<String>,
    /// What to call this worker in lists [env: TELECINE_NAME]
    #[arg(long)]
    name: Option<String>,
    /// Drain when the process that started this one ends, however it ends
    #[arg(long, hide = true)]
    pub(crate) leave_with_parent: bool,
}

#[derive(Args, Debug)]
pub(crate) struct KafkaFlags {
    /// Forget the results that wait for Kafka and keep no more of them: for when it is not used any longer
    #[arg(long)]
    pub(crate) leave: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ServeFlags {
    /// Where to listen [default: 127.0.0.1:8700; env: TELECINE_LISTEN]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct UpFlags {
    #[command(flatten)]
    serve: ServeFlags,
    #[command(flatten)]
    pub(crate) worker: WorkerFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key; it is printed once and never again
    New(KeyNew),
    /// List keys, without their secrets
    Ls,
    /// Let nobody in by a key any more
    Revoke {
        /// The part between `tk_` and the next `_`; see `telecine key ls`
        id: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct KeyNew {
    /// Whose runs it sees and makes; without one, those of no tenant
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// What it allows: read, write, work (claim jobs), admin (everything)
    #[arg(long, value_name = "SCOPE,…", value_delimiter = ',', default_value = "read,write")]
    pub(crate) scopes: Vec<Scope>,
    /// What to call it in lists
    #[arg(long)]
    pub(crate) name: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct SubmitFlags {
    /// A file in one of `input_folders`, an http address, or s3://BUCKET/KEY
    #[arg(value_name = "INPUT")]
    pub(crate) input: String,
    /// A recipe by name or a TOML file; see `telecine recipes ls`
    #[arg(long, value_name = "RECIPE", default_value = "web-video")]
    pub(crate) recipe: String,
    /// Another value for a key of a step, such as hls.segment_seconds=2; may be repeated
    #[arg(long, value_name = "STEP.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// 0 to 100, higher first
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) priority: Option<u8>,
    /// Your own id for it
    #[arg(long, value_name = "ID")]
    pub(crate) external_id: Option<String>,
    /// For whom; see `telecine tenants`
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Submitting again with this key and the same content returns the first run
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Not before this long from now, such as 90s, 10m or 1h30m
    #[arg(long = "in", value_name = "DURATION", value_parser = human::parse_duration, conflicts_with = "at")]
    pub(crate) delay: Option<Duration>,
    /// Not before this instant, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "RFC3339")]
    pub(crate) at: Option<Timestamp>,
    /// Given back with the run as it is
    #[arg(long, value_name = "JSON", value_parser = json)]
    pub(crate) metadata: Option<Value>,
    /// Publish the outputs under this prefix of keys, such as u42/{media}/m7; see `publish` in the configuration
    #[arg(long, value_name = "PREFIX", value_parser = publish_prefix)]
    pub(crate) publish_to: Option<String>,
    /// Make everything anew, though the same was made before
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Stay and tell how it goes, until it ends
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, newest first
    Ls(RunsLs),
    /// One run: its steps, its outputs, what went wrong, and what to do next
    Show { id: RunId },
    /// Tell how a run goes, until it ends; exit 0 succeeded, 3 partial, 1 failed or cancelled
    Watch { id: RunId },
    /// End runs that are not finished yet
    Cancel {
        #[arg(required = true)]
        ids: Vec<RunId>,
    },
    /// Start over what did not complete, or steps by name with all that needs them
    Retry {
        id: RunId,
        /// Only this step, such as hls or hls.audio; may be repeated
        #[arg(long = "step", value_name = "STEP")]
        steps: Vec<String>,
    },
    /// Forget runs that have ended, and remove their outputs
    Rm {
        #[arg(required = true)]
        ids: Vec<RunId>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct RunsLs {
    /// Only these states; may be repeated
    #[arg(long = "status", value_name = "STATUS", value_delimiter = ',')]
    pub(crate) states: Vec<RunState>,
    #[arg(long)]
    pub(crate) recipe: Option<String>,
    #[arg(long, value_name = "ID")]
    pub(crate) external_id: Option<String>,
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Go on where the last list ended
    #[arg(long, value_name = "RUN")]
    pub(crate) cursor: Option<RunId>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs, newest first
    Ls(JobsLs),
    /// One job, its attempts, and what to do next
    Show { id: JobId },
    /// Start finished jobs over, with fresh attempts
    Retry(Chosen),
    /// End jobs that are not finished yet
    Cancel(Chosen),
    /// Push one job, or the same one several times; prints the ids
    Push(Box<JobsPush>),
    /// Forget jobs that are not running
    Delete {
        #[arg(required = true)]
        ids: Vec<JobId>,
    },
    /// Forget all jobs of some states
    Clear(JobsClear),
}

#[derive(Args, Debug)]
pub(crate) struct JobsLs {
    /// Only these states; may be repeated
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',')]
    pub(crate) states: Vec<JobState>,
    #[arg(long)]
    pub(crate) kind: Option<String>,
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Go on where the last list ended
    #[arg(long, value_name = "ID")]
    pub(crate) cursor: Option<JobId>,
}

/// Jobs by id, or all that match.
#[derive(Args, Debug)]
pub(crate) struct Chosen {
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<JobId>,
    /// Every job that the filters let through, instead of ids
    #[arg(long)]
    pub(crate) all: bool,
    /// Only these states; may be repeated
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',', conflicts_with = "ids")]
    pub(crate) states: Vec<JobState>,
    #[arg(long, conflicts_with = "ids")]
    pub(crate) kind: Option<String>,
    #[arg(long, conflicts_with = "ids")]
    pub(crate) lane: Option<String>,
    #[arg(long, conflicts_with = "ids")]
    pub(crate) tenant: Option<String>,
}

/// What kind of job, and how it is to run.
#[derive(Args, Debug)]
pub(crate) struct JobFlags {
    pub(crate) kind: String,
    /// What the kind works on
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json)]
    pub(crate) payload: Value,
    /// 0 to 100, higher first
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) priority: Option<u8>,
    /// Another lane than the kind's own, or than `remote` for a kind that another program runs
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// For whom; see `telecine tenants`
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Counts against the limit of this key; see `telecine limits`
    #[arg(long, value_name = "KEY")]
    pub(crate) limit_key: Option<String>,
    /// Failures after which the job is failed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_attempts: Option<u16>,
    /// Push even if this program does not know the kind
    #[arg(long)]
    pub(crate) any_kind: bool,
}

#[derive(Args, Debug)]
pub(crate) struct JobsPush {
    #[command(flatten)]
    pub(crate) job: JobFlags,
    /// Not before this long from now, such as 90s, 10m or 1h30m
    #[arg(long = "in", value_name = "DURATION", value_parser = human::parse_duration, conflicts_with = "at")]
    pub(crate) delay: Option<Duration>,
    /// Not before this instant, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "RFC3339")]
    pub(crate) at: Option<Timestamp>,
    /// Pushing again with this key and the same content returns the first job
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// While a job of this kind with this key is live or completed, return that one
    #[arg(long, value_name = "KEY", conflicts_with = "count")]
    pub(crate) unique_key: Option<String>,
    /// How many of the same job
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
}

#[derive(Args, Debug)]
pub(crate) struct JobsClear {
    /// Jobs in these states; may be repeated
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',', required = true)]
    pub(crate) states: Vec<JobState>,
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Really do it
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkersCommand {
    /// List workers
    Ls,
    /// Ask a worker to finish what it has, take nothing new and leave
    Drain {
        #[arg(value_parser = worker_id)]
        id: WorkerId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitsCommand {
    /// List limits, and how their jobs stand
    Ls,
    /// Set or change a limit; running jobs go on
    #[command(group = clap::ArgGroup::new("bound").required(true).multiple(true))]
    Set {
        key: String,
        /// At most this many run at once; 0 lets none run
        #[arg(long, value_name = "N", group = "bound")]
        max_running: Option<u32>,
        /// At most this many start in a minute
        #[arg(long, value_name = "M", group = "bound")]
        per_minute: Option<f64>,
    },
    /// Take a limit away; what it held back is ready at once
    Rm { key: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantsCommand {
    /// List tenants with a share or a cap of their own, and how their jobs stand
    Ls,
    /// Set or change a tenant's share or cap, and leave the rest as it is; running jobs go on
    #[command(group = clap::ArgGroup::new("policy").required(true).multiple(true))]
    Set {
        name: String,
        /// How fast its backlog is served, compared with the 1 of others; for what it pushes from now on
        #[arg(long, value_name = "W", group = "policy")]
        weight: Option<f64>,
        /// At most this many of its jobs run at once; 0 lets none run
        #[arg(long, value_name = "N", group = "policy")]
        max_running: Option<u32>,
        /// Take its cap away; what it held back is ready at once
        #[arg(long, group = "policy", conflicts_with = "max_running")]
        no_max_running: bool,
    },
    /// Forget a tenant's share and cap
    Rm { name: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PauseCommand {
    /// List those that are paused
    Ls,
    /// Let nobody claim more of it; what runs goes on
    Pause { name: String },
    /// Let workers claim of it again
    Resume { name: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SchedulesCommand {
    /// List schedules
    Ls,
    /// Push a job at the times of a cron expression; replaces the schedule of the same name
    Add(Box<SchedulesAdd>),
    /// Remove a schedule; what it pushed stays
    Rm { name: String },
}

#[derive(Args, Debug)]
pub(crate) struct SchedulesAdd {
    pub(crate) name: String,
    /// Five fields, or six with seconds first, in UTC, such as '*/5 * * * *'
    pub(crate) cron: String,
    #[command(flatten)]
    pub(crate) job: JobFlags,
    /// Times at which no worker ran: skip them, make up for them once, or for the last N (all:N)
    #[arg(long, value_name = "POLICY", default_value_t = Missed::Skip)]
    pub(crate) missed: Missed,
}

/// Which recipe, and what of it is to be otherwise.
#[derive(Args, Debug)]
pub(crate) struct RecipeFlags {
    /// The name of a recipe (see `telecine recipes ls`) or a TOML file
    #[arg(long, value_name = "RECIPE", default_value = "web-video")]
    pub(crate) recipe: String,
    /// Another value for a step, such as hls.ladder.heights=[720] or mp4.enabled=true; may be repeated
    #[arg(long = "set", value_name = "STEP.KEY=VALUE")]
    pub(crate) settings: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecipesCommand {
    /// List recipes, their steps and where they come from
    Ls,
    /// One recipe with all of its values, as TOML that can be saved and changed
    Show {
        /// Its name, or a TOML file
        name: String,
        /// Another value for a step; may be repeated
        #[arg(long = "set", value_name = "STEP.KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Say everything that is wrong with recipes; exit 1 if anything is
    Check {
        /// TOML files; without any, those in the folder of your own recipes
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Each value and where it was set; passwords are masked
    Show,
}

impl Cli {
    /// What the flags say about the configuration.
    pub(crate) fn layer(&self) -> Layer {
        let mut layer = Layer::default();
        layer.flag(Key::Database, "--database", self.global.database.as_ref());
        layer.flag(Key::Store, "--store", self.global.store.as_ref());
        layer.flag(Key::Log, "--log", self.global.log.as_ref());
        layer.flag(Key::Sandbox, "--no-sandbox", self.global.no_sandbox.then_some("off"));
        match &self.command {
            Command::Run(flags) => layer.flag(Key::Slots, "--slots", flags.work.slots.as_ref()),
            Command::Watch(flags) => layer.flag(Key::Slots, "--slots", flags.work.slots.as_ref()),
            Command::Serve(flags) => flags.fill(&mut layer),
            Command::Up(flags) => {
                flags.serve.fill(&mut layer);
                flags.worker.fill(&mut layer);
            }
            Command::Worker(flags) => flags.fill(&mut layer),
            _ => {}
        }
        layer
    }
}

impl ServeFlags {
    fn fill(&self, layer: &mut Layer) {
        layer.flag(Key::Listen, "--listen", self.listen.as_ref());
    }
}

impl WorkerFlags {
    fn fill(&self, layer: &mut Layer) {
        layer.flag(Key::Slots, "--slots", self.slots.as_ref());
        layer.flag(Key::Concurrency, "--concurrency", self.concurrency);
        layer.flag(Key::Kinds, "--kinds", self.kinds.as_ref());
        layer.flag(Key::Name, "--name", self.name.as_ref());
    }
}

fn publish_prefix(text: &str) -> Result<String, &'static str> {
    telecine_pipeline::prefix_fault(text).map_or_else(|| Ok(text.to_owned()), Err)
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

fn worker_id(text: &str) -> Result<WorkerId, String> {
    text.parse().map(WorkerId).map_err(|_| "a worker's id is a number; see `telecine workers ls`".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn slots_and_concurrency_conflict() {
        let error = Cli::try_parse_from(["telecine", "worker", "--slots", "cpu=1", "--concurrency", "2"])
            .expect_err("they say the same thing in two ways");

        assert_eq!(error.exit_code(), 2);
    }
}
