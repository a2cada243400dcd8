//! Clips made by FFmpeg.

use std::path::Path;
use std::process::Command;

/// So many seconds of 320x180 at 25 frames a second with a tone.
pub(crate) fn film(seconds: u32, path: &Path) {
    let picture = format!("testsrc2=size=320x180:rate=25:duration={seconds}");
    let sound = format!("sine=frequency=440:sample_rate=48000:duration={seconds}");
    let done = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-y", "-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound])
        .args([
            "-c:v",
            "libx264",
            "-preset",
            "ultrafast",
            "-pix_fmt",
            "yuv420p",
            "-c:a",
            "aac",
            "-b:a",
            "96k",
        ])
        .arg(path)
        .output()
        .expect("ffmpeg is installed (make setup)");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
