//! The programs of one attempt, as they are started and end.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use telecine_media::{ToolEnded, ToolHistory, ToolStarted};

use crate::failure::printable;
use crate::records::{ToolRun, ToolsRecord};

/// Kept from the beginning and, of all others, from the end.
const KEPT_FIRST: usize = 8;
const KEPT: usize = 16;
/// Of one command line, and of one word in it: a graph of filters may be long.
const ARGV_BYTES: usize = 16 * 1024;
const WORD_BYTES: usize = 8 * 1024;
pub(crate) const STDERR_BYTES: usize = 4 * 1024;

/// What one attempt has started so far.
#[derive(Debug)]
pub(crate) struct ToolRuns {
    /// Paths of this machine, and what is written in their place; the longest first.
    shortened: Vec<(String, &'static str)>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    total: u32,
    runs: Vec<(u64, ToolRun)>,
}

impl ToolRuns {
    /// `scratch` is the attempt's own folder, below `root`; `store` the folder of the store, if it is one.
    pub(crate) fn new(scratch: &Path, root: &Path, store: Option<&Path>) -> Self {
        let places = [(Some(scratch), "{scratch}"), (Some(root), "{scratch}"), (store, "{store}")];
        let shortened =
            places.into_iter().filter_map(|(path, word)| Some((path?.to_str()?.to_owned(), word)));
        let mut shortened: Vec<_> = shortened.filter(|(path, _)| path.len() > 1).collect();
        shortened.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self { shortened, kept: Mutex::default() }
    }

    /// What is to be remembered of it; `None` where no program was started.
    pub(crate) fn record(&self) -> Option<ToolsRecord> {
        let kept = self.kept();
        let tools = kept.runs.iter().map(|(_, run)| run.clone()).collect();
        (kept.total > 0).then_some(ToolsRecord { total: kept.total, tools })
    }

    /// The program whose end made the attempt fail, told by what it wrote.
    pub(crate) fn failed_with(&self, stderr_tail: &str) -> Option<(Option<i32>, Option<i32>)> {
        let said = self.plain(stderr_tail);
        let kept = self.kept();
        let failed = kept.runs.iter().rev().map(|(_, run)| run).filter(|run| run.has_failed());
        let failed = failed.into_iter().find(|run| match run.stderr_tail.is_empty() {
            true => said.is_empty(),
            false => said.ends_with(&run.stderr_tail),
        });
        failed.map(|run| (run.exit_code, run.signal))
    }

