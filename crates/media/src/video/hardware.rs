//! Whether an encoder in hardware works here: being listed says only that FFmpeg was built with it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::capability::Capabilities;
use crate::error::{MediaError, Result};
use crate::plan::{HARDWARE_ENCODERS, trial_args};
use crate::tool::{Program, ToolLimits, Toolbox};

impl Capabilities {
    /// Lets every encoder in hardware that is listed encode a few frames, and remembers those that can. A process start
    /// for each, so only for whoever wants hardware.
    pub async fn try_hardware(&mut self, toolbox: &Toolbox, cancel: &CancellationToken) -> Result<()> {
        let listed = HARDWARE_ENCODERS.iter().filter(|(_, name)| self.encoders.contains(*name));
        let mut working = std::collections::BTreeSet::new();
        for (codec, name) in listed {
            if works(toolbox, &trial_args(*codec, name), cancel).await? {
                working.insert((*name).to_owned());
            }
        }
        self.working_hardware = working;
        Ok(())
    }
}

async fn works(toolbox: &Toolbox, encoder: &[String], cancel: &CancellationToken) -> Result<bool> {
    let tool = toolbox
        .tool(Program::Ffmpeg, "try_hardware")?
        .args(["-f", "lavfi", "-i", "color=size=256x256:rate=25:duration=0.2", "-pix_fmt", "nv12"])
        .args(encoder)
        .args(["-f", "null", "-"])
        .limits(ToolLimits { wall: Duration::from_secs(20), ..ToolLimits::default() });
    match tool.start(cancel)?.finish().await {
        Ok(_) => Ok(true),
        Err(error @ MediaError::Cancelled { .. }) => Err(error),
        Err(_) => Ok(false),
    }
}
