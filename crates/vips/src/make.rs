//! From a job to its files.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use rs_vips::VipsImage;
use telecine_media::{Animation, ImageFormat, ImageOutput, ImageSet, Placement, Refusal, Size, VipsJob};

use crate::failure::Failure;
use crate::frames::{Frames, scaled};
use crate::load::{Header, open, shrink_on_load, size_of};
use crate::{save, thumbhash};

/// A larger picture is scaled while it is read instead of being kept whole.
const KEPT_WHOLE_MAX_BYTES: u64 = 128 << 20;
/// Of all frames of an animation in its largest variant.
const ANIMATION_MAX_BYTES: u64 = 1 << 30;

pub(crate) fn all(job: &VipsJob) -> Result<ImageSet, Failure> {
    let header = Header::read(job)?;
    let stored = header.stored;
    job.limits
        .check_image(stored.width, stored.height, u64::from(header.frames))
        .map_err(|error| Failure::Input { why: Refusal::TooLarge, detail: error.to_string() })?;

    let upright = header.upright();
    let placements: Vec<Placement> =
        job.spec.variants.iter().map(|variant| Placement::of(variant, upright)).collect();
    let needed = largest(&placements);
    let decoded = if wants_animation(job, &header) {
        decode_animation(job, &header, needed)?
    } else {
        decode_still(job, &header, needed)?
    };
    let sizes = each_size(&decoded, &placements)?;
    let thumbhash = job.spec.thumbhash.then(|| thumbhash::of(&sizes)).transpose()?;
    drop(decoded);
    Ok(ImageSet {
        source_width: upright.width,
        source_height: upright.height,
        source_frames: header.frames,
        has_alpha: header.has_alpha,
        outputs: save_all(job, &placements, &sizes)?,
        thumbhash,
    })
}

/// A size that no variant passes on either side.
fn largest(placements: &[Placement]) -> Size {
    let side = |of: fn(Size) -> u32| placements.iter().map(|p| of(p.scaled)).max().unwrap_or(1);
    Size { width: side(|size| size.width), height: side(|size| size.height) }
}

fn wants_animation(job: &VipsJob, header: &Header) -> bool {
    let has_moving_output = || job.spec.variants.iter().flat_map(|v| &v.formats).any(|f| f.can_move());
    header.frames > 1 && job.spec.animation == Animation::Keep && has_moving_output()
}

fn decode_still(job: &VipsJob, header: &Header, needed: Size) -> Result<Frames, Failure> {
    let needed = header.turned(needed);
    let rows = open(job, shrink_on_load(header.stored, needed), 1)?;
    let rows = if memory_bytes(&rows) > KEPT_WHOLE_MAX_BYTES { scaled(&rows, needed) } else { Ok(rows) };
    let upright = rows.and_then(|rows| rows.copy_memory()).and_then(|image| upright(&image, header));
    let frames = vec![upright.map_err(Failure::of_reading)?];
    Ok(Frames::decoded(frames, job.spec.keep_metadata))
}

fn upright(image: &VipsImage, header: &Header) -> rs_vips::Result<VipsImage> {
    if header.orientation <= 1 {
        return Ok(image.clone());
    }
    image.autorot()?.copy_memory()
}

/// Frame after frame, so that only the scaled ones are in memory.
fn decode_animation(job: &VipsJob, header: &Header, needed: Size) -> Result<Frames, Failure> {
    let bytes = u64::from(needed.width) * u64::from(needed.height) * 4 * u64::from(header.frames);
    if bytes > ANIMATION_MAX_BYTES {
        let detail =
            format!("{} frames of {}x{} need {bytes} bytes", header.frames, needed.width, needed.height);
        return Err(Failure::Input { why: Refusal::TooLarge, detail });
    }
    let roll = open(job, 1, header.frames)?;
    let page = |n: u32| {
        let side = |side: u32| i32::try_from(side).unwrap_or(i32::MAX);
        let (width, height) = (side(header.stored.width), side(header.stored.height));
        let frame = roll.extract_area(0, side(n).saturating_mul(height), width, height)?;
        scaled(&frame, needed)?.copy_memory()
    };
    let frames = (0..header.frames).map(page).collect::<rs_vips::Result<Vec<_>>>();
    Ok(Frames::decoded(frames.map_err(Failure::of_reading)?, job.spec.keep_metadata))
}

