//! The last lines of a child's stderr, in bounded memory, fit to be shown.

use std::collections::VecDeque;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

const TAIL_MAX_LINES: usize = 40;
const LINE_MAX_BYTES: usize = 512;

/// The last lines. A line that repeats the one before it is counted, not kept: decoders repeat themselves.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<(String, usize)>,
}

impl Tail {
    pub(super) fn push(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        if let Some((last, times)) = self.lines.back_mut()
            && last == line
        {
            *times += 1;
            return;
        }
        if self.lines.len() == TAIL_MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back((line.to_owned(), 1));
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (line, times) in &self.lines {
            text.push_str(line);
            if *times > 1 {
                text.push_str(&format!(" ({times} times)"));
            }
            text.push('\n');
        }
        text
    }
}

/// Gives every line to `take`.
pub(super) async fn each_line(source: impl AsyncRead + Unpin, mut take: impl FnMut(&str)) {
    let mut lines = Lines::of(source);
    while let Some(line) = lines.next().await {
        take(&line);
    }
}

/// The lines of a child: cut to a bound and free of control characters, which could forge lines of a log or command a
/// terminal. Carriage returns end lines too.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn of(source: R) -> Self {
        Self { reader: BufReader::new(source), line: Vec::with_capacity(LINE_MAX_BYTES) }
    }

    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            let bytes = match self.reader.fill_buf().await {
                Ok([]) | Err(_) => break,
                Ok(bytes) => bytes,
            };
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = LINE_MAX_BYTES - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let consumed = part.len() + usize::from(end.is_some());
            self.reader.consume(consumed);
            if end.is_some() {
                return Some(self.take_line());
            }
        }
        (!self.line.is_empty()).then(|| self.take_line())
    }

    fn take_line(&mut self) -> String {
        let line = shown(&self.line);
        self.line.clear();
        line
    }
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endless_and_repeated_lines_stay_small_and_harmless() {
        let mut tail = Tail::default();
        let mut source = vec![b'a'; 100_000];
        source.extend_from_slice(b"\nsame\nsame\nsame\n\x1b[31mred\r\n");

        each_line(&source[..], |line| tail.push(line)).await;

        let expected = format!("{}\nsame (3 times)\n\u{fffd}[31mred\n", "a".repeat(LINE_MAX_BYTES));
        assert_eq!(tail.text(), expected);
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut tail = Tail::default();
        for n in 0..1_000 {
            tail.push(&n.to_string());
        }

        assert_eq!(tail.text().lines().count(), TAIL_MAX_LINES);
        assert!(tail.text().ends_with("\n999\n"));
    }
}
