//! Proof that what was made is what was promised, before anyone is told of it.
//!
//! A program's exit code is no proof: half of a file encodes "successfully". So every segment is read: its frames are
//! counted, their times are held against the one grid over every joint, its first frame must be a key frame, all rungs
//! must agree, the sound must be as long as the picture, the ends must decode, and every file gets its hash.

mod decode;
mod timing;

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::damage;
use crate::digest::sha256_hex;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::isobmff::{IsobmffError, MediaSegment, Mp4Summary, Track, TrackKind, read_init, read_segment};
use crate::playlist::{AudioRendition, MediaFacts, Presentation, SegmentFact, VideoRendition};
use crate::rational::Rational;
use crate::tool::Toolbox;

const STEP: &str = "verify";
/// Sound is made of frames of its own, of which one may stand out on either side.
const SOUND_TOLERANCE_US: u64 = 100_000;

/// What the plan said there would be.
#[derive(Debug, Clone, PartialEq)]
pub struct Promise {
    pub rungs: Vec<PromisedRung>,
    /// Frames of each segment, the same in every rung.
    pub segment_frames: Vec<u32>,
    /// `None` where frames come at no one pace, because they were copied.
    pub frame_rate: Option<Rational>,
    /// The constant offset of all times, in seconds.
    pub offset: Rational,
    /// `None` where there is no sound.
    pub sound: Option<PromisedSound>,
    /// How many frames of all segments are not what the source showed, as [`crate::SegmentDone`] tells.
    pub damaged_frames: u64,
    /// How many frames the end may differ by, where the source's length was an estimate.
    pub end_tolerance_frames: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromisedSound {
    pub segments: usize,
    pub duration_us: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromisedRung {
    pub name: String,
    pub width: u32,
    pub height: u32,
}

/// A rendition as it lies on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeRendition {
    pub name: String,
    pub init: PathBuf,
    pub segments: Vec<PathBuf>,
    /// What was told of each segment when it was made.
    pub hashes: Vec<SegmentHashes>,
}

/// In lowercase hex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentHashes {
    pub sha256: String,
    /// Of the init segment that it was made with. All of a rendition have one.
    pub init_sha256: String,
}

/// What was found, all of it as promised.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    pub video: Vec<VerifiedRendition>,
    pub audio: Option<VerifiedRendition>,
    /// Of the picture; of the sound, where there is no picture.
    pub duration_us: u64,
    pub frames: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct VerifiedRendition {
    pub name: String,
    pub track: Track,
    pub init: VerifiedFile,
    pub segments: Vec<VerifiedFile>,
    /// With the files' names as addresses.
    pub facts: Vec<SegmentFact>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// In lowercase hex.
    pub sha256: String,
}

/// Checks everything that a film consists of. `source` is the look at the source's atoms, where it has atoms.
pub async fn verify(
    toolbox: &Toolbox,
    promise: &Promise,
    video: &[MadeRendition],
    audio: Option<&MadeRendition>,
    source: Option<&Mp4Summary>,
    cancel: &CancellationToken,
) -> Result<Verified> {
    source.map_or(Ok(()), Mp4Summary::require_whole)?;
    let mut rungs = Vec::with_capacity(video.len());
    for made in video {
        rungs.push(Examined::read(made).await?);
    }
    let sound = match audio {
        Some(made) => Some(Examined::read(made).await?),
        None => None,
    };
    promise.check_presence(&rungs, sound.as_ref())?;
    promise.check_frames(&rungs)?;
    for rung in &rungs {
        promise.check_size(rung)?;
        rung.require_keyframes()?;
        timing::check(promise, rung)?;
    }
    promise.check_damage()?;
    let duration_us = rungs.first().or(sound.as_ref()).map_or(0, Examined::duration_us);
    if let (Some(sound), Some(promised)) = (&sound, promise.sound) {
        sound.require_continuity()?;
        sound.require_lasting_frames()?;
        let picture = rungs.first().map(|rung| (rung.segments.len(), rung.duration_us()));
        check_sound(sound, promised, picture, promise.offset)?;
    }
    for rendition in rungs.iter().chain(&sound) {
        decode::check_ends(toolbox, rendition, cancel).await?;
    }
    Ok(Verified {
        frames: rungs.first().map_or(0, Examined::frames),
        video: rungs.into_iter().map(|rung| rung.verified).collect(),
        audio: sound.map(|sound| sound.verified),
        duration_us,
    })
}

