//! Configuration: defaults < `telecine.toml` < `TELECINE_*` < flags.
//!
//! Each layer is first read as what was typed, key by key with its origin ([`Layer`]); only the winner of each key is
//! given a meaning ([`Config`]). Loading reads the file and the environment and changes nothing.

mod environment;
mod file;
mod intake;
mod kafka;
mod key;
mod meaning;
mod scanning;
mod serving;
mod webhooks;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use telecine_connect::KafkaOptions;
use telecine_connect::webhooks::ConfiguredEndpoint;
use telecine_pipeline::{Scanning, did_you_mean};
use telecine_queue::Slots;

pub(crate) use intake::Intake;
pub(crate) use kafka::{PASSWORD as KAFKA_PASSWORD, without_values};
pub(crate) use key::Key;
pub(crate) use meaning::mask_password;
pub(crate) use serving::Serving;
pub(crate) use webhooks::without_secrets;

/// The file that is read when none is named.
pub(crate) const FILE: &str = "telecine.toml";

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { path: PathBuf, line: usize, column: usize },
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A value as it was typed, and where.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Typed {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// Without the text, which may be a secret.
impl fmt::Debug for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// What one source says. Every key is optional.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer(BTreeMap<Key, Typed>);

impl Layer {
    pub(crate) fn set(&mut self, key: Key, text: impl Into<String>, origin: Origin) {
        self.0.insert(key, Typed { text: text.into(), origin });
    }

    /// Takes the value of a flag, if it was given.
    pub(crate) fn flag(&mut self, key: Key, flag: &'static str, text: Option<impl ToString>) {
        if let Some(text) = text {
            self.set(key, text.to_string(), Origin::Flag(flag));
        }
    }

    fn defaults() -> Self {
        let mut layer = Self::default();
        for key in Key::ALL {
            if let Some(text) = key.default_text() {
                layer.set(key, text, Origin::Default);
            }
        }
        layer
    }

    /// Lays `over` on top. Of two ways to say one thing the later one replaces the other.
    fn cover(&mut self, over: Self) -> Result<()> {
        for (one, another, what) in EITHER {
            match (over.0.get(&one), over.0.get(&another)) {
                (Some(first), Some(second)) => bail!(
                    "{} ({}) and {} ({}) are both set, and both say {what}\n\
                     next: keep one of them",
                    one.name(),
                    first.origin,
                    another.name(),
                    second.origin
                ),
                (Some(_), None) => drop(self.0.remove(&another)),
                (None, Some(_)) => drop(self.0.remove(&one)),
                (None, None) => {}
            }
        }
        self.0.extend(over.0);
        Ok(())
    }
}

/// Two ways to say one thing, and which.
const EITHER: [(Key, Key, &str); 2] = [
    (Key::Slots, Key::Concurrency, "how many jobs run at once"),
    (Key::KafkaPassword, Key::KafkaPasswordFile, "what the password of Kafka is"),
];

/// Configuration that holds together.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) database: String,
    /// A folder or `s3://BUCKET/PREFIX`.
    pub(crate) store: String,
    /// Where outputs go whose callers chose their keys; `None` is a part of the store.
    pub(crate) publish: Option<String>,
    pub(crate) scratch: PathBuf,
    /// Folders whose files may be named as inputs.
    pub(crate) input_folders: Vec<PathBuf>,
    /// Where else inputs may come from, and how large they may be.
    pub(crate) intake: Intake,
    /// What inputs are scanned with, and how strictly.
    pub(crate) scanning: Scanning,
    /// How long infected inputs are kept.
    pub(crate) keep_quarantine: Duration,
    pub(crate) slots: Slots,
    /// `None` means every kind this program knows.
    pub(crate) kinds: Option<Vec<String>>,
    pub(crate) name: Option<String>,
    pub(crate) lease: Duration,
    pub(crate) beat_every: Duration,
    pub(crate) sweep_every: Duration,
    pub(crate) poll_every: Duration,
    pub(crate) drain_within: Duration,
    pub(crate) keep_history: Duration,
    /// `None`: until somebody deletes them.
    pub(crate) keep_runs: Option<Duration>,
    /// Whether programs that read media are confined.
    pub(crate) sandbox: bool,
    /// Of each program that reads media.
    pub(crate) tool_memory_bytes: u64,
    /// The folder of the user's own recipes.
    pub(crate) recipes: Option<PathBuf>,
    pub(crate) serving: Serving,
    /// Where a worker without an API shows its health and its figures.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// The collector that traces are sent to.
    pub(crate) otlp_endpoint: Option<String>,
    /// Who is told of runs; `None` where the configuration says nothing about it.
    pub(crate) webhooks: Option<Vec<ConfiguredEndpoint>>,
    /// Where requests come from and results go, if anywhere.
    pub(crate) kafka: Option<KafkaOptions>,
    /// Where the password for it is, if it is in a file.
    pub(crate) kafka_password_file: Option<PathBuf>,
    pub(crate) log: Log,
    typed: Layer,
}

