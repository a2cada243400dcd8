//! Who is to blame: the input, or this machine.

use rs_vips::Vips;
use telecine_media::Refusal;

#[derive(Debug)]
pub(crate) enum Failure {
    Input {
        why: Refusal,
        detail: String,
    },
    /// Told on stderr, where the caller looks for words such as "No space left on device".
    Ours(String),
}

/// What libvips' loaders and the libraries below them say when bytes are missing at the end.
const TRUNCATED: &[&str] =
    &["premature end", "truncated", "unexpected end", "read error", "end of file", "eof"];
const OURS: &[&str] = &["no space left", "out of memory", "cannot allocate", "unable to allocate"];

impl Failure {
    /// Of reading the picture.
    pub(crate) fn of_reading(error: impl ToString) -> Self {
        let detail = described(error);
        let lower = detail.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if says(OURS) {
            return Self::Ours(detail);
        }
        let why = if says(TRUNCATED) { Refusal::Truncated } else { Refusal::Corrupt };
        Self::Input { why, detail }
    }

    /// Of making or writing an output.
    pub(crate) fn of_writing(error: impl ToString) -> Self {
        Self::Ours(described(error))
    }
}

/// libvips collects what its parts have to say apart from the error; it may be of several lines.
fn described(error: impl ToString) -> String {
    let said = Vips::error_buffer().unwrap_or_default();
    Vips::error_clear();
    let mut words = error.to_string();
    if !words.contains(said.trim()) {
        words = format!("{words}: {said}");
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
