use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use telecine_media::{Limits, Program, RangeJob, encode_range};
use tokio_util::sync::CancellationToken;

use super::{RECIPE, numbered_clip, planned_video, range};
use crate::clips;

/// FFmpeg that decodes no faster than the film plays.
fn slow_decoder(folder: &std::path::Path) -> std::path::PathBuf {
    let real = clips::toolbox().path(Program::Ffmpeg).unwrap().display().to_string();
    let path = folder.join("slow-ffmpeg");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *showinfo*) exec {real} -re \"$@\";; *) exec {real} \"$@\";; esac\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_decoder_on_its_way_to_a_late_range_is_not_stalled() {
    let source = numbered_clip("seven-seconds.ts", "25", 7.0, &["-c:v", "libx264", "-preset", "veryfast"]);
    let plan = planned_video(&source, RECIPE).await;
    assert!(!plan.is_seekable);
    let (folder, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let toolbox = clips::toolbox().with(Program::Ffmpeg, slow_decoder(tools.path()));
    let last = plan.grid.segments;
    let job = RangeJob {
        plan: &plan,
        source: &source,
        folder: folder.path(),
        range: range(last - 1, last),
        skip: &[],
        limits: &Limits::default(),
        stall: Duration::from_secs(3),
    };

    let done = Box::pin(encode_range(&toolbox, &job, &CancellationToken::new(), &mut |_| {})).await.unwrap();

    assert_eq!(done.segments.len(), 1);
}
