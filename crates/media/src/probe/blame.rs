//! Whose fault it is when ffprobe finds fault with a file in words that also fit a failing disk.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::STEP;
use crate::error::{InputProblem, Interruption, MediaError};

/// Headers are in one of these, at the beginning or the end.
const LOOK_MAX_BYTES: u64 = 4 << 20;

/// FFmpeg has one word, `Input/output error`, for headers that end too soon and for storage that gives no bytes. Reading
/// the bytes here tells which it was: what can be read and is refused all the same is refused each time.
pub(super) async fn explained(error: MediaError, path: &Path) -> MediaError {
    let MediaError::Interrupted { cause: Interruption::Failed, at } = error else { return error };
    let Some(problem) = complaint(&at.stderr_tail, path) else {
        return MediaError::interrupted(Interruption::Failed, *at);
    };
    let path = path.to_owned();
    match tokio::task::spawn_blocking(move || read_both_ends(&path)).await {
        Ok(Ok(())) => MediaError::bad_input(problem, *at),
        Ok(Err(error)) => MediaError::io(STEP, "the input cannot be read", &error),
        Err(_) => MediaError::interrupted(Interruption::Failed, *at),
    }
}

/// What the last line holds against the file, if it names it: `file:/in/a.flac: Input/output error`. Others are about
/// options and the like, which no input is to blame for.
fn complaint(stderr: &str, path: &Path) -> Option<InputProblem> {
    let last = stderr.lines().rfind(|line| !line.trim().is_empty())?;
    let what = last.trim().strip_prefix(&format!("file:{}: ", path.display()))?;
    let ends_early = what.starts_with("Input/output error") || stderr.contains("Could not seek to");
    Some(if ends_early { InputProblem::Truncated } else { InputProblem::Corrupt })
}

fn read_both_ends(path: &Path) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    for start in [0, bytes.saturating_sub(LOOK_MAX_BYTES)] {
        file.seek(SeekFrom::Start(start))?;
        std::io::copy(&mut (&mut file).take(LOOK_MAX_BYTES), &mut std::io::sink())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::At;

    async fn judged(path: &Path, complaint: &str) -> MediaError {
        let tail = format!("{}\n", complaint.replace("IN", &path.display().to_string()));
        let failed = MediaError::interrupted(Interruption::Failed, At::new(STEP, "ended").with_stderr(tail));
        explained(failed, path).await
    }

    #[tokio::test]
    async fn only_a_file_that_can_be_read_is_to_blame() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (path, complaint, code) in [
            (file.path(), "file:IN: Input/output error", "input_truncated"),
            (file.path(), "Could not seek to 7\nfile:IN: Invalid argument", "input_truncated"),
            (file.path(), "file:IN: Invalid argument", "input_corrupt"),
            (file.path(), "Unrecognized option 'of'.", "tool_failed"),
            (Path::new("/no/such/file"), "file:IN: Input/output error", "io_failed"),
        ] {
            assert_eq!(judged(path, complaint).await.code(), code, "{complaint}");
        }
    }
}
