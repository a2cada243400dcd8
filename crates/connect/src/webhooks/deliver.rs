//! The kind `deliver_webhook`: one event, one endpoint, one signed request.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::Value;
use telecine_pipeline::outside::{NotPublic, OutsideClient, Patience, Refused, root_cause};
use telecine_queue::{Failure, Job, JobContext, JobError, JobId, JobState, Kind, QueueError, Timestamp};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::answer::{Answer, Verdict};
use super::doubt::{Admission, Doubts};
use super::log::{Log, Try};
use super::message::{Message, PING, Recipient};
use super::secret::Secrets;
use super::{WebhookError, Webhooks};

pub const KIND: &str = "deliver_webhook";
pub const LANE: &str = "net";

/// How long a delivery steps aside while the event before it is being told.
const ORDER_WAIT: Duration = Duration::from_millis(100);
/// How long it steps aside while the places of endpoints that gave no answer are taken; spread, so that they do not
/// return together.
const DOUBT_WAIT: Duration = Duration::from_secs(20);
/// How long it steps aside while the database does not answer.
const DATABASE_WAIT: Duration = Duration::from_secs(5);
/// An endpoint that asks for time again and again is asked less and less often, up to this.
const LONGEST_OWN_WAIT: Duration = Duration::from_hours(1);
/// For what is done around the request.
const SLACK: Duration = Duration::from_secs(30);

/// The code that sends deliveries.
#[derive(Debug)]
pub struct DeliverWebhook {
    webhooks: Webhooks,
    /// Made when it is first needed.
    client: OnceCell<OutsideClient>,
    doubts: Doubts,
}

/// Where a delivery goes, as it is found when it is sent.
enum Destination {
    Known { url: String, secrets: Secrets },
    Skipped(&'static str),
}

/// What came of a request.
enum Sent {
    Answered(Answer),
    /// No request left: the address is none that may be connected to, and never will be.
    Refused(Refused),
    NoAnswer(String),
}

impl DeliverWebhook {
    pub(super) fn new(webhooks: Webhooks) -> Self {
        Self { webhooks, client: OnceCell::new(), doubts: Doubts::new() }
    }

    async fn client(&self) -> Result<&OutsideClient, Failure> {
        // Longer than the whole exchange may take, which has a timer of its own.
        let beyond = self.webhooks.options.answer_within * 2;
        let patience = Patience { connect: beyond, idle: beyond };
        let made = self.client.get_or_try_init(async || self.webhooks.outside.client(patience)).await;
        made.map_err(|error| Failure::retry("no_client", format!("no HTTP client can be made: {error}")))
    }
}

#[async_trait]
impl Kind for DeliverWebhook {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> &'static str {
        LANE
    }

    fn timeout(&self) -> Duration {
        self.webhooks.options.answer_within + SLACK
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let message = Message::deserialize(&job.payload)
            .map_err(|error| Failure::for_good("payload_invalid", format!("it is no delivery: {error}")))?;
        if self.must_step_aside(&message, job).await? {
            return Err(Failure::Snooze(ORDER_WAIT));
        }
        let mut log = Log::go_on(job);
        let (url, secrets) = match self.destination(&message, &job.tenant).await? {
            Destination::Known { url, secrets } => (url, secrets),
            Destination::Skipped(why) => {
                log.skipped = Some(why.to_owned());
                count("skipped");
                return Ok(log.to_json());
            }
        };
        let client = self.client().await?;
        let key = job.limit_key.as_deref().unwrap_or(message.to.key());
        let admission = self.doubts.admit(key);
        if matches!(admission, Admission::NotNow) {
            return Err(Failure::Snooze(DOUBT_WAIT.mul_f64(0.5 + fastrand::f64())));
        }
        let (tried, sent) = tokio::select! {
            tried = self.send(client, &message, &url, &secrets, job) => tried,
            () = context.stopping().cancelled_owned() => {
                return Err(Failure::retry("stopped", "the worker stopped it"));
            }
        };
        drop(admission);
        match tried.status {
            Some(_) => self.doubts.answered(key),
            None => self.doubts.gave_no_answer(key),
        }
        log.add(job.fence, tried);
        let outcome = self.settle(&message, job, &mut log, sent).await;
        count(match &outcome {
            Ok(()) => "delivered",
            Err(Failure::Retry(_)) => "failed",
            Err(Failure::ForGood(_)) => "given_up",
            Err(Failure::Snooze(_)) => "deferred",
        });
        if outcome.is_err() {
            context.save(log.to_json());
            // Only the log would be poorer.
            let _ = context.flushed().await;
        }
        outcome.map(|()| log.to_json())
    }
}

impl DeliverWebhook {
    /// Whether the run's event before this one has not been tried yet at the same endpoint. Not for long: an event must
    /// not wait for one that cannot be told.
    async fn must_step_aside(&self, message: &Message, job: &Job) -> Result<bool, Failure> {
        let Some(earlier) = message.after else { return Ok(false) };
        if Timestamp::now().since(job.created_at) > self.webhooks.options.in_order_within {
            return Ok(false);
        }
        self.is_untried(earlier).await.map_err(|error| unavailable(&error))
    }

    async fn is_untried(&self, earlier: JobId) -> Result<bool, QueueError> {
        let earlier = self.webhooks.queue().get(earlier).await?;
        Ok(earlier.is_some_and(|job| match job.state {
            JobState::Running => job.attempt <= 1,
            JobState::Waiting | JobState::Scheduled | JobState::Parked | JobState::Pending => {
                job.attempt == 0 && job.generation <= 1
            }
            JobState::Completed | JobState::Failed | JobState::Cancelled | JobState::Skipped => false,
        }))
    }

