//! Which filters a graph needs, read from the graph itself, so that no list beside it can be wrong.

use std::collections::BTreeSet;

use super::Piece;

impl Piece {
    /// The filters that a graph of ours names, and those that FFmpeg puts in between by itself to convert formats.
    pub(crate) fn filters_of(graph: &str) -> BTreeSet<Self> {
        let mut names: BTreeSet<&str> = steps(graph).filter_map(name).collect();
        for (asking, converting) in [("format", "scale"), ("aformat", "aresample")] {
            if names.contains(asking) {
                names.insert(converting);
            }
        }
        names.into_iter().map(|name| Self::Filter(name.to_owned().into())).collect()
    }
}

/// Filters with their options and labels. Commas and semicolons between quotes are part of an expression.
fn steps(graph: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    graph.split(move |c| {
        is_quoted ^= c == '\'';
        !is_quoted && matches!(c, ',' | ';')
    })
}

/// `[in][in2]overlay=x=1[out]` is `overlay`.
fn name(step: &str) -> Option<&str> {
    let mut rest = step.trim();
    while let Some((_, after)) = rest.strip_prefix('[').and_then(|label| label.split_once(']')) {
        rest = after;
    }
    rest.split(['=', '[', '@']).next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_named_once_whatever_stands_between_them() {
        let graph =
            "[0:1]select='gt(a,b)*(isnan(t)+1)',scale=1:2,split=2[a][b];[a][b]overlay=x=W-w,null[out]";

        let names: Vec<String> = Piece::filters_of(graph).iter().map(ToString::to_string).collect();

        let expected = ["null", "overlay", "scale", "select", "split"];
        assert_eq!(names, expected.map(|name| format!("ffmpeg's filter {name}")));
    }

    #[test]
    fn a_conversion_that_nobody_wrote_is_named_too() {
        let needed = Piece::filters_of("aformat=channel_layouts=stereo[out]");

        assert!(needed.contains(&Piece::Filter("aresample".into())));
    }
}