impl Verified {
    /// The film for manifests, with every file where `uri` says. A rendition's playlists are named after it:
    /// `720p.m3u8`, `720p-keyframes.m3u8`.
    pub fn presentation(
        &self,
        offset: Rational,
        frame_rate: Rational,
        uri: impl Fn(&VerifiedRendition, &VerifiedFile) -> String,
    ) -> Presentation {
        let media = |rendition: &VerifiedRendition| {
            let segments = rendition.facts.iter().zip(&rendition.segments);
            let segments =
                segments.map(|(fact, file)| SegmentFact { uri: uri(rendition, file), ..fact.clone() });
            MediaFacts::of(&rendition.track, uri(rendition, &rendition.init), segments.collect())
        };
        let rung = |rung: &VerifiedRendition| {
            let made = VideoRendition::of(&rung.name, &rung.track, frame_rate, media(rung))?;
            Some(VideoRendition { keyframes_uri: Some(format!("{}-keyframes.m3u8", rung.name)), ..made })
        };
        let sound = |sound: &VerifiedRendition| AudioRendition::of(&sound.name, &sound.track, media(sound));
        Presentation {
            video: self.video.iter().filter_map(rung).collect(),
            audio: self.audio.as_ref().and_then(sound),
            offset,
        }
    }
}

/// A rendition that was read.
#[derive(Debug)]
struct Examined {
    verified: VerifiedRendition,
    segments: Vec<MediaSegment>,
}

impl Examined {
    async fn read(made: &MadeRendition) -> Result<Self> {
        let made = made.clone();
        let read = tokio::task::spawn_blocking(move || Self::read_blocking(&made)).await;
        read.map_err(|error| wrong(format!("the reading of segments ended: {error}")))?
    }

    fn read_blocking(made: &MadeRendition) -> Result<Self> {
        let (init, bytes) = hashed(&made.init)?;
        let unlike = |error: IsobmffError| error.of_output(STEP, format!("{}: init segment", made.name));
        let track = read_init(&bytes).map_err(unlike)?.only_track().map_err(unlike)?.clone();
        let mut examined = Self {
            verified: VerifiedRendition {
                name: made.name.clone(),
                track,
                init,
                segments: Vec::new(),
                facts: Vec::new(),
            },
            segments: Vec::new(),
        };
        if made.hashes.len() != made.segments.len() {
            let (told, there) = (made.hashes.len(), made.segments.len());
            return Err(wrong(format!("{}: {told} hashes for {there} segments", made.name)));
        }
        for (number, (path, told)) in made.segments.iter().zip(&made.hashes).enumerate() {
            let (file, bytes) = hashed(path)?;
            told.require(made, number, &file, &examined.verified.init)?;
            let what = || format!("{}: segment {number}", made.name);
            let segment = read_segment(&bytes, &examined.verified.track)
                .map_err(|error| error.of_output(STEP, what()))?;
            let uri = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            examined.verified.facts.push(SegmentFact::of(uri, &segment));
            examined.verified.segments.push(file);
            examined.segments.push(segment);
        }
        Ok(examined)
    }

    fn name(&self) -> &str {
        &self.verified.name
    }

    /// A frame without a length is played for no time, and whatever follows comes early.
    fn require_lasting_frames(&self) -> Result<()> {
        let has_none = |segment: &MediaSegment| segment.samples.iter().any(|sample| sample.duration == 0);
        match self.segments.iter().position(has_none) {
            Some(number) => {
                Err(wrong(format!("{}: a frame of segment {number} lasts for no time", self.name())))
            }
            None => Ok(()),
        }
    }

    fn frames(&self) -> u64 {
        self.segments.iter().map(|segment| segment.samples.len() as u64).sum()
    }

    fn segment_frames(&self) -> Vec<u64> {
        self.segments.iter().map(|segment| segment.samples.len() as u64).collect()
    }

