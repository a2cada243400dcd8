//! Files that are made to do harm: each is refused or contained, in bounded time and memory, and what it points at is
//! never touched.

mod bombs;
mod boxes;
mod broken;
mod lies;
mod mutants;
mod references;

use std::path::{Path, PathBuf};
use std::time::Duration;

use telecine_media::{
    Finished, Format, Limits, MediaError, Output, Probe, Program, ToolLimits, Toolbox, input_args, probe,
    probe_as, sniff_file,
};
use tokio_util::sync::CancellationToken;

use crate::sandbox;

/// Far more than any of these files needs, even on a busy machine.
const WALL: Duration = Duration::from_secs(120);

/// An eighth of what a tool may use by default. The kernel refuses more, and a tool that is refused memory says so: whoever
/// gives another answer stayed below.
const MEMORY_BYTES: u64 = 512 << 20;

fn toolbox() -> Toolbox {
    sandbox::toolbox().with_memory_bytes(MEMORY_BYTES)
}

/// A folder of its own for hostile files, so that a pointer to a neighbour would find one.
fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The file as `telecine probe` would see it.
async fn probed(path: &Path) -> Result<Probe, MediaError> {
    probe(&toolbox(), path, &Limits::default(), &CancellationToken::new()).await
}

/// What a probe says when sniffing did not stand in the way.
async fn probed_as(path: &Path, format: Format) -> Result<Probe, MediaError> {
    probe_as(&toolbox(), path, format, &Limits::default(), &CancellationToken::new()).await
}

/// Decodes every picture and sound of a file as work would, and lets nothing pass.
async fn decode_all(path: &Path, format: Format) -> Result<Finished, MediaError> {
    let scratch = tempfile::tempdir().unwrap();
    let tool = toolbox()
        .tool(Program::Ffmpeg, "decode")?
        .arg("-xerror")
        .args(input_args(path, format, &Limits::default())?)
        .args(["-map", "0:v?", "-map", "0:a?", "-f", "null", "-"])
        .readable(path)
        .scratch(scratch.path())
        .stdout(Output::Progress)
        .limits(ToolLimits {
            wall: WALL,
            cpu: Some(Duration::from_secs(60)),
            file_size_bytes: Some(0),
            ..ToolLimits::default()
        });
    let ended = tool.start(&CancellationToken::new())?.finish().await;
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{} left something", path.display());
    ended
}

/// Probed, and decoded if that was fine, as work does: whoever is asked answers in time, and blames the input.
async fn contained(path: &Path) -> [String; 2] {
    let codes = probed_then_decoded(path).await;
    assert!(codes.iter().all(is_verdict), "{}: {codes:?}", path.display());
    codes
}

/// Probed and decoded even if the probe refused it.
async fn contained_by_both(path: &Path) -> [String; 2] {
    let probed = code(&probed(path).await);
    let decoded = match sniff_file(path).await {
        Ok(format) => code(&decode_all(path, format).await),
        Err(error) => error.code().to_owned(),
    };
    let codes = [probed, decoded];
    assert!(codes.iter().all(is_verdict), "{}: {codes:?}", path.display());
    codes
}

async fn probed_then_decoded(path: &Path) -> [String; 2] {
    let probed = code(&probed(path).await);
    let decoded = match sniff_file(path).await {
        Ok(format) if probed == "ok" => code(&decode_all(path, format).await),
        Ok(_) | Err(_) => probed.clone(),
    };
    [probed, decoded]
}

fn is_verdict(code: &String) -> bool {
    code == "ok" || code.starts_with("input_")
}

fn code<T>(outcome: &Result<T, MediaError>) -> String {
    match outcome {
        Ok(_) => "ok".into(),
        Err(error) if error.code() == "tool_failed" => format!("{error}: {}", error.stderr_tail()),
        Err(error) => error.code().to_owned(),
    }
}
