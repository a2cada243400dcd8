//! What the end of a child means.
//!
//! FFmpeg before 6.1 exits with 1 whatever went wrong, so its error strings, which have not changed in ten years, are
//! all there is; later ones exit with the low byte of the error. What neither tells is `tool_failed`, which is retried.

use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;

use super::{Program, Started};
use crate::capability::Piece;
use crate::error::{At, InputProblem, Interruption, MediaError};
use crate::sandbox::{Refusal, refusal};

/// The error of a child that was not stopped by us and did not exit with 0.
pub(super) fn failure(
    program: Started,
    status: ExitStatus,
    step: Cow<'static, str>,
    stderr_tail: String,
) -> MediaError {
    let verdict = match status.signal() {
        Some(signal) => of_last_words(&stderr_tail).unwrap_or_else(|| of_signal(signal)),
        // What a user's own program says may be about anything.
        None if program == Started::OfUser => of_launcher(status.code(), &stderr_tail)
            .or_else(|| of_code(status.code()))
            .unwrap_or(Verdict::Again(Interruption::Failed)),
        None => of_launcher(status.code(), &stderr_tail)
            .or_else(|| of_words(&stderr_tail))
            .or_else(|| of_code(status.code()))
            .or_else(|| of_speaker(&stderr_tail))
            .unwrap_or(Verdict::Again(Interruption::Failed)),
    };
    // Headers need next to no memory, so a table in them asks for it. Where memory is really short, the kernel kills.
    let verdict = match (program, verdict) {
        (Started::Tool(Program::Ffprobe), Verdict::Again(Interruption::OutOfMemory)) => {
            Verdict::Never(InputProblem::TooLarge)
        }
        (_, verdict) => verdict,
    };
    let at = At::new(step, format!("{program} ended with {status}")).with_stderr(stderr_tail);
    match verdict {
        Verdict::Never(problem) => MediaError::bad_input(problem, at),
        Verdict::Again(cause) => MediaError::interrupted(cause, at),
        Verdict::Install(piece) => MediaError::missing(vec![piece], at),
    }
}

/// Whether a user's own program ended with an exit code that says what it wanted to say. 137 is what a shell says when a
/// program that it started was killed.
pub(super) fn is_said_by_user(program: Started, status: ExitStatus, stderr_tail: &str) -> bool {
    let is_missing = matches!(refusal(status.code(), stderr_tail), Some(Refusal::Missing(_)));
    program == Started::OfUser && status.code().is_some_and(|code| code != 137) && !is_missing
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Never(InputProblem),
    Again(Interruption),
    Install(Piece),
}

fn of_launcher(code: Option<i32>, stderr: &str) -> Option<Verdict> {
    Some(match refusal(code, stderr)? {
        Refusal::Missing(feature) => Verdict::Install(Piece::Kernel(feature)),
        Refusal::Failed => Verdict::Again(Interruption::Io),
    })
}

/// What programs say that abort when they are refused memory: Rust's, GLib's, C++'s and C's.
const OUT_OF_MEMORY: &[&str] =
    &["memory allocation of ", "failed to allocate", "bad_alloc", "Cannot allocate memory", "malloc of size"];

/// A program that died of a signal may have told why.
fn of_last_words(stderr: &str) -> Option<Verdict> {
    let is_told = OUT_OF_MEMORY.iter().any(|words| stderr.contains(words));
    is_told.then_some(Verdict::Again(Interruption::OutOfMemory))
}

fn of_signal(signal: i32) -> Verdict {
    let is = |known: Signal| known.as_raw() == signal;
    if is(Signal::XCPU) {
        Verdict::Again(Interruption::TimeLimit)
    } else if is(Signal::XFSZ) {
        Verdict::Never(InputProblem::TooLarge)
    } else if is(Signal::SYS) {
        // Only a filter on system calls sends it: the child wanted what no decoder needs.
        Verdict::Never(InputProblem::Hostile)
    } else if [Signal::SEGV, Signal::ABORT, Signal::BUS, Signal::ILL, Signal::FPE].into_iter().any(is) {
        Verdict::Again(Interruption::Crashed)
    } else {
        Verdict::Again(Interruption::Killed)
    }
}

