//! Stream copy: a source that is already as players want it is not encoded again, only put into other boxes.
//!
//! Both streams are copied or neither: a copied picture beside encoded sound would keep no common clock. One process
//! reads the source once and writes a fragment for each of its key frames; the fragments are then sorted into segments,
//! so nothing is decoded and the list of key frames comes for nothing.

mod group;
mod independence;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::ending::require_whole;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::isobmff::Track;
use crate::limits::Limits;
use crate::plan::copy_obstacle;
use crate::playlist::SegmentFact;
use crate::probe::{Probe, file_url, input_args};
use crate::progressive::{Progressive, patient};
use crate::rational::Rational;
use crate::recipe::VideoCodec;
use crate::sniff::Format;
use crate::soundtrack::Cut;
use crate::tool::{Output, Program, Tool, Toolbox};
use crate::verify::MadeRendition;

use independence::Units;

const STEP: &str = "remux";
/// Frames of AAC, whatever a container rounds them to.
const AAC_FRAME_TICKS: u32 = 1024;
/// Sound may begin or end that far from the picture; more, and it has to be filled with silence, which needs an encoder.
const SOUND_MAY_DIFFER_US: i64 = 100_000;
/// A picture that stops so much before its own container says is missing its end.
const MISSING_END_US: u64 = 500_000;

/// What is to be copied.
#[derive(Debug, Clone)]
pub struct RemuxSpec<'a> {
    pub source: &'a Path,
    pub probe: &'a Probe,
    pub limits: &'a Limits,
    /// The length that segments should have; they begin at the source's key frames.
    pub segment_seconds: u32,
    /// The film's constant offset, in seconds.
    pub offset: Rational,
    /// An empty folder for what is made.
    pub folder: &'a Path,
}

/// What came of it.
#[derive(Debug)]
pub enum Remux {
    Done(Box<Remuxed>),
    /// The source cannot be copied after all, which only its packets told: encode it.
    Unfit(String),
}

/// A rung in segments, and its sound.
#[derive(Debug)]
pub struct Remuxed {
    pub video: MadeRendition,
    pub video_track: Track,
    pub video_facts: Vec<SegmentFact>,
    pub audio: Option<MadeRendition>,
    pub audio_track: Option<Track>,
    pub audio_facts: Vec<SegmentFact>,
    /// For [`crate::Promise::segment_frames`].
    pub segment_frames: Vec<u32>,
    /// How long it took.
    pub wall: Duration,
}

impl Remuxed {
    /// How many times faster than an encode of the same source this was.
    pub fn times_faster_than(&self, encode_wall: Duration) -> f64 {
        encode_wall.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }
}

/// Copies the source into segments that begin at its key frames.
pub async fn remux_to_segments(
    toolbox: &Toolbox,
    spec: &RemuxSpec<'_>,
    cancel: &CancellationToken,
) -> Result<Remux> {
    let started_at = Instant::now();
    if let Some(why) = copy_obstacle(spec.probe) {
        return Ok(Remux::Unfit(why));
    }
    spec.require_whole().await?;
    let (video_whole, audio_whole) = (spec.absolute("video-whole.mp4")?, spec.absolute("audio-whole.mp4")?);
    let has_audio = spec.probe.audio().is_some();
    let mut tool = spec.fragmented(spec.tool(toolbox)?, spec.video_index(), "+frag_keyframe", &video_whole);
    if let Some(audio) = spec.probe.audio() {
        tool = spec.fragmented(tool, audio.index, "", &audio_whole);
    }
    tool.start(cancel)?.finish().await?;

    let grouped = group::Group {
        whole: video_whole.clone(),
        units: if spec.is_h265() { Units::H265 } else { Units::H264 },
        offset: spec.offset,
        segment_seconds: spec.segment_seconds,
        folder: spec.folder.to_owned(),
    };
    let video = match grouped.run().await? {
        Ok(video) => video,
        Err(why) => return Ok(Remux::Unfit(why)),
    };
    remove(&video_whole).await?;
    spec.require_end(video.duration_us)?;
    let mut made = Remuxed {
        segment_frames: video.facts.iter().map(|fact| fact.frames).collect(),
        video: MadeRendition {
            name: "video".to_owned(),
            init: video.init,
            segments: video.segments,
            hashes: video.hashes,
        },
        video_track: video.track,
        video_facts: video.facts,
        audio: None,
        audio_track: None,
        audio_facts: Vec::new(),
        wall: Duration::ZERO,
    };
    if has_audio {
        if let Err(why) = add_sound(spec, &mut made, &audio_whole, video.duration_us).await? {
            return Ok(Remux::Unfit(why));
        }
        remove(&audio_whole).await?;
    }
    spec.require_whole_length(video.duration_us)?;
    made.wall = started_at.elapsed();
    Ok(Remux::Done(Box::new(made)))
}

