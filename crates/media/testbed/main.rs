//! The other processes of this crate's tests: the launcher, a parent that is killed, and a tool that tries to get out.

mod escape;
mod parent;
mod poor_kernel;

use std::process::ExitCode;

use telecine_media::sandbox;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let mode = arguments.next().unwrap_or_default();
    match mode.to_str() {
        Some(sandbox::LAUNCH) => sandbox::launch(arguments),
        Some(sandbox::ATTEMPT) => sandbox::attempt_escapes(arguments),
        Some("launch-without") => poor_kernel::launch(arguments),
        Some("parent") => parent::run(arguments),
        Some("escape") => escape::run(arguments),
        _ => ExitCode::from(64),
    }
}