/// In order of importance: a full disk also makes a file "invalid", and too many streams "cannot allocate memory".
const WORDS: &[(&str, Verdict)] = &[
    ("not on whitelist", Verdict::Never(InputProblem::Hostile)),
    // Of a QuickTime file whose samples are said to be in other files.
    ("Skipped opening external track", Verdict::Never(InputProblem::Hostile)),
    ("exceeds max_streams", Verdict::Never(InputProblem::TooManyStreams)),
    ("No space left on device", Verdict::Again(Interruption::DiskFull)),
    ("Disk quota exceeded", Verdict::Again(Interruption::DiskFull)),
    ("Cannot allocate memory", Verdict::Again(Interruption::OutOfMemory)),
    ("out of memory", Verdict::Again(Interruption::OutOfMemory)),
    ("exceeds specified max pixel count", Verdict::Never(InputProblem::TooLarge)),
    ("File too large", Verdict::Never(InputProblem::TooLarge)),
    ("moov atom not found", Verdict::Never(InputProblem::Truncated)),
    ("partial file", Verdict::Never(InputProblem::Truncated)),
    ("File ended prematurely", Verdict::Never(InputProblem::Truncated)),
    ("Premature end of", Verdict::Never(InputProblem::Truncated)),
    ("Invalid data found when processing input", Verdict::Never(InputProblem::Corrupt)),
    (": End of file", Verdict::Never(InputProblem::Truncated)),
    ("Failed to read frame size: Could not seek", Verdict::Never(InputProblem::Truncated)),
    // With `-xerror`. A demuxer marks a packet as corrupt when the file ended inside it.
    ("corrupt input packet in stream", Verdict::Never(InputProblem::Truncated)),
    ("corrupt decoded frame", Verdict::Never(InputProblem::Corrupt)),
    // Of FFmpeg 7, and only when it gives up.
    ("Error processing packet in decoder", Verdict::Never(InputProblem::Corrupt)),
    ("ould not find codec parameters", Verdict::Never(InputProblem::Corrupt)),
    // Of a stream of sound of whose rate nothing could be found out.
    ("for parameter 'time_base' out of range", Verdict::Never(InputProblem::Corrupt)),
    ("Cannot determine format of input stream", Verdict::Never(InputProblem::Corrupt)),
    ("Error while opening decoder for input stream", Verdict::Never(InputProblem::Corrupt)),
    // Whatever the reason that follows, it is a decoder's: `Error while decoding stream #0:1: Invalid argument`.
    ("Error while decoding stream #", Verdict::Never(InputProblem::Corrupt)),
    ("Error submitting packet to decoder", Verdict::Never(InputProblem::Corrupt)),
    ("not found for input stream", Verdict::Never(InputProblem::Unsupported)),
    ("Not yet implemented in FFmpeg", Verdict::Never(InputProblem::Unsupported)),
    ("matches no streams", Verdict::Never(InputProblem::NoSuchStream)),
    // The graph that follows may be too long a line for what it says in the end: that it matches none.
    ("in filtergraph description", Verdict::Never(InputProblem::NoSuchStream)),
    ("does not contain any stream", Verdict::Never(InputProblem::NoSuchStream)),
];

fn of_words(stderr: &str) -> Option<Verdict> {
    if let Some(piece) = missing_piece(stderr) {
        return Some(Verdict::Install(piece));
    }
    WORDS.iter().find(|(words, _)| stderr.contains(words)).map(|(_, verdict)| verdict.copied())
}

/// Components that read, by the names under which they log.
const READERS: &[&str] = &[
    "aac",
    "aac_latm",
    "ac3",
    "alac",
    "amrnb",
    "amrwb",
    "ape",
    "av1",
    "avi",
    "dca",
    "dvvideo",
    "eac3",
    "ffv1",
    "flac",
    "flv",
    "gif",
    "h263",
    "h264",
    "hevc",
    "libdav1d",
    "libopus",
    "libvorbis",
    "libvpx",
    "libvpx-vp9",
    "matroska,webm",
    "mjpeg",
    "mov,mp4,m4a,3gp,3g2,mj2",
    "mp2",
    "mp3",
    "mp3float",
    "mpeg1video",
    "mpeg2video",
    "mpeg4",
    "mpegts",
    "msmpeg4v3",
    "ogg",
    "opus",
    "png",
    "prores",
    "rawvideo",
    "theora",
    "truehd",
    "vc1",
    "vorbis",
    "vp6f",
    "vp8",
    "vp9",
    "wav",
    "webp",
    "wmav2",
    "wmv3",
];

/// Under `-xerror` FFmpeg exits at the first error of a decoder, whose own words, one of thousands, are then the last:
/// `[aac @ 0x55d8] channel element 0.1 is not allocated`.
fn of_speaker(stderr: &str) -> Option<Verdict> {
    let last = stderr.lines().rfind(|line| !line.trim().is_empty())?;
    let (speaker, _) = last.strip_prefix('[')?.split_once(" @ 0x")?;
    READERS.contains(&speaker).then_some(Verdict::Never(InputProblem::Corrupt))
}

fn missing_piece(stderr: &str) -> Option<Piece> {
    let quoted = |before: &str| {
        let (_, rest) = stderr.split_once(before)?;
        let (name, _) = rest.split_once('\'')?;
        Some(Cow::Owned(name.to_owned()))
    };
    quoted("Unknown encoder '")
        .map(Piece::Encoder)
        .or_else(|| quoted("No such filter: '").map(Piece::Filter))
        .or_else(|| absent_hardware(stderr).map(|name| Piece::Encoder(Cow::Owned(name.to_owned()))))
}

