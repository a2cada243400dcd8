//! `encode_range`: a contiguous range of segments, in every rung.

use std::collections::BTreeMap;
use std::time::Instant;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telecine_media::{InitFile, RangeEvent, RangeJob, SegmentDone, SegmentRange, encode_range, read_init};
use tokio::sync::mpsc;

use super::{Attempt, ENCODE_RANGE, Work};
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::figures;
use crate::keys;
use crate::records::{PlanRecord, RungSegment, SegmentRecord, StoredFile, read_named, segment_key};

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
        let skip = stored_already(attempt, &step, range).await?;
        let already = skip.len();
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
                RangeEvent::Segment(done) => {
                    tracing::info!(run.id = %attempt.run, job.id = attempt.job.id.0, segment = done.segment, "segment encoded");
                    // Nobody receives it any more: storing failed, and with it the attempt.
                    let _ = tell.send(done);
                }
            };
            Box::pin(encode_range(&attempt.toolbox, &job, &attempt.cancel, tell)).await.map_err(Failed::from)
        };
        // The first of them to fail ends the other: a dropped encode kills its programs.
        let began = Instant::now();
        let (encoded, ()) = tokio::try_join!(encoding, store_as_made(attempt, &step, already, made))?;
        let frames: u32 = encoded.segments.iter().map(|done| done.frames).sum();
        let media_seconds = f64::from(frames) / plan.timeline.fps.as_f64();
        figures::encoded(ENCODE_RANGE, media_seconds, began.elapsed().as_secs_f64());
        Ok(json!({ "segments": range.segments().count(), "encoded": encoded.segments.len() }))
    }
}

/// What an earlier attempt has stored is not made again, unless somebody has removed it since.
async fn stored_already(attempt: &Attempt<'_>, step: &str, range: SegmentRange) -> Attempted<Vec<u32>> {
    let keys: Vec<String> = range.segments().map(|segment| segment_key(step, segment)).collect();
    let stored = read_named::<SegmentRecord>(&*attempt.shop.queue, attempt.run, &keys).await?;
    let mut there = Vec::new();
    for (_, record) in stored {
        let mut is_there = true;
        for file in record.files.iter().flat_map(|rung| [&rung.init, &rung.file]) {
            is_there &= attempt.shop.blobs.exists(&file.key).await?;
        }
        if is_there {
            there.push(record.segment);
        }
    }
    Ok(there)
}

/// Stores each segment as soon as it is made, and only then tells of it.
async fn store_as_made(
    attempt: &Attempt<'_>,
    step: &str,
    already: usize,
    mut made: mpsc::UnboundedReceiver<SegmentDone>,
) -> Attempted<()> {
    let mut inits = BTreeMap::new();
    let mut stored = already;
    while let Some(done) = made.recv().await {
        let record = store(attempt, step, &done, &mut inits).await?;
        attempt.leave(segment_key(step, record.segment), &record);
        // Losing workers is no poison as long as segments come.
        stored += 1;
        attempt.context.save(json!({ "stored": stored }));
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
    inits: &mut BTreeMap<String, Init>,
) -> Attempted<SegmentRecord> {
    let mut files = Vec::with_capacity(done.files.len());
    for made in &done.files {
        if !inits.contains_key(&made.rung) {
            inits.insert(made.rung.clone(), Init::stored(attempt, step, &made.rung, &made.init).await?);
        }
        let init = &inits[&made.rung];
        let path = keys::segment_path(&made.rung, done.segment, &made.sha256, "m4s");
        let file = attempt.store(step, &path, &made.path, made.bytes, &made.sha256).await?;
        files.push(RungSegment {
            rung: made.rung.clone(),
            codec: init.codec.clone(),
            file,
            init: init.file.clone(),
        });
    }
    Ok(SegmentRecord {
        step: step.to_owned(),
        segment: done.segment,
        frames: done.frames,
        damaged_frames: done.damaged_frames,
        files,
    })
}

/// What comes before the segments of a rung.
struct Init {
    codec: String,
    file: StoredFile,
}

impl Init {
    async fn stored(attempt: &Attempt<'_>, step: &str, rung: &str, made: &InitFile) -> Attempted<Self> {
        let bytes = tokio::fs::read(&made.path).await;
        let bytes = bytes.map_err(|error| scratch_failed("an init segment cannot be read", &error))?;
        let unlike = |error: telecine_media::IsobmffError| {
            Failed::unexpected(format!("the init segment of {rung}: {error}"))
        };
        let codec = read_init(&bytes)
            .and_then(|init| init.only_track().map(|track| track.codec.clone()))
            .map_err(unlike)?;
        let path = keys::init_path(rung, &made.sha256);
        let file = attempt.store(step, &path, &made.path, made.bytes, &made.sha256).await?;
        Ok(Self { codec, file })
    }
}
