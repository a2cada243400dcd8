//! A bar for each step of each file that is being worked on.

use std::collections::HashMap;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use telecine_queue::RunId;

use super::super::batch::Followed;
use super::super::sight::StepState;
use super::{is_at_work, told};
use crate::human;
use crate::output::{harmless, talk_beside};

const DEFAULT_ROWS: usize = 24;
/// Of a bar, in thousandths of a step.
const WHOLE: u64 = 1_000;

pub(crate) struct Bars {
    all: MultiProgress,
    files: HashMap<RunId, FileBars>,
    rest: ProgressBar,
}

struct FileBars {
    title: ProgressBar,
    steps: Vec<ProgressBar>,
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::new();
        talk_beside(Some(all.clone()));
        let rest = all.add(ProgressBar::new_spinner().with_style(style("{msg:.dim}")));
        Self { all, files: HashMap::new(), rest }
    }

    pub(super) fn show(&mut self, followed: &[Followed]) {
        let shown = that_fit(followed, rows());
        self.files.retain(|run, bars| {
            let stays = shown.iter().any(|one| one.run == *run);
            if !stays {
                bars.remove(&self.all);
            }
            stays
        });
        for one in &shown {
            if self.files.get(&one.run).is_none_or(|bars| bars.steps.len() != one.steps.len()) {
                self.add(one);
            }
            if let Some(bars) = self.files.get(&one.run) {
                bars.draw(one);
            }
        }
        match followed.len() - shown.len() {
            0 => self.rest.set_message(""),
            more => self.rest.set_message(format!("and {} more", human::count(more as u64, "file"))),
        }
    }

    fn add(&mut self, one: &Followed) {
        if let Some(old) = self.files.remove(&one.run) {
            old.remove(&self.all);
        }
        let insert = |bar: ProgressBar| self.all.insert_before(&self.rest, bar);
        let title = insert(ProgressBar::new_spinner().with_style(style("{msg:.bold}")));
        let steps = one.steps.iter().map(|_| insert(ProgressBar::new(WHOLE))).collect();
        self.files.insert(one.run.clone(), FileBars { title, steps });
    }

    pub(super) fn clear(&mut self) {
        let _ = self.all.clear();
        // Nothing draws any more, whoever still holds a bar.
        self.all.set_draw_target(ProgressDrawTarget::hidden());
        self.files.clear();
        talk_beside(None);
    }
}

impl FileBars {
    fn draw(&self, one: &Followed) {
        let widest = one.steps.iter().map(|step| step.name.len()).max().unwrap_or(0);
        self.title.set_message(one.title());
        for ((step, pace), bar) in one.steps.iter().zip(&one.paces).zip(&self.steps) {
            let template = match step.state {
                StepState::Running => "  {prefix} {bar:28.cyan/dim} {percent:>3} %  {msg}",
                StepState::Done => "  {prefix} {bar:28.green/dim} {percent:>3} %  {msg:.green}",
                StepState::Failed => "  {prefix} {bar:28.red/dim} {percent:>3} %  {msg:.red}",
                StepState::Waiting | StepState::Queued | StepState::Skipped => {
                    "  {prefix:.dim} {bar:28.dim/dim}        {msg:.dim}"
                }
            };
            bar.set_style(style(template).progress_chars("━╸─"));
            bar.set_prefix(format!("{:widest$}", harmless(&step.name)));
            bar.set_message(told(step, pace));
            bar.set_position((step.done.share * WHOLE as f64) as u64);
        }
    }

    fn remove(&self, all: &MultiProgress) {
        for bar in self.steps.iter().chain([&self.title]) {
            bar.finish_and_clear();
            all.remove(bar);
        }
    }
}

/// Those that are worked on first, and no more than the terminal has lines for: what scrolls away cannot be redrawn.
fn that_fit(followed: &[Followed], rows: usize) -> Vec<&Followed> {
    let mut left = rows.saturating_sub(2);
    let (at_work, waiting): (Vec<&Followed>, Vec<&Followed>) =
        followed.iter().partition(|one| is_at_work(one));
    // One that waits for its first slot has nothing to show but that.
    let waiting = waiting.into_iter().filter(|one| one.steps.iter().any(|step| step.done.share > 0.0));
    at_work.into_iter().chain(waiting).take_while(|one| take(&mut left, one.steps.len() + 1)).collect()
}

fn take(left: &mut usize, lines: usize) -> bool {
    let fits = *left >= lines;
    *left = left.saturating_sub(lines);
    fits
}

fn rows() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(DEFAULT_ROWS)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is ours")
}
