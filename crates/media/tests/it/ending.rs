//! A file whose end is missing is told so, whatever it is: no part of a film, a sound or a picture passes for the whole.

use std::path::{Path, PathBuf};
use std::process::Command;

use telecine_media::{
    Class, Format, ImageFormat, ImageSpec, ImageVariant, Limits, MediaError, make_images, probe,
    require_whole, sniff_file,
};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, AAC, X264};
use crate::film::lines_of;
use crate::images;
use crate::samples::sample;

const PICTURE: &[&str] = &["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=1"];
const SOUND: &[&str] = &["-f", "lavfi", "-i", "aevalsrc=0.2*random(0):s=44100:d=2"];

fn made(name: &str, parts: &[&[&str]]) -> PathBuf {
    clips::clip(name, &parts.concat())
}

/// As a program writes that cannot go back: to a pipe, which says nothing of sizes.
fn streamed(name: &str, parts: &[&[&str]]) -> PathBuf {
    clips::made(name, |path| {
        let args = parts.concat();
        let mut command = Command::new("ffmpeg");
        let done = command.args(["-v", "error", "-nostdin"]).args(&args).arg("pipe:1").output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        std::fs::write(path, done.stdout).unwrap();
    })
}

fn films() -> Vec<PathBuf> {
    let both = [PICTURE, SOUND, X264, AAC].concat();
    let vp8 = [PICTURE, &["-c:v", "libvpx", "-deadline", "realtime"]].concat();
    let theora = [PICTURE, SOUND, &["-c:v", "libtheora", "-c:a", "libvorbis"]].concat();
    let mut films = vec![
        made("fast.mp4", &[&both, &["-movflags", "+faststart"]]),
        made("fragments.mp4", &[&both, &["-g", "5", "-movflags", "+frag_keyframe+empty_moov"]]),
        made("indexed.mp4", &[&both, &["-g", "5", "-movflags", "+dash+global_sidx+frag_keyframe"]]),
        made("vp8.webm", &[&vp8]),
        made("theora.ogv", &[&theora]),
        made("blu-ray.m2ts", &[&both]),
        streamed("live.mkv", &[&both, &["-g", "5", "-f", "matroska", "-live", "1"]]),
        streamed("live.webm", &[&vp8, &["-g", "5", "-f", "webm", "-live", "1"]]),
        streamed("live.flv", &[&both, &["-f", "flv", "-flvflags", "no_duration_filesize"]]),
    ];
    films
        .extend(["late.mp4", "late.mov", "x.mkv", "x.avi", "x.ts", "x.flv"].map(|name| made(name, &[&both])));
    films
}

fn sounds() -> Vec<PathBuf> {
    let mut sounds = vec![
        made("vorbis.ogg", &[SOUND, &["-c:a", "libvorbis"]]),
        made("opus.ogg", &[SOUND, &["-c:a", "libopus"]]),
        made("flac.ogg", &[SOUND, &["-c:a", "flac"]]),
        made("large.wav", &[SOUND, &["-rf64", "always"]]),
        made("bare.mp3", &[SOUND, &["-t", "1.9", "-write_xing", "0", "-id3v2_version", "0"]]),
        made("variable.mp3", &[SOUND, &["-q:a", "5"]]),
        streamed("streamed.flac", &[SOUND, &["-f", "flac"]]),
    ];
    sounds.extend(["x.wav", "x.mp3", "x.flac", "x.aac", "x.m4a"].map(|name| made(name, &[SOUND])));
    sounds
}

fn pictures() -> Vec<PathBuf> {
    let still = made("still.png", &[PICTURE, &["-frames:v", "1"]]);
    let moving = made("moving.gif", &[PICTURE, &["-frames:v", "5"]]);
    let saved = |name: &str, from: &Path, options: &str| {
        clips::made(name, |path| {
            let target = format!("{}{options}", path.display());
            let done = Command::new("vips").arg("copy").arg(from).arg(target).output().unwrap();
            assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        })
    };
    let all_frames = PathBuf::from(format!("{}[n=-1]", moving.display()));
    vec![
        saved("baseline.jpg", &still, ""),
        saved("progressive.jpg", &still, "[interlace]"),
        saved("interlaced.png", &still, "[interlace]"),
        saved("lossy.webp", &still, ""),
        saved("lossless.webp", &still, "[lossless]"),
        saved("moving.webp", &all_frames, ""),
        saved("still.gif", &still, ""),
        saved("x.avif", &still, ""),
        saved("x.heic", &still, "[compression=hevc]"),
        still,
        moving,
    ]
}

