//! `telecine submit`: a run for the workers on the database.

use std::path::Path;

use anyhow::{Result, bail};
use telecine_pipeline::{Input, Submission, describe, is_below};
use telecine_queue::Timestamp;

use super::{Schema, open, runs};
use crate::cli::SubmitFlags;
use crate::config::{Config, Key};
use crate::output::{Answer, Output, say};
use crate::recipes;

pub(super) async fn run(flags: SubmitFlags, config: &Config, output: &Output) -> Result<Answer> {
    let recipe = recipes::to_run(&flags.recipe, &flags.set, config)?;
    let input = input(&flags.input, config)?;
    let submission = Submission {
        tenant: flags.tenant.unwrap_or_default(),
        external_id: flags.external_id,
        priority: flags.priority.unwrap_or(50),
        run_at: flags.at.or(flags.delay.map(|delay| Timestamp::now().plus(delay))),
        idempotency_key: flags.idempotency_key,
        fresh: flags.fresh,
        publish_to: flags.publish_to,
        metadata: flags.metadata.unwrap_or_default(),
        ..Submission::new(recipe, input)
    };
    let queue = open(config, Schema::Migrate).await?;
    let submitted = telecine_pipeline::submit(queue.as_ref(), submission).await?;
    if submitted.replayed {
        say("this key was used before with the same content: nothing new was submitted");
    }
    if flags.watch {
        return runs::watch(&submitted.run, queue.as_ref(), output).await;
    }
    if output.json {
        output.print_json(&describe(queue.as_ref(), &submitted.run).await?)?;
    } else {
        output.print(&format!("{}\n", submitted.run))?;
        say(format_args!("next: telecine runs watch {}", submitted.run));
    }
    Ok(Answer::Yes)
}

/// What was typed is an address, or a file that workers may read.
fn input(typed: &str, config: &Config) -> Result<Input> {
    if typed.starts_with("s3://") {
        if !config.intake.buckets.iter().any(|allowed| is_below(typed, allowed)) {
            let bucket = typed.split('/').take(3).collect::<Vec<_>>().join("/");
            bail!(
                "{typed} is in no bucket that workers take inputs from\n\
                 next: set {} to {bucket}, or to a part of it, for this command and the workers",
                Key::InputBuckets.variable()
            );
        }
        return Ok(Input::S3(typed.to_owned()));
    }
    if typed.starts_with("http://") || typed.starts_with("https://") {
        return Ok(Input::Url(typed.to_owned()));
    }
    let Ok(path) = Path::new(typed).canonicalize() else {
        bail!("there is no file {typed}\nnext: check the path");
    };
    if path.to_str().is_none() {
        bail!("the name of {typed} is no text in UTF-8\nnext: rename it, or its folder");
    }
    if !path.is_file() {
        bail!("{typed} is no file\nnext: name a file, an http address or s3://BUCKET/KEY");
    }
    let is_allowed = |folder: &Path| folder.canonicalize().is_ok_and(|folder| path.starts_with(folder));
    if !config.input_folders.iter().any(|folder| is_allowed(folder)) {
        let parent = path.parent().unwrap_or(Path::new("/")).display();
        bail!(
            "{typed} is in no folder that workers take inputs from\n\
             next: set {} to {parent} for this command and the workers, or process it here with `telecine run`",
            Key::InputFolders.variable()
        );
    }
    Ok(Input::Path(path))
}
