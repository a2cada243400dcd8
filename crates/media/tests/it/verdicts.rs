//! Whoever is given a broken file blames the file: another try would cost the same and end in the same way.

use std::path::{Path, PathBuf};

use telecine_media::{
    AudioSpec, Channels, FramesSpec, Limits, Loudness, MediaError, PicturesSpec, PosterSpec, Probe, Rational,
    SoundtrackSpec, Timeline, make_audio, make_pictures, make_soundtrack,
};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, probed};

const SOUND: &[&str] = &["-f", "lavfi", "-i", "sine=440:sample_rate=44100:duration=1"];
const PICTURE: &[&str] = &["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=1"];

/// Files of sound in every container that is known.
fn sounds() -> Vec<PathBuf> {
    let plain = ["s.flac", "s.wav", "s.mp3", "s.ogg", "s.opus", "s.aac", "s.m4a", "s.mka", "s.webm"];
    let mut files: Vec<PathBuf> = plain.into_iter().map(|name| clips::clip(name, SOUND)).collect();
    for (name, codec) in [
        ("flac.ogg", "flac"),
        ("flac.mka", "flac"),
        ("alac.m4a", "alac"),
        ("ac3.ts", "ac3"),
        ("pcm.avi", "pcm_s16le"),
    ] {
        files.push(clips::clip(name, &[SOUND, &["-c:a", codec]].concat()));
    }
    files.push(clips::clip("early.m4a", &[SOUND, &["-movflags", "+faststart"]].concat()));
    files
}

/// Inside headers, where the first frames are, and in the middle.
const CUTS: &[usize] = &[12, 30, 60, 250, 1200, 6000];

fn cut(whole: &Path, folder: &Path, bytes: usize) -> Option<PathBuf> {
    let content = std::fs::read(whole).unwrap();
    let path = folder.join("cut");
    std::fs::write(&path, content.get(..bytes)?).unwrap();
    Some(path)
}

fn judge<T>(outcome: Result<T, MediaError>, what: &str, surprises: &mut Vec<String>) {
    if let Err(error) = outcome
        && !error.code().starts_with("input_")
    {
        surprises.push(format!("{what}: {error} {}", error.stderr_tail()));
    }
}

async fn heard(path: &Path, probe: &Probe) -> Result<(), MediaError> {
    let (scratch, limits, cancel) =
        (tempfile::tempdir().unwrap(), Limits::default(), CancellationToken::new());
    let (toolbox, spec) = (clips::toolbox(), AudioSpec::default());
    let made = make_audio(&toolbox, path, probe, &spec, &limits, scratch.path(), &cancel);
    Box::pin(made).await.map(|_| ())
}

async fn accompanied(path: &Path, probe: &Probe) -> Result<(), MediaError> {
    let (scratch, limits) = (tempfile::tempdir().unwrap(), Limits::default());
    let spec = SoundtrackSpec {
        source: path,
        probe,
        limits: &limits,
        codec: telecine_media::AudioCodec::Aac,
        kbits: 96,
        channels: Channels::Stereo,
        loudness: Loudness::Keep,
        zero_us: 0,
        duration: Rational::new(1, 1).unwrap(),
        offset: Rational::new(i64::from(Timeline::OFFSET_SECONDS), 1).unwrap(),
        boundaries: &[],
        folder: scratch.path(),
    };
    let (toolbox, cancel) = (clips::toolbox(), CancellationToken::new());
    Box::pin(make_soundtrack(&toolbox, &spec, &|_| {}, &cancel)).await.map(|_| ())
}

async fn pictured(path: &Path, probe: &Probe, what: &str, surprises: &mut Vec<String>) {
    let (scratch, limits, cancel) =
        (tempfile::tempdir().unwrap(), Limits::default(), CancellationToken::new());
    let spec = PicturesSpec {
        poster: Some(PosterSpec::default()),
        frames: Some(FramesSpec::default()),
        ..PicturesSpec::default()
    };
    let toolbox = clips::toolbox();
    match Box::pin(make_pictures(&toolbox, path, probe, &spec, &limits, scratch.path(), &cancel)).await {
        Ok(made) => {
            judge(made.poster.unwrap(), &format!("poster of {what}"), surprises);
            judge(made.frames.unwrap(), &format!("frames of {what}"), surprises);
        }
        Err(error) => judge::<()>(Err(error), what, surprises),
    }
}

#[tokio::test]
async fn sound_that_is_cut_anywhere_is_the_files_fault() {
    let folder = tempfile::tempdir().unwrap();
    let mut surprises = Vec::new();
    for whole in sounds() {
        let name = whole.file_name().unwrap().to_str().unwrap().to_owned();
        for bytes in CUTS {
            let Some(path) = cut(&whole, folder.path(), *bytes) else { continue };
            let what = format!("{name} of {bytes} bytes");
            match probed(&path).await {
                Err(error) => judge::<()>(Err(error), &format!("probe of {what}"), &mut surprises),
                Ok(probe) => {
                    judge(heard(&path, &probe).await, &format!("audio of {what}"), &mut surprises);
                    judge(accompanied(&path, &probe).await, &format!("soundtrack of {what}"), &mut surprises);
                }
            }
        }
    }
    assert!(surprises.is_empty(), "{surprises:#?}");
}

#[tokio::test]
async fn a_film_that_is_cut_anywhere_is_the_files_fault() {
    let folder = tempfile::tempdir().unwrap();
    let mut surprises = Vec::new();
    let both = [PICTURE, SOUND, &["-pix_fmt", "yuv420p"]].concat();
    for name in ["v.mp4", "v.mkv", "v.avi", "v.ts", "v.flv", "v.webm"] {
        let whole = clips::clip(name, &both);
        for bytes in [600, 2500, 20_000] {
            let Some(path) = cut(&whole, folder.path(), bytes) else { continue };
            let what = format!("{name} of {bytes} bytes");
            match probed(&path).await {
                Err(error) => judge::<()>(Err(error), &format!("probe of {what}"), &mut surprises),
                Ok(probe) => pictured(&path, &probe, &what, &mut surprises).await,
            }
        }
    }
    assert!(surprises.is_empty(), "{surprises:#?}");
}
