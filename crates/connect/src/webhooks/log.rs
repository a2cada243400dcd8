//! What came of each try of a delivery. It is kept in the job's checkpoint, and in its result at the end.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use telecine_queue::{Attempt, AttemptOutcome, Fence, Job, Timestamp};

/// The last ones are kept.
const KEPT_TRIES: usize = 20;

/// One request to an endpoint, and what it answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = WebhookTry))]
pub struct Try {
    /// Its number among the tries that count, from 1.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub attempt: u32,
    pub at: Timestamp,
    /// How long it took.
    pub ms: u64,
    /// `null`: no answer came.
    #[cfg_attr(feature = "openapi", schema(required, minimum = 100, maximum = 999))]
    pub status: Option<u16>,
    /// The first KiB of the answer's body.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub answer: Option<String>,
    /// Why no answer came.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub error: Option<String>,
}

/// A try, and which claim of the job made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) fence: Fence,
    pub(super) tried: Try,
}

/// All that a delivery remembers from try to try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Log {
    /// Starting a delivery over begins a new one.
    generation: u32,
    pub(super) since: Timestamp,
    /// How often the endpoint asked for more time.
    pub(super) deferrals: u32,
    pub(super) tries: Vec<Noted>,
    /// Why nothing was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<String>,
}

impl Log {
    /// Where the last try left it. Tries of former generations are remembered, their times are not held against it.
    pub(super) fn go_on(job: &Job) -> Self {
        let now = Timestamp::now();
        let new =
            Self { generation: job.generation, since: now, deferrals: 0, tries: Vec::new(), skipped: None };
        match job.checkpoint.as_ref().and_then(Self::read) {
            Some(known) if known.generation == job.generation => known,
            Some(known) => Self { tries: known.tries, ..new },
            None => new,
        }
    }

    /// What is known of a job by now.
    pub(super) fn of(job: &Job) -> Option<Self> {
        job.result.as_ref().or(job.checkpoint.as_ref()).and_then(Self::read)
    }

    fn read(value: &Value) -> Option<Self> {
        Self::deserialize(value).ok()
    }

    pub(super) fn add(&mut self, fence: Fence, tried: Try) {
        self.tries.push(Noted { fence, tried });
        let extra = self.tries.len().saturating_sub(KEPT_TRIES);
        self.tries.drain(..extra);
    }

    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a log is plain data")
    }
}

/// One attempt of a delivery: what the queue knows of it, and what the endpoint answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = WebhookAttempt))]
pub struct AttemptShown {
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    /// `completed`, `failed`, `snoozed` (the endpoint asked for time, or an earlier event was not told yet), `lost`
    /// (the worker died), …
    pub outcome: AttemptOutcome,
    /// Stable, such as `http_500`, `no_answer`, `redirected`, `gone`.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub code: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub message: Option<String>,
    /// What was sent and answered; `null` where nothing was sent.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub response: Option<Try>,
}

impl AttemptShown {
    pub(super) fn of(attempt: Attempt, log: Option<&Log>) -> Self {
        let noted = log.and_then(|log| log.tries.iter().find(|noted| noted.fence == attempt.fence));
        let (code, message) = attempt.error.map(|error| (error.code, error.message)).unzip();
        Self {
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            outcome: attempt.outcome,
            code,
            message,
            response: noted.map(|noted| noted.tried.clone()),
        }
    }
}
