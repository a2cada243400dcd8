//! Files that are made to do harm: each is refused or contained, in bounded time and memory, and what it points at is
//! never touched.

mod bombs;
mod boxes;
mod broken;
mod lies;
mod mutants;
mod references;
mod work;

use std::path::{Path, PathBuf};

use telecine_media::{Format, Limits, MediaError, Probe, Program, Toolbox, probe, probe_as};
use tokio_util::sync::CancellationToken;

use crate::sandbox;
use crate::vips_helper::vips_helper;

/// A film as it should be, or one that cannot be copied as it is.
const WHOLE: &[&str] = &["ok", "unfit"];
/// What may be said of a file whose content is damaged, and that is not known to be short.
const DAMAGED: &[&str] =
    &["ok", "unfit", "input_corrupt", "input_truncated", "input_unsupported", "input_no_such_stream"];
/// What may be said of a file whose headers are damaged.
const BROKEN: &[&str] = &[
    "ok",
    "unfit",
    "input_corrupt",
    "input_truncated",
    "input_unsupported",
    "input_unrecognised",
    "input_no_such_stream",
    "input_too_large",
    "input_too_long",
    "input_too_many_streams",
];

/// An eighth of what a tool may use by default. The kernel refuses more, and a tool that is refused memory says so: whoever
/// gives another answer stayed below.
const MEMORY_BYTES: u64 = 512 << 20;

fn toolbox() -> Toolbox {
    sandbox::toolbox().with(Program::VipsHelper, vips_helper()).with_memory_bytes(MEMORY_BYTES)
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

fn code<T>(outcome: &Result<T, MediaError>) -> String {
    match outcome {
        Ok(_) => "ok".into(),
        Err(error @ MediaError::BadInput { .. }) => error.code().to_owned(),
        // Never expected: whoever reads of it wants to know more.
        Err(error) => format!("{error}: {}", error.stderr_tail()),
    }
}
