//! Which inputs are taken: where they may come from, how long one is waited for, how large it may be.

use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use telecine_media::Limits;
use telecine_pipeline::PullPatience;

use super::Key;
use super::meaning::{Reader, milliseconds, on_or_off};

/// Sixteen TiB; nobody means more.
const MAX_INPUT_MB: u64 = 16 << 20;
/// A week.
const MAX_DURATION_S: u64 = 7 * 24 * 60 * 60;
/// What encoders and decoders can do at the most.
const MAX_SIDE: u32 = 16_384;
const MAX_FPS: u32 = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intake {
    /// `s3://bucket` or `s3://bucket/prefix`.
    pub(crate) buckets: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) allow_private_urls: bool,
    pub(crate) patience: PullPatience,
}

impl Intake {
    pub(super) fn of(reader: &Reader<'_>) -> Result<Self> {
        let patience = PullPatience {
            idle: reader.required(Key::PullIdleMs, milliseconds)?,
            total: reader.required(Key::PullTotalMs, milliseconds)?,
            ..PullPatience::default()
        };
        if patience.idle >= patience.total {
            bail!(
                "pull_idle_ms {} ({}) must be less than pull_total_ms {} ({}): one is for a silence, the other for all of it\n\
                 next: raise pull_total_ms or lower pull_idle_ms",
                patience.idle.as_millis(),
                reader.origin(Key::PullIdleMs),
                patience.total.as_millis(),
                reader.origin(Key::PullTotalMs),
            );
        }
        Ok(Self {
            buckets: reader.optional(Key::InputBuckets, buckets)?.unwrap_or_default(),
            limits: limits(reader)?,
            allow_private_urls: reader.required(Key::AllowPrivateUrls, on_or_off)?,
            patience,
        })
    }
}

fn limits(reader: &Reader<'_>) -> Result<Limits> {
    let usual = Limits::default();
    let most_pixels = u64::from(usual.image_side) * u64::from(usual.image_side);
    let image_pixels = reader.required(Key::MaxImagePixels, |text| within(text, most_pixels, "pixels"))?;
    let (video_long_side, video_short_side) = reader.required(Key::MaxVideoSize, sides)?;
    let seconds = reader.required(Key::MaxDurationS, |text| within(text, MAX_DURATION_S, "seconds"))?;
    Ok(Limits {
        file_bytes: reader.required(Key::MaxInputMb, |text| within(text, MAX_INPUT_MB, "mebibytes"))? << 20,
        image_pixels,
        video_long_side,
        video_short_side,
        video_fps: reader
            .required(Key::MaxVideoFps, |text| within(text, MAX_FPS.into(), "frames a second"))?
            .try_into()?,
        duration: Duration::from_secs(seconds),
        ..usual
    })
}

fn within(text: &str, most: u64, of: &str) -> Result<u64> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| anyhow!("must be a number of {of} from 1 to {most}, not `{text}`"))
}

/// `8192x4320`, either way up: the longer side and the shorter one.
fn sides(text: &str) -> Result<(u32, u32)> {
    let side = |text: &str| text.trim().parse::<u32>().ok().filter(|side| (16..=MAX_SIDE).contains(side));
    let sides = text.split_once('x').and_then(|(one, other)| Some((side(one)?, side(other)?)));
    let (one, other) = sides.ok_or_else(|| {
        anyhow!("must be a width and a height from 16 to {MAX_SIDE}, such as 8192x4320, not `{text}`")
    })?;
    Ok((one.max(other), one.min(other)))
}

/// `s3://films,s3://archive/2026`
fn buckets(text: &str) -> Result<Vec<String>> {
    let check = |address: &str| {
        let rest = address.strip_prefix("s3://").unwrap_or_default();
        let bucket = rest.split('/').next().unwrap_or_default();
        ensure!(
            !bucket.is_empty(),
            "must name buckets as s3://BUCKET or s3://BUCKET/PREFIX, not `{address}`"
        );
        ensure!(
            !rest.contains(['@', '?', '*']),
            "names `{address}`: a bucket and a prefix are all there is to say"
        );
        Ok(address.to_owned())
    };
    text.split(',').map(|address| check(address.trim())).collect()
}