/// How and what to log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) json: bool,
    /// A filter such as `info,telecine_queue=debug`. `None` leaves it to `RUST_LOG`.
    pub(crate) filter: Option<String>,
}

/// Where each value comes from, and not what it is: databases, webhooks and brokers have passwords.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("typed", &self.typed).finish_non_exhaustive()
    }
}

impl Config {
    /// What was typed for a key, and where. `None` when nothing was and there is no default.
    pub(crate) fn typed(&self, key: Key) -> Option<&Typed> {
        self.typed.0.get(&key)
    }

    /// Whether somebody chose this for this one command: by a flag or a variable, not by a file that happens to lie here.
    pub(crate) fn is_chosen(&self, key: Key) -> bool {
        self.typed(key).is_some_and(|typed| matches!(typed.origin, Origin::Variable(_) | Origin::Flag(_)))
    }

    /// The same with a database, a store and scratch space in one folder, but for those that were chosen for this command.
    /// Whoever chose a database means the store that belongs to it, too.
    pub(crate) fn embedded_in(&self, folder: &Path) -> Result<Self> {
        let mut typed = self.typed.clone();
        let mut put = |key, is_wanted: bool, text: PathBuf, prefix: &str| -> Result<()> {
            let Some(text) = text.to_str() else { bail!("{} is no valid UTF-8", text.display()) };
            if is_wanted {
                typed.set(key, format!("{prefix}{text}"), Origin::Default);
            }
            Ok(())
        };
        let is_own = !self.is_chosen(Key::Database);
        put(Key::Database, is_own, folder.join("queue.db"), "sqlite:")?;
        put(Key::Store, is_own && !self.is_chosen(Key::Store), folder.join("store"), "")?;
        let has_no_scratch = self.typed(Key::Scratch).is_some_and(|typed| typed.origin == Origin::Default);
        put(Key::Scratch, has_no_scratch, folder.join("scratch"), "")?;
        meaning::of(typed)
    }

    /// A value and where it was set: for messages.
    pub(crate) fn shown(&self, key: Key) -> String {
        self.typed(key).map_or_else(String::new, |typed| format!("{} ({})", typed.text, typed.origin))
    }

    /// The database URL without its password, and where it was set: for messages.
    pub(crate) fn database_shown(&self) -> String {
        let origin = self.typed(Key::Database).map_or(Origin::Default, |typed| typed.origin.clone());
        format!("{} ({origin})", mask_password(&self.database))
    }
}

/// Reads every layer. `file` is the flag `--config`.
pub(crate) fn load(file: Option<&Path>, flags: Layer) -> Result<Config> {
    let variables = environment::read(std::env::vars_os())?;
    let named = file.map(Path::to_path_buf).or(variables.file);
    let mut typed = Layer::defaults();
    if let Some(layer) = file::read(named.as_deref())? {
        typed.cover(layer)?;
    }
    typed.cover(variables.layer)?;
    typed.cover(flags)?;
    meaning::of(typed)
}

fn unknown_key(name: &str) -> String {
    let known = Key::ALL.map(Key::name);
    format!("unknown key `{name}`{}", did_you_mean(name, &known))
}

#[cfg(test)]
mod tests {
    use telecine_pipeline::{ScanPolicy, UnscannedPolicy};

    use super::*;

