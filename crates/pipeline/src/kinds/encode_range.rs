//! `encode_range`: a contiguous range of segments, in every rung.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telecine_media::{RangeEvent, RangeJob, SegmentDone, SegmentRange, encode_range};
use tokio::sync::mpsc;

use super::{Attempt, Work};
use crate::failure::{Attempted, Failed};
use crate::film::stored_segments;
use crate::keys;
use crate::records::{PlanRecord, RungSegment, SegmentRecord, StoredFile, segment_key};

pub(super) struct EncodeRange;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RangePayload {
    pub(crate) step: String,
    pub(crate) range: SegmentRange,
}

#[async_trait]
impl Work for EncodeRange {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let RangePayload { step, range } = attempt.payload()?;
        let PlanRecord { plan } = attempt.read(&step).await?;
        let plan = plan.video.ok_or_else(|| Failed::unexpected("the plan has no video"))?;
        // What an earlier attempt has stored is not made again.
        let stored = stored_segments(attempt, &step).await?;
        let skip: Vec<u32> = range.segments().filter(|segment| stored.contains_key(segment)).collect();
        let (_, source) = attempt.input().await?;
        let folder = attempt.subfolder("segments")?;

        let (tell, made) = mpsc::unbounded_channel();
        let job = RangeJob {
            plan: &plan,
            source: source.path(),
            folder: &folder,
            range,
            skip: &skip,
            limits: &attempt.shop.limits,
            stall: RangeJob::STALL,
        };
        let encoding = async move {
            let total = range.segments().count() as f64;
            let skipped = job.skip.len() as f64;
            let tell = &mut |event: RangeEvent| match event {
                RangeEvent::Progress(progress) => {
                    let share = progress.frames as f64 / progress.frames_total.max(1) as f64;
                    attempt.context.progress((skipped + share * (total - skipped)) / total.max(1.0));
                }
                RangeEvent::Segment(done) => drop(tell.send(done)),
            };
            Box::pin(encode_range(&attempt.shop.toolbox, &job, &attempt.cancel, tell))
                .await
                .map_err(Failed::from)
        };
        // The first of them to fail ends the other: a dropped encode kills its programs.
        let (encoded, ()) = tokio::try_join!(encoding, store_as_made(attempt, &step, made))?;
        Ok(json!({ "segments": range.segments().count(), "encoded": encoded.segments.len() }))
    }
}

/// Stores each segment as soon as it is made, and only then tells of it.
async fn store_as_made(
    attempt: &Attempt<'_>,
    step: &str,
    mut made: mpsc::UnboundedReceiver<SegmentDone>,
) -> Attempted<()> {
    let mut inits = BTreeMap::new();
    while let Some(done) = made.recv().await {
        let record = store(attempt, step, &done, &mut inits).await?;
        attempt.leave(segment_key(step, record.segment), &record);
        tracing::info!(run.id = %attempt.run, job.id = attempt.job.id.0, step, segment = done.segment, "segment stored");
        for file in &done.files {
            // Scratch holds no more than what is not stored yet; if this fails, the folder goes anyway in the end.
            let _ = tokio::fs::remove_file(&file.path).await;
        }
    }
    Ok(())
}

async fn store(
    attempt: &Attempt<'_>,
    step: &str,
    done: &SegmentDone,
    inits: &mut BTreeMap<String, StoredFile>,
) -> Attempted<SegmentRecord> {
    let mut files = Vec::with_capacity(done.files.len());
    for made in &done.files {
        let init = match inits.get(&made.rung) {
            Some(stored) => stored.clone(),
            None => {
                let path = keys::init_path(&made.rung, &made.init.sha256);
                let stored =
                    attempt.store(step, &path, &made.init.path, made.init.bytes, &made.init.sha256).await?;
                inits.insert(made.rung.clone(), stored.clone());
                stored
            }
        };
        let path = keys::segment_path(&made.rung, done.segment, &made.sha256, "m4s");
        let file = attempt.store(step, &path, &made.path, made.bytes, &made.sha256).await?;
        files.push(RungSegment { rung: made.rung.clone(), file, init });
    }
    Ok(SegmentRecord {
        step: step.to_owned(),
        segment: done.segment,
        frames: done.frames,
        damaged_frames: done.damaged_frames,
        files,
    })
}
