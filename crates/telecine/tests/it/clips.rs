//! Clips made by FFmpeg, and what a player finds in results.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// So many seconds of 320x180 at 25 frames a second, with a tone.
pub(crate) fn film(seconds: u32, path: &Path) {
    let picture = format!("testsrc2=size=320x180:rate=25:duration={seconds}");
    let sound = format!("sine=frequency=440:duration={seconds}");
    let done = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-y", "-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac"])
        .arg(path)
        .output()
        .expect("ffmpeg is installed (make setup)");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// One picture of 640x480, in JPEG.
pub(crate) fn photo(path: &Path) {
    let done = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-y", "-f", "lavfi", "-i", "testsrc2=size=640x480"])
        .args(["-frames:v", "1", "-f", "mjpeg"])
        .arg(path)
        .output()
        .expect("ffmpeg is installed (make setup)");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Width and height of a picture that can be decoded to its end.
pub(crate) fn size(file: &Path) -> (u64, u64) {
    let done = Command::new("ffprobe")
        .args(["-v", "error", "-count_frames", "-select_streams", "v"])
        .args(["-show_entries", "stream=width,height,nb_read_frames", "-of", "csv=p=0"])
        .arg(file)
        .output()
        .expect("ffprobe is installed (make setup)");
    let (text, faults) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let numbers: Vec<u64> = text.trim().split(',').map_while(|number| number.parse().ok()).collect();
    match numbers[..] {
        [width, height, 1] if faults.is_empty() => (width, height),
        _ => panic!("{}: {text}{faults}", file.display()),
    }
}

/// How many frames a player finds in each video stream when it decodes to the end.
pub(crate) fn frames(file: &Path) -> Vec<u32> {
    let done = Command::new("ffprobe")
        .args(["-v", "error", "-count_frames", "-select_streams", "v"])
        .args(["-show_entries", "stream=index,nb_read_frames", "-of", "csv=p=0"])
        .arg(file)
        .output()
        .expect("ffprobe is installed (make setup)");
    // Streams of a master playlist are listed once more with their programme.
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let streams: BTreeSet<&str> =
        text.lines().map(|line| line.trim_matches(',')).filter(|line| !line.is_empty()).collect();
    let count = |line: &&str| line.split(',').nth(1).and_then(|frames| frames.parse().ok());
    streams.iter().map(|line| count(line).unwrap_or_else(|| panic!("{text}"))).collect()
}
