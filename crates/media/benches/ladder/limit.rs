//! What the work costs at least: the CPU time of one single-threaded run of FFmpeg that decodes once, scales each rung from
//! the one above and encodes all of them; and, for comparison, of single-threaded encoders that are given raw frames of
//! their rung's size, without decoding, scaling or moving frames.

use std::path::Path;
use std::process::{Command, Stdio};

use telecine_media::{Rung, VideoPlan};

/// Of everything in one process.
pub(crate) fn one_run_seconds(source: &Path, plan: &VideoPlan) -> f64 {
    let mut graph = format!("[0:v:0]fps={}", plan.timeline.fps);
    for (nth, rung) in plan.rungs.iter().enumerate() {
        graph += &format!(",zscale=w={}:h={}:filter=bicubic", rung.size.width, rung.size.height);
        let more = nth + 1 < plan.rungs.len();
        graph += &if more {
            format!(",split=2[rung{nth}][next{nth}];[next{nth}]null")
        } else {
            format!("[rung{nth}]")
        };
    }
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-hide_banner", "-nostdin", "-nostats", "-v", "info", "-benchmark"]);
    ffmpeg.args(["-filter_complex_threads", "1", "-threads", "1", "-i"]).arg(source);
    ffmpeg.args(["-filter_complex", &graph]);
    for (nth, rung) in plan.rungs.iter().enumerate() {
        ffmpeg.args(["-map", &format!("[rung{nth}]")]).args(rung_args(plan, rung)).args(REPEATABLE);
        ffmpeg.args(["-pix_fmt", "yuv420p", "-threads", "1", "-f", "null", "-"]);
    }
    let ran = ffmpeg.output().expect("ffmpeg is installed");
    let log = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{log}");
    cpu_seconds(&log)
}

pub(crate) fn encoder_seconds(source: &Path, plan: &VideoPlan) -> f64 {
    plan.rungs.iter().map(|rung| rung_seconds(source, plan, rung)).sum()
}

fn rung_seconds(source: &Path, plan: &VideoPlan, rung: &Rung) -> f64 {
    let size = format!("{}x{}", rung.size.width, rung.size.height);
    let scale = format!("fps={},zscale=w={}:h={}", plan.timeline.fps, rung.size.width, rung.size.height);
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
        .args(REPEATABLE)
        .args(["-threads", "1", "-f", "null", "-"])
        .stdin(input)
        .output()
        .expect("ffmpeg is installed");
    assert!(encoded.status.success() && frames.wait().expect("it was started").success());
    cpu_seconds(&String::from_utf8_lossy(&encoded.stderr))
}

/// Without it the same command gives other bytes, so it is part of the work.
const REPEATABLE: [&str; 2] = ["-x264-params", "cpu-independent=1"];

/// As the range encoder sets it, but for [`REPEATABLE`], which nobody sets who makes a segment only once.
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

/// Of the process and of the kernel for it.
fn cpu_seconds(log: &str) -> f64 {
    seconds_after(log, "bench: utime=") + seconds_after(log, " stime=")
}

/// `bench: utime=10.250s stime=0.120s rtime=10.512s`
fn seconds_after(log: &str, name: &str) -> f64 {
    let (_, rest) = log.split_once(name).expect("-benchmark says it");
    let (seconds, _) = rest.split_once('s').expect("it has a unit");
    seconds.parse().expect("a number")
}
