//! The first and the last segment decode, strictly.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use super::{Examined, STEP, wrong};
use crate::error::{At, Interruption, MediaError, Result};
use crate::isobmff::TrackKind;
use crate::tool::{Input, Output, Program, ToolLimits, Toolbox};

/// One process decodes both: a start costs more than a small segment.
pub(super) async fn check_ends(
    toolbox: &Toolbox,
    rendition: &Examined,
    cancel: &CancellationToken,
) -> Result<()> {
    let ends: Vec<usize> = match rendition.segments.len() {
        0 => return Ok(()),
        1 => vec![0],
        count => vec![0, count - 1],
    };
    let mut bytes = read(&rendition.verified.init.path).await?;
    for &end in &ends {
        bytes.extend(read(&rendition.verified.segments[end].path).await?);
    }
    let expected: usize = ends.iter().map(|end| rendition.segments[*end].samples.len()).sum();
    let is_video = matches!(rendition.verified.track.kind, TrackKind::Video { .. });
    // There is a gap between the two, which is not to be filled.
    let as_they_are: &[&str] = if is_video { &["-fps_mode", "passthrough"] } else { &[] };
    let decoded = decoded_frames(toolbox, bytes, as_they_are, cancel)
        .await
        .map_err(|error| own(error, rendition, &ends))?;
    if is_video && decoded != expected as u64 {
        let name = rendition.name();
        return Err(wrong(format!("{name}: of {expected} frames in segments {ends:?}, {decoded} decode")));
    }
    Ok(())
}

async fn decoded_frames(
    toolbox: &Toolbox,
    bytes: Vec<u8>,
    as_they_are: &[&str],
    cancel: &CancellationToken,
) -> Result<u64> {
    let tool = toolbox
        .tool(Program::Ffmpeg, STEP)?
        // One thread: with more, what one of them finds broken may be mended before anyone is told (5.1).
        .args(["-xerror", "-err_detect", "explode", "-threads", "1", "-protocol_whitelist", "pipe"])
        .args(["-format_whitelist", "mov", "-f", "mov", "-i", "pipe:0"])
        .args(as_they_are)
        .args(["-f", "null", "-"])
        .stdin(Input::Pipe)
        .stdout(Output::Progress)
        .limits(ToolLimits { file_size_bytes: Some(0), ..ToolLimits::for_media(Duration::ZERO) });
    let mut running = tool.start(cancel)?;
    if let Some(mut stdin) = running.take_stdin() {
        // A program that will not take it all has failed, and says so itself.
        let _ = stdin.write_all(&bytes).await;
    }
    Ok(running.finish().await?.progress.frame)
}

/// The bad input here is our own output: made again, it may be right.
fn own(error: MediaError, rendition: &Examined, ends: &[usize]) -> MediaError {
    match error {
        MediaError::BadInput { at, .. } | MediaError::Interrupted { cause: Interruption::Failed, at } => {
            let what = format!("{}: segments {ends:?} do not decode: {}", rendition.name(), at.detail);
            MediaError::interrupted(Interruption::Failed, At::new(STEP, what).with_stderr(at.stderr_tail))
        }
        other => other,
    }
}

async fn read(path: &std::path::Path) -> Result<Vec<u8>> {
    tokio::fs::read(path).await.map_err(|error| MediaError::io(STEP, "a segment cannot be read", &error))
}
