//! What the jobs of a run leave for each other: small documents, written under the fence of the job that made them.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use telecine_media::{Format, LoudnessMeasure, Plan, Probe, SegmentFact};
use telecine_queue::{NewRecord, Queue, QueueError, Record, RunId};

/// A document with its type's name.
pub trait RunRecord: Serialize + DeserializeOwned {
    const TYPE: &'static str;
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

/// A blob of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// Who uses the outputs of a run beside itself. One, under the key [`LIFETIME`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifetimeRecord {
    /// Ids of runs.
    pub borrowers: BTreeSet<String>,
    /// The run was deleted; its blobs go with the last borrower.
    pub has_ended: bool,
    /// The blob that says who did this work.
    #[serde(default)]
    pub cache_key: Option<String>,
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
    InputRecord => "input",
    PlanRecord => "plan",
    SegmentRecord => "segment",
    SoundRecord => "sound",
    OutputRecord => "output",
    WarningRecord => "warning",
    FailureRecord => "failure",
    LifetimeRecord => "lifetime",
    BorrowedRecord => "borrowed",
}

/// The key of the one [`InputRecord`].
pub const INPUT: &str = "input";
/// The key of the one [`LifetimeRecord`].
pub const LIFETIME: &str = "outputs";
/// The key of the one [`BorrowedRecord`].
pub const BORROWED: &str = "outputs";

pub fn segment_key(step: &str, segment: u32) -> String {
    format!("{step}/{segment:05}")
}

/// To be written by the job that made it.
pub fn record<T: RunRecord>(key: impl Into<String>, document: &T) -> NewRecord {
    let json = serde_json::to_value(document).expect("a record is plain data");
    NewRecord::new(T::TYPE, key, json)
}

/// Every document of one type, by key.
pub async fn read_all<T: RunRecord>(queue: &dyn Queue, run: &RunId) -> Result<Vec<(String, T)>, QueueError> {
    let records = queue.records(run, Some(T::TYPE)).await?;
    records.into_iter().map(parse).collect()
}

/// One document; `None` where nobody wrote it.
pub async fn read<T: RunRecord>(queue: &dyn Queue, run: &RunId, key: &str) -> Result<Option<T>, QueueError> {
    let records = queue.records(run, Some(T::TYPE)).await?;
    let found = records.into_iter().find(|record| record.key == key);
    found.map(|record| parse(record).map(|(_, document)| document)).transpose()
}

/// One document and its version, 0 where nobody wrote it yet.
pub(crate) async fn read_versioned<T: RunRecord>(
    queue: &dyn Queue,
    run: &RunId,
    key: &str,
) -> Result<(u64, Option<T>), QueueError> {
    let records = queue.records(run, Some(T::TYPE)).await?;
    match records.into_iter().find(|record| record.key == key) {
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
