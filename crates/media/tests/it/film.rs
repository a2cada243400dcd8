//! A small film in CMAF segments, made by FFmpeg alone: what packaging is given.

use std::path::{Path, PathBuf};
use std::process::Command;

use telecine_media::{
    MadeRendition, MediaFacts, MediaSegment, Presentation, Rational, SegmentFact, SegmentHashes, Track,
    VideoRendition, read_init, read_segment,
};

use crate::clips;

/// The constant offset of the test films.
pub(crate) const OFFSET_SECONDS: i64 = 10;

/// One rung on disk.
#[derive(Debug, Clone)]
pub(crate) struct Rung {
    pub(crate) name: String,
    pub(crate) init: PathBuf,
    pub(crate) segments: Vec<PathBuf>,
}

/// What a film is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) size: &'static str,
    pub(crate) rate: &'static str,
    pub(crate) frames: u32,
    pub(crate) gop: u32,
}

impl Rung {
    pub(crate) fn track(&self) -> Track {
        let init = read_init(&std::fs::read(&self.init).unwrap()).unwrap();
        init.only_track().unwrap().clone()
    }

    pub(crate) fn read(&self) -> Vec<MediaSegment> {
        let track = self.track();
        let read = |path: &PathBuf| read_segment(&std::fs::read(path).unwrap(), &track).unwrap();
        self.segments.iter().map(read).collect()
    }

    pub(crate) fn facts(&self) -> MediaFacts {
        let uri = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let segments = self.segments.iter().zip(self.read());
        let segments = segments.map(|(path, segment)| SegmentFact::of(uri(path), &segment)).collect();
        MediaFacts::of(&self.track(), uri(&self.init), segments)
    }
}

/// A rendition that is told of with the bytes that its files have now.
pub(crate) fn made(name: &str, init: &Path, segments: &[PathBuf]) -> MadeRendition {
    use sha2::{Digest, Sha256};
    let sha256 = |path: &Path| -> String {
        Sha256::digest(std::fs::read(path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let hashes = |path: &PathBuf| SegmentHashes { sha256: sha256(path), init_sha256: sha256(init) };
    MadeRendition {
        name: name.to_owned(),
        init: init.to_owned(),
        segments: segments.to_vec(),
        hashes: segments.iter().map(hashes).collect(),
    }
}

/// Segments of `shape.gop` frames each, in `folder`.
pub(crate) fn rung(folder: &Path, name: &str, shape: Shape, codec: &[&str]) -> Rung {
    let whole = folder.join(format!("{name}-whole.mp4"));
    let source = format!("testsrc2=size={}:rate={}", shape.size, shape.rate);
    let (frames, gop) = (shape.frames.to_string(), shape.gop.to_string());
    let args = [
        &["-f", "lavfi", "-i", &source, "-frames:v", &frames][..],
        codec,
        &["-g", &gop, "-keyint_min", &gop, "-bitexact", "-threads", "1"],
        &["-output_ts_offset", &OFFSET_SECONDS.to_string(), "-avoid_negative_ts", "disabled"],
        &["-use_editlist", "0", "-movflags", "+empty_moov+default_base_moof+frag_discont+frag_keyframe"],
    ];
    clips::ffmpeg(&args.concat(), &whole);
    split(folder, name, &whole)
}

/// Every fragment becomes a segment.
pub(crate) fn split(folder: &Path, name: &str, whole: &Path) -> Rung {
    let bytes = std::fs::read(whole).unwrap();
    let atoms = atoms(&bytes);
    let starts: Vec<usize> = atoms.iter().filter(|(kind, _)| kind == "moof").map(|(_, at)| *at).collect();
    let end = atoms.iter().find(|(kind, _)| kind == "mfra").map_or(bytes.len(), |(_, at)| *at);
    let write = |file: String, bytes: &[u8]| {
        let path = folder.join(file);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let init = write(format!("{name}-init.mp4"), &bytes[..starts[0]]);
    let ends = starts.iter().skip(1).chain(std::iter::once(&end));
    let segments = starts
        .iter()
        .zip(ends)
        .enumerate()
        .map(|(number, (start, end))| write(format!("{name}-{number:05}.m4s"), &bytes[*start..*end]))
        .collect();
    Rung { name: name.to_owned(), init, segments }
}

/// Kind and position of the atoms that are not inside another.
pub(crate) fn atoms(bytes: &[u8]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + 8 <= bytes.len() {
        let size = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        found.push((String::from_utf8_lossy(&bytes[at + 4..at + 8]).into_owned(), at));
        at += if size == 0 { bytes.len() } else { size };
    }
    found
}

pub(crate) const H264: &[&str] =
    &["-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-sc_threshold", "0", "-flags", "+cgop"];

/// Two rungs of 25 fps in segments of 2, 2 and 1 s; copies of what is made once.
pub(crate) fn two_rungs(folder: &Path) -> Vec<Rung> {
    let made = clips::made("two_rungs", |path| {
        std::fs::create_dir_all(path).unwrap();
        let shape = |size| Shape { size, rate: "25", frames: 125, gop: 50 };
        rung(path, "180p", shape("320x180"), H264);
        rung(path, "90p", shape("160x90"), H264);
    });
    let copy = |name: String| {
        std::fs::copy(made.join(&name), folder.join(&name)).unwrap();
        folder.join(name)
    };
    let rung = |name: &str| Rung {
        name: name.to_owned(),
        init: copy(format!("{name}-init.mp4")),
        segments: (0..3).map(|number| copy(format!("{name}-{number:05}.m4s"))).collect(),
    };
    vec![rung("180p"), rung("90p")]
}

pub(crate) fn presentation(rungs: &[Rung], rate: &str) -> Presentation {
    let rate: Rational = rate.parse().unwrap();
    let video = rungs.iter().map(|rung| {
        let mut video = VideoRendition::of(&rung.name, &rung.track(), rate, rung.facts()).unwrap();
        video.keyframes_uri = Some(format!("{}-keyframes.m3u8", rung.name));
        video
    });
    Presentation { video: video.collect(), audio: None, offset: seconds(OFFSET_SECONDS, 1) }
}

pub(crate) fn seconds(num: i64, den: i64) -> Rational {
    Rational::new(num, den).unwrap()
}

/// Bytes one after another in one file.
pub(crate) fn joined(path: &Path, parts: impl IntoIterator<Item = PathBuf>) {
    let bytes: Vec<u8> = parts.into_iter().flat_map(|part| std::fs::read(part).unwrap()).collect();
    std::fs::write(path, bytes).unwrap();
}

/// What a program writes to stdout.
pub(crate) fn output_of(program: &str, args: &[&str]) -> Vec<u8> {
    let done = Command::new(program).args(args).output().unwrap();
    assert!(done.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

pub(crate) fn lines_of(program: &str, args: &[&str]) -> Vec<String> {
    String::from_utf8(output_of(program, args)).unwrap().lines().map(str::to_owned).collect()
}
