//! Every setting there is.

use super::environment;

/// How a value is written in the file. A text is what the variable or the flag would carry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// What is expected, for whoever wrote something else.
    Text(&'static str),
    /// A text, or a list of texts without this character in them; what is expected.
    List(char, &'static str),
    /// A text, or yes or no.
    Switch,
    Number,
    /// A text, or a table of numbers.
    Lanes,
    /// JSON as a text, or a table.
    Properties,
    /// JSON as a text, or tables.
    Endpoints,
}

impl Form {
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Text(expected) | Self::List(_, expected) => expected,
            Self::Switch => "true or false",
            Self::Number => "a whole number",
            Self::Lanes => "a table such as { cpu = 2, net = 8 } or a text such as \"cpu=2,net=8\"",
            Self::Properties => "a table such as { \"security.protocol\" = \"SASL_SSL\" }",
            Self::Endpoints => "tables such as [[webhooks]] with texts for url and secret",
        }
    }
}

/// Key, name in the file, form in the file, default.
macro_rules! keys {
    ($($key:ident = $name:literal, $form:expr, $default:expr;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Key {
            $($key),+
        }

        impl Key {
            pub(crate) const ALL: [Self; [$(Self::$key),+].len()] = [$(Self::$key),+];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name),+
                }
            }

            pub(super) fn form(self) -> Form {
                use Form::*;
                match self {
                    $(Self::$key => $form),+
                }
            }

            pub(super) fn default_text(self) -> Option<&'static str> {
                match self {
                    $(Self::$key => $default),+
                }
            }
        }
    };
}

