//! From what was typed to what is meant.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use telecine_queue::Slots;
use tracing_subscriber::EnvFilter;

use super::serving::{address, public_url};
use super::{Config, Intake, Key, Layer, Log, Origin, Serving, Typed};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_SLOTS: u32 = 1_000;
/// A year: nobody means more, and it keeps every sum of instants in range.
const MAX_MS: u64 = 365 * 24 * 60 * 60 * 1_000;
const MAX_DAYS: u32 = 36_500;
/// Enough to probe a film; less is a slip.
const MIN_TOOL_MB: u64 = 128;
const MAX_TOOL_MB: u64 = 1 << 20;

/// The name of a store that nobody chose, of unfinished uploads beside it (which have to outlive a restart), and of scratch
/// space in the system's temporary folder.
const STORE: &str = "telecine-store";
const UPLOADS: &str = "telecine-uploads";
const SCRATCH: &str = "telecine";
/// What waits for a disk or for others may be more than there are cores.
const IO_SLOTS: usize = 4;
const NET_SLOTS: usize = 8;
/// Less than clamd's own threads (`MaxThreads`, 10).
const SCAN_SLOTS: usize = 4;

pub(super) fn of(mut typed: Layer) -> Result<Config> {
    add_derived_defaults(&mut typed);
    let reader = Reader(&typed);
    let config = Config {
        database: reader.required(Key::Database, database)?,
        store: reader.required(Key::Store, store)?,
        publish: reader.optional(Key::Publish, store)?,
        scratch: reader.required(Key::Scratch, folder)?,
        input_folders: reader.optional(Key::InputFolders, folders)?.unwrap_or_default(),
        intake: Intake::of(&reader)?,
        scanning: super::scanning::of(&reader)?,
        keep_quarantine: reader.required(Key::KeepQuarantineDays, days)?,
        slots: reader.slots()?,
        kinds: reader.optional(Key::Kinds, names)?,
        name: reader.optional(Key::Name, name)?,
        lease: reader.required(Key::LeaseMs, milliseconds)?,
        beat_every: reader.required(Key::BeatMs, milliseconds)?,
        sweep_every: reader.required(Key::SweepMs, milliseconds)?,
        poll_every: reader.required(Key::PollMs, milliseconds)?,
        drain_within: reader.required(Key::DrainMs, milliseconds)?,
        keep_history: reader.required(Key::KeepHistoryDays, days)?,
        keep_runs: reader.optional(Key::KeepRunsDays, days_at_least_one)?,
        sandbox: reader.required(Key::Sandbox, on_or_off)?,
        tool_memory_bytes: reader.required(Key::ToolMemoryMb, mebibytes)?,
        recipes: reader.optional(Key::Recipes, |text| Ok(text.into()))?,
        serving: Serving::of(&reader)?,
        metrics_listen: reader.optional(Key::MetricsListen, address)?,
        otlp_endpoint: reader.optional(Key::OtlpEndpoint, public_url)?,
        webhooks: reader.optional(Key::Webhooks, super::webhooks::endpoints)?,
        kafka: super::kafka::of(&reader)?,
        kafka_password_file: reader.optional(Key::KafkaPasswordFile, file)?,
        log: reader.required(Key::Log, log)?,
        typed: typed.clone(),
    };
    // Two beats must fit into a lease with room to spare, or one lost packet makes a healthy worker look dead.
    if config.beat_every * 2 >= config.lease {
        bail!(
            "beat_ms {} ({}) must be less than half of lease_ms {} ({}): a worker has to be able to miss one beat\n\
             next: raise lease_ms or lower beat_ms",
            config.beat_every.as_millis(),
            reader.origin(Key::BeatMs),
            config.lease.as_millis(),
            reader.origin(Key::LeaseMs),
        );
    }
    Ok(config)
}

/// Defaults that depend on the machine or on other keys.
fn add_derived_defaults(typed: &mut Layer) {
    let database = typed.0.get(&Key::Database).map_or("", |typed| &typed.text);
    let file = database.strip_prefix("sqlite:").map(|file| file.strip_prefix("//").unwrap_or(file));
    let data = file.and_then(|file| Path::new(file).parent()).unwrap_or(Path::new(""));
    let mut derived = vec![
        (Key::Store, data.join(STORE).display().to_string()),
        (Key::Uploads, data.join(UPLOADS).display().to_string()),
        (Key::Scratch, std::env::temp_dir().join(SCRATCH).display().to_string()),
    ];
    // Who gives a public address has a proxy on this machine, as a rule: then every caller comes from this machine.
    let is_behind_proxy = typed.0.contains_key(&Key::PublicUrl);
    derived.push((Key::TrustLoopback, if is_behind_proxy { "off" } else { "on" }.into()));
    let scan = if typed.0.contains_key(&Key::Clamd) { "required" } else { "off" };
    derived.push((Key::Scan, scan.into()));
    if !typed.0.contains_key(&Key::Concurrency) {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        derived.push((Key::Slots, format!("cpu={cores},io={IO_SLOTS},net={NET_SLOTS},scan={SCAN_SLOTS}")));
    }
    for (key, text) in derived {
        typed.0.entry(key).or_insert(Typed { text, origin: Origin::Default });
    }
}

