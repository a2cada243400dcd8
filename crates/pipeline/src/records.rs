//! What the jobs of a run leave for each other: small documents, written under the fence of the job that made them.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telecine_media::{Format, LoudnessMeasure, Plan, Probe, SegmentFact};
use telecine_queue::{NewRecord, Queue, QueueError, Record, RunId, Timestamp};

use crate::blobs::hash_bytes;

/// A document with its type's name.
pub trait RunRecord: Serialize + DeserializeOwned {
    const TYPE: &'static str;
}

/// The bytes of an input that has to be scanned before anything else reads it. One, under the key [`TAKEN`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenRecord {
    pub at: SourceAt,
    pub bytes: u64,
    pub sha256: String,
}

/// What came of the scan of an input that it let through, or found to be infected. One, under the key [`TAKEN`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRecord {
    /// `clean`; `unscanned`, where that was allowed; or `infected`.
    pub status: String,
    /// What was found in an infected one.
    #[serde(default)]
    pub signature: Option<String>,
}

impl ScanRecord {
    /// Whether the rest of the run may read the input.
    pub(crate) fn lets_through(&self) -> bool {
        matches!(self.status.as_str(), "clean" | "unscanned")
    }
}

/// The input, after `ingest`. One, under the key `input`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRecord {
    /// As the caller named it.
    pub uri: String,
    pub bytes: u64,
    pub sha256: String,
    pub at: SourceAt,
    pub format: Format,
    /// `None` for pictures that FFmpeg does not read (AVIF, HEIC).
    pub probe: Option<Probe>,
}

/// Where the bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceAt {
    Blob {
        key: String,
    },
    /// A file that stays where it is; a change of it is noticed.
    File {
        path: std::path::PathBuf,
        modified_ns: i128,
        inode: u64,
    },
}

/// What will be done for a step that makes a film. Under the step's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    pub plan: Plan,
}

/// A segment that is stored, in every rung. Under `{step}/{segment:05}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRecord {
    pub step: String,
    pub segment: u32,
    pub frames: u32,
    /// Those that are not what the source showed, because it could not be decoded.
    #[serde(default)]
    pub damaged_frames: u32,
    pub files: Vec<RungSegment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RungSegment {
    pub rung: String,
    /// As RFC 6381 writes it.
    pub codec: String,
    pub file: StoredFile,
    pub init: StoredFile,
}

/// The sound of a film. Under the step's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoundRecord {
    pub init: StoredFile,
    pub segments: Vec<StoredFile>,
    pub facts: Vec<SegmentFact>,
    /// As RFC 6381 writes it.
    pub codec: String,
    /// Ticks in a second of the facts' times.
    pub timescale: u32,
    pub channels: u32,
    /// `None` for sound that was copied.
    pub loudness: Option<LoudnessMeasure>,
    /// How much of it is silence, because it could not be decoded.
    #[serde(default)]
    pub damaged_us: u64,
}

/// What a step has published. Under `{step}` or, where it makes several things, `{step}/{name}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputRecord {
    /// `hls`, `poster`, `storyboard`, …
    pub name: String,
    pub kind: String,
    pub step: String,
    /// The file to begin with, among `files`.
    pub main: String,
    pub files: Vec<StoredFile>,
    /// What is worth knowing of it: sizes, durations, loudness, a thumbhash, …
    #[serde(default)]
    pub facts: serde_json::Value,
}

/// What a run tells when one of its outputs is there: once, or again when it has become another.
pub(crate) const OUTPUT_READY: &str = "output.ready";

impl OutputRecord {
    /// The body of that event. Files are in the run's document.
    pub(crate) fn told(&self) -> Value {
        let main = self.files.iter().find(|file| file.path == self.main);
        json!({
            "name": self.name, "step": self.step, "kind": self.kind, "uri": main.map(|file| &file.key),
            "files": self.files.len(), "bytes": self.files.iter().map(|file| file.bytes).sum::<u64>(),
        })
    }
}