// One line here gives the key of the file, the variable, `config show` and the checks for unknown names.
keys! {
    Database = "database", Text("a text such as \"sqlite:telecine.db\""), Some("sqlite:telecine.db");
    // What `store`, `scratch`, `slots`, `trust_loopback`, `uploads` and `scan` default to depends on the machine and on
    // other keys; see `meaning`.
    Store = "store", Text("a text such as \"/var/lib/telecine/store\" or \"s3://bucket/prefix\""), None;
    // Without it, below `_published/` of the store.
    Publish = "publish", Text("a text such as \"/srv/www/media\" or \"s3://bucket/prefix\""), None;
    Scratch = "scratch", Text("a text such as \"/var/tmp/telecine\""), None;
    InputFolders = "input_folders",
        List(':', "a list of texts such as [\"/srv/uploads\"], none of which has a colon in it"), None;
    // Nothing is taken from a bucket that nobody named.
    InputBuckets = "input_buckets",
        List(',', "a list of texts such as [\"s3://bucket/prefix\"], none of which has a comma in it"), None;
    AllowPrivateUrls = "allow_private_urls", Switch, Some("off");
    PullIdleMs = "pull_idle_ms", Number, Some("60000");
    PullTotalMs = "pull_total_ms", Number, Some("14400000");
    MaxInputMb = "max_input_mb", Number, Some("51200");
    MaxDurationS = "max_duration_s", Number, Some("21600");
    MaxVideoSize = "max_video_size", Text("a text such as \"8192x4320\""), Some("8192x4320");
    MaxVideoFps = "max_video_fps", Number, Some("240");
    MaxImagePixels = "max_image_pixels", Number, Some("100000000");
    Clamd = "clamd", Text("a text such as \"unix:/run/clamav/clamd.ctl\" or \"tcp:127.0.0.1:3310\""), None;
    // What clamd looks at (its MaxFileSize) as Debian configures it; by itself it is 100. Of more it says OK unseen.
    ClamdMaxMb = "clamd_max_mb", Number, Some("25");
    ClamdTimeoutMs = "clamd_timeout_ms", Number, Some("180000");
    Scan = "scan", Text("\"required\", \"optional\" or \"off\""), None;
    Unscanned = "unscanned", Text("\"refuse\" or \"allow\""), Some("refuse");
    KeepQuarantineDays = "keep_quarantine_days", Number, Some("30");
    Slots = "slots", Lanes, None;
    Concurrency = "concurrency", Number, None;
    Kinds = "kinds", List(',', "a list of texts such as [\"pause\"]"), None;
    Name = "name", Text("a text"), None;
    LeaseMs = "lease_ms", Number, Some("30000");
    BeatMs = "beat_ms", Number, Some("10000");
    SweepMs = "sweep_ms", Number, Some("5000");
    PollMs = "poll_ms", Number, Some("1000");
    DrainMs = "drain_ms", Number, Some("25000");
    KeepHistoryDays = "keep_history_days", Number, Some("30");
    // No run is deleted that nobody said a time for.
    KeepRunsDays = "keep_runs_days", Number, None;
    Sandbox = "sandbox", Switch, Some("on");
    ToolMemoryMb = "tool_memory_mb", Number, Some("4096");
    Recipes = "recipes", Text("a text: the folder of your own recipes"), None;
    Listen = "listen", Text("a text such as \"127.0.0.1:8700\""), Some("127.0.0.1:8700");
    TrustLoopback = "trust_loopback", Switch, None;
    PublicUrl = "public_url", Text("a text such as \"https://media.example\""), None;
    CorsOrigins = "cors_origins", List(',', "a list of texts such as [\"https://app.example\"]"), None;
    RequestsPerSecond = "requests_per_second", Number, Some("1000");
    MaxConnections = "max_connections", Number, Some("4096");
    MaxJsonKb = "max_json_kb", Number, Some("256");
    HeaderTimeoutMs = "header_timeout_ms", Number, Some("10000");
    BodyTimeoutMs = "body_timeout_ms", Number, Some("60000");
    Uploads = "uploads", Text("a text such as \"/var/lib/telecine/uploads\""), None;
    // Without it, as large as an input may be.
    MaxUploadMb = "max_upload_mb", Number, None;
    KeepUnfinishedUploadsHours = "keep_unfinished_uploads_hours", Number, Some("24");
    TranscodeSlots = "transcode_slots", Number, Some("2");
    MaxTranscodeMb = "max_transcode_mb", Number, Some("64");
    TranscodeTimeoutMs = "transcode_timeout_ms", Number, Some("60000");
    ScanSlots = "scan_slots", Number, Some("4");
    MaxScanMb = "max_scan_mb", Number, Some("256");
    MetricsListen = "metrics_listen", Text("a text such as \"127.0.0.1:9700\""), None;
    MetricsPublic = "metrics_public", Switch, Some("off");
    OtlpEndpoint = "otlp_endpoint", Text("a text such as \"http://127.0.0.1:4318\""), None;
    // A process whose configuration does not mention them leaves those that others have stored.
    Webhooks = "webhooks", Endpoints, None;
    // Without brokers there is no Kafka.
    KafkaBrokers = "kafka_brokers",
        List(',', "a text such as \"broker-1:9092,broker-2:9092\", or a list of them"), None;
    KafkaGroup = "kafka_group", Text("a text"), Some("telecine");
    KafkaRequestTopic = "kafka_request_topic", Text("a text"), Some("optimize-request");
    KafkaResponseTopic = "kafka_response_topic", Text("a text"), Some("optimize-response");
    KafkaDeadLetterTopic = "kafka_dead_letter_topic", Text("a text"), Some("optimize-request.dead");
    KafkaFormat = "kafka_format", Text("\"telecine\" or \"optimize\""), Some("telecine");
    KafkaRecipe = "kafka_recipe", Text("a text"), Some("optimize");
    KafkaTenant = "kafka_tenant", Text("a text"), None;
    KafkaResults = "kafka_results", Text("\"all\" or \"kafka\""), Some("all");
    KafkaMaxBacklog = "kafka_max_backlog", Number, Some("10000");
    KafkaBatch = "kafka_batch", Number, Some("500");
    KafkaCreateTopics = "kafka_create_topics", Switch, Some("off");
    KafkaPassword = "kafka_password", Text("a text"), None;
    // Read by whoever speaks with brokers, and by nobody else.
    KafkaPasswordFile = "kafka_password_file", Text("a text such as \"/run/secrets/kafka\""), None;
    KafkaProperties = "kafka_properties", Properties, None;
    Log = "log", Text("a text"), Some("pretty");
}

impl Key {
    /// The environment variable of this key.
    pub(crate) fn variable(self) -> String {
        format!("{}{}", environment::PREFIX, self.name().to_uppercase())
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }
}