/// The first bytes of a file, as a broken upload leaves them.
fn first(whole: &Path, bytes: usize, folder: &Path) -> PathBuf {
    let path = folder.join(format!("{bytes}-{}", whole.file_name().unwrap().to_str().unwrap()));
    std::fs::write(&path, &std::fs::read(whole).unwrap()[..bytes]).unwrap();
    path
}

/// What becomes of a file: a film or a sound is probed before anything else, a picture is made into variants.
async fn code(path: &Path) -> String {
    let outcome = match sniff_file(path).await {
        Ok(format) if format.class() == Class::Image => variants(path, format).await,
        Ok(_) => {
            let (limits, cancel) = (Limits::default(), CancellationToken::new());
            probe(&clips::toolbox(), path, &limits, &cancel).await.map(drop)
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => "ok".into(),
        Err(error) => error.code().into(),
    }
}

async fn variants(path: &Path, format: Format) -> Result<(), MediaError> {
    let scratch = tempfile::tempdir().unwrap();
    let variant = ImageVariant {
        width: Some(40),
        height: None,
        fit: telecine_media::Fit::Contain,
        formats: vec![ImageFormat::Jpeg],
        quality: None,
    };
    let spec = ImageSpec { variants: vec![variant], ..ImageSpec::default() };
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    make_images(&images::toolbox(), path, format, &spec, &limits, scratch.path(), &cancel).await.map(drop)
}

/// Whether a cut leaves whole frames or packets, in formats where nothing counts them.
fn is_joint(whole: &Path, cut: usize) -> bool {
    match whole.file_name().unwrap().to_str().unwrap() {
        "x.ts" => cut.is_multiple_of(188),
        "blu-ray.m2ts" => cut.is_multiple_of(192),
        "bare.mp3" | "x.aac" | "streamed.flac" => joints(whole).contains(&cut),
        _ => false,
    }
}

/// Every tenth, and all but the last byte.
async fn assert_no_part_passes(wholes: Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for whole in wholes {
        let (name, bytes) = (whole.display(), usize::try_from(whole.metadata().unwrap().len()).unwrap());
        assert_eq!(code(&whole).await, "ok", "{name}");
        for cut in (0..10).map(|tenth| bytes * tenth / 10).chain([bytes - 1]) {
            let cut = if cut > 0 && is_joint(&whole, cut) { cut - 1 } else { cut };
            let part = first(&whole, cut, folder.path());
            let expected: &[&str] = match cut {
                0 => &["input_empty"],
                // Of so little not even the type can be told.
                1..=600 => &["input_truncated", "input_unrecognised"],
                _ => &["input_truncated"],
            };
            let seen = code(&part).await;
            if !expected.contains(&seen.as_str()) {
                wrong.push(format!("{cut} of {bytes} bytes of {name}: {seen}"));
            }
            std::fs::remove_file(part).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn no_part_of_a_film_passes_for_the_whole() {
    assert_no_part_passes(films()).await;
}

#[tokio::test]
async fn no_part_of_a_sound_passes_for_the_whole() {
    assert_no_part_passes(sounds()).await;
}

#[tokio::test]
async fn no_part_of_a_picture_passes_for_the_whole() {
    assert_no_part_passes(pictures()).await;
}

#[tokio::test]
async fn no_part_of_what_a_phone_wrote_passes_for_the_whole() {
    let names = ["movie1/VID_20191220_170832.mp4", "movie2/movie-hello.mp4", "pic1/IMG_1054.JPG"];
    assert_no_part_passes(names.map(sample).into()).await;
}

/// Where the packets of a file begin, and where the last one ends.
fn joints(path: &Path) -> Vec<usize> {
    let args = ["-v", "error", "-show_entries", "packet=pos,size", "-of", "csv=p=0", path.to_str().unwrap()];
    let packets: Vec<Vec<usize>> = lines_of("ffprobe", &args)
        .iter()
        .map(|line| line.split(',').filter_map(|number| number.parse().ok()).collect())
        .collect();
    packets.iter().filter_map(|packet| packet.get(1)).copied().collect()
}

/// A cut between two frames leaves nothing torn: only a count can tell.
#[tokio::test]
async fn a_cut_between_frames_is_known_where_something_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let counted = [
        made("joint.mp3", &[SOUND]),
        made("joint_variable.mp3", &[SOUND, &["-q:a", "5"]]),
        made("joint.flac", &[SOUND]),
        made("joint.ogg", &[SOUND, &["-c:a", "libvorbis"]]),
        made("joint.wav", &[SOUND]),
        made("joint.flv", &[PICTURE, SOUND, X264, AAC]),
        made("joint.mkv", &[PICTURE, SOUND, X264, AAC]),
    ];
    for whole in counted {
        let joints = joints(&whole);
        for joint in [joints[joints.len() / 2], joints[joints.len() - 1]] {
            let part = first(&whole, joint, folder.path());
            assert_eq!(code(&part).await, "input_truncated", "{joint} of {}", whole.display());
        }
    }
}

/// What no look at the end can tell, and the table in `ending.rs` says so. If one of these is ever noticed, the better.
#[tokio::test]
async fn a_cut_between_frames_that_nobody_counts_is_a_shorter_file_and_a_torn_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let bare = [
        made("uncounted.mp3", &[SOUND, &["-write_xing", "0", "-id3v2_version", "0"]]),
        made("uncounted.aac", &[SOUND]),
        streamed("uncounted.flac", &[SOUND, &["-f", "flac"]]),
    ];
    for whole in bare {
        let joints = joints(&whole);
        let joint = joints[joints.len() / 2];
        assert_eq!(code(&first(&whole, joint, folder.path())).await, "ok", "{}", whole.display());
        for torn in [joint - 1, joint + 1, joint + 5, joint + 20] {
            let part = first(&whole, torn, folder.path());
            assert_eq!(code(&part).await, "input_truncated", "{torn} of {}", whole.display());
        }
    }
    let transport = std::fs::read(made("packets.ts", &[PICTURE, SOUND, X264, AAC])).unwrap();
    let half = transport.len() / 2 / 188 * 188;
    for (bytes, expected) in [(half, "ok"), (half + 1, "input_truncated"), (half + 187, "input_truncated")] {
        let path = folder.path().join("part.ts");
        std::fs::write(&path, &transport[..bytes]).unwrap();
        assert_eq!(code(&path).await, expected, "{bytes}");
    }
}

/// What others put behind a file does not make it shorter.
#[tokio::test]
async fn foreign_bytes_behind_a_whole_file_are_no_cut() {
    let folder = tempfile::tempdir().unwrap();
    let film = std::fs::read(made("behind.mp4", &[PICTURE, X264])).unwrap();
    let [photo, png, mp3] = [
        made("front.jpg", &[PICTURE, &["-frames:v", "1"]]),
        made("front.png", &[PICTURE, &["-frames:v", "1"]]),
        made("front.mp3", &[SOUND, &["-write_xing", "0"]]),
    ];
    let mut tag = b"TAG".to_vec();
    tag.resize(128, 0);
    for (whole, behind) in [(&photo, &film[..]), (&photo, &[0; 4096]), (&png, &film), (&mp3, &tag)] {
        let path = folder.path().join("both");
        std::fs::write(&path, [&std::fs::read(whole).unwrap()[..], behind].concat()).unwrap();

        let format = sniff_file(&path).await.unwrap();

        require_whole(&path, format, "test")
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", whole.display()));
    }
    // A phone's moving photo: its film is cut, its picture is not.
    let path = folder.path().join("moving.jpg");
    std::fs::write(&path, [&std::fs::read(&photo).unwrap()[..], &film[..film.len() / 2]].concat()).unwrap();
    assert_eq!(code(&path).await, "ok");
}
