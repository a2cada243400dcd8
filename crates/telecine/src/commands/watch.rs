//! `telecine watch`: files are processed as they appear in a folder.

use anyhow::Result;

use crate::cli::WatchFlags;
use crate::config::Config;
use crate::output::{Answer, Output};

pub(super) async fn run(_flags: &WatchFlags, _config: &Config, _output: &Output) -> Result<Answer> {
    anyhow::bail!("to be written")
}
