//! What is wrong with a recipe, and where.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// Everything that is wrong with a recipe, in the order of its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(transparent)]
pub struct RecipeErrors(pub Vec<RecipeError>);

/// One mistake and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecipeError {
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub message: String,
    /// The line itself.
    pub text: String,
    /// How many characters of the line are meant.
    pub width: usize,
}

impl fmt::Display for RecipeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, error) in self.0.iter().enumerate() {
            if nth > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, text, width } = self;
        write!(f, "{file}:{line}:{column}: {message}")?;
        if text.trim().is_empty() {
            return Ok(());
        }
        let margin = " ".repeat(line.to_string().len());
        let pointer = " ".repeat(column - 1) + &"^".repeat(*width);
        write!(f, "\n  {line} | {text}\n  {margin} | {pointer}")
    }
}

/// The text of a recipe, and what was found wrong in it so far.
#[derive(Debug)]
pub(super) struct Complaints<'a> {
    file: &'a str,
    text: &'a str,
    found: Vec<(Range<usize>, RecipeError)>,
}

impl<'a> Complaints<'a> {
    pub(super) fn about(file: &'a str, text: &'a str) -> Self {
        Self { file, text, found: Vec::new() }
    }

    pub(super) fn add(&mut self, span: Range<usize>, message: impl Into<String>) {
        let at = span.start.min(self.text.len());
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        let column = before[line_start..].chars().count() + 1;
        let rest = line.chars().count().saturating_sub(column - 1);
        let meant = self.text.get(at..span.end).unwrap_or_default();
        let meant = meant.lines().next().unwrap_or_default().chars().count();
        let error = RecipeError {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column,
            message: message.into(),
            text: line
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect::<String>()
                .trim_end()
                .to_owned(),
            width: meant.min(rest).max(1),
        };
        self.found.push((span, error));
    }

    pub(super) fn keep_first_of_each_line(&mut self) {
        self.found.sort_by_key(|(span, _)| span.start);
        self.found.dedup_by_key(|(_, error)| error.line);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// `Ok` where nothing is wrong.
    pub(super) fn into_result(mut self) -> Result<(), RecipeErrors> {
        if self.found.is_empty() {
            return Ok(());
        }
        self.found.sort_by_key(|(span, _)| span.start);
        Err(RecipeErrors(self.found.into_iter().map(|(_, error)| error).collect()))
    }
}

impl RecipeErrors {
    /// A file that cannot even be read.
    pub(super) fn unreadable(file: &str, message: impl Into<String>) -> Self {
        let mut complaints = Complaints::about(file, "");
        complaints.add(0..0, message);
        Self(complaints.found.into_iter().map(|(_, error)| error).collect())
    }
}
