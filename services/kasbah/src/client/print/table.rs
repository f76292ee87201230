//! Aligned columns.

use unicode_width::UnicodeWidthStr as _;

use super::Style;
use super::text::{Paint, one_line};

const GAP: &str = "  ";

/// One field of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    text: String,
    paint: Paint,
}

impl Cell {
    /// Text that says something about itself.
    #[must_use]
    pub fn painted(text: &str, paint: Paint) -> Self {
        Self { text: one_line(text), paint }
    }

    /// The same with so many letters at most, an ellipsis as the last where there were more.
    #[must_use]
    pub fn at_most(mut self, letters: usize) -> Self {
        if self.text.chars().count() > letters {
            self.text = self.text.chars().take(letters.saturating_sub(1)).collect();
            self.text.push('…');
        }
        self
    }

    /// The same behind the lines of a tree, whose spaces count.
    #[must_use]
    pub fn behind(mut self, lines: &str) -> Self {
        self.text.insert_str(0, lines);
        self
    }

    /// Text, or `-` when there is none.
    #[must_use]
    pub fn or_dash(text: Option<&str>) -> Self {
        match text.filter(|text| !text.is_empty()) {
            Some(text) => text.into(),
            None => Self::painted("-", Paint::Dim),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::painted(text, Paint::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

/// Rows under headings.
#[derive(Debug, Clone)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; as many cells as there are headings.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table, or `nothing` when it has no row.
    #[must_use]
    pub fn render(&self, style: Style, nothing: &str) -> String {
        if self.rows.is_empty() {
            return Paint::Dim.on(nothing, style.colour);
        }
        self.render_page(&mut Columns::default(), style)
    }

    /// The rows of one page of a table, under headings if it is the first one. Columns are as wide as those of the pages before.
    #[must_use]
    pub fn render_page(&self, columns: &mut Columns, style: Style) -> String {
        let mut lines = self.rows.clone();
        if columns.widths.is_empty() {
            lines.insert(
                0,
                self.headings.iter().map(|heading| Cell::painted(heading, Paint::Strong)).collect(),
            );
        }
        aligned(&lines, &mut columns.widths, style)
    }
}

/// How wide the columns of a table are so far.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    widths: Vec<usize>,
}

/// Names and their values, one a line.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    rows: Vec<Vec<Cell>>,
}

impl Fields {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Cell>) -> Self {
        self.rows.push(vec![Cell::painted(name, Paint::Strong), value.into()]);
        self
    }

    /// Adds a field if it has a value.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl Into<Cell>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The lines.
    #[must_use]
    pub fn render(&self, style: Style) -> String {
        aligned(&self.rows, &mut Vec::new(), style)
    }
}

/// The lines in columns of these widths, which grow with what does not fit.
fn aligned(lines: &[Vec<Cell>], widths: &mut Vec<usize>, style: Style) -> String {
    for line in lines {
        widths.resize(widths.len().max(line.len()), 0);
        for (cell, width) in line.iter().zip(widths.iter_mut()) {
            *width = cell.text.width().max(*width);
        }
    }
    let mut text = String::new();
    for line in lines {
        let last = line.len().saturating_sub(1);
        for (column, (cell, width)) in line.iter().zip(widths.iter()).enumerate() {
            text.push_str(&cell.paint.on(&cell.text, style.colour));
            if column < last {
                text.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.text.width())));
                text.push_str(GAP);
            }
        }
        text.push('\n');
    }
    text
}
