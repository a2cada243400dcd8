//! Plain aligned columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::{Colour, Paint, harmless};

/// Rows under a header. Cells come from jobs and are made harmless here.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Debug)]
pub(crate) struct Cell {
    text: String,
    paint: Option<Paint>,
}

impl Cell {
    pub(crate) fn painted(text: impl ToString, paint: impl Into<Paint>) -> Self {
        Self { paint: Some(paint.into()), ..Self::from(text.to_string()) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: harmless(&text.into()), paint: None }
    }
}

impl Table {
    pub(crate) fn new(header: impl Into<Vec<&'static str>>) -> Self {
        Self { header: header.into(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.header.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    pub(crate) fn draw(&self, colour: Colour) -> String {
        let widths: Vec<usize> = (0..self.header.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| row[column].text.width());
                cells.chain([self.header[column].width()]).max().unwrap_or(0)
            })
            .collect();
        let header = self.header.iter().map(|name| Cell::painted(name, Paint::Dim)).collect();
        let mut drawn = String::new();
        for row in std::iter::once(&header).chain(&self.rows) {
            let mut line = String::new();
            let mut gap = 0;
            for (cell, width) in row.iter().zip(&widths) {
                line.extend(std::iter::repeat_n(' ', gap));
                line +=
                    &cell.paint.map_or_else(|| cell.text.clone(), |paint| colour.paint(paint, &cell.text));
                gap = width - cell.text.width() + 2;
            }
            drawn += line.trim_end();
            drawn.push('\n');
        }
        drawn
    }
}

/// The start of a text, in at most `width` columns.
pub(crate) fn truncate(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let mut kept = String::new();
    for c in text.chars() {
        let Some(left) = room.checked_sub(c.width().unwrap_or(0)) else { break };
        room = left;
        kept.push(c);
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let mut table = Table::new(["ID", "LABEL", "STATE"]);
        table.row(["1".into(), "日本".into(), Cell::painted("completed", Paint::Green)]);
        table.row(["12".into(), "x\x07".into(), "failed".into()]);

        assert_eq!(
            table.draw(Colour::Off),
            "ID  LABEL   STATE\n1   日本    completed\n12  x\\u{7}  failed\n"
        );
        assert!(table.draw(Colour::On).contains("\x1b[32mcompleted\x1b[0m"));
    }

    #[test]
    fn long_text_is_cut_with_a_mark() {
        assert_eq!(truncate("abcdef", 4), "abc…");
        assert_eq!(truncate("abcd", 4), "abcd");
    }
}
