//! What a tool that has been taken over can do: nothing.

mod escape;
mod life;
mod memory;
mod work;

use telecine_media::{Confinement, Toolbox, sandbox};

use crate::clips;

/// The binary that plays the other processes.
pub(crate) const TESTBED: &str = env!("CARGO_BIN_EXE_telecine-media-testbed");

/// As `Confinement::launcher` is for a binary that has a launcher in it; the one that runs tests has not.
pub(crate) fn confinement() -> Confinement {
    Confinement::Launcher { program: TESTBED.into(), args: vec![sandbox::LAUNCH.into()] }
}

pub(crate) fn toolbox() -> Toolbox {
    clips::toolbox_of(confinement())
}
