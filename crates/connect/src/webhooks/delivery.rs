//! The log of deliveries, and their replay.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telecine_queue::{Job, JobFilter, JobId, JobState, NewJob, Page, Push, QueueError, RunId, Timestamp};
use ulid::Ulid;

use super::deliver::KIND;
use super::endpoint::{EndpointId, no_endpoint};
use super::log::{AttemptShown, Log, Try};
use super::message::{Message, Recipient, ping};
use super::{WebhookError, Webhooks};

/// Jobs that one look at the database brings, with the bodies that they send: few at a time, or a log of large ones would
/// take hundreds of megabytes.
const SCAN_PAGE: u32 = 20;
/// Jobs that one page of the log looks at, at most: a page may be short, and the next one goes on from there.
const SCAN_JOBS: usize = 2_000;
/// Clocks of hosts differ by less.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// The name of a delivery, such as `dlv_42`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryId(pub JobId);

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dlv_{}", self.0)
    }
}

impl std::str::FromStr for DeliveryId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("dlv_").filter(|digits| digits.chars().all(|c| c.is_ascii_digit()));
        let id = digits.and_then(|digits| digits.parse().ok());
        id.map(Self).ok_or_else(|| format!("`{text}` is not the id of a delivery such as dlv_42"))
    }
}

/// How a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeliveryStatus {
    /// Not tried yet, or being tried for the first time.
    Pending,
    /// It did not succeed and will be tried again.
    Retrying,
    Delivered,
    /// Given up; it can be replayed.
    Failed,
    /// Not sent: the endpoint was disabled or deleted, or somebody cancelled it.
    Skipped,
}

impl DeliveryStatus {
    fn of(job: &Job, log: Option<&Log>) -> Self {
        match job.state {
            JobState::Completed if log.is_some_and(|log| log.skipped.is_some()) => Self::Skipped,
            JobState::Completed => Self::Delivered,
            JobState::Failed => Self::Failed,
            JobState::Cancelled | JobState::Skipped => Self::Skipped,
            JobState::Waiting
            | JobState::Scheduled
            | JobState::Parked
            | JobState::Pending
            | JobState::Running => match log.is_some_and(|log| !log.tries.is_empty()) {
                true => Self::Retrying,
                false => Self::Pending,
            },
        }
    }

    /// The states in which such jobs are.
    fn states(self) -> Vec<JobState> {
        match self {
            Self::Pending | Self::Retrying => {
                JobState::ALL.into_iter().filter(|state| !state.is_terminal()).collect()
            }
            Self::Delivered => vec![JobState::Completed],
            Self::Failed => vec![JobState::Failed],
            Self::Skipped => vec![JobState::Completed, JobState::Cancelled, JobState::Skipped],
        }
    }
}

/// Which deliveries. Empty means all.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    pub endpoint: Option<EndpointId>,
    pub run: Option<RunId>,
    pub status: Option<DeliveryStatus>,
}

/// One page of the log, newest first.
#[derive(Clone, Debug)]
pub struct DeliveryPage {
    pub data: Vec<DeliveryShown>,
    pub next: Option<JobId>,
}

/// A delivery as its tenant sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = WebhookDelivery))]
pub struct DeliveryShown {
    #[cfg_attr(feature = "openapi", schema(examples("dlv_42"), pattern = "^dlv_[0-9]+$"))]
    pub id: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String, examples("webhook_delivery")))]
    pub object: &'static str,
    /// `null`: the run named the address itself.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub endpoint: Option<EndpointId>,
    /// The address that the run named.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub url: Option<String>,
    /// What `webhook-id` says, the same at every try and after a replay.
    #[cfg_attr(feature = "openapi", schema(examples("evt_01J9Z3K5T8M2V4X6Y7A1B2C3D4_7")))]
    pub event_id: String,
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(examples("run.succeeded")))]
    pub event: String,
    /// `null` of a ping.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub run_id: Option<RunId>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub seq: Option<u64>,
    pub status: DeliveryStatus,
    /// Tries that counted.
    pub attempt: u32,
    pub max_attempts: u32,
    pub created_at: Timestamp,
    /// When it is tried again, if it waits for that.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub next_try_at: Option<Timestamp>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub finished_at: Option<Timestamp>,
    /// Why it failed or was skipped.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub reason: Option<String>,
    /// The last request and what came of it.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_try: Option<Try>,
    /// Every attempt, oldest first; only where one delivery is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Vec<AttemptShown>>,
}

impl DeliveryShown {
    fn of(job: &Job, message: Message) -> Self {
        let mut log = Log::of(job);
        let (endpoint, url) = match message.to {
            Recipient::Endpoint(id) => (Some(id), None),
            Recipient::Url(url) => (None, Some(url)),
        };
        let skipped = log.as_mut().and_then(|log| log.skipped.clone());
        let cancelled = (job.state == JobState::Cancelled).then(|| "somebody cancelled it".to_owned());
        Self {
            id: DeliveryId(job.id).to_string(),
            object: "webhook_delivery",
            endpoint,
            url,
            event_id: message.id,
            event: message.event,
            run_id: message.run,
            seq: message.seq,
            status: DeliveryStatus::of(job, log.as_ref()),
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            created_at: job.created_at,
            next_try_at: job.run_at.filter(|_| job.state == JobState::Scheduled),
            finished_at: job.finished_at,
            reason: skipped.or(cancelled).or_else(|| job.error.as_ref().map(|error| error.message.clone())),
            last_try: log.and_then(|log| log.tries.into_iter().next_back()).map(|noted| noted.tried),
            attempts: None,
        }
    }
}