pub(super) struct Reader<'a>(&'a Layer);

impl Reader<'_> {
    pub(super) fn optional<T>(&self, key: Key, parse: impl Fn(&str) -> Result<T>) -> Result<Option<T>> {
        let Some(Typed { text, origin }) = self.0.0.get(&key) else { return Ok(None) };
        parse(text).map(Some).map_err(|reason| anyhow!("{origin}: {} {reason}", key.name()))
    }

    pub(super) fn required<T>(&self, key: Key, parse: impl Fn(&str) -> Result<T>) -> Result<T> {
        self.optional(key, parse).map(|value| value.expect("a key that is required has a default"))
    }

    fn slots(&self) -> Result<Slots> {
        match self.optional(Key::Slots, lane_slots)? {
            Some(lanes) => Ok(Slots::PerLane(lanes)),
            None => self.required(Key::Concurrency, |text| positive(text).map(Slots::Each)),
        }
    }

    /// Whether somebody has set it, be it to what it is anyway.
    pub(super) fn is_set(&self, key: Key) -> bool {
        self.0.0.get(&key).is_some_and(|typed| typed.origin != Origin::Default)
    }

    pub(super) fn origin(&self, key: Key) -> String {
        self.0.0.get(&key).map_or_else(String::new, |typed| typed.origin.to_string())
    }
}

fn database(text: &str) -> Result<String> {
    let scheme = text.split(':').next().unwrap_or_default();
    let fits = matches!(scheme, "sqlite" | "postgres" | "postgresql") && text.len() > scheme.len() + 1;
    // The rest may be a password: only the scheme is repeated.
    ensure!(fits, "must be sqlite:FILE or postgres://USER@HOST/DATABASE; this one starts with `{scheme}`");
    Ok(text.into())
}

fn store(text: &str) -> Result<String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return folder(text).map(|_| text.into());
    };
    let bucket = rest.split('/').next().unwrap_or_default();
    // The rest may be a secret: only the scheme is repeated.
    ensure!(
        !rest.contains('@'),
        "has credentials in it; put them into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    );
    ensure!(
        scheme == "s3" && !bucket.is_empty(),
        "must be a folder or s3://BUCKET/PREFIX; this one starts with `{scheme}://`"
    );
    Ok(text.into())
}

pub(super) fn folder(text: &str) -> Result<PathBuf> {
    ensure!(!text.trim().is_empty(), "must name a folder");
    Ok(text.into())
}

fn file(text: &str) -> Result<PathBuf> {
    ensure!(!text.trim().is_empty(), "must name a file");
    Ok(text.into())
}

/// `/srv/uploads:/srv/more`, as in PATH.
fn folders(text: &str) -> Result<Vec<PathBuf>> {
    ensure!(text.split(':').all(|part| !part.is_empty()), "has an empty folder in `{text}`; write /a:/b");
    text.split(':').map(folder).collect()
}

/// `cpu=2,net=8`
fn lane_slots(text: &str) -> Result<BTreeMap<String, u32>> {
    let mut lanes = BTreeMap::new();
    for part in text.split(',').map(str::trim) {
        let Some((lane, slots)) = part.split_once('=') else {
            bail!("`{part}` is not LANE=SLOTS, such as cpu=2,net=8");
        };
        let (lane, slots) = (lane.trim(), slots.trim());
        check_lane(lane)?;
        let slots = positive(slots).map_err(|reason| anyhow!("of lane {lane} {reason}"))?;
        ensure!(lanes.insert(lane.to_owned(), slots).is_none(), "names lane `{lane}` twice");
    }
    Ok(lanes)
}

/// `a,b`
fn names(text: &str) -> Result<Vec<String>> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    ensure!(names.iter().all(|name| !name.is_empty()), "has an empty name in `{text}`; write a,b");
    Ok(names)
}

