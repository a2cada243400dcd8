//! `telecine watch`: files are processed as they appear in a folder.
//!
//! What was processed is remembered by the same key as that of `telecine run`, in the database among the results: a restart
//! goes on where it stopped and does nothing twice.

mod folder;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::folder::Folder;
use super::run::batch::{Batch, Before, Taken};
use super::run::ended::Ended;
use super::run::input::InputFile;
use super::run::open_batch;
use super::run::screen::Screen;
use crate::cli::WatchFlags;
use crate::config::Config;
use crate::human;
use crate::output::{Answer, Colour, Output, harmless, say};
use crate::recipes;
use crate::signals::Signals;

const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(flags: &WatchFlags, config: &Config, output: &Output) -> Result<Answer> {
    let mut signals = Signals::listen()?;
    let recipe = recipes::to_run(&flags.work.recipe, &flags.work.set, config)?;
    let folder = open_folder(flags)?;
    let root = flags.folder.canonicalize()?;
    let mut watch = Watch {
        batch: open_batch(&flags.work.out, config, vec![root], recipe, Screen::new(flags.work.quiet)).await?,
        folder,
        told: None,
        output,
    };
    watch.batch.screen().tell(format_args!(
        "watching {}; a file is taken when it has not changed for {}; Ctrl-C stops",
        flags.folder.display(),
        human::duration(flags.settle)
    ));
    tokio::select! {
        ended = watch.go_on() => ended?,
        () = signals.next() => {}
    }
    watch.leave(&mut signals).await;
    Ok(Answer::Yes)
}

fn open_folder(flags: &WatchFlags) -> Result<Folder> {
    let shown = flags.folder.display();
    let root = flags.folder.canonicalize().with_context(|| format!("cannot watch {shown}"))?;
    ensure!(root.is_dir(), "{shown} is no folder\nnext: process a single file with `telecine run`");
    let results = absolute(&flags.work.out)?;
    ensure!(
        !flags.nested || !root.starts_with(&results),
        "the results would be taken for inputs, for {} is not outside of {shown}\nnext: leave out --nested, or name another \
         folder with --out",
        flags.work.out.display()
    );
    Ok(Folder::new(root, results, flags.nested, flags.settle))
}

/// Without links, as far as it is there.
fn absolute(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/"));
    Ok(there.canonicalize()?.join(path.strip_prefix(there)?))
}

struct Watch<'a> {
    batch: Batch,
    folder: Folder,
    /// The last trouble that was told of.
    told: Option<String>,
    output: &'a Output,
}

impl Watch<'_> {
    /// Ends only when its results can no longer be told.
    async fn go_on(&mut self) -> Result<()> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let complete = self.folder.look(Instant::now()).context("the folder cannot be read");
            let mut trouble = complete.as_ref().err().map(|error| format!("{error:#}"));
            for path in complete.unwrap_or_default() {
                if let Err(error) = self.take(&path).await {
                    self.folder.forget(&path);
                    trouble = Some(format!("{error:#}"));
                }
            }
            match self.batch.look().await {
                Ok(ended) => ended.iter().try_for_each(|run| self.tell(run))?,
                Err(error) => trouble = Some(format!("{error:#}")),
            }
            self.note(trouble);
        }
    }

    async fn take(&mut self, path: &Path) -> Result<()> {
        match InputFile::look_at(path).await {
            Ok(file) => {
                let shown = harmless(&file.shown);
                match self.batch.take(file, Before::Keep).await? {
                    Taken::New => self.batch.screen().tell(format_args!("{shown} is taken")),
                    Taken::Resumed => {
                        self.batch.screen().tell(format_args!("{shown} goes on where it stopped"))
                    }
                    Taken::Retried | Taken::Known => {}
                }
            }
            Err(unfit) => say(harmless(&format!("skipped: {unfit}"))),
        }
        Ok(())
    }

    fn tell(&self, run: &Ended) -> Result<()> {
        if run.is_old_news() {
            return Ok(());
        }
        if self.output.json {
            self.output.print(&(serde_json::to_string(run)? + "\n"))?;
        } else {
            self.output.print(&(run.line(Colour::of(&std::io::stdout())) + "\n"))?;
        }
        run.complain();
        Ok(())
    }

    /// What keeps it from its work is told when it begins and when it is over; it goes on trying.
    fn note(&mut self, trouble: Option<String>) {
        if self.told == trouble {
            return;
        }
        match &trouble {
            Some(trouble) => {
                say(format_args!("error: {}\nit is tried again until it works", harmless(trouble)))
            }
            None => say("it works again"),
        }
        self.told = trouble;
    }

    async fn leave(&mut self, signals: &mut Signals) {
        self.batch.screen().tell("stopping; press Ctrl-C again to leave at once");
        tokio::select! {
            () = self.batch.stop() => {}
            () = signals.next() => {}
        }
        self.batch.clear_screen();
        if !self.batch.is_idle() {
            let files = human::count(self.batch.followed().len() as u64, "file");
            say(format_args!("stopped; {files} will go on when the same command is started again"));
        }
    }
}