fn memory_bytes(image: &VipsImage) -> u64 {
    let size = size_of(image);
    u64::from(size.width) * u64::from(size.height) * u64::from(image.get_bands().unsigned_abs())
}

/// Largest first. A size is made from the smallest one that is at least twice as large, or else from the decoded
/// picture: a picture that was scaled by little and is scaled by little again would become soft.
fn each_size(decoded: &Frames, placements: &[Placement]) -> Result<HashMap<Size, Frames>, Failure> {
    let mut wanted: Vec<Size> = placements.iter().map(|placement| placement.scaled).collect();
    wanted.sort_by_key(|size| std::cmp::Reverse(u64::from(size.width) * u64::from(size.height)));
    wanted.dedup();
    let mut made: Vec<(Size, Frames)> = Vec::with_capacity(wanted.len());
    for size in wanted {
        let is_far_larger = |larger: Size| larger.width >= 2 * size.width && larger.height >= 2 * size.height;
        let source = made.iter().rev().find(|(larger, _)| is_far_larger(*larger)).map(|(_, frames)| frames);
        let scaled = source.unwrap_or(decoded).scaled_to(size).map_err(Failure::of_writing)?;
        made.push((size, scaled));
    }
    Ok(made.into_iter().collect())
}

/// One file to write.
struct Task<'a> {
    variant: usize,
    format: ImageFormat,
    placement: Placement,
    frames: &'a Frames,
}

impl Task<'_> {
    /// What it takes, roughly, in the time of a JPEG's pixel.
    fn cost(&self) -> u64 {
        let pixels = u64::from(self.placement.scaled.width) * u64::from(self.placement.scaled.height);
        let frames = if self.format.can_move() { self.frames.len() as u64 } else { 1 };
        let weight = match self.format {
            ImageFormat::Jpeg => 1,
            ImageFormat::Png | ImageFormat::Gif => 4,
            ImageFormat::Webp => 3,
            ImageFormat::Avif => 30,
        };
        pixels * frames * weight
    }
}

/// Encoders use one core each, so several run side by side; the longest first, lest one be left alone at the end.
fn save_all(
    job: &VipsJob,
    placements: &[Placement],
    sizes: &HashMap<Size, Frames>,
) -> Result<Vec<ImageOutput>, Failure> {
    let mut tasks = Vec::new();
    for (variant, placement) in placements.iter().enumerate() {
        let Some(frames) = sizes.get(&placement.scaled) else { continue };
        let formats = job.spec.variants[variant].formats.iter();
        tasks.extend(formats.map(|format| Task { variant, format: *format, placement: *placement, frames }));
    }
    tasks.sort_by_key(Task::cost);
    let threads = job.threads.clamp(1, tasks.len().max(1));
    let (left, made) = (Mutex::new(tasks), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(task) = next() {
                    let output = save(job, &task);
                    made.lock().unwrap_or_else(PoisonError::into_inner).push(output);
                }
            });
        }
    });
    let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut outputs = made.into_iter().collect::<Result<Vec<_>, _>>()?;
    let place = |output: &ImageOutput| {
        let formats = &job.spec.variants[output.variant].formats;
        (output.variant, formats.iter().position(|format| *format == output.format))
    };
    outputs.sort_by_key(place);
    Ok(outputs)
}

fn save(job: &VipsJob, task: &Task<'_>) -> Result<ImageOutput, Failure> {
    let frames = if task.format.can_move() { task.frames.clone() } else { task.frames.still() };
    let frames = frames.placed(task.placement).map_err(Failure::of_writing)?;
    let name = format!("variant-{}.{}", task.variant, task.format.extension());
    let quality = job.spec.variants[task.variant].quality;
    save::image(&frames, task.format, quality, job.spec.keep_metadata, &name)?;
    let (bytes, sha256) = save::measured(&name)?;
    let size = frames.size();
    Ok(ImageOutput {
        variant: task.variant,
        format: task.format,
        path: name.into(),
        bytes,
        width: size.width,
        height: size.height,
        frames: u32::try_from(frames.len()).unwrap_or(u32::MAX),
        sha256,
    })
}