fn check_lane(lane: &str) -> Result<()> {
    let proper = lane.starts_with(|c: char| c.is_ascii_lowercase())
        && lane.len() <= 40
        && lane.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-');
    ensure!(proper, "names a lane {lane:?}; a lane is a short lower-case word such as cpu, net or io");
    Ok(())
}

pub(super) fn name(text: &str) -> Result<String> {
    let proper = !text.trim().is_empty() && text.len() <= 200 && !text.chars().any(char::is_control);
    ensure!(proper, "must be 1 to 200 bytes without control characters");
    Ok(text.into())
}

pub(super) fn within(text: &str, least: u32, most: u32) -> Result<u32> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| anyhow!("must be a number from {least} to {most}, not `{text}`"))
}

fn positive(text: &str) -> Result<u32> {
    within(text, 1, MAX_SLOTS)
}

pub(super) fn milliseconds(text: &str) -> Result<Duration> {
    let ms = text.parse().unwrap_or(0);
    ensure!((1..=MAX_MS).contains(&ms), "must be a number of milliseconds from 1 to {MAX_MS}, not `{text}`");
    Ok(Duration::from_millis(ms))
}

pub(super) fn days(text: &str) -> Result<Duration> {
    let days = text.parse().ok().filter(|days| *days <= MAX_DAYS);
    days.map(|days| DAY * days)
        .ok_or_else(|| anyhow!("must be a number of days from 0 to {MAX_DAYS}, not `{text}`"))
}

/// Runs that are deleted as they end would leave nothing to look at.
fn days_at_least_one(text: &str) -> Result<Duration> {
    let days = days(text)?;
    ensure!(!days.is_zero(), "must be at least a day; leave it out to keep runs until somebody deletes them");
    Ok(days)
}

fn mebibytes(text: &str) -> Result<u64> {
    let range = MIN_TOOL_MB..=MAX_TOOL_MB;
    let mebibytes = text.parse().ok().filter(|mebibytes| range.contains(mebibytes));
    mebibytes.map(|mebibytes: u64| mebibytes << 20).ok_or_else(|| {
        anyhow!("must be a number of mebibytes from {MIN_TOOL_MB} to {MAX_TOOL_MB}, not `{text}`")
    })
}

pub(super) fn on_or_off(text: &str) -> Result<bool> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        // What is mistyped must not open a sandbox, nor a private network.
        _ => bail!("must be on or off, not `{text}`"),
    }
}

/// `pretty` or `json`, a filter, or both: `json,info,telecine_queue=debug`.
fn log(text: &str) -> Result<Log> {
    let (formats, filters): (Vec<&str>, Vec<&str>) =
        text.split(',').map(str::trim).partition(|part| matches!(*part, "pretty" | "json"));
    let filter = (!filters.is_empty()).then(|| filters.join(","));
    if let Some(filter) = &filter {
        EnvFilter::try_new(filter).map_err(|reason| {
            anyhow!("must be pretty, json, a filter such as info,telecine_queue=debug, or both; `{filter}` is none: {reason}")
        })?;
    }
    Ok(Log { json: formats.last() == Some(&"json"), filter })
}

/// A URL that may be shown: `postgres://user:***@host/db`.
pub(crate) fn mask_password(url: &str) -> String {
    let masked = match url.split_once("://") {
        Some((scheme, rest)) => {
            let authority_ends = rest.find(['/', '?']).unwrap_or(rest.len());
            // A password may contain `/` when somebody forgot to encode it: then the last `@` still ends it.
            let at = rest.rfind('@').filter(|at| *at < authority_ends || rest[..*at].contains(':'));
            match at.and_then(|at| rest[..at].find(':').map(|colon| (colon, at))) {
                Some((colon, at)) => format!("{scheme}://{}:***{}", &rest[..colon], &rest[at..]),
                None => url.to_owned(),
            }
        }
        None => url.to_owned(),
    };
    let Some((base, query)) = masked.split_once('?') else { return masked };
    let query: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((key, _)) if key.contains("pass") => format!("{key}=***"),
            _ => pair.to_owned(),
        })
        .collect();
    format!("{base}?{}", query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::mask_password;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("sqlite:telecine.db", "sqlite:telecine.db"),
            ("postgres://me@host/db", "postgres://me@host/db"),
            ("postgres://me:secret@host:5432/db", "postgres://me:***@host:5432/db"),
            ("postgres://me:se/cr@et@host/db", "postgres://me:***@host/db"),
            (
                "postgres://host/db?user=me&password=secret&sslmode=require",
                "postgres://host/db?user=me&password=***&sslmode=require",
            ),
        ] {
            assert_eq!(mask_password(url), shown);
        }
    }
}
