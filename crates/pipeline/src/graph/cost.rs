//! What a job will probably cost: the time of one core, by which the queue keeps runs from standing in each other's way,
//! and the space of its scratch folder.
//!
//! Estimates, not promises. Measured as CPU time on noisy test pictures with FFmpeg 5.1: x264 `veryfast` encodes 80
//! megapixels a second and a decoder of H.264 gives 280; `ultrafast` takes a third of that time, `medium` 3.5 times, x265
//! `veryfast` 4.4 times, SVT-AV1 preset 8 about 10 times. The other factors are guesses between and beyond these.

use telecine_media::{
    AudioSpec, Delivery, PicturesSpec, Plan, Preset, Probe, SegmentRange, VideoCodec, VideoPlan,
};

const ENCODED_PIXELS_PER_MS: f64 = 80_000.0;
const DECODED_PIXELS_PER_MS: f64 = 280_000.0;
/// Sound is encoded so many times faster than it plays.
const SOUND_SPEED: u64 = 30;
/// What only moves bytes is so many times faster than the film plays.
const COPY_SPEED: u64 = 100;
/// Reading, checking and hashing every segment.
const VERIFY_SPEED: u64 = 50;
/// A seek, some seconds of decoding, a picture.
const POSTER_MS: u64 = 2_000;
/// Nobody knows what a picture or a program of the user's takes: about a second.
pub(super) const UNKNOWN_MS: u64 = 1_000;

pub(super) fn length_us(plan: &VideoPlan, range: SegmentRange) -> u64 {
    let frames: u64 = range.segments().map(|segment| u64::from(plan.grid.frames(segment))).sum();
    plan.timeline.time_us(frames)
}

pub(super) fn range_ms(plan: &VideoPlan, range: SegmentRange) -> u64 {
    let frames: u64 = range.segments().map(|segment| u64::from(plan.grid.frames(segment))).sum();
    let pixels: f64 =
        plan.rungs.iter().map(|rung| f64::from(rung.size.width) * f64::from(rung.size.height)).sum();
    let encoding = pixels / ENCODED_PIXELS_PER_MS * effort(plan);
    // The largest rung stands for the source, of which it is a picture.
    let largest =
        plan.rungs.first().map_or(0.0, |rung| f64::from(rung.size.width) * f64::from(rung.size.height));
    (frames as f64 * (encoding + largest / DECODED_PIXELS_PER_MS)) as u64
}

/// Compared with x264 `veryfast`.
fn effort(plan: &VideoPlan) -> f64 {
    let encoder = &plan.encoder;
    if !encoder.is_repeatable {
        return 0.1; // hardware
    }
    let codec = match encoder.codec {
        VideoCodec::H264 => 1.0,
        VideoCodec::H265 => 4.4,
        VideoCodec::Av1 => 10.0,
    };
    let preset = match encoder.preset {
        Preset::Ultrafast => 0.33,
        Preset::Superfast => 0.6,
        Preset::Veryfast => 1.0,
        Preset::Faster => 1.8,
        Preset::Fast => 2.5,
        Preset::Medium => 3.5,
        Preset::Slow => 6.0,
    };
    codec * preset
}

pub(super) fn sound_ms(duration_us: u64) -> u64 {
    duration_us / 1_000 / SOUND_SPEED
}

pub(super) fn copy_ms(duration_us: u64) -> u64 {
    duration_us / 1_000 / COPY_SPEED
}

pub(super) fn verify_ms(duration_us: u64) -> u64 {
    duration_us / 1_000 / VERIFY_SPEED
}

pub(super) fn audio_ms(spec: &AudioSpec, duration_us: u64) -> u64 {
    sound_ms(duration_us) * (1 + spec.formats.len() as u64)
}

/// All but a poster look at the whole film.
pub(super) fn pictures_ms(spec: &PicturesSpec, probe: Option<&Probe>) -> u64 {
    let looks_at_all =
        spec.storyboard.is_some() || spec.preview.is_some() || spec.frames.is_some() || spec.scenes;
    let Some((probe, stream)) = probe.and_then(|probe| Some((probe, probe.video()?))) else {
        return POSTER_MS;
    };
    if !looks_at_all {
        return POSTER_MS;
    }
    let frames = stream.frame_count.map_or_else(
        || probe.duration_us.unwrap_or(0) as f64 / 1e6 * stream.avg_fps.map_or(25.0, |fps| fps.as_f64()),
        |frames| frames as f64,
    );
    let decoding = frames * f64::from(stream.width) * f64::from(stream.height) / DECODED_PIXELS_PER_MS;
    POSTER_MS + decoding as u64
}

pub(super) fn range_bytes(plan: &VideoPlan, range: SegmentRange) -> u64 {
    let kbits: u64 = plan.rungs.iter().map(|rung| u64::from(rung.max_kbits)).sum();
    length_us(plan, range) / 1_000 * kbits / 8
}

pub(super) fn sound_bytes(plan: &Plan) -> u64 {
    plan.sound.as_ref().map_or(0, |sound| sound.duration_us / 1_000 * u64::from(sound.kbits) / 8)
}

/// Everything of a film that is stored, or its best rung alone with the sound.
pub(crate) fn film_bytes(plan: &Plan, best_rung_only: bool, source_bytes: u64) -> u64 {
    let Some(video) = &plan.video else { return sound_bytes(plan) };
    if video.delivery == Delivery::Copy {
        return source_bytes;
    }
    let rungs = if best_rung_only { 1 } else { video.rungs.len() };
    let kbits: u64 = video.rungs.iter().take(rungs).map(|rung| u64::from(rung.max_kbits)).sum();
    video.timeline.time_us(video.timeline.frames) / 1_000 * kbits / 8 + sound_bytes(plan)
}