impl Webhooks {
    /// What was sent, or is to be sent, for a tenant; newest first.
    pub async fn deliveries(
        &self,
        tenant: &str,
        filter: &DeliveryFilter,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<DeliveryPage, QueueError> {
        let states = filter.status.map(DeliveryStatus::states).unwrap_or_default();
        let jobs = JobFilter {
            states,
            kind: Some(KIND.into()),
            tenant: Some(tenant.to_owned()),
            ..JobFilter::default()
        };
        let (mut data, mut seen, mut before) = (Vec::new(), 0, before);
        loop {
            let listed = self.queue().list(&jobs, Page { before, ..Page::first(SCAN_PAGE) }).await?;
            for job in &listed.data {
                if filter.run.as_ref().is_some_and(|run| is_older_than(job, run)) {
                    return Ok(DeliveryPage { data, next: None });
                }
                before = Some(job.id);
                data.extend(shown_if(job, filter));
                if data.len() >= limit {
                    return Ok(DeliveryPage { data, next: before });
                }
            }
            seen += listed.data.len();
            if listed.next_cursor.is_none() {
                return Ok(DeliveryPage { data, next: None });
            }
            if seen >= SCAN_JOBS {
                return Ok(DeliveryPage { data, next: before });
            }
        }
    }

    /// One delivery with all its attempts.
    pub async fn delivery(&self, tenant: &str, id: DeliveryId) -> Result<DeliveryShown, WebhookError> {
        let (job, message) = self.delivery_job(tenant, id).await?;
        let log = Log::of(&job);
        let attempts = self.queue().attempts(job.id).await?;
        let attempts = attempts.into_iter().map(|it| AttemptShown::of(it, log.as_ref())).collect();
        Ok(DeliveryShown { attempts: Some(attempts), ..DeliveryShown::of(&job, message) })
    }

    /// Sends a delivery that has ended again: the same event under the same id.
    pub async fn replay(&self, tenant: &str, id: DeliveryId) -> Result<DeliveryShown, WebhookError> {
        let (job, _) = self.delivery_job(tenant, id).await?;
        match self.queue().retry(job.id).await {
            Ok(()) => {}
            Err(QueueError::WrongState { .. }) => {
                return Err(WebhookError::conflict("the delivery has not ended: it is still being tried"));
            }
            Err(QueueError::NotFound(_)) => return Err(no_delivery()),
            Err(error) => return Err(error.into()),
        }
        let (job, message) = self.delivery_job(tenant, id).await?;
        Ok(DeliveryShown::of(&job, message))
    }

    /// Sends an endpoint something to try it with, once; also while it is disabled.
    pub async fn ping(&self, tenant: &str, endpoint: &EndpointId) -> Result<DeliveryShown, WebhookError> {
        self.endpoint(tenant, endpoint).await?.ok_or_else(no_endpoint)?;
        let message = ping(endpoint);
        let job = self.job(&message, &endpoint.limit_key())?;
        let job = NewJob { max_attempts: 1, ..job };
        let pushed = self.queue().push(vec![Push::jobs([job]).tenant(tenant)]).await?;
        let id = pushed.into_iter().flat_map(|pushed| pushed.jobs).next().ok_or_else(no_delivery)?;
        let (job, message) = self.delivery_job(tenant, DeliveryId(id)).await?;
        Ok(DeliveryShown::of(&job, message))
    }

    async fn delivery_job(&self, tenant: &str, id: DeliveryId) -> Result<(Job, Message), WebhookError> {
        let job = self.queue().get(id.0).await?;
        let job = job.filter(|job| job.kind == KIND && job.tenant == tenant).ok_or_else(no_delivery)?;
        let message = Message::deserialize(&job.payload).map_err(|_| no_delivery())?;
        Ok((job, message))
    }
}

fn no_delivery() -> WebhookError {
    WebhookError::NotFound { what: "delivery" }
}

fn shown_if(job: &Job, filter: &DeliveryFilter) -> Option<DeliveryShown> {
    let message = Message::deserialize(&job.payload).ok()?;
    let shown = DeliveryShown::of(job, message);
    let fits = filter.endpoint.as_ref().is_none_or(|id| shown.endpoint.as_ref() == Some(id))
        && filter.run.as_ref().is_none_or(|run| shown.run_id.as_ref() == Some(run))
        && filter.status.is_none_or(|status| shown.status == status);
    fits.then_some(shown)
}

/// Whether a job was there before a run was: nothing of the run comes after it.
fn is_older_than(job: &Job, run: &RunId) -> bool {
    let ulid = run.as_str().strip_prefix("run_").and_then(|ulid| Ulid::from_string(ulid).ok());
    let born_ms = ulid.and_then(|ulid| i64::try_from(ulid.timestamp_ms()).ok());
    born_ms.is_some_and(|ms| job.created_at.plus(CLOCK_SLACK) < Timestamp::from_ms(ms))
}