/// Copies the source into one MP4 that plays from its first bytes on.
pub async fn remux_to_mp4(
    toolbox: &Toolbox,
    spec: &RemuxSpec<'_>,
    cancel: &CancellationToken,
) -> Result<Progressive> {
    spec.require_whole().await?;
    let output = spec.absolute("copy.mp4")?;
    let mut tool = spec.tool(toolbox)?.args(["-map", &format!("0:{}", spec.video_index())]);
    if let Some(audio) = spec.probe.audio() {
        tool = tool.args(["-map", &format!("0:{}", audio.index)]);
    }
    let tool = tool
        .args(["-c", "copy", "-bitexact", "-map_metadata", "-1", "-map_chapters", "-1"])
        .args(spec.tag_of_picture(spec.video_index()))
        .args(["-movflags", "+faststart", "-f", "mp4", "-y"])
        .arg(file_url(&output));
    tool.start(cancel)?.finish().await?;
    let made = Progressive::examined(output).await?;
    if let Some(duration_us) = made.duration_us {
        spec.require_end(duration_us)?;
        spec.require_whole_length(duration_us)?;
    }
    Ok(made)
}

async fn add_sound(
    spec: &RemuxSpec<'_>,
    made: &mut Remuxed,
    whole: &Path,
    video_us: u64,
) -> Result<Result<(), String>> {
    let rate = spec.probe.audio().map_or(1, |audio| audio.sample_rate);
    let ticks = |seconds: Rational| {
        seconds.scale(i64::from(rate)).ok_or_else(|| {
            MediaError::unexpected(At::new(STEP, format!("{seconds} s is out of any clock's range")))
        })
    };
    let offset_ticks = ticks(spec.offset)?;
    let (timescale, zero) = (i64::from(made.video_track.timescale), spec.offset);
    let boundaries = made.video_facts.iter().skip(1).map(|fact| {
        let at = Rational::new(fact.start_ticks.cast_signed(), timescale).unwrap_or(zero);
        ticks(at).map(|at| at - offset_ticks)
    });
    let cut = Cut {
        whole: whole.to_owned(),
        whole_zero: offset_ticks,
        offset_ticks,
        boundaries: boundaries.collect::<Result<_>>()?,
        frame_ticks: Some(AAC_FRAME_TICKS),
        folder: spec.folder.to_owned(),
        name: "audio".to_owned(),
    };
    let sound = cut.run().await?;
    if sound.track.timescale != rate || sound.worst_gap_ticks > u64::from(AAC_FRAME_TICKS) {
        return Ok(Err("the sound has gaps".to_owned()));
    }
    let us = |ticks: i64| ticks * 1_000_000 / i64::from(rate);
    let begins_us = us(sound.facts.first().map_or(0, |fact| fact.start_ticks.cast_signed()) - offset_ticks);
    let lasts_us = us(sound.facts.iter().map(|fact| fact.duration_ticks.cast_signed()).sum());
    if begins_us.abs() > SOUND_MAY_DIFFER_US
        || (lasts_us - video_us.cast_signed()).abs() > SOUND_MAY_DIFFER_US
        || sound.facts.len() != made.video_facts.len()
    {
        return Ok(Err(format!("the sound begins {begins_us} us from the picture and lasts {lasts_us} us")));
    }
    made.audio = Some(MadeRendition {
        name: "audio".to_owned(),
        init: sound.init,
        segments: sound.segments,
        hashes: sound.hashes,
    });
    made.audio_track = Some(sound.track);
    made.audio_facts = sound.facts;
    Ok(Ok(()))
}

