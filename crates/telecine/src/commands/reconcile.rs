//! `telecine reconcile`.

use std::time::Duration;

use anyhow::{Result, anyhow};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Serialize;
use telecine_pipeline::{Finding, News, Outcome, ReconcileOptions, Tally, Trouble, reconcile};
use tokio_util::sync::CancellationToken;

use super::{Schema, open};
use crate::cli::ReconcileFlags;
use crate::config::Config;
use crate::output::{Answer, Colour, Output, Paint, harmless, say, talk_beside};
use crate::signals::Signals;
use crate::{human, workshop};

/// A document lists so many; all are counted.
const LISTED: usize = 10_000;
/// Whatever is said about the rest: a large source takes its time, and who stores it is at work.
const LONGEST_PUT: Duration = Duration::from_hours(24);
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    object: &'static str,
    #[serde(flatten)]
    tally: Tally,
    findings: Vec<Finding>,
    /// There are more findings than are listed.
    is_cut: bool,
}

pub(super) async fn run(flags: &ReconcileFlags, config: &Config, output: &Output) -> Result<Answer> {
    let mut signals = Signals::listen()?;
    let queue = open(config, Schema::AsItIs).await?;
    let mut shop = workshop::open(config, &queue)?;
    shop.keep_unpublished = flags.older_than;
    let options = ReconcileOptions {
        mend: flags.mend,
        deep: flags.deep,
        claim_store: flags.claim_store,
        unfinished_older_than: flags.older_than.max(LONGEST_PUT),
    };

    let (stopping, progress) = (CancellationToken::new(), Progress::new());
    let (mut findings, mut is_cut) = (Vec::new(), false);
    let tell = &mut |news: News<'_>| match news {
        News::Looked(tally) => progress.show(tally),
        // Only what one document has to hold is kept.
        News::Found(finding) if output.json => match findings.len() {
            LISTED => is_cut = true,
            _ => findings.push(finding),
        },
        // A closed pipe shows at the end.
        News::Found(finding) => drop(output.print(&line(&finding, output.colour))),
    };
    let is_stopped = async {
        signals.next().await;
        stopping.cancel();
        // It ends by itself, once it has put away what it has in hand.
        std::future::pending::<()>().await;
    };
    let tally = tokio::select! {
        tally = reconcile(&shop, options, &stopping, tell) => tally,
        () = is_stopped => unreachable!("it never ends"),
    };
    progress.end();

    let tally = tally.map_err(|failed| anyhow!("{}\nnext: {}", failed.message, failed.hint))?;
    summarise(&tally, options);
    let is_clean = tally.is_clean();
    if output.json {
        output.print_json(&Report { object: "reconciliation", tally, findings, is_cut })?;
    }
    Ok(match (stopping.is_cancelled(), is_clean) {
        (true, _) => Answer::Interrupted,
        (false, true) => Answer::Yes,
        (false, false) => Answer::No,
    })
}

fn line(finding: &Finding, colour: Colour) -> String {
    let (word, paint) = match finding.outcome {
        Outcome::Mendable => ("found", Paint::Yellow),
        Outcome::Mended => ("mended", Paint::Green),
        Outcome::Waits => ("waits", Paint::Dim),
        Outcome::Lost => ("lost", Paint::Red),
    };
    let trouble = match finding.trouble {
        Trouble::Damaged => "damaged",
        Trouble::Orphan => "orphan",
        Trouble::Leftover => "leftover",
        Trouble::Publication => "published",
        Trouble::StaleCache => "cache",
        Trouble::Unfinished => "unfinished",
        Trouble::Unreadable => "unreadable",
    };
    let word = colour.paint(paint, &format!("{word:<6}"));
    format!("{word}  {trouble:<10}  {}  {}\n", harmless(&finding.at), harmless(&finding.message))
}

fn summarise(tally: &Tally, options: ReconcileOptions) {
    if tally.is_claimed {
        say("this database is the only one of the store from now on");
    }
    for why in &tally.left_out {
        say(format_args!("not looked at: {}", harmless(why)));
    }
    say(format_args!(
        "looked at {}, {} of the store, {} of the cache and {} that callers chose: \
         {} to mend, {} mended, {} left for later, {} lost",
        human::count(tally.runs, "run"),
        human::count(tally.folders, "folder"),
        tally.cache_entries,
        human::count(tally.places, "place"),
        tally.mendable,
        tally.mended,
        tally.waits,
        tally.lost
    ));
    if tally.mendable > 0 && !options.mend {
        say("next: `telecine reconcile --mend`");
    }
}

/// How far it is, where somebody sees it.
struct Progress(ProgressBar);

impl Progress {
    fn new() -> Self {
        let all = MultiProgress::new();
        let style = ProgressStyle::with_template("{spinner} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = all.add(ProgressBar::new_spinner().with_style(style));
        if !bar.is_hidden() {
            bar.enable_steady_tick(DRAW_EVERY);
            talk_beside(Some(all));
        }
        Self(bar)
    }

    fn show(&self, tally: &Tally) {
        let found = tally.mendable + tally.mended + tally.waits + tally.lost;
        if !self.0.is_hidden() {
            self.0.set_message(format!("{} runs, {} folders, {found} found", tally.runs, tally.folders));
        }
    }

    fn end(&self) {
        self.0.finish_and_clear();
        talk_beside(None);
    }
}
