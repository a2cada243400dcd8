//! The sound of a film: encoded once, whole, by one encoder, and cut at the film's segment boundaries afterwards.
//!
//! Sound that is encoded in pieces gains a few milliseconds at every joint (139 ms over three of them, measured), because
//! an encoder pads its first and its last frame. Here the frames of one encoder are only sorted into segments, each cut
//! at the frame nearest to the picture's boundary; played one after another they are the whole again, to the sample.
//!
//! An encoder's first frame is for the decoder only (1,024 samples of AAC, 312 of Opus). It lies before the film's zero,
//! which is why the constant offset must leave room for it.

mod cut;
mod decode;
mod encode;
mod meter;

use std::path::{Path, PathBuf};

pub(crate) use encode::pieces;

use tokio_util::sync::CancellationToken;

use crate::damage;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::isobmff::Track;
use crate::limits::Limits;
use crate::loudness::LoudnessMeasure;
use crate::playlist::SegmentFact;
use crate::probe::Probe;
use crate::rational::Rational;
use crate::recipe::{AudioCodec, Loudness};
use crate::tool::{Progress, Toolbox};
use crate::verify::{MadeRendition, SegmentHashes};

const STEP: &str = "encode_audio";
/// Every soundtrack has this rate: what browsers' mixers run at.
pub(crate) const SAMPLE_RATE: u32 = 48_000;
/// Sound that stops so much before its own container says is missing its end.
const MISSING_END_US: u64 = 500_000;

/// What is to be made of which sound.
#[derive(Debug, Clone)]
pub struct SoundtrackSpec<'a> {
    pub source: &'a Path,
    /// Of the source. Its default audio stream is taken.
    pub probe: &'a Probe,
    pub limits: &'a Limits,
    /// AAC or Opus.
    pub codec: AudioCodec,
    pub kbits: u32,
    pub channels: Channels,
    pub loudness: Loudness,
    /// Where in the source the film's zero is, counted from the source's own start ([`Probe::start_us`]).
    pub zero_us: u64,
    /// How long the film is, in seconds: the sound is cut or filled with silence to it.
    pub duration: Rational,
    /// The film's constant offset, in seconds.
    pub offset: Rational,
    /// Where the film's segments begin, in seconds from its zero; the first, at zero, is not named.
    pub boundaries: &'a [Rational],
    /// An empty folder for what is made.
    pub folder: &'a Path,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Channels {
    /// As the source has them, up to 5.1.
    Keep,
    /// Mixed down to two, where there are more.
    #[default]
    Stereo,
}

/// What was made.
#[derive(Debug, Clone)]
pub struct Soundtrack {
    pub init: PathBuf,
    /// As many as the film has segments.
    pub segments: Vec<PathBuf>,
    /// Of each segment.
    pub hashes: Vec<SegmentHashes>,
    pub facts: Vec<SegmentFact>,
    pub track: Track,
    /// Before any change.
    pub source_loudness: LoudnessMeasure,
    /// As encoded.
    pub loudness: LoudnessMeasure,
    /// How far the source's sound reaches from the film's zero on, in microseconds.
    pub decoded_us: u64,
    /// How much of that is silence because it could not be decoded: worth a warning.
    pub damaged_us: u64,
}

