//! A bar for each step of each file that is being worked on.

use std::collections::HashMap;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
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
    /// How many files are not shown, where there are such.
    rest: Option<ProgressBar>,
    _keys: UnseenKeys,
}

struct FileBars {
    title: ProgressBar,
    steps: Vec<ProgressBar>,
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::new();
        talk_beside(Some(all.clone()));
        Self { all, files: HashMap::new(), rest: None, _keys: UnseenKeys::new() }
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
        self.show_rest(followed.len() - shown.len());
    }

    fn show_rest(&mut self, files: usize) {
        if files == 0 {
            if let Some(rest) = self.rest.take() {
                rest.finish_and_clear();
                self.all.remove(&rest);
            }
            return;
        }
        let rest = self
            .rest
            .get_or_insert_with(|| self.all.add(ProgressBar::new_spinner().with_style(style("{msg:.dim}"))));
        rest.set_message(format!("and {} more", human::count(files as u64, "file")));
    }

    fn add(&mut self, one: &Followed) {
        if let Some(old) = self.files.remove(&one.run) {
            old.remove(&self.all);
        }
        let insert = |bar: ProgressBar| match &self.rest {
            Some(rest) => self.all.insert_before(rest, bar),
            None => self.all.add(bar),
        };
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

/// While it lives, the terminal does not write `^C` when that is pressed: the cursor stands at the end of a full line, and
/// what it pushes to the next one could not be cleared any more.
struct UnseenKeys {
    before: Option<Termios>,
}

impl UnseenKeys {
    fn new() -> Self {
        let before = tcgetattr(std::io::stderr()).ok();
        if let Some(before) = &before {
            let mut without = before.clone();
            without.local_modes.remove(LocalModes::ECHOCTL);
            let _ = tcsetattr(std::io::stderr(), OptionalActions::Now, &without);
        }
        Self { before }
    }
}

impl Drop for UnseenKeys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stderr(), OptionalActions::Now, before);
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
    let size = tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(DEFAULT_ROWS)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is ours")
}