    /// As others may see it.
    pub(crate) fn plain(&self, text: &str) -> String {
        let shorter = |text: String, (path, word): &(String, &'static str)| text.replace(path.as_str(), word);
        printable(&self.shortened.iter().fold(text.to_owned(), shorter))
    }

    fn argv(&self, words: &[OsString]) -> Vec<String> {
        let (mut argv, mut bytes) = (Vec::with_capacity(words.len()), 0);
        for word in words {
            let word = shorten_end(self.plain(&word.to_string_lossy()), WORD_BYTES);
            bytes += word.len();
            if bytes > ARGV_BYTES {
                argv.push("…".to_owned());
                break;
            }
            argv.push(word);
        }
        argv
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolHistory for ToolRuns {
    fn started(&self, started: ToolStarted) -> u64 {
        let run = ToolRun {
            argv: self.argv(&started.argv),
            step: started.step,
            is_of_user: started.is_of_user,
            exit_code: None,
            signal: None,
            stderr_tail: String::new(),
            wall_ms: None,
        };
        let mut kept = self.kept();
        let number = u64::from(kept.total);
        kept.total = kept.total.saturating_add(1);
        if kept.runs.len() >= KEPT {
            // Rather one that went well than one that did not.
            let later = &kept.runs[KEPT_FIRST..];
            let good = later.iter().position(|(_, run)| run.wall_ms.is_some() && !run.has_failed());
            let forgotten = KEPT_FIRST + good.unwrap_or(0);
            kept.runs.remove(forgotten);
        }
        kept.runs.push((number, run));
        number
    }

    fn ended(&self, number: u64, ended: ToolEnded) {
        let stderr_tail = shorten_start(self.plain(&ended.stderr_tail), STDERR_BYTES);
        let mut kept = self.kept();
        if let Some((_, run)) = kept.runs.iter_mut().find(|(kept, _)| *kept == number) {
            run.exit_code = ended.exit_code;
            run.signal = ended.signal;
            run.stderr_tail = stderr_tail;
            run.wall_ms = u64::try_from(ended.wall.as_millis()).ok();
        }
    }
}

fn shorten_end(text: String, bytes: usize) -> String {
    if text.len() <= bytes {
        return text;
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes)])
}

fn shorten_start(text: String, bytes: usize) -> String {
    if text.len() <= bytes {
        return text;
    }
    text[text.ceil_char_boundary(text.len() - bytes)..].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn runs() -> ToolRuns {
        ToolRuns::new(
            Path::new("/var/scratch/w-1/job-2"),
            Path::new("/var/scratch"),
            Some(Path::new("/var/store")),
        )
    }

    fn start(runs: &ToolRuns, words: &[&str]) -> u64 {
        let argv = words.iter().map(|word| OsString::from(*word)).collect();
        runs.started(ToolStarted { step: "encode".into(), argv, is_of_user: false })
    }

    fn end(runs: &ToolRuns, number: u64, exit_code: i32, stderr: &str) {
        let wall = Duration::from_millis(5);
        let stderr_tail = stderr.to_owned();
        runs.ended(number, ToolEnded { exit_code: Some(exit_code), signal: None, stderr_tail, wall });
    }

    #[test]
    fn a_command_line_is_kept_as_it_was_without_the_places_of_the_machine() {
        let runs = runs();

        let number = start(
            &runs,
            &["/usr/bin/ffmpeg", "-i", "file:/var/store/t/run_1/source", "/var/scratch/w-1/job-2/out.mp4"],
        );
        end(&runs, number, 1, "/var/scratch/w-1/job-2/out.mp4: no space\u{1b}[31m");

        let kept = runs.record().unwrap();
        assert_eq!(kept.total, 1);
        assert_eq!(
            kept.tools[0].argv,
            ["/usr/bin/ffmpeg", "-i", "file:{store}/t/run_1/source", "{scratch}/out.mp4"]
        );
        assert_eq!(kept.tools[0].stderr_tail, "{scratch}/out.mp4: no space[31m");
        assert_eq!(
            runs.failed_with("/var/scratch/w-1/job-2/out.mp4: no space\u{1b}[31m"),
            Some((Some(1), None))
        );
        assert_eq!(runs.failed_with("something else"), None);
    }

    #[test]
    fn of_many_programs_the_first_the_last_and_the_failed_are_kept() {
        let runs = runs();

        for n in 0..1_000 {
            let number = start(&runs, &["ffmpeg", &n.to_string()]);
            end(&runs, number, i32::from(n == 500), "x");
        }
        let long = start(&runs, &["ffmpeg", &"y".repeat(100_000), "z"]);
        end(&runs, long, 0, &"w".repeat(100_000));

        let kept = runs.record().unwrap();
        assert_eq!((kept.total, kept.tools.len()), (1_001, KEPT));
        let named = |nth: usize| kept.tools[nth].argv[1].clone();
        assert_eq!((named(0), named(7)), ("0".into(), "7".into()));
        assert!(kept.tools.iter().any(|tool| tool.argv[1] == "500"));
        let last = kept.tools.last().unwrap();
        assert!(last.argv[1].len() < 9_000 && last.stderr_tail.len() == STDERR_BYTES);
        assert!(serde_json::to_string(&kept).unwrap().len() < telecine_queue::MAX_JSON_BYTES);
    }

    #[test]
    fn a_program_that_did_not_end_is_kept_as_that() {
        let runs = runs();
        assert_eq!(runs.record(), None);

        start(&runs, &["ffmpeg"]);

        let kept = runs.record().unwrap();
        assert_eq!((kept.tools[0].exit_code, kept.tools[0].wall_ms), (None, None));
        assert!(!kept.tools[0].has_failed());
    }
}
