//! What the encoders alone cost: the user CPU time of single-threaded encoders that are given raw frames of their rung's
//! size. Decoding, scaling and moving frames are not in it.

use std::path::Path;
use std::process::{Command, Stdio};

use telecine_media::{Rung, VideoPlan};

pub(crate) fn encoder_seconds(source: &Path, plan: &VideoPlan) -> f64 {
    plan.rungs.iter().map(|rung| rung_seconds(source, plan, rung)).sum()
}

fn rung_seconds(source: &Path, plan: &VideoPlan, rung: &Rung) -> f64 {
    let size = format!("{}x{}", rung.size.width, rung.size.height);
    let scale = format!("zscale=w={}:h={}", rung.size.width, rung.size.height);
    let mut frames = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-i"])
        .arg(source)
        .args(["-an", "-vf", &scale, "-pix_fmt", "yuv420p", "-f", "rawvideo", "-"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ffmpeg is installed");
    let input = frames.stdout.take().expect("a pipe");
    let encoded = Command::new("ffmpeg")
        .args([
            "-hide_banner",
            "-nostats",
            "-v",
            "info",
            "-benchmark",
            "-f",
            "rawvideo",
            "-video_size",
            &size,
        ])
        .args(["-framerate", &plan.timeline.fps.to_string(), "-i", "pipe:0"])
        .args(rung_args(plan, rung))
        .args(["-threads", "1", "-f", "null", "-"])
        .stdin(input)
        .output()
        .expect("ffmpeg is installed");
    assert!(encoded.status.success() && frames.wait().expect("it was started").success());
    user_seconds(&String::from_utf8_lossy(&encoded.stderr))
}

/// As the range encoder sets it.
pub(crate) fn rung_args(plan: &VideoPlan, rung: &Rung) -> Vec<String> {
    let (rate, buffer) = (format!("{}k", rung.max_kbits), format!("{}k", rung.max_kbits * 2));
    let (gop, crf) = (plan.grid.frames_per_gop.to_string(), plan.encoder.crf.to_string());
    [
        "-c:v",
        "libx264",
        "-preset",
        "veryfast",
        "-profile:v",
        "high",
        "-crf",
        &crf,
        "-maxrate",
        &rate,
        "-bufsize",
    ]
    .into_iter()
    .chain([buffer.as_str(), "-g", &gop, "-keyint_min", &gop, "-sc_threshold", "0"])
    .map(str::to_owned)
    .collect()
}

/// `bench: utime=10.250s stime=0.120s rtime=10.512s`
fn user_seconds(log: &str) -> f64 {
    let (_, rest) = log.split_once("bench: utime=").expect("-benchmark says it");
    let (seconds, _) = rest.split_once('s').expect("it has a unit");
    seconds.parse().expect("a number")
}
