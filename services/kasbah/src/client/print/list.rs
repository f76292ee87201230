//! Lists that are printed while their pages come.

use serde::Serialize;

use super::table::{Columns, Table};
use super::{Paint, Printer, Style};
use crate::client::failure::Failure;

/// Prints a list: rows for people as soon as they are known, one document for programs when all of it is.
#[derive(Debug)]
pub struct ListPrinter<T> {
    printer: Printer,
    columns: Columns,
    kept: Vec<T>,
    is_empty: bool,
}

impl Printer {
    /// Begins a list.
    #[must_use]
    pub fn list<T>(self) -> ListPrinter<T> {
        ListPrinter { printer: self, columns: Columns::default(), kept: Vec::new(), is_empty: true }
    }
}

impl<T: Serialize> ListPrinter<T> {
    /// Prints items that came, as `rows` shows them to people.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn page(&mut self, items: Vec<T>, rows: impl FnOnce(&[T], Style) -> Table) -> Result<(), Failure> {
        if items.is_empty() {
            return Ok(());
        }
        self.is_empty = false;
        if !self.printer.format.is_text() {
            self.kept.extend(items);
            return Ok(());
        }
        let style = self.printer.style;
        self.printer.text(&rows(&items, style).render_page(&mut self.columns, style))
    }

    /// Ends the list; `nothing` stands for one without items.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn end(self, nothing: &str) -> Result<(), Failure> {
        if self.printer.format.is_text() && !self.is_empty {
            return Ok(());
        }
        self.printer.show(&self.kept, |_, style| Paint::Dim.on(nothing, style.colour))
    }
}
