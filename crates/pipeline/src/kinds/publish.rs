//! `publish`: copies of a run's outputs under the keys that its caller chose, what names others last.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::settle_publication::watch_over;
use super::{Attempt, Work};
use crate::failure::{Attempted, Failed};
use crate::media_type::MediaType;
use crate::published::{Claimant, Place, Publication, Taken, copies};
use crate::records::{INPUT, InputRecord, OutputRecord, PUBLISHED, PublishedRecord, WarningRecord, read_all};

pub(super) struct Publish;

/// How soon a place that somebody writes to is looked at again.
const BUSY_WAIT: Duration = Duration::from_millis(500);

#[async_trait]
impl Work for Publish {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let (queue, job) = (&*attempt.shop.queue, attempt.job);
        let run = queue.get_run(attempt.run).await?.ok_or_else(|| Failed::unexpected("the run is gone"))?;
        let meta = attempt.meta().await?;
        let prefix = meta.publish_to.ok_or_else(|| Failed::unexpected("the run publishes nothing"))?;
        let input: InputRecord = attempt.read(INPUT).await?;
        let place = attempt.shop.published.place(&prefix, &job.tenant, MediaType::of_input(&input))?;
        let outputs = read_all::<OutputRecord>(queue, attempt.run).await?;
        let copies = copies(&meta.recipe, outputs.iter().map(|(_, output)| output), &place.prefix);

        let claimant = Claimant { run: &run, job: job.id, fence: job.fence };
        let holding = match place.take(queue, &claimant).await? {
            Taken::Held(holding) => holding,
            Taken::Busy => return Err(Failed::not_yet(BUSY_WAIT)),
            Taken::Superseded(by) => {
                warn_of_later(attempt, &place, by.as_str());
                // An earlier generation may have published there.
                attempt.leave(PUBLISHED, &PublishedRecord::of(&place, BTreeSet::new()));
                return Ok(json!({ "files": 0, "superseded_by": by }));
            }
        };
        watch_over(queue, &place).await?;
        let publication = Publication {
            shop: attempt.shop,
            context: attempt.context,
            folder: &attempt.folder,
            place: &place,
            run: attempt.run,
            copies: &copies,
        };
        publication.write(holding).await?;

        let steps = outputs.into_iter().map(|(_, output)| output.step).collect();
        let files = copies.len();
        attempt.leave(PUBLISHED, &PublishedRecord::of(&place, steps));
        Ok(json!({ "files": files, "prefix": place.address }))
    }
}

fn warn_of_later(attempt: &Attempt<'_>, place: &Place, by: &str) {
    let (step, code) = (super::PUBLISH.to_owned(), "publish_superseded".to_owned());
    let message = format!("{} belongs to {by}, which was submitted later", place.address);
    attempt.leave(format!("{step}/{code}"), &WarningRecord { step, code, message });
}
