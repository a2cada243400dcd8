//! `settle_publication`: sees to it that below a prefix lies what should, once nobody publishes there any more. It belongs to
//! no run: those who publish, and were cancelled, killed or failed half-way, cannot do it themselves.
//!
//! Files of a run that came to nothing go, and what they had replaced is copied again from the outputs of the run before.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telecine_queue::{Backoff, Failure, Job, JobContext, Kind, NewJob, Queue, QueueError, RunId, Timestamp};

use super::{SETTLE_PUBLICATION, lane_of};
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::graph::MAX_LOST;
use crate::published::{
    Claimant, Place, Promised, Publication, Standing, Taken, is_as_promised, promised, remove_all_but,
};
use crate::workshop::Workshop;

/// A publication takes seconds. One that takes longer is looked at ever less often.
const FIRST_LOOK: Duration = Duration::from_secs(2);
const LAST_LOOKS: Duration = Duration::from_mins(1);
/// A store that is away is asked again for about a week.
const AGAIN: Backoff = Backoff { base_ms: 1_000, factor: 2, cap_ms: 60_000 };
const ATTEMPTS: u16 = 10_000;

pub(super) struct SettlePublication(pub(super) Arc<Workshop>);

#[derive(Debug, Serialize, Deserialize)]
struct Payload {
    prefix: String,
    /// By which a worker knows that it publishes in the same store.
    place: String,
}

/// Has it settled what becomes of a prefix: for whoever is about to write there, or found it in disorder.
pub(crate) async fn watch_over(queue: &dyn Queue, place: &Place) -> Result<(), QueueError> {
    let payload = Payload { prefix: place.prefix.clone(), place: place.name.clone() };
    let payload = serde_json::to_value(payload).expect("a payload is plain data");
    let lane = lane_of(SETTLE_PUBLICATION).unwrap_or("net");
    let job = NewJob::new(SETTLE_PUBLICATION, payload).lane(lane).backoff(AGAIN).max_attempts(ATTEMPTS);
    let job = NewJob { max_lost: MAX_LOST, ..job.run_at(Timestamp::now().plus(FIRST_LOOK)) };
    queue.push(vec![job.into()]).await.map(drop)
}

#[async_trait]
impl Kind for SettlePublication {
    fn name(&self) -> &'static str {
        SETTLE_PUBLICATION
    }

    fn lane(&self) -> &'static str {
        lane_of(SETTLE_PUBLICATION).unwrap_or("net")
    }

    async fn run(&self, job: &Job, context: &JobContext) -> Result<Value, Failure> {
        settle(&self.0, job, context).await.map_err(|failed| failed.settle(job, context))
    }
}

async fn settle(shop: &Workshop, job: &Job, context: &JobContext) -> Attempted<Value> {
    let payload: Payload = serde_json::from_value(job.payload.clone())
        .map_err(|error| Failed::unexpected(format!("the payload is not as known: {error}")))?;
    let place = shop.published.at(payload.prefix)?;
    if place.name != payload.place {
        // Somebody has changed where is published, and what lies there is theirs.
        return Ok(json!({ "elsewhere": true }));
    }
    match place.standing(&*shop.queue).await? {
        Standing::Free => Ok(json!({ "removed": 0 })),
        Standing::Busy => Err(later(job)),
        Standing::Nobodys => Ok(json!({ "removed": remove_all_but(shop, &place, None).await? })),
        Standing::Of(run) => restore(shop, job, context, &place, &run).await,
    }
}

async fn restore(
    shop: &Workshop,
    job: &Job,
    context: &JobContext,
    place: &Place,
    run: &RunId,
) -> Attempted<Value> {
    let Some(Promised { run, copies, .. }) = promised(shop, run).await?.filter(|it| it.place == *place)
    else {
        // Nobody can make its files again, but they are not to be removed either.
        return Ok(json!({ "removed": remove_all_but(shop, place, Some(run)).await? }));
    };
    if is_as_promised(shop, place, &run.id, &copies).await? {
        return Ok(json!({ "run": run.id }));
    }
    let claimant = Claimant { run: &run, job: job.id, fence: job.fence };
    let Taken::Held(holding) = place.take(&*shop.queue, &claimant).await? else { return Err(later(job)) };
    let folder = shop.scratch.job();
    let folder = &folder.map_err(|error| scratch_failed("no scratch folder can be made", &error))?;
    let publication = Publication { shop, context, folder, place, run: &run.id, copies: &copies };
    publication.write(holding).await?;
    tracing::info!(run.id = %run.id, prefix = place.address, "what was published there is there again");
    Ok(json!({ "run": run.id, "files": copies.len() }))
}

/// Somebody is at it.
fn later(job: &Job) -> Failed {
    let age = Timestamp::now().since(job.created_at);
    Failed::not_yet((age / 4).clamp(FIRST_LOOK, LAST_LOOKS))
}