    fn layers(file: &str, variables: &[(&str, &str)], flags: &[(Key, &'static str, &str)]) -> Result<Config> {
        let mut typed = Layer::defaults();
        typed.cover(file::parse(Path::new(FILE), file)?)?;
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        typed.cover(environment::read(variables)?.layer)?;
        let mut top = Layer::default();
        for (key, flag, text) in flags {
            top.flag(*key, flag, Some(text));
        }
        typed.cover(top)?;
        meaning::of(typed)
    }

    fn refusal(config: Result<Config>) -> String {
        config.expect_err("the configuration is not valid").to_string()
    }

    #[test]
    fn an_empty_configuration_is_valid() {
        let config = layers("", &[], &[]).expect("defaults are valid");

        assert_eq!(config.database, "sqlite:telecine.db");
        assert_eq!(config.store, "telecine-store");
        assert!(config.scratch.ends_with("telecine"), "{:?}", config.scratch);
        assert_eq!(config.input_folders, Vec::<PathBuf>::new());
        assert_eq!(config.lease, Duration::from_secs(30));
        assert_eq!(config.keep_runs, None);
        assert_eq!(config.intake, Intake::default(), "what the pipeline does by itself");
    }

    #[test]
    fn the_later_layer_wins_and_is_named_as_the_origin() {
        let config = layers(
            "# ours\ndatabase = \"sqlite:file.db\"\npoll_ms = 7\nsweep_ms = 8",
            &[("TELECINE_DATABASE", "sqlite:variable.db"), ("TELECINE_POLL_MS", "9")],
            &[(Key::Database, "--database", "sqlite:flag.db")],
        )
        .expect("valid");

        let origin = |key| config.typed(key).map(|typed| typed.origin.to_string());
        assert_eq!(config.database, "sqlite:flag.db");
        assert_eq!(origin(Key::Database).as_deref(), Some("--database"));
        assert_eq!(config.poll_every, Duration::from_millis(9));
        assert_eq!(origin(Key::PollMs).as_deref(), Some("TELECINE_POLL_MS"));
        assert_eq!(origin(Key::SweepMs).as_deref(), Some("telecine.toml:4:1"));
        assert_eq!(origin(Key::BeatMs).as_deref(), Some("default"));
    }

    #[test]
    fn slots_of_a_later_layer_replace_concurrency_of_an_earlier_one() {
        let config = layers("concurrency = 4", &[("TELECINE_SLOTS", "cpu=2,net=8")], &[]).expect("valid");

        let Slots::PerLane(lanes) = &config.slots else { panic!("{:?}", config.slots) };
        assert_eq!(lanes.get("net"), Some(&8));
        assert_eq!(config.typed(Key::Concurrency), None);
    }

    #[test]
    fn encoders_have_a_slot_for_each_core_unless_somebody_says_otherwise() {
        let lanes = |config: Config| match config.slots {
            Slots::PerLane(lanes) => lanes,
            Slots::Each(slots) => panic!("{slots} in each"),
        };
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);

        let by_default = lanes(layers("", &[], &[]).expect("valid"));

        let lanes = ["cpu", "io", "net", "scan"].map(|lane| by_default[lane]);
        assert_eq!(lanes, [cores, 4, 8, 4]);
        assert!(matches!(layers("concurrency = 5", &[], &[]).expect("valid").slots, Slots::Each(5)));
    }

    #[test]
    fn the_store_lies_beside_a_database_that_is_a_file() {
        for (database, store) in [
            ("sqlite:telecine.db", "telecine-store"),
            ("sqlite:/var/lib/media/queue.db", "/var/lib/media/telecine-store"),
            ("sqlite://data/queue.db", "data/telecine-store"),
            ("postgres://me@host/db", "telecine-store"),
        ] {
            let config = layers("", &[("TELECINE_DATABASE", database)], &[]).expect("valid");

            assert_eq!(config.store, store, "{database}");
            let uploads = config.serving.options.uploads.folder.clone().expect("a folder");
            assert_eq!(uploads, PathBuf::from(store.replace("telecine-store", "telecine-uploads")));
            assert_eq!(config.shown(Key::Store), format!("{store} (default)"));
        }
        let config = layers("store = \"s3://media/videos\"", &[], &[]).expect("valid");
        assert_eq!(config.store, "s3://media/videos");
    }

    #[test]
    fn what_is_embedded_gives_way_to_what_was_chosen() {
        let folder = Path::new("out/.telecine");
        let own = layers("database = \"sqlite:file.db\"\nstore = \"kept\"", &[], &[]).expect("valid");
        let chosen = layers("", &[("TELECINE_DATABASE", "sqlite:/data/chosen.db")], &[]).expect("valid");

        let own = own.embedded_in(folder).expect("valid");
        let chosen = chosen.embedded_in(folder).expect("valid");

        assert_eq!(
            (own.database.as_str(), own.store.as_str()),
            ("sqlite:out/.telecine/queue.db", "out/.telecine/store")
        );
        assert_eq!(
            (chosen.database.as_str(), chosen.store.as_str()),
            ("sqlite:/data/chosen.db", "/data/telecine-store")
        );
        assert_eq!(chosen.scratch, folder.join("scratch"));
    }

    #[test]
    fn folders_of_inputs_are_a_list_or_written_as_in_path() {
        let wanted = [PathBuf::from("/srv/in"), PathBuf::from("more, of it")];

        let by_file = layers("input_folders = [\"/srv/in\", \"more, of it\"]", &[], &[]).expect("valid");
        let by_variable =
            layers("", &[("TELECINE_INPUT_FOLDERS", "/srv/in:more, of it")], &[]).expect("valid");

        assert_eq!(by_file.input_folders, wanted);
        assert_eq!(by_variable.input_folders, wanted);
    }

    #[test]
    fn what_inputs_may_be_is_the_operators_to_say() {
        let config = layers(
            "input_buckets = [\"s3://films\", \"s3://more/of it\"]\nmax_video_size = \"1080x1920\"\nmax_duration_s = 90\n\
             allow_private_urls = true\nkeep_runs_days = 7\nmax_image_pixels = 200_000_000",
            &[("TELECINE_PULL_IDLE_MS", "1500"), ("TELECINE_MAX_INPUT_MB", "3")],
            &[],
        )
        .expect("valid");

        let Intake { buckets, limits, allow_private_urls, patience } = &config.intake;
        assert_eq!(*buckets, ["s3://films", "s3://more/of it"]);
        assert_eq!((limits.video_long_side, limits.video_short_side), (1920, 1080));
        assert_eq!((limits.duration, limits.file_bytes), (Duration::from_secs(90), 3 << 20));
        assert_eq!((limits.image_pixels, *allow_private_urls), (200_000_000, true));
        assert_eq!(patience.idle, Duration::from_millis(1_500));
        assert_eq!(config.keep_runs, Some(Duration::from_secs(7 * 24 * 60 * 60)));
    }

    #[test]
    fn who_has_a_scanner_wants_every_input_scanned() {
        let scanning = |file: &str| layers(file, &[], &[]).expect("valid").scanning;

        let (none, some) = (scanning(""), scanning("clamd = \"unix:/run/clamav/clamd.ctl\""));
        let loose = scanning(
            "clamd = \"tcp:clamd:3310\"\nscan = \"optional\"\nunscanned = \"allow\"\nclamd_max_mb = 25",
        );

        assert_eq!((none.clamd, none.scan), (None, ScanPolicy::Off));
        assert_eq!((some.scan, some.unscanned), (ScanPolicy::Required, UnscannedPolicy::Refuse));
        assert_eq!((loose.scan, loose.unscanned), (ScanPolicy::Optional, UnscannedPolicy::Allow));
        let clamd = loose.clamd.expect("configured");
        assert_eq!((clamd.address.to_string().as_str(), clamd.max_bytes), ("tcp:clamd:3310", 25 << 20));
        assert_eq!(Some(clamd.within), some.clamd.map(|clamd| clamd.within));
    }

    #[test]
    fn slots_and_concurrency_in_one_place_are_refused() {
        let refusal = refusal(layers("concurrency = 4\nslots = { cpu = 2 }", &[], &[]));

        assert!(refusal.contains("telecine.toml:2:1") && refusal.contains("telecine.toml:1:1"), "{refusal}");
    }

    #[test]
    fn an_unknown_key_of_the_file_names_its_place_and_the_nearest_key() {
        let refusal = refusal(layers("poll_ms = 5\n  leese_ms = 5", &[], &[]));

        assert!(refusal.contains("telecine.toml:2:3"), "{refusal}");
        assert!(refusal.contains("did you mean `lease_ms`?"), "{refusal}");
    }

    #[test]
    fn a_file_that_is_not_toml_names_the_place() {
        let refusal = refusal(layers("poll_ms = 5\nlease_ms = = 3", &[], &[]));

        assert!(refusal.contains("telecine.toml:2:"), "{refusal}");
    }

    #[test]
    fn an_unknown_variable_names_the_nearest_one() {
        let refusal = refusal(layers("", &[("TELECINE_DATABSE", "sqlite:x")], &[]));

        assert!(refusal.contains("TELECINE_DATABSE"), "{refusal}");
        assert!(refusal.contains("did you mean `TELECINE_DATABASE`?"), "{refusal}");
    }

    #[test]
    fn a_value_that_means_nothing_names_its_origin() {
        for (file, expected) in [
            ("lease_ms = \"soon\"", "telecine.toml:1:1"),
            ("lease_ms = -1", "lease_ms"),
            ("concurrency = 0", "concurrency"),
            ("slots = \"cpu\"", "cpu=2"),
            ("slots = \"cpu=0\"", "slots"),
            ("slots = \"CPU lane=1\"", "lane"),
            ("slots = { cpu = 1, net = \"x\" }", "slots"),
            ("lease_ms = 1000\nbeat_ms = 500", "beat_ms"),
            ("database = 3", "database"),
            ("database = \"mysql://x\"", "database"),
            ("kinds = [1]", "kinds"),
            ("store = \"gs://bucket\"", "s3://BUCKET"),
            ("store = \"s3://\"", "s3://BUCKET"),
            ("store = \"s3://me:secret@bucket\"", "AWS_SECRET_ACCESS_KEY"),
            ("scratch = \"\"", "scratch"),
            ("input_folders = [\"/a:b\"]", "input_folders"),
            ("input_folders = \"/a::/b\"", "empty"),
            ("input_buckets = [\"films\"]", "s3://BUCKET"),
            ("input_buckets = \"s3://films,,s3://more\"", "input_buckets"),
            ("input_buckets = [\"s3://a,b\"]", "input_buckets"),
            ("allow_private_urls = \"perhaps\"", "on or off"),
            ("pull_idle_ms = 5000\npull_total_ms = 5000", "pull_total_ms 5000 (telecine.toml:2:1)"),
            ("max_input_mb = 0", "max_input_mb"),
            ("max_duration_s = 700000", "604800"),
            ("max_video_size = \"4320p\"", "8192x4320"),
            ("max_video_size = \"20000x100\"", "16384"),
            ("max_video_fps = 0", "max_video_fps"),
            ("max_image_pixels = 300000000", "268435456"),
            ("keep_runs_days = 0", "leave it out"),
            ("clamd = \"/run/clamav/clamd.ctl\"", "unix:/PATH"),
            ("clamd = \"tcp:localhost\"", "tcp:HOST:PORT"),
            ("clamd_max_mb = 2049", "2047"),
            ("scan = \"always\"", "required, optional or off"),
            ("scan = \"required\"", "clamd"),
            ("unscanned = \"warn\"", "refuse or allow"),
            ("log = \"json,=,=\"", "log"),
            ("listen = \"8700\"", "127.0.0.1:8700"),
            ("listen = \"media.example:8700\"", "listen"),
            ("public_url = \"media.example\"", "https://media.example"),
            ("public_url = \"https://user:secret@media.example\"", "public_url"),
            ("cors_origins = [\"*\"]", "cors_origins"),
            ("cors_origins = [\"https://app.example/\"]", "without a path"),
            ("trust_loopback = \"maybe\"", "on or off"),
            ("max_connections = 0", "max_connections"),
        ] {
            let refusal = refusal(layers(file, &[], &[]));
            assert!(refusal.contains(expected), "{file}: {refusal}");
        }
    }

    #[test]
    fn lists_may_be_written_as_toml_or_as_text() {
        for file in [
            "slots = { cpu = 2, net = 8 }\nkinds = [\"a\", \"b\"]",
            "slots = \"cpu=2, net=8\"\nkinds = \"a,b\"",
        ] {
            let config = layers(file, &[], &[]).expect("valid");

            assert!(matches!(&config.slots, Slots::PerLane(lanes) if lanes.len() == 2), "{:?}", config.slots);
            assert_eq!(config.kinds.as_deref(), Some(["a".to_owned(), "b".to_owned()].as_slice()));
        }
    }

    #[test]
    fn this_machine_is_trusted_unless_a_proxy_on_it_speaks_for_others() {
        let trusts = |file: &str| layers(file, &[], &[]).expect("valid").serving.options.trust_loopback;

        assert!(trusts(""));
        assert!(!trusts("public_url = \"https://media.example/\""));
        assert!(trusts("public_url = \"https://media.example\"\ntrust_loopback = true"));
        assert!(!trusts("trust_loopback = \"off\""));
    }

    #[test]
    fn where_and_to_whom_the_api_is_served() {
        let file = "listen = \"localhost:9000\"\npublic_url = \"https://media.example/\"\nmax_json_kb = 1\n\
                    cors_origins = [\"https://App.example\", \"http://localhost:3000\"]";
        let serving = layers(file, &[], &[]).expect("valid").serving;

        assert_eq!(serving.listen.to_string(), "127.0.0.1:9000");
        assert_eq!(serving.options.public_url.as_deref(), Some("https://media.example"));
        assert_eq!(serving.options.cors_origins, ["https://app.example", "http://localhost:3000"]);
        assert_eq!(serving.options.max_json_bytes, 1024);
        assert_eq!(layers("", &[], &[]).expect("valid").serving.listen.to_string(), "127.0.0.1:8700");
    }

    #[test]
    fn webhooks_are_tables_of_the_file_or_json_of_the_variable() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let file = format!(
            "[[webhooks]]\nurl = \"https://a.example/hook\"\nsecret = \"{secret}\"\nevents = [\"run.*\"]"
        );
        let json =
            format!(r#"[{{"url": "https://a.example/hook", "secret": "{secret}", "events": ["run.*"]}}]"#);

        let of_file = layers(&file, &[], &[]).expect("valid");
        let of_variable = layers("", &[("TELECINE_WEBHOOKS", &json)], &[]).expect("valid");
        let none = layers("webhooks = []", &[], &[]).expect("valid");

        assert_eq!(of_file.webhooks.as_ref().map(Vec::len), Some(1));
        assert_eq!(of_file.webhooks, of_variable.webhooks);
        assert_eq!((none.webhooks, layers("", &[], &[]).expect("valid").webhooks), (Some(Vec::new()), None));
        let shown = without_secrets(&of_variable.typed(Key::Webhooks).expect("typed").text);
        assert_eq!(shown, "https://a.example");
    }

    #[test]
    fn a_wrong_webhook_is_refused_and_its_secret_not_repeated() {
        let wrong = [
            ("url = \"https://a.example\"", "secret"),
            ("url = \"https://a.example\"\nsecret = \"hush-hush\"", "whsec_"),
            ("url = 3\nsecret = \"hush-hush\"", "tables"),
            ("url = \"x\"\nsecret = \"hush-hush\"\nevnts = []", "evnts"),
        ];

        for (table, expected) in wrong {
            let refusal = refusal(layers(&format!("[[webhooks]]\n{table}"), &[], &[]));
            assert!(refusal.contains(expected) && refusal.contains("telecine.toml:1:"), "{refusal}");
            assert!(!refusal.contains("hush-hush"), "{refusal}");
        }
    }

    #[test]
    fn kafka_is_a_table_of_the_file_or_variables() {
        let file = "[kafka]\nbrokers = [\"a:9092\", \"b:9092\"]\nformat = \"optimize\"\nbatch = 20\ncreate_topics = true\n\
                    [kafka.properties]\n\"security.protocol\" = \"SASL_SSL\"\n\"session.timeout.ms\" = 6000";
        let variables = [
            ("TELECINE_KAFKA_BROKERS", "a:9092, b:9092"),
            ("TELECINE_KAFKA_FORMAT", "optimize"),
            ("TELECINE_KAFKA_BATCH", "20"),
            ("TELECINE_KAFKA_CREATE_TOPICS", "on"),
            (
                "TELECINE_KAFKA_PROPERTIES",
                r#"{"security.protocol": "SASL_SSL", "session.timeout.ms": "6000"}"#,
            ),
        ];

        let of_file = layers(file, &[], &[]).expect("valid").kafka.expect("configured");
        let of_variables = layers("", &variables, &[]).expect("valid").kafka.expect("configured");
        let with_password = layers(file, &[("TELECINE_KAFKA_PASSWORD", "hush")], &[]).expect("valid");

        assert_eq!(of_file, of_variables);
        assert_eq!(of_file.brokers, "a:9092,b:9092");
        assert_eq!(of_file.properties["session.timeout.ms"], "6000");
        assert_eq!(with_password.kafka.expect("configured").properties["sasl.password"], "hush");
        let by_default = layers("[kafka]\nbrokers = \"a\"", &[], &[]).expect("valid").kafka;
        assert_eq!(by_default, Some(KafkaOptions::new("a")), "what the library does by itself");
        let nameless = layers("[kafka]\nbrokers = \"a\"\ntenant = \"\"", &[], &[]).expect("valid").kafka;
        assert_eq!(nameless, Some(KafkaOptions::new("a")));
        assert_eq!(layers("", &[], &[]).expect("valid").kafka, None);
    }

    #[test]
    fn a_password_of_kafka_is_a_text_or_in_a_file_and_the_later_one_counts() {
        let by_file = "[kafka]\nbrokers = \"a\"\npassword_file = \"/run/secrets/kafka\"";
        let variable = [("TELECINE_KAFKA_PASSWORD", "hush")];

        let in_file = layers(by_file, &[], &[]).expect("valid");
        let by_variable = layers(by_file, &variable, &[]).expect("valid");
        let both = refusal(layers(&format!("{by_file}\npassword = \"hush\""), &[], &[]));

        assert_eq!(in_file.kafka_password_file.as_deref(), Some(Path::new("/run/secrets/kafka")));
        assert_eq!(by_variable.kafka_password_file, None);
        let options = by_variable.kafka.as_ref().expect("configured");
        assert_eq!(options.properties[KAFKA_PASSWORD], "hush");
        assert!(both.contains("kafka_password_file (telecine.toml:3:1)") && !both.contains("hush"), "{both}");
        for debugged in [format!("{by_variable:?}"), format!("{options:?}")] {
            assert!(!debugged.contains("hush"), "{debugged}");
        }
    }

    #[test]
    fn a_wrong_value_of_kafka_is_refused_and_no_secret_repeated() {
        for (lines, expected) in [
            ("group = \"x\"", "kafka_brokers is not"),
            ("brokers = \"kafka://a\"", "broker-1:9092"),
            ("brokers = \"a\"\nbroker = \"b\"", "did you mean `kafka_brokers`?"),
            ("brokers = \"a\"\nformat = \"xml\"", "telecine or optimize"),
            ("brokers = \"a\"\nresults = \"some\"", "all or kafka"),
            ("brokers = \"a\"\nrequest_topic = \"a b\"", "kafka_request_topic"),
            ("brokers = \"a\"\nrequest_topic = \"optimize-response\"", "the same topic"),
            ("brokers = \"a\"\nmax_backlog = 0", "kafka_max_backlog"),
            ("brokers = \"a\"\n[kafka.properties]\n\"enable.idempotence\" = \"hush\"", "enable.idempotence"),
            (
                "brokers = \"a\"\n[kafka.properties]\n\"delivery.report.only.error\" = true",
                "delivery.report.only.error",
            ),
            ("brokers = \"a\"\n[kafka.properties]\n\"sasl.password\" = [\"hush\"]", "kafka_properties"),
        ] {
            let refusal = refusal(layers(&format!("[kafka]\n{lines}"), &[], &[]));
            assert!(refusal.contains(expected) && refusal.contains("telecine.toml:"), "{lines}: {refusal}");
            assert!(!refusal.contains("hush"), "{refusal}");
        }
        let shown = without_values(r#"{"security.protocol": "SASL_SSL", "ssl.key.password": "hush"}"#);
        assert_eq!(shown, "security.protocol=SASL_SSL, ssl.key.password=***");
    }

    #[test]
    fn log_takes_a_format_and_a_filter() {
        let log = |text: &str| layers(&format!("log = {text:?}"), &[], &[]).expect("valid").log;

        assert_eq!(log("pretty"), Log { json: false, filter: None });
        assert_eq!(log("json"), Log { json: true, filter: None });
        assert_eq!(log("debug"), Log { json: false, filter: Some("debug".into()) });
        assert_eq!(
            log("json,info,telecine_queue=trace"),
            Log { json: true, filter: Some("info,telecine_queue=trace".into()) }
        );
    }
}
