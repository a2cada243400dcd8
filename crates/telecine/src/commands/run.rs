//! `telecine run`: files through a recipe, here and now, without a server.
//!
//! The queue is an embedded one among the results and the worker is this process, so what was begun is never lost: the same
//! command finds its runs again by a key made of the file and the recipe, and goes on where it stopped.

pub(crate) mod batch;
pub(crate) mod ended;
pub(crate) mod export;
pub(crate) mod input;
mod pace;
mod place;
pub(crate) mod screen;
mod sight;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use telecine_pipeline::Recipe;

use self::batch::{Batch, Before, Taken};
use self::ended::{Ended, answer, report};
use self::export::Results;
use self::input::InputFile;
use self::screen::Screen;
use crate::cli::RunFlags;
use crate::config::Config;
use crate::output::{Answer, Colour, Output, harmless, say};
use crate::recipes;
use crate::signals::Signals;
use crate::studio::Studio;

const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn run(flags: &RunFlags, config: &Config, output: &Output) -> Result<Answer> {
    // Before anything is started, so that no signal finds the process without a handler.
    let mut signals = Signals::listen()?;
    let recipe = recipes::to_run(&flags.work.recipe, &flags.work.set, config)?;
    let files = all_fit(&flags.files).await?;
    if files.len() > 1 && flags.publish_to.is_some() {
        bail!("one prefix is for the outputs of one file\nnext: name one file with --publish-to");
    }
    let folders = files.iter().filter_map(|file| file.path.parent()).map(Path::to_owned).collect();
    let batch = open_batch(&flags.work.out, config, folders, recipe, Screen::new(flags.work.quiet)).await?;
    let mut batch = batch.publishing_to(flags.publish_to.clone());
    for file in files {
        take(&mut batch, file, flags.fresh).await?;
    }
    batch.set_others_aside().await?;
    let mut ended = Vec::new();
    let finished = tokio::select! {
        finished = follow(&mut batch, &mut ended) => Some(finished),
        () = signals.next() => None,
    };
    match finished {
        Some(finished) => {
            batch.stop().await;
            batch.clear_screen();
            finished?;
            report(&ended, output)?;
            Ok(answer(&ended))
        }
        None => interrupted(&mut batch, &ended, &mut signals, output).await,
    }
}

/// What `run` and `watch` have in common: the folder of results, and whoever works there.
pub(super) async fn open_batch(
    out: &Path,
    config: &Config,
    folders: Vec<PathBuf>,
    recipe: Recipe,
    screen: Screen,
) -> Result<Batch> {
    std::fs::create_dir_all(out).with_context(|| {
        format!("cannot make the folder {} for the results\nnext: name another with --out", out.display())
    })?;
    let studio = Arc::new(Studio::open(config, out, folders).await?);
    let results = Results::open(out, &studio.folder)?;
    Ok(Batch::new(studio, results, recipe, screen))
}

/// Nothing is begun while one of the files cannot be an input.
async fn all_fit(typed: &[PathBuf]) -> Result<Vec<InputFile>> {
    let (mut files, mut unfit): (Vec<InputFile>, Vec<_>) = (Vec::new(), Vec::new());
    for path in typed {
        match InputFile::look_at(path).await {
            Ok(file) if files.iter().any(|known| known.path == file.path) => {}
            Ok(file) => files.push(file),
            Err(why) => unfit.push(why),
        }
    }
    match unfit.as_slice() {
        [] => Ok(files),
        [one] if typed.len() == 1 => bail!("{}: {}\nnext: {}", one.shown, one.problem, one.next),
        several => {
            let told: Vec<String> = several.iter().map(|one| format!("\n  {one}")).collect();
            bail!(
                "{} of {} files cannot be processed, and nothing was started:{}\nnext: correct these, or leave them out",
                several.len(),
                typed.len(),
                told.concat()
            )
        }
    }
}

async fn take(batch: &mut Batch, file: InputFile, is_fresh: bool) -> Result<()> {
    let shown = harmless(&file.shown);
    let taken = batch.take(file, if is_fresh { Before::Forget } else { Before::Retry }).await?;
    let screen = batch.screen();
    match taken {
        Taken::New => {}
        Taken::Resumed => screen.tell(format_args!("{shown} goes on where it stopped")),
        Taken::Retried => {
            screen.tell(format_args!("{shown} did not succeed before; what is missing is tried again"));
        }
        Taken::Known => {
            screen.tell(format_args!("{shown} was done before; --fresh makes everything anew"));
        }
    }
    Ok(())
}

async fn follow(batch: &mut Batch, ended: &mut Vec<Ended>) -> Result<()> {
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !batch.is_idle() {
        look.tick().await;
        for run in batch.look().await? {
            batch.screen().tell(run.line(Colour::of(&std::io::stderr())));
            ended.push(run);
        }
    }
    Ok(())
}

/// What is stored is kept; a second signal does not wait for programs to stop.
async fn interrupted(
    batch: &mut Batch,
    ended: &[Ended],
    signals: &mut Signals,
    output: &Output,
) -> Result<Answer> {
    batch.screen().tell("stopping; press Ctrl-C again to leave at once");
    let is_clean = tokio::select! {
        () = batch.stop() => true,
        () = signals.next() => false,
    };
    batch.clear_screen();
    report(ended, output)?;
    for left in batch.followed() {
        let percent = (left.share() * 100.0).floor();
        say(harmless(&format!("interrupted: {} is at {percent} %; what is stored is kept", left.file.shown)));
    }
    if !is_clean {
        say("left at once; what ran is taken up again by the next command");
    }
    say(format_args!("to go on: {}", this_command()));
    Ok(Answer::Interrupted)
}

/// As it can be typed again, to follow the run that was just stopped: `--fresh` would begin another one.
fn this_command() -> String {
    let words = std::env::args().filter(|word| word != "--fresh");
    words.map(|word| quoted(&harmless(&word))).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-=,:+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_command_can_be_typed_again() {
        assert_eq!(quoted("hls.segment_seconds=2"), "hls.segment_seconds=2");
        assert_eq!(quoted("it's mine.mp4"), r"'it'\''s mine.mp4'");
        assert_eq!(quoted(""), "''");
    }
}