impl RemuxSpec<'_> {
    fn video_index(&self) -> u32 {
        self.probe.video().map_or(0, |video| video.index)
    }

    fn absolute(&self, name: &str) -> Result<PathBuf> {
        std::path::absolute(self.folder.join(name))
            .map_err(|error| MediaError::io(STEP, "the folder has no path", &error))
    }

    fn tool(&self, toolbox: &Toolbox) -> Result<Tool> {
        let source = std::path::absolute(self.source)
            .map_err(|error| MediaError::io(STEP, "the input has no path", &error))?;
        let folder = std::path::absolute(self.folder)
            .map_err(|error| MediaError::io(STEP, "the folder has no path", &error))?;
        let limits = patient(self.probe.duration().unwrap_or_default());
        Ok(toolbox
            .tool(Program::Ffmpeg, STEP)?
            .args(input_args(&source, self.probe.format, self.limits)?)
            .readable(&source)
            .scratch(folder)
            .stdout(Output::Progress)
            .limits(limits))
    }

    /// One stream into a fragmented file on the film's clock. The index waits for the first packets (`delay_moov`),
    /// because AAC out of a transport stream has its header in them. Without `use_editlist 0` FFmpeg counts on an edit
    /// list that fragments do not have, and shifts the picture by its reordering delay.
    fn fragmented(&self, tool: Tool, index: u32, movflags: &str, output: &Path) -> Tool {
        // The film's zero is its first picture; the file may begin with sound.
        let begins_us = self.probe.video().map_or(0, |video| video.start_us - self.probe.start_us);
        let offset_us = self.offset.scale(1_000_000).unwrap_or(0) - begins_us;
        tool.args(["-map", &format!("0:{index}"), "-c", "copy", "-bitexact"])
            .args(self.filter_of_sound(index))
            .args(self.tag_of_picture(index))
            .args(["-map_metadata", "-1", "-map_chapters", "-1"])
            .args(["-output_ts_offset", &format!("{offset_us}us"), "-avoid_negative_ts", "disabled"])
            .args(["-use_editlist", "0", "-frag_duration", &self.longest_fragment_us().to_string()])
            .args(["-movflags", &format!("+delay_moov+default_base_moof+frag_discont{movflags}")])
            .args(["-f", "mp4", "-y"])
            .arg(file_url(output))
    }

    /// Fragments are read whole. One that is longer is of no segment anyway.
    fn longest_fragment_us(&self) -> u64 {
        u64::from(self.segment_seconds.max(1)) * 1_000_000 * group::LONGEST_TIMES
    }

    /// With `delay_moov` FFmpeg does not add by itself (5.1) what AAC out of a transport stream needs.
    fn filter_of_sound(&self, index: u32) -> &'static [&'static str] {
        let is_sound = self.probe.audio().is_some_and(|audio| audio.index == index);
        if is_sound && self.probe.format == Format::MpegTs { &["-bsf:a", "aac_adtstoasc"] } else { &[] }
    }

    fn is_h265(&self) -> bool {
        self.probe.video().is_some_and(|video| video.codec == VideoCodec::H265.ffmpeg_name())
    }

    /// Players of Apple take H.265 only where its parameter sets are in the index alone, which is what `hvc1` says.
    fn tag_of_picture(&self, index: u32) -> &'static [&'static str] {
        if index == self.video_index() && self.is_h265() { &["-tag:v", "hvc1"] } else { &[] }
    }

    /// It was when it was probed; but files may be cut after that, and FFmpeg copies what is left.
    async fn require_whole(&self) -> Result<()> {
        self.probe.require_uncut(self.source, STEP).await?;
        require_whole(self.source, self.probe.format, STEP).await
    }

    fn require_end(&self, made_us: u64) -> Result<()> {
        let claimed_us = self.probe.video().and_then(|video| video.duration_us);
        claimed_us.map_or(Ok(()), |claimed_us| ends_in_time(made_us, claimed_us))
    }

    /// Where the picture's own length is not told, the file's is: sound that fits beside the picture is as long.
    fn require_whole_length(&self, made_us: u64) -> Result<()> {
        let Some(video) = self.probe.video().filter(|video| video.duration_us.is_none()) else {
            return Ok(());
        };
        let late_us = u64::try_from(video.start_us.saturating_sub(self.probe.start_us)).unwrap_or(0);
        let claimed_us = self.probe.duration_us.map(|us| us.saturating_sub(late_us));
        claimed_us.map_or(Ok(()), |claimed_us| ends_in_time(made_us, claimed_us))
    }
}

fn ends_in_time(made_us: u64, claimed_us: u64) -> Result<()> {
    if made_us.saturating_add(MISSING_END_US) >= claimed_us {
        return Ok(());
    }
    let what = format!("the picture ends after {made_us} us of {claimed_us}");
    Err(MediaError::bad_input(InputProblem::Truncated, At::new(STEP, what)))
}

async fn remove(path: &Path) -> Result<()> {
    tokio::fs::remove_file(path)
        .await
        .map_err(|error| MediaError::io(STEP, "an uncut file cannot be removed", &error))
}
