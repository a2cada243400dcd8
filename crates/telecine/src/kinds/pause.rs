//! `pause`: waits, and does nothing else. For trying a deployment, and for the demo.
//!
//! Payload: `{"ms": 1000, "label": "…", "fail_times": 0}`, all optional. The wait is cut into steps; each reports
//! progress and saves how far the job got, so that another attempt goes on where the last one was. With `fail_times`,
//! that many attempts fail half-way.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telecine_queue::{Failure, Job, JobContext, JobError, Kind};

const STEPS: u32 = 20;
const MAX_MS: u64 = 60 * 60 * 1_000;

#[derive(Debug)]
pub(crate) struct Pause;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    #[serde(default = "one_second")]
    ms: u64,
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    fail_times: u32,
}

fn one_second() -> u64 {
    1_000
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Checkpoint {
    steps_done: u32,
}

#[async_trait]
impl Kind for Pause {
    fn name(&self) -> &'static str {
        "pause"
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(MAX_MS) + Duration::from_secs(60)
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        let payload = parse(&job.payload)?;
        let first = resume_at(job.checkpoint.as_ref());
        let fails_at = (job.attempt <= payload.fail_times).then_some(first.midpoint(STEPS));
        let stopping = context.stopping();
        for step in first..STEPS {
            if fails_at == Some(step) {
                return Err(Failure::Retry(JobError::new(
                    "asked_to_fail",
                    "the payload's fail_times asked for this",
                )));
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(payload.ms) / STEPS) => {}
                () = stopping.cancelled() => {
                    return Err(Failure::Retry(JobError::new("stopped", "the worker asked the job to stop")));
                }
            }
            context.progress(f64::from(step + 1) / f64::from(STEPS));
            context.save(json!(Checkpoint { steps_done: step + 1 }));
        }
        Ok(json!({ "waited_ms": payload.ms, "label": payload.label }))
    }
}

fn parse(payload: &Value) -> Result<Payload, Failure> {
    let payload = Payload::deserialize(payload)
        .map_err(|error| Failure::ForGood(JobError::new("invalid_payload", error.to_string())))?;
    if payload.ms > MAX_MS {
        let message = format!("ms is {}, above the limit of {MAX_MS}", payload.ms);
        return Err(Failure::ForGood(JobError::new("invalid_payload", message)));
    }
    Ok(payload)
}

/// A checkpoint that makes no sense means starting over.
fn resume_at(checkpoint: Option<&Value>) -> u32 {
    checkpoint.and_then(|saved| Checkpoint::deserialize(saved).ok()).unwrap_or_default().steps_done.min(STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_no_attempt_can_mend_fails_for_good() {
        for payload in [
            json!({ "ms": "soon" }),
            json!({ "milliseconds": 5 }),
            json!({ "ms": MAX_MS + 1 }),
            json!("soon"),
        ] {
            assert!(matches!(parse(&payload), Err(Failure::ForGood(_))), "{payload}");
        }
    }

    #[test]
    fn another_attempt_goes_on_where_the_last_one_was() {
        assert_eq!(resume_at(Some(&json!({ "steps_done": 7 }))), 7);
        assert_eq!(resume_at(Some(&json!({ "steps_done": 700 }))), STEPS);
        assert_eq!(resume_at(Some(&json!("nonsense"))), 0);
        assert_eq!(resume_at(None), 0);
    }
}