    async fn destination(&self, message: &Message, tenant: &str) -> Result<Destination, Failure> {
        let found = match &message.to {
            Recipient::Url(url) => {
                self.webhooks.tenant_secrets(tenant).await.map(|secrets| (url.clone(), secrets))
            }
            Recipient::Endpoint(id) => match self.webhooks.endpoint(tenant, id).await {
                Ok(None) => return Ok(Destination::Skipped("the endpoint was deleted")),
                Ok(Some(endpoint)) if endpoint.disabled.is_some() && message.event != PING => {
                    return Ok(Destination::Skipped("the endpoint is disabled"));
                }
                Ok(Some(endpoint)) => Ok((endpoint.url, endpoint.secrets)),
                Err(error) => Err(error.into()),
            },
        };
        let (url, secrets) = found.map_err(|error| unavailable(&error))?;
        Ok(Destination::Known { url, secrets })
    }

    async fn send(
        &self,
        client: &OutsideClient,
        message: &Message,
        url: &str,
        secrets: &Secrets,
        job: &Job,
    ) -> (Try, Sent) {
        let (at, started) = (Timestamp::now(), Instant::now());
        let within = self.webhooks.options.answer_within;
        let exchange = self.exchange(client, message, url, secrets, at);
        let sent = match tokio::time::timeout(within, exchange).await {
            Ok(sent) => sent,
            Err(_) => Sent::NoAnswer(format!("no answer came within {} ms", within.as_millis())),
        };
        let (status, answer, error) = match &sent {
            Sent::Answered(answer) => (Some(answer.status.as_u16()), Some(answer.text.clone()), None),
            Sent::Refused(refused) => (None, None, Some(refused.to_string())),
            Sent::NoAnswer(why) => (None, None, Some(why.clone())),
        };
        let ms = started.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        (Try { attempt: job.attempt, at, ms, status, answer, error }, sent)
    }

    async fn exchange(
        &self,
        client: &OutsideClient,
        message: &Message,
        url: &str,
        secrets: &Secrets,
        now: Timestamp,
    ) -> Sent {
        // Looked at again: what was allowed when it was stored may not be any more.
        let checked = self.webhooks.outside.check(url);
        let request = match checked.and_then(|url| client.request(Method::POST, url)) {
            Ok(request) => request,
            Err(refused) => return Sent::Refused(refused),
        };
        let mut request = request
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", now.as_ms().div_euclid(1_000))
            .header("webhook-signature", secrets.signatures(&message.id, now, &message.body));
        if let Some(traceparent) = &message.traceparent {
            request = request.header("traceparent", traceparent);
        }
        match request.body(message.body.clone()).send().await {
            Ok(response) => Sent::Answered(Answer::of(response).await),
            Err(error) => match NotPublic::behind(&error) {
                // A name may mean something else by the next try.
                Some(refused) => Sent::NoAnswer(refused.to_string()),
                None => Sent::NoAnswer(root_cause(&error)),
            },
        }
    }

    async fn settle(&self, message: &Message, job: &Job, log: &mut Log, sent: Sent) -> Result<(), Failure> {
        let verdict = match sent {
            Sent::Answered(answer) => answer.verdict(),
            Sent::Refused(refused) => return Err(Failure::for_good("address_refused", refused)),
            Sent::NoAnswer(message) => {
                self.slow_down(job).await;
                Verdict::Failed { code: "no_answer".into(), message }
            }
        };
        let failure = match verdict {
            Verdict::Delivered => return Ok(()),
            Verdict::Gone => return Err(self.gone(message, &job.tenant).await),
            Verdict::Later(asked) => {
                self.slow_down(job).await;
                log.deferrals += 1;
                Failure::Snooze(asked.max(own_wait(log.deferrals)))
            }
            Verdict::Failed { code, message } => Failure::Retry(JobError::new(code, message)),
        };
        if Timestamp::now().since(log.since) > self.webhooks.options.give_up_after {
            return Err(Failure::for_good("expired", "it could not be delivered for too long"));
        }
        Err(failure)
    }

    async fn gone(&self, message: &Message, tenant: &str) -> Failure {
        const GONE: &str = "the endpoint answered 410 Gone";
        if let Recipient::Endpoint(id) = &message.to {
            tracing::info!(endpoint = %id, "an endpoint answered 410 Gone and is disabled");
            if let Err(error) = self.webhooks.disable_endpoint(tenant, id, GONE).await {
                return unavailable(&error);
            }
        }
        Failure::for_good("gone", GONE)
    }

    /// Fewer at once go to an endpoint that does not keep up; this recovers by itself.
    async fn slow_down(&self, job: &Job) {
        let Some(key) = &job.limit_key else { return };
        if let Err(error) = self.webhooks.queue().slow_down(key).await {
            tracing::debug!(%error, "the pace of an endpoint could not be lowered");
        }
    }
}

fn count(outcome: &'static str) {
    metrics::counter!("telecine_webhook_deliveries_total", "outcome" => outcome).increment(1);
}

/// A second, two, four, …
fn own_wait(deferrals: u32) -> Duration {
    let seconds = 1_u64.checked_shl(deferrals.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(seconds).min(LONGEST_OWN_WAIT)
}

fn unavailable(error: &dyn std::error::Error) -> Failure {
    tracing::warn!(%error, "a delivery could not be looked up; trying again");
    Failure::Snooze(DATABASE_WAIT)
}

impl From<WebhookError> for Failure {
    fn from(error: WebhookError) -> Self {
        unavailable(&error)
    }
}