    fn duration_us(&self) -> u64 {
        self.microseconds(self.segments.iter().map(MediaSegment::duration_ticks).sum())
    }

    fn microseconds(&self, ticks: u64) -> u64 {
        let us = u128::from(ticks) * 1_000_000 / u128::from(self.verified.track.timescale.max(1));
        u64::try_from(us).unwrap_or(u64::MAX)
    }

    fn require_keyframes(&self) -> Result<()> {
        let first_is_sync =
            |segment: &MediaSegment| segment.samples.first().is_some_and(|sample| sample.is_sync);
        match self.segments.iter().position(|segment| !first_is_sync(segment)) {
            None => Ok(()),
            Some(number) => {
                Err(wrong(format!("{}: segment {number} does not begin with a key frame", self.name())))
            }
        }
    }

    /// Each segment begins where the one before it ends.
    fn require_continuity(&self) -> Result<()> {
        for (number, pair) in self.segments.windows(2).enumerate() {
            let (ends, begins) = (pair[0].decode_start() + pair[0].duration_ticks(), pair[1].decode_start());
            if ends != begins {
                return Err(wrong(format!(
                    "{}: segment {number} ends at {ends}, and segment {} begins at {begins}",
                    self.name(),
                    number + 1
                )));
            }
        }
        Ok(())
    }
}

impl Promise {
    fn check_presence(&self, rungs: &[Examined], sound: Option<&Examined>) -> Result<()> {
        let (promised, made): (Vec<&str>, Vec<&str>) = (
            self.rungs.iter().map(|rung| rung.name.as_str()).collect(),
            rungs.iter().map(Examined::name).collect(),
        );
        if promised != made {
            return Err(wrong(format!("rungs {promised:?} were promised, and {made:?} made")));
        }
        match (self.sound, sound) {
            (Some(_), None) => Err(wrong("sound was promised, and none made")),
            (None, Some(_)) => Err(wrong("no sound was promised, and some made")),
            (Some(_), Some(sound)) if sound.segments.is_empty() => Err(wrong("the sound has no segments")),
            _ => Ok(()),
        }
    }

    /// Each range may be damaged a little, and the whole too much.
    fn check_damage(&self) -> Result<()> {
        let frames: u64 = self.segment_frames.iter().map(|frames| u64::from(*frames)).sum();
        let rate = self.frame_rate.unwrap_or(Rational::ONE).as_f64();
        let lasts_us = |frames: u64| (frames as f64 / rate * 1e6) as u64;
        if !damage::is_too_much(lasts_us(self.damaged_frames), lasts_us(frames)) {
            return Ok(());
        }
        let what = format!("{} frames of {frames} cannot be decoded", self.damaged_frames);
        Err(MediaError::bad_input(InputProblem::Corrupt, At::new(STEP, what)))
    }

    /// Rungs must agree with each other. If they agree in ending early, then the source did.
    fn check_frames(&self, rungs: &[Examined]) -> Result<()> {
        let Some(first) = rungs.first() else { return Ok(()) };
        let made = first.segment_frames();
        for rung in rungs {
            let other = rung.segment_frames();
            if let Some(number) = (0..made.len().max(other.len())).find(|at| made.get(*at) != other.get(*at))
            {
                return Err(wrong(format!(
                    "segment {number} has {} frames in {} and {} in {}",
                    told(made.get(number)),
                    first.name(),
                    told(other.get(number)),
                    rung.name()
                )));
            }
        }
        let promised: Vec<u64> = self.segment_frames.iter().map(|frames| u64::from(*frames)).collect();
        self.compare(first.name(), &promised, &made)
    }

