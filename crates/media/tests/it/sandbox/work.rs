//! The real programs do their work in the sandbox as they do outside.

use std::path::Path;
use std::time::Duration;

use telecine_media::{Capabilities, Limits, Output, Program, Tool, ToolLimits, probe};
use tokio_util::sync::CancellationToken;

use super::toolbox;
use crate::clips::{self, AAC, AUDIO, VIDEO};

async fn succeed(tool: Tool) -> Vec<u8> {
    let tool = tool.limits(ToolLimits { wall: Duration::from_secs(300), ..ToolLimits::default() });
    let tool = tool.stdout(Output::Capture { max_bytes: 1 << 20 });
    let ended = tool.start(&CancellationToken::new()).unwrap().finish().await;
    ended.unwrap_or_else(|error| panic!("{error}\n{}", error.stderr_tail())).stdout
}

#[tokio::test]
async fn every_encoder_works_with_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let encoders: [&[&str]; 6] = [
        &["-c:v", "libx264", "-preset", "ultrafast", "-threads", "4"],
        &["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error:pools=4"],
        &["-c:v", "libsvtav1", "-preset", "12"],
        &["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-threads", "4", "-row-mt", "1"],
        &["-c:v", "libaom-av1", "-cpu-used", "8", "-usage", "realtime", "-threads", "4"],
        &["-c:v", "mpeg4"],
    ];
    for (n, encoder) in encoders.iter().enumerate() {
        let name = format!("{n}.mkv");
        let tool = toolbox().tool(Program::Ffmpeg, "encode").unwrap();
        let tool = tool.args(VIDEO).args(AUDIO).args(["-frames:v", "10", "-shortest", "-pix_fmt", "yuv420p"]);
        succeed(tool.args(*encoder).args(AAC).arg(&name).scratch(scratch.path())).await;

        let path = scratch.path().join(&name);
        let probed = probe(&toolbox(), &path, &Limits::default(), &CancellationToken::new()).await;
        assert_eq!(probed.unwrap().video().map(|video| video.width), Some(320), "{encoder:?}");
    }
}

#[tokio::test]
async fn filters_with_threads_give_the_same_frames_as_outside() {
    let (scratch, input) = (tempfile::tempdir().unwrap(), clips::plain());
    let args = |tool: Tool| {
        let filter = "split=2[a][b];[a]scale=160:90[x];[b]zscale=w=160:h=90[y];[x][y]hstack,thumbnail=5";
        tool.args(["-filter_complex_threads", "4", "-i"])
            .arg(&input)
            .args(["-filter_complex", filter, "-an", "-f", "framemd5", "-bitexact", "pipe:1"])
            .readable(&input)
            .scratch(scratch.path())
    };

    let inside = succeed(args(toolbox().tool(Program::Ffmpeg, "test").unwrap())).await;
    let outside = succeed(args(clips::toolbox().tool(Program::Ffmpeg, "test").unwrap())).await;

    assert!(!inside.is_empty());
    assert_eq!(inside, outside);
}

#[tokio::test]
async fn libvips_works_with_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let photo = clips::clip(
        "photo.jpg",
        &["-f", "lavfi", "-i", "testsrc2=size=2048x1536:rate=1:duration=1", "-frames:v", "1"],
    );
    for output in ["out.webp", "out.jpg", "out.png", "out.avif"] {
        let tool = toolbox().tool(Program::Vips, "thumbnail").unwrap();
        let tool = tool.arg("thumbnail").arg(&photo).args([output, "640"]).env("VIPS_CONCURRENCY", "4");
        succeed(tool.readable(&photo).scratch(scratch.path())).await;
        assert!(scratch.path().join(output).metadata().unwrap().len() > 100, "{output}");
    }
}

#[tokio::test]
async fn capabilities_are_the_same_inside() {
    let cancel = CancellationToken::new();

    let inside = Capabilities::detect(&toolbox(), &cancel).await.unwrap();
    let outside = Capabilities::detect(&clips::toolbox(), &cancel).await.unwrap();

    assert_eq!((inside.encoders, inside.filters), (outside.encoders, outside.filters));
    assert_eq!((inside.vips_version, inside.vips_foreigns), (outside.vips_version, outside.vips_foreigns));
}

#[tokio::test]
async fn a_program_from_elsewhere_finds_its_way() {
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = folder.path().join("ffprobe");
    std::fs::copy(clips::toolbox().path(Program::Ffprobe).unwrap(), &copy).unwrap();
    let toolbox = toolbox().with(Program::Ffprobe, &copy);

    let said =
        succeed(toolbox.tool(Program::Ffprobe, "test").unwrap().arg("-version").scratch(scratch.path()));

    assert!(said.await.starts_with(b"ffprobe version"));
    assert!(Path::new(&copy).exists());
}