/// `[h264_nvenc @ 0x0] Cannot load libcuda.so.1`: FFmpeg has the encoder, and the machine has not the hardware.
fn absent_hardware(stderr: &str) -> Option<&str> {
    let is_hardware = |name: &&str| ["_nvenc", "_qsv", "_videotoolbox"].iter().any(|end| name.ends_with(end));
    let speakers = stderr.lines().filter_map(|line| Some(line.strip_prefix('[')?.split_once(" @ 0x")?.0));
    let cannot_open = stderr.contains("Error while opening encoder");
    speakers.filter(is_hardware).find(|name| cannot_open && !name.contains('/'))
}

/// The low byte of `AVERROR` values.
fn of_code(code: Option<i32>) -> Option<Verdict> {
    match code? {
        183 => Some(Verdict::Never(InputProblem::Corrupt)),
        228 => Some(Verdict::Again(Interruption::DiskFull)),
        244 => Some(Verdict::Again(Interruption::OutOfMemory)),
        // A shell and a launcher say so when a member was killed or could not be executed.
        137 => Some(Verdict::Again(Interruption::Killed)),
        _ => None,
    }
}

impl Verdict {
    fn copied(&self) -> Self {
        match self {
            Self::Never(problem) => Self::Never(*problem),
            Self::Again(cause) => Self::Again(*cause),
            Self::Install(piece) => Self::Install(piece.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(raw_status: i32, stderr: &str) -> MediaError {
        failure(
            Started::Tool(Program::Ffmpeg),
            ExitStatus::from_raw(raw_status),
            "test".into(),
            stderr.to_owned(),
        )
    }

    #[test]
    fn bad_input_is_not_retried_and_bad_luck_is() {
        let exit_1 = 1 << 8;
        for (status, stderr, code, retryable) in [
            (exit_1, "in.mp4: Invalid data found when processing input", "input_corrupt", false),
            (exit_1, "[mov @ 0x1] moov atom not found\nInvalid data found when…", "input_truncated", false),
            (exit_1, "av_interleaved_write_frame(): No space left on device", "disk_full", true),
            (exit_1, "Error: Cannot allocate memory", "out_of_memory", true),
            (exit_1, "Protocol 'http' not on whitelist 'file,pipe'!", "input_hostile", false),
            (exit_1, "something new", "tool_failed", true),
            (exit_1, "[aac @ 0x55d8] channel element 0.1 is not allocated", "input_corrupt", false),
            (exit_1, "[libx264 @ 0x55d8] something new", "tool_failed", true),
            (
                exit_1,
                "[h264_nvenc @ 0x5] Cannot load libcuda.so.1\nError initializing output stream 0:0 -- Error while \
                 opening encoder for output stream #0:0 - maybe incorrect parameters such as bit_rate",
                "capability_missing",
                false,
            ),
            (
                exit_1,
                "[libx264 @ 0x5] none\nError while opening encoder for output stream #0:0",
                "tool_failed",
                true,
            ),
            (exit_1, "in.mp4: corrupt input packet in stream 1", "input_truncated", false),
            (exit_1, "Output file #0 does not contain any stream", "input_no_such_stream", false),
            (exit_1, "Error while decoding stream #0:1: Invalid argument", "input_corrupt", false),
            (exit_1, "Decoder (codec none) not found for input stream #0:0", "input_unsupported", false),
            (exit_1, "Error while decoding stream #0:1: Cannot allocate memory", "out_of_memory", true),
            (
                187 << 8,
                "[dec:png @ 0x5] Error processing packet in decoder: Generic…",
                "input_corrupt",
                false,
            ),
            (183 << 8, "", "input_corrupt", false),
            (228 << 8, "", "disk_full", true),
            (9, "", "killed", true),
            (6, "memory allocation of 16777216 bytes failed\n", "out_of_memory", true),
            (5, "GLib-ERROR **: gmem.c:136: failed to allocate 8 bytes\n", "out_of_memory", true),
            (11, "", "tool_crashed", true),
            (24, "", "time_limit", true),
            (25, "", "input_too_large", false),
            (31, "", "input_hostile", false),
        ] {
            let error = judged(status, stderr);
            assert_eq!((error.code(), error.is_retryable()), (code, retryable), "{status} {stderr}");
        }
    }

    #[test]
    fn a_missing_piece_is_named() {
        let error = judged(1 << 8, "Unknown encoder 'libfdk_aac'");

        assert_eq!(error.code(), "capability_missing");
        assert!(error.to_string().contains("libfdk_aac"), "{error}");
    }
}