    fn compare(&self, name: &str, promised: &[u64], made: &[u64]) -> Result<()> {
        let (expected, found): (u64, u64) = (promised.iter().sum(), made.iter().sum());
        let missing_only_at_end = made.len() <= promised.len()
            && made.iter().zip(promised).enumerate().all(|(number, (made_frames, frames))| {
                made_frames == frames || (number + 1 == made.len() && made_frames < frames)
            });
        if expected.abs_diff(found) <= u64::from(self.end_tolerance_frames) && made.len() == promised.len() {
            let inner = made.len().saturating_sub(1);
            if made[..inner] == promised[..inner] {
                return Ok(());
            }
        }
        if missing_only_at_end && found < expected {
            let what = format!("the picture ends after {found} frames of {expected}");
            return Err(MediaError::bad_input(InputProblem::Truncated, At::new(STEP, what)));
        }
        let number = (0..made.len().max(promised.len()))
            .find(|at| made.get(*at) != promised.get(*at))
            .unwrap_or_default();
        Err(wrong(format!(
            "{name}: segment {number} has {} frames, and {} were promised",
            told(made.get(number)),
            told(promised.get(number))
        )))
    }

    fn check_size(&self, rung: &Examined) -> Result<()> {
        let promised = self.rungs.iter().find(|promised| promised.name == rung.name());
        let (TrackKind::Video { width, height }, Some(promised)) = (rung.verified.track.kind, promised)
        else {
            return Err(wrong(format!("{}: not a picture", rung.name())));
        };
        if (width, height) != (promised.width, promised.height) {
            return Err(wrong(format!(
                "{}: {width}x{height} pixels, and {}x{} were promised",
                rung.name(),
                promised.width,
                promised.height
            )));
        }
        Ok(())
    }
}

fn check_sound(
    sound: &Examined,
    promised: PromisedSound,
    picture: Option<(usize, u64)>,
    offset: Rational,
) -> Result<()> {
    let made = sound.segments.len();
    if let Some((segments, _)) = picture.filter(|(segments, _)| *segments != made) {
        return Err(wrong(format!("{made} segments of sound beside {segments} of picture")));
    }
    if made != promised.segments {
        return Err(wrong(format!("{made} segments of sound, and {} were promised", promised.segments)));
    }
    let begins_us = sound.microseconds(sound.segments.first().map_or(0, MediaSegment::presentation_start));
    let zero_us = offset.scale(1_000_000).and_then(|us| u64::try_from(us).ok()).unwrap_or(0);
    if begins_us.abs_diff(zero_us) > SOUND_TOLERANCE_US {
        return Err(wrong(format!("the sound begins at {begins_us} us, and the picture at {zero_us} us")));
    }
    let lasts_us = sound.duration_us();
    match picture {
        Some((_, picture_us)) if lasts_us.abs_diff(picture_us) > SOUND_TOLERANCE_US => {
            Err(wrong(format!("{lasts_us} us of sound beside {picture_us} us of picture")))
        }
        None if lasts_us.abs_diff(promised.duration_us) > SOUND_TOLERANCE_US => {
            Err(wrong(format!("{lasts_us} us of sound, and {} us were promised", promised.duration_us)))
        }
        _ => Ok(()),
    }
}

impl SegmentHashes {
    fn require(
        &self,
        made: &MadeRendition,
        number: usize,
        file: &VerifiedFile,
        init: &VerifiedFile,
    ) -> Result<()> {
        let name = &made.name;
        if self.sha256 != file.sha256 {
            return Err(wrong(format!("{name}: segment {number} has other bytes than were made")));
        }
        if self.init_sha256 != init.sha256 {
            return Err(wrong(format!("{name}: segment {number} was made with another init segment")));
        }
        Ok(())
    }
}

fn told(frames: Option<&u64>) -> String {
    frames.map_or_else(|| "no".to_owned(), ToString::to_string)
}

/// Reads a file and hashes what was read.
fn hashed(path: &Path) -> Result<(VerifiedFile, Vec<u8>)> {
    let what = || format!("{} cannot be read", path.file_name().unwrap_or_default().to_string_lossy());
    let bytes = std::fs::read(path).map_err(|error| MediaError::io(STEP, what(), &error))?;
    let sha256 = sha256_hex(&bytes);
    Ok((VerifiedFile { path: path.to_owned(), bytes: bytes.len() as u64, sha256 }, bytes))
}

/// What no input can be blamed for.
fn wrong(what: impl Into<String>) -> MediaError {
    MediaError::unexpected(At::new(STEP, what))
}