/// Encodes and cuts the sound. Its bytes depend on the source and the spec alone.
pub async fn make_soundtrack(
    toolbox: &Toolbox,
    spec: &SoundtrackSpec<'_>,
    on_progress: &(dyn Fn(Progress) + Sync),
    cancel: &CancellationToken,
) -> Result<Soundtrack> {
    spec.check()?;
    let encoded = encode::encode(toolbox, spec, on_progress, cancel).await?;
    spec.require_all(encoded.decoded_us)?;
    if spec.probe.format.guesses_length() {
        // Nobody may have told how much there should be.
        spec.probe.require_uncut(spec.source, STEP).await?;
    }
    spec.require_sound(encoded.damaged_us)?;

    let cut = cut::Cut {
        whole: encoded.whole.clone(),
        whole_zero: encode::WHOLE_OFFSET_TICKS,
        offset_ticks: spec.ticks(spec.offset)?,
        boundaries: spec.boundaries.iter().map(|at| spec.ticks(*at)).collect::<Result<_>>()?,
        frame_ticks: None,
        folder: spec.folder.to_owned(),
        name: "audio".to_owned(),
    };
    let made = cut.run().await?;
    tokio::fs::remove_file(&encoded.whole)
        .await
        .map_err(|error| MediaError::io(STEP, "the uncut sound cannot be removed", &error))?;
    Ok(Soundtrack {
        init: made.init,
        segments: made.segments,
        hashes: made.hashes,
        facts: made.facts,
        track: made.track,
        source_loudness: encoded.source_loudness,
        loudness: encoded.loudness,
        decoded_us: encoded.decoded_us,
        damaged_us: encoded.damaged_us,
    })
}

pub(crate) use cut::Cut;

impl Soundtrack {
    /// For [`crate::verify()`].
    pub fn rendition(&self) -> MadeRendition {
        MadeRendition {
            name: "audio".to_owned(),
            init: self.init.clone(),
            segments: self.segments.clone(),
            hashes: self.hashes.clone(),
        }
    }
}

impl SoundtrackSpec<'_> {
    fn check(&self) -> Result<()> {
        if self.probe.audio().is_none() {
            let what = "the source has no sound";
            return Err(MediaError::bad_input(InputProblem::NoSuchStream, At::new(STEP, what)));
        }
        if !matches!(self.codec, AudioCodec::Aac | AudioCodec::Opus) {
            let reason = "AAC or Opus: MP3 has no place in fragmented MP4".to_owned();
            return Err(MediaError::BadRecipe { field: "audio.codec".into(), reason });
        }
        if !self.duration.is_positive() {
            return Err(MediaError::unexpected(At::new(STEP, "a film without duration")));
        }
        Ok(())
    }

    fn ticks(&self, seconds: Rational) -> Result<i64> {
        seconds.scale(i64::from(SAMPLE_RATE)).ok_or_else(|| {
            MediaError::unexpected(At::new(STEP, format!("{seconds} s is out of any clock's range")))
        })
    }

    fn require_sound(&self, damaged_us: u64) -> Result<()> {
        let film_us = self.duration.scale(1_000_000).and_then(|us| u64::try_from(us).ok()).unwrap_or(0);
        if damage::is_too_much(damaged_us, film_us) {
            let what = format!("{damaged_us} us of sound cannot be decoded, of a film of {film_us} us");
            return Err(MediaError::bad_input(InputProblem::Corrupt, At::new(STEP, what)));
        }
        Ok(())
    }

    /// A program that meets the end of a cut file calls it success; only the count tells.
    fn require_all(&self, decoded_us: u64) -> Result<()> {
        let Some(audio) = self.probe.audio() else { return Ok(()) };
        // The file's own length is that of its sound where there is nothing else and it is no guess.
        let is_told = self.probe.video().is_none() && !self.probe.format.guesses_length();
        let whole_us = || self.probe.duration_us.filter(|_| is_told);
        let Some(duration_us) = audio.duration_us.or_else(whole_us) else { return Ok(()) };
        // From the film's zero to the end that the stream claims, and no further than the film.
        let late_us = audio.start_us.saturating_sub(self.probe.start_us);
        let claimed_end_us = late_us.saturating_add_unsigned(duration_us);
        let claimed_us = claimed_end_us.saturating_sub_unsigned(self.zero_us);
        let film_us = self.duration.scale(1_000_000).unwrap_or(i64::MAX);
        let expected_us = u64::try_from(claimed_us.min(film_us)).unwrap_or(0);
        if decoded_us.saturating_add(MISSING_END_US) >= expected_us {
            return Ok(());
        }
        let what = format!("the sound ends after {decoded_us} us of {expected_us}");
        Err(MediaError::bad_input(InputProblem::Truncated, At::new(STEP, what)))
    }
}