/// Where a run's outputs were published. One, under the key [`PUBLISHED`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedRecord {
    /// What stands before every key: the prefix as it was resolved, from the root of the bucket or folder.
    pub prefix: String,
    /// `s3://bucket`; `None` where it is a folder.
    pub bucket: Option<String>,
    /// The steps whose outputs were there by then.
    pub steps: BTreeSet<String>,
}

/// A blob of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoredFile {
    /// From the step's folder: `720p/00007-3f9a1c2b.m4s`.
    pub path: String,
    pub key: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Something was lost or could not be made; the run goes on. Under `{step}/{code}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarningRecord {
    pub step: String,
    pub code: String,
    pub message: String,
}

/// The last failure of a job. Under the job's id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRecord {
    pub step: String,
    pub code: String,
    pub message: String,
    pub hint: String,
    pub stderr_tail: String,
    pub retryable: bool,
    pub attempt: u32,
    /// Of the program that failed, if one did and ended by itself.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// That ended the program.
    #[serde(default)]
    pub signal: Option<i32>,
}

/// The programs of a job's last attempt. Under the job's id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolsRecord {
    /// How many were started.
    pub total: u32,
    /// The first, the last, and those that failed.
    pub tools: Vec<ToolRun>,
}

/// A program that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolRun {
    /// What it was run for.
    pub step: String,
    /// The program and its arguments. Folders of the machine are `{scratch}` and `{store}`.
    pub argv: Vec<String>,
    /// Whether it is a program of the operator's own.
    pub is_of_user: bool,
    /// Of a program that ended by itself.
    pub exit_code: Option<i32>,
    /// That ended it.
    pub signal: Option<i32>,
    /// The end of what it wrote, up to 4 KiB.
    pub stderr_tail: String,
    /// How long it ran; `None` where the attempt ended before it.
    pub wall_ms: Option<u64>,
}

impl ToolRun {
    pub fn has_failed(&self) -> bool {
        self.signal.is_some() || self.exit_code.is_some_and(|code| code != 0)
    }
}

impl ToolsRecord {
    /// Without what an operator may have written into a command line.
    pub(crate) fn for_others(mut self) -> Self {
        for tool in self.tools.iter_mut().filter(|tool| tool.is_of_user) {
            tool.argv.truncate(1);
            tool.argv.push("…".to_owned());
        }
        self
    }
}

/// Who uses the outputs of a run beside itself. One, under the key [`LIFETIME`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifetimeRecord {
    /// Ids of runs.
    pub borrowers: BTreeSet<String>,
    /// The run was deleted; its blobs go with the last borrower.
    pub has_ended: bool,
    /// What it published stays in the store when it goes.
    #[serde(default)]
    pub keeps_outputs: bool,
    /// What it published under keys of its caller's goes with it.
    #[serde(default)]
    pub unpublishes: bool,
    /// The blob that says who did this work.
    #[serde(default)]
    pub cache_key: Option<String>,
    /// When somebody last asked for a retry.
    #[serde(default)]
    pub retried_at: Option<Timestamp>,
    /// Since when a sweep removes what the run publishes nowhere; `None` when none does.
    #[serde(default)]
    pub swept_since: Option<Timestamp>,
    /// Something that the run stored and publishes nowhere was removed: a retry makes it again.
    #[serde(default)]
    pub has_lost_blobs: bool,
    /// When a sweep last left nothing but what the run publishes.
    #[serde(default)]
    pub tidied_at: Option<Timestamp>,
}

/// Whose outputs a run uses. One, under the key [`BORROWED`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BorrowedRecord {
    pub owner: RunId,
}

macro_rules! types {
    ($($record:ty => $name:literal),+ $(,)?) => {
        $(impl RunRecord for $record { const TYPE: &'static str = $name; })+
    };
}

types! {
    TakenRecord => "taken",
    ScanRecord => "scan",
    InputRecord => "input",
    PlanRecord => "plan",
    SegmentRecord => "segment",
    SoundRecord => "sound",
    OutputRecord => "output",
    PublishedRecord => "published",
    WarningRecord => "warning",
    FailureRecord => "failure",
    ToolsRecord => "tools",
    LifetimeRecord => "lifetime",
    BorrowedRecord => "borrowed",
}

/// The key of the one [`TakenRecord`] and the one [`ScanRecord`].
pub const TAKEN: &str = "input";
/// The key of the one [`InputRecord`].
pub const INPUT: &str = "input";
/// The key of the one [`PublishedRecord`].
pub const PUBLISHED: &str = "outputs";
/// The key of the one [`LifetimeRecord`].
pub const LIFETIME: &str = "outputs";
/// The key of the one [`BorrowedRecord`].
pub const BORROWED: &str = "outputs";

pub fn segment_key(step: &str, segment: u32) -> String {
    format!("{step}/{segment:05}")
}

/// To be written by the job that made it. The caller knows that it is small.
pub(crate) fn record<T: RunRecord>(key: impl Into<String>, document: &T) -> NewRecord {
    let json = serde_json::to_value(document).expect("a record is plain data");
    NewRecord::new(T::TYPE, key, json)
}

/// The same of any size: a document that is too long for one record stands on pages, which come first. Their keys have
/// the content in them, so what is half written is never read.
pub(crate) fn pages_of<T: RunRecord>(key: impl Into<String>, document: &T) -> Vec<NewRecord> {
    let (key, text) = (key.into(), serde_json::to_string(document).expect("a record is plain data"));
    if text.len() <= PAGE_BYTES {
        return vec![record(key, document)];
    }
    let hash = hash_bytes(text.as_bytes());
    let mut pages = Vec::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (page, after) = rest.split_at(rest.floor_char_boundary(PAGE_BYTES.min(rest.len())));
        let key = page_key(&hash, pages.len());
        pages.push(NewRecord::new(PAGE, key, Value::String(page.to_owned())));
        rest = after;
    }
    let head = Paged { paged: hash, pages: pages.len() };
    let head = serde_json::to_value(head).expect("a record is plain data");
    pages.push(NewRecord::new(T::TYPE, key, head));
    pages
}

/// Text of a page. As JSON in a record it may take up to twice as much.
const PAGE_BYTES: usize = 100_000;
const PAGE: &str = "page";

/// What stands in a record whose document is on pages.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paged {
    /// Of the document's text.
    paged: String,
    pages: usize,
}

fn page_key(hash: &str, number: usize) -> String {
    format!("{hash}/{number:04}")
}

/// Every document of one type, by key.
pub async fn read_all<T: RunRecord>(queue: &dyn Queue, run: &RunId) -> Result<Vec<(String, T)>, QueueError> {
    let records = queue.records(run, Some(T::TYPE)).await?;
    with_pages(queue, run, records).await?.into_iter().map(parse).collect()
}

/// The documents of one type under these keys, by key; those that nobody wrote are left out.
pub async fn read_named<T: RunRecord>(
    queue: &dyn Queue,
    run: &RunId,
    keys: &[String],
) -> Result<Vec<(String, T)>, QueueError> {
    let records = queue.records_named(run, T::TYPE, keys).await?;
    with_pages(queue, run, records).await?.into_iter().map(parse).collect()
}

/// Records of a run, whole: with what stands on pages.
pub(crate) async fn with_pages(
    queue: &dyn Queue,
    run: &RunId,
    mut records: Vec<Record>,
) -> Result<Vec<Record>, QueueError> {
    let heads = records.iter().filter_map(paged);
    let pages: Vec<String> =
        heads.flat_map(|head| (0..head.pages).map(move |number| page_key(&head.paged, number))).collect();
    if !pages.is_empty() {
        records.extend(queue.records_named(run, PAGE, &pages).await?);
    }
    assembled(records)
}

/// One document; `None` where nobody wrote it.
pub async fn read<T: RunRecord>(queue: &dyn Queue, run: &RunId, key: &str) -> Result<Option<T>, QueueError> {
    let found = read_named(queue, run, &[key.to_owned()]).await?.pop();
    Ok(found.map(|(_, document)| document))
}

/// Documents that stand on pages, put together; the pages are left out.
fn assembled(records: Vec<Record>) -> Result<Vec<Record>, QueueError> {
    let (pages, documents): (Vec<Record>, Vec<Record>) =
        records.into_iter().partition(|record| record.kind == PAGE);
    let pages: BTreeMap<&str, &str> =
        pages.iter().filter_map(|page| Some((page.key.as_str(), page.json.as_str()?))).collect();
    let whole = |record: Record| {
        let Some(head) = paged(&record) else { return Ok(record) };
        let text: Option<String> = (0..head.pages)
            .map(|number| pages.get(page_key(&head.paged, number).as_str()).copied())
            .collect();
        let text = text.ok_or_else(|| torn(&record, "a page is missing"))?;
        let json = serde_json::from_str(&text).map_err(|error| torn(&record, &error.to_string()))?;
        Ok(Record { json, ..record })
    };
    documents.into_iter().map(whole).collect()
}

fn paged(record: &Record) -> Option<Paged> {
    record.json.get("paged")?;
    serde_json::from_value(record.json.clone()).ok()
}

fn torn(record: &Record, why: &str) -> QueueError {
    QueueError::Unexpected {
        reason: format!("the record {} {} cannot be read: {why}", record.kind, record.key),
    }
}

/// One document and its version, 0 where nobody wrote it yet.
pub(crate) async fn read_versioned<T: RunRecord>(
    queue: &dyn Queue,
    run: &RunId,
    key: &str,
) -> Result<(u64, Option<T>), QueueError> {
    match queue.records_named(run, T::TYPE, &[key.to_owned()]).await?.pop() {
        Some(record) => Ok((record.version, Some(parse_as(record)?))),
        None => Ok((0, None)),
    }
}

/// A record whose type is known.
pub(crate) fn parse_as<T: RunRecord>(record: Record) -> Result<T, QueueError> {
    parse(record).map(|(_, document)| document)
}

fn parse<T: RunRecord>(record: Record) -> Result<(String, T), QueueError> {
    let Record { kind, key, json, .. } = record;
    let document = serde_json::from_value(json).map_err(|error| QueueError::Unexpected {
        reason: format!("the record {kind} {key} is not as known: {error}"),
    })?;
    Ok((key, document))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(written: Vec<NewRecord>) -> Vec<Record> {
        let store = |new: NewRecord| Record {
            run: RunId::new(),
            kind: new.kind,
            key: new.key,
            version: 1,
            json: new.json,
        };
        written.into_iter().map(store).collect()
    }

    fn output(files: usize) -> OutputRecord {
        let file = |number: usize| StoredFile {
            path: format!("1080p/{number:05}-ä\"3f9a1c2b.m4s"),
            key: format!("_/run_01J/hls/1080p/{number:05}-3f9a1c2b.m4s"),
            bytes: 1_000_000,
            sha256: "3f".repeat(32),
        };
        OutputRecord {
            name: "hls".into(),
            kind: "hls".into(),
            step: "hls".into(),
            main: "master.m3u8".into(),
            files: (0..files).map(file).collect(),
            facts: Value::Null,
        }
    }

    #[test]
    fn a_document_of_six_hours_fits_into_records() {
        let film = output(5_400 * 6);

        let written = pages_of("hls", &film);

        assert!(written.iter().all(|record| record.json.to_string().len() < telecine_queue::MAX_JSON_BYTES));
        let read: Vec<OutputRecord> =
            assembled(stored(written)).unwrap().into_iter().map(|record| parse_as(record).unwrap()).collect();
        assert_eq!(read, [film]);
    }

    #[test]
    fn a_document_whose_pages_are_not_all_there_is_not_read() {
        let mut written = stored(pages_of("hls", &output(5_000)));
        written.remove(1);

        assert!(assembled(written).is_err());
        assert_eq!(pages_of("hls", &output(3)).len(), 1, "a small one needs no pages");
    }
}
