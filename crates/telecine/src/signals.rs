//! Being asked to stop.

use anyhow::Result;
use tokio::signal::unix::{self, SignalKind, signal};

/// Ctrl-C and SIGTERM, which mean the same here.
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// From here on neither ends the process by itself.
    pub(crate) fn listen() -> Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
