//! A process that starts a long encode, to be killed in the middle of it.

use std::ffi::OsString;
use std::process::ExitCode;

use telecine_media::{Confinement, Program, ToolLimits, Toolbox};
use tokio_util::sync::CancellationToken;

/// `SCRATCH`: encodes noise into it for an hour of media time.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(scratch) = arguments.next() else { return ExitCode::from(64) };
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let ended = runtime.block_on(async {
        let tool = Toolbox::from_path(Confinement::launcher())
            .tool(Program::Ffmpeg, "encode")?
            .args(["-re", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=3600"])
            .args(["-c:v", "mpeg4", "long.mkv"])
            .scratch(scratch)
            .limits(ToolLimits::default());
        tool.start(&CancellationToken::new())?.finish().await
    });
    match ended {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
