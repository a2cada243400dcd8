//! `telecine backup`.

use std::path::Path;

use anyhow::{Context, Result};
use telecine_queue::backup;

use crate::config::Config;
use crate::human;
use crate::output::{Answer, say};

pub(super) async fn run(into: &Path, config: &Config) -> Result<Answer> {
    let cannot = || format!("cannot back up {}", config.database_shown());
    backup(&config.database, into).await.with_context(cannot)?;
    let bytes = std::fs::metadata(into).map_or(0, |file| file.len());
    say(format_args!(
        "{} is in {} ({})\nnext: copy the store, too, and after this; see docs/runbook.md",
        config.database_shown(),
        into.display(),
        human::bytes(bytes)
    ));
    Ok(Answer::Yes)
}
