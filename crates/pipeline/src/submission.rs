//! A run as it is asked for.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telecine_queue::{NewJob, NewRun, Push, Queue, QueueError, Run, RunId, Timestamp};

use crate::graph::MAX_LOST;
use crate::input::Input;
use crate::kinds;
use crate::recipe::Recipe;

/// One input to be processed by one recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    pub recipe: Recipe,
    pub input: Input,
    /// Empty is the nameless tenant.
    pub tenant: String,
    /// The caller's own id for it.
    pub external_id: Option<String>,
    /// 0 to 100, higher first.
    pub priority: u8,
    /// Not before this instant.
    pub run_at: Option<Timestamp>,
    /// The same key with the same content gives the same run.
    pub idempotency_key: Option<String>,
    /// Make everything anew, though the same was made before.
    pub fresh: bool,
    /// Given back as it is.
    pub metadata: Value,
    /// Where its outputs are published when they are made: a prefix such as `u42/{media}/m7`.
    pub publish_to: Option<String>,
    /// Who is to be told how it goes on, beside those who hear of every run.
    pub webhook: Option<RunWebhook>,
    /// The span that it was asked for in, as W3C writes it.
    pub traceparent: Option<String>,
    /// What the idempotency key stands for; the submission itself where nothing is said.
    pub keyed_by: Option<Value>,
    /// The way it came, such as `kafka`, where results are told by the way of their requests.
    pub came_by: Option<String>,
}

/// Who is to be told of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunWebhook {
    #[cfg_attr(
        feature = "openapi",
        schema(max_length = 2048, pattern = "^https?://[^\\s\\x00-\\x1f\\x7f-\\x9f]+$")
    )]
    pub url: String,
}

/// What a run's row remembers of its submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunMeta {
    pub recipe: Recipe,
    pub input: Input,
    pub priority: u8,
    pub fresh: bool,
    pub metadata: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<RunWebhook>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_by: Option<String>,
}

impl RunMeta {
    pub fn of(run: &Run) -> Result<Self, serde_json::Error> {
        Self::deserialize(&run.meta)
    }
}

/// A run that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub run: RunId,
    /// The key was known: this is the run that it made before.
    pub replayed: bool,
}

impl Submission {
    pub fn new(recipe: Recipe, input: Input) -> Self {
        Self {
            recipe,
            input,
            tenant: String::new(),
            external_id: None,
            priority: 50,
            run_at: None,
            idempotency_key: None,
            fresh: false,
            metadata: Value::Null,
            publish_to: None,
            webhook: None,
            traceparent: None,
            keyed_by: None,
            came_by: None,
        }
    }

    /// The run and its first job. What else there is to do follows from the input, which only `ingest` sees.
    fn into_push(self) -> Result<Push, QueueError> {
        let name = self.recipe.name.clone();
        let meta = RunMeta {
            recipe: self.recipe,
            input: self.input,
            priority: self.priority,
            fresh: self.fresh,
            metadata: self.metadata,
            publish_to: self.publish_to,
            webhook: self.webhook,
            traceparent: self.traceparent,
            came_by: self.came_by,
        };
        let meta =
            serde_json::to_value(meta).map_err(|error| QueueError::Invalid { reason: error.to_string() })?;
        let run = NewRun { name, external_id: self.external_id, meta };
        let ingest =
            NewJob::new(kinds::INGEST, json!({})).lane("io").step(kinds::INGEST).priority(self.priority);
        let ingest = NewJob { run_at: self.run_at, max_lost: MAX_LOST, ..ingest };
        let push = Push::run(run, [ingest]).tenant(self.tenant);
        Ok(Push { idempotency_key: self.idempotency_key, keyed_by: self.keyed_by, ..push })
    }
}

/// Stores a run; when it returns, the run is never lost.
pub async fn submit(queue: &dyn Queue, submission: Submission) -> Result<Submitted, QueueError> {
    let submitted = submit_all(queue, vec![submission]).await?;
    submitted.into_iter().next().ok_or_else(none_came_back)
}

/// Stores runs, all or none; says what became of each, in order.
pub async fn submit_all(
    queue: &dyn Queue,
    submissions: Vec<Submission>,
) -> Result<Vec<Submitted>, QueueError> {
    let pushes = submissions.into_iter().map(Submission::into_push).collect::<Result<_, _>>()?;
    let pushed = queue.push(pushes).await?.into_iter();
    pushed
        .map(|pushed| {
            Ok(Submitted { run: pushed.run.ok_or_else(none_came_back)?, replayed: pushed.replayed })
        })
        .collect()
}

fn none_came_back() -> QueueError {
    QueueError::Unexpected { reason: "a run was pushed and none came back".into() }
}
