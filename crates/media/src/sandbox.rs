//! What a program that reads strangers' files may do: read its input and its libraries, write to its scratch folder,
//! compute, and nothing else.
//!
//! ```text
//!   Tool ──spawns──► this binary again, as a launcher ──becomes──► ffmpeg | ffprobe | vips
//!                    RULES -- TOOL ARGS…                           the same process id, group and pipes
//!                    closes every door, then walks through the last one
//! ```
//! The launcher confines itself and then executes the tool, in one process: there is no supervisor that could be left
//! behind or tricked. Two locks are on most doors. *Landlock* decides by path and cannot be taken off; the *seccomp*
//! filter decides by system call and knows what Landlock of older kernels does not. A tool can start no process. It could
//! become another program only by `execveat` of one descriptor, which closes with its first use, or of an absolute path,
//! for which the kernel does not look at the descriptor: there Landlock lets it have itself and its own loader, again
//! under both locks, and nothing else.
//!
//! A kernel without Landlock or without seccomp is refused: [`crate::MediaError`] says `capability_missing`. What newer
//! versions of Landlock add is a second lock on doors that the filter closes already, so every version will do.
//!
//! A program of the user's own ([`crate::UserProgram`]) may start others, so it gets other rules: `of_user.rs` beside each
//! of the tools' own, and `guard.rs`, which ends them all.
//!
//! A binary that wants the sandbox calls [`launch`] first thing in `main` when its first argument is [`LAUNCH`], before
//! there are other threads, and gives [`Confinement::launcher`] to its toolbox.

mod capabilities;
mod guard;
mod interpreter;
mod kernel;
mod launcher;
mod limits;
mod paths;
mod raw;
mod self_test;
mod syscalls;

pub use kernel::{Kernel, KernelFeature};
pub use launcher::launch;
pub(crate) use launcher::{Refusal, refusal};
pub use self_test::{Attempt, SelfTest, attempt_escapes, self_test};

use crate::tool::Confinement;

/// The first argument that makes a binary act as the launcher.
pub const LAUNCH: &str = "sandbox-exec";

/// The first argument that makes a binary try to escape, for [`self_test`].
pub const ATTEMPT: &str = "sandbox-attempt";

impl Confinement {
    /// This binary is the launcher. It is named by `/proc/self/exe`, which stays what it is while an upgrade replaces
    /// the file.
    pub fn launcher() -> Self {
        Self::Launcher { program: "/proc/self/exe".into(), args: vec![LAUNCH.into()] }
    }
}
