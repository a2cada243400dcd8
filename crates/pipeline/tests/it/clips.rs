//! Clips made by FFmpeg.

use std::path::Path;
use std::process::Command;

pub(crate) const X264: &[&str] = &["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"];
pub(crate) const AAC: &[&str] = &["-c:a", "aac", "-b:a", "96k"];

/// So many seconds of 320x180 at 25 frames a second with a stereo tone.
pub(crate) fn film(seconds: u32, path: &Path) {
    let picture = format!("testsrc2=size=320x180:rate=25:duration={seconds}");
    let sound = format!("aevalsrc=0.1*sin(880*PI*t)|0.1*sin(660*PI*t):s=48000:d={seconds}:c=stereo");
    ffmpeg(&[&["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound], X264, AAC].concat(), path);
}

pub(crate) fn ffmpeg(args: &[&str], output: &Path) {
    let done = Command::new("ffmpeg").args(["-v", "error", "-nostdin", "-y"]).args(args).arg(output).output();
    let done = done.expect("ffmpeg is installed (make setup)");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}
