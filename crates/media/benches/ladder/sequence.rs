//! What teams do today: one run of FFmpeg for each rung, one after the other, each with as many threads as it likes.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use telecine_media::VideoPlan;

use crate::limit::rung_args;

pub(crate) fn wall_seconds(source: &Path, plan: &VideoPlan, folder: &Path) -> f64 {
    let started = Instant::now();
    for rung in &plan.rungs {
        let scale = format!("fps={},scale={}:{}", plan.timeline.fps, rung.size.width, rung.size.height);
        let output = folder.join(format!("sequence-{}.mp4", rung.name));
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-v", "error", "-nostdin", "-y", "-i"]).arg(source).args(["-an", "-vf", &scale]);
        ffmpeg.args(rung_args(plan, rung)).args(["-pix_fmt", "yuv420p"]).arg(output);
        assert!(ffmpeg.status().expect("ffmpeg is installed").success());
    }
    started.elapsed().as_secs_f64()
}
