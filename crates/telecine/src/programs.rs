//! The programs that read media, and what they may do.

use std::process::ExitCode;

use telecine_media::{Confinement, Toolbox, sandbox};

use crate::config::{Config, Key};
use crate::output::say;

/// Where this binary was started as the launcher of the sandbox, or as its self-test: does that, before there is a
/// second thread or anything else to inherit. Both are started by this binary alone and are no part of its command line.
pub(crate) fn act_as_launcher() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        sandbox::LAUNCH => Some(sandbox::launch(arguments)),
        sandbox::ATTEMPT => Some(sandbox::attempt_escapes(arguments)),
        _ => None,
    }
}

/// The programs in `PATH`, confined; or, where somebody asked for it, free, which is said every time.
pub(crate) fn toolbox(config: &Config) -> Toolbox {
    if !config.sandbox {
        warn_of_freedom(config);
    }
    Toolbox::from_path(confinement(config)).with_memory_bytes(config.tool_memory_bytes)
}

pub(crate) fn confinement(config: &Config) -> Confinement {
    if config.sandbox { Confinement::launcher() } else { Confinement::None }
}

fn warn_of_freedom(config: &Config) {
    let origin = config.typed(Key::Sandbox).map_or_else(String::new, |typed| format!(" ({})", typed.origin));
    say(format_args!(
        "WARNING: the sandbox is off{origin}. ffmpeg, ffprobe and vips run with every right of this user: a file that \
         takes one of them over can read and change all that this user can, reach the network, start programs, and \
         stay when telecine is killed.\n\
         next: leave out --no-sandbox, or process only files of your own"
    ));
}
