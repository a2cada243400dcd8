//! Where the timeline is shown: redrawn in place on a terminal, as lines of change anywhere else.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use anyhow::Result;

use super::timeline::Timeline;
use crate::output::Output;

const DEFAULT_WIDTH: u16 = 80;
const MAX_WIDTH: u16 = 140;
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_TO_END_OF_LINE: &str = "\x1b[K";

pub(super) enum Screen<'a> {
    Live(Live<'a>),
    Lines { output: &'a Output, last: Option<Timeline> },
}

impl<'a> Screen<'a> {
    pub(super) fn new(output: &'a Output) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if std::io::stdout().is_terminal() && !dumb {
            Self::Live(Live { output, drawn: 0, told: Vec::new() })
        } else {
            Self::Lines { output, last: None }
        }
    }

    /// Shows a look at the jobs, and something else that happened just now.
    pub(super) fn show(&mut self, seen: &Timeline, event: Option<String>) -> Result<()> {
        let event = event.map(|event| format!("{}  {event}", seen.clock()));
        match self {
            Self::Live(live) => live.redraw(seen, event),
            Self::Lines { output, last } => {
                for change in seen.changes_since(last.as_ref()).into_iter().chain(event) {
                    output.print(&format!("{change}\n"))?;
                }
                *last = Some(seen.clone());
                Ok(())
            }
        }
    }
}

pub(super) struct Live<'a> {
    output: &'a Output,
    /// How many lines the last picture had.
    drawn: usize,
    told: Vec<String>,
}

impl Live<'_> {
    fn redraw(&mut self, seen: &Timeline, event: Option<String>) -> Result<()> {
        self.told.extend(event);
        let mut lines = seen.draw(usize::from(width()), self.output.colour);
        lines.extend(self.told.iter().cloned());
        let mut picture = String::from(HIDE_CURSOR);
        if self.drawn > 0 {
            let _ = write!(picture, "\x1b[{}A\r", self.drawn);
        }
        for line in &lines {
            let _ = writeln!(picture, "{line}{CLEAR_TO_END_OF_LINE}");
        }
        self.drawn = lines.len();
        self.output.print(&picture)
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let mut stdout = std::io::stdout();
        let _ = stdout.write_all(SHOW_CURSOR.as_bytes());
        let _ = stdout.flush();
    }
}

/// Asked each time: the window may change its size.
fn width() -> u16 {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| size.ws_col);
    // One column less than there are: some terminals wrap a line that fills them.
    if columns == 0 { DEFAULT_WIDTH } else { columns.min(MAX_WIDTH) - 1 }
}
