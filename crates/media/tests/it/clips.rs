//! Clips made by FFmpeg, each once in a run of the tests.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use telecine_media::{Confinement, Limits, MediaError, Probe, Program, Toolbox, probe};
use tokio_util::sync::CancellationToken;

/// Removed by the operating system's cleaning of its temporary folder: statics are never dropped.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clips-{}", std::process::id()));
    sweep_earlier_runs(folder.parent().unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    folder
});

type Made = Arc<OnceLock<PathBuf>>;
/// By the test's own file and the clip's name: two subjects may have other things in mind with one name.
static CLIPS: LazyLock<Mutex<HashMap<PathBuf, Made>>> = LazyLock::new(Mutex::default);

/// A file of that name, made by `ffmpeg ARGS… NAME` when it is first asked for.
#[track_caller]
pub(crate) fn clip(name: &str, args: &[&str]) -> PathBuf {
    made(name, |path| ffmpeg(args, path))
}

/// A file of that name, made by `make` when it is first asked for.
#[track_caller]
pub(crate) fn made(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let subject = Path::new(std::panic::Location::caller().file()).with_extension("");
    let folder = FOLDER.join(subject.strip_prefix("crates/media/tests/it").unwrap_or(&subject));
    let path = folder.join(name);
    let slot = CLIPS.lock().unwrap().entry(path.clone()).or_default().clone();
    slot.get_or_init(|| {
        std::fs::create_dir_all(&folder).unwrap();
        make(&path);
        path
    })
    .clone()
}

/// Two seconds of 320x180 at 25 fps in H.264 with a stereo tone in AAC.
pub(crate) fn plain() -> PathBuf {
    clip("plain.mp4", &[VIDEO, AUDIO, &[&["-shortest"], X264, AAC].concat()].concat())
}

pub(crate) const VIDEO: &[&str] = &["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=2"];
pub(crate) const AUDIO: &[&str] =
    &["-f", "lavfi", "-i", "aevalsrc=0.1*sin(880*PI*t)|0.1*sin(660*PI*t):s=48000:d=2:c=stereo"];
pub(crate) const X264: &[&str] = &["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"];
pub(crate) const AAC: &[&str] = &["-c:a", "aac", "-b:a", "96k"];

pub(crate) fn ffmpeg(args: &[&str], output: &Path) {
    let done = Command::new("ffmpeg").args(["-v", "error", "-nostdin", "-y"]).args(args).arg(output).output();
    let done = done.expect("ffmpeg is installed (make setup)");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A program of a few lines of shell. It is written by another process: a child that is started meanwhile would inherit
/// the file as one that is being written to, which nobody may execute.
pub(crate) fn script(path: &Path, lines: &str) {
    let write = r#"printf %s "$1" > "$2" && chmod 755 "$2""#;
    let done =
        Command::new("sh").args(["-c", write, "sh", &format!("#!/bin/sh\n{lines}")]).arg(path).status();
    assert!(done.unwrap().success());
}

pub(crate) fn toolbox() -> Toolbox {
    toolbox_of(Confinement::None)
}

/// The programs in `PATH`, with another FFmpeg where `TELECINE_TEST_FFMPEG` names one (`make test-ffmpeg-7`). Clips are
/// made by the one in `PATH` all the same.
pub(crate) fn toolbox_of(confinement: Confinement) -> Toolbox {
    let toolbox = Toolbox::from_path(confinement);
    match std::env::var_os("TELECINE_TEST_FFMPEG") {
        Some(ffmpeg) => toolbox.with(Program::Ffmpeg, ffmpeg),
        None => toolbox,
    }
}

/// The second FFmpeg, if `scripts/fetch-ffmpeg-7` could get it. Not every machine has a build of it.
pub(crate) fn ffmpeg_7() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    let ffmpeg = cache.join("telecine-tools/ffmpeg-7/ffmpeg");
    if !ffmpeg.is_file() {
        eprintln!("left out: {} is not there (make setup)", ffmpeg.display());
        return None;
    }
    Some(ffmpeg)
}

pub(crate) async fn probed(path: &Path) -> Result<Probe, MediaError> {
    probe(&toolbox(), path, &Limits::default(), &CancellationToken::new()).await
}

/// Folders of test processes that are no more.
fn sweep_earlier_runs(parent: &Path) {
    for entry in std::fs::read_dir(parent).unwrap().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix("clips-")) else { continue };
        if !Path::new("/proc").join(id).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
