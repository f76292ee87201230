//! What commands print: tables for people, JSON or YAML for programs.

mod list;
mod table;
mod text;

use std::io::{IsTerminal as _, Write as _};

use clap::ValueEnum as _;
use clap::builder::{PossibleValuesParser, TypedValueParser as _, ValueParser};
use events::Timestamp;
use serde::Serialize;
use world::World;

use super::failure::Failure;

pub use table::{Cell, Fields, Table};
pub use text::{Paint, age, at, one_line, short_commit};

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Text for people
    #[default]
    Table,
    /// JSON as returned by the API
    Json,
    /// The same data as YAML
    Yaml,
    /// Text for people, with more columns
    Wide,
    /// Only the names, as arguments for kubectl
    Name,
}

impl Format {
    /// What every command prints.
    pub const COMMON: &[Self] = &[Self::Table, Self::Json, Self::Yaml];
    /// What a list of objects is printed as, too.
    pub const OF_OBJECTS: &[Self] = &[Self::Table, Self::Wide, Self::Name, Self::Json, Self::Yaml];

    /// Reads one of these formats.
    #[must_use]
    pub fn parser(formats: &'static [Self]) -> ValueParser {
        let names = formats.iter().filter_map(clap::ValueEnum::to_possible_value);
        ValueParser::new(PossibleValuesParser::new(names).try_map(|name| Self::from_str(&name, false)))
    }

    /// Whether it is text for people, not a document for programs.
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Table | Self::Wide | Self::Name)
    }
}

/// How text for people may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Colours may be used.
    pub colour: bool,
    /// Now, for ages.
    pub now: Timestamp,
}

impl Style {
    /// For the standard output of this process.
    #[must_use]
    pub fn of_process(now: Timestamp) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_none_or(|term| term == "dumb");
        Self { colour: std::io::stdout().is_terminal() && set("NO_COLOR").is_none() && !dumb, now }
    }
}

/// Prints in the wanted format.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    /// The wanted format.
    pub format: Format,
    /// How text for people may look.
    pub style: Style,
}

impl Printer {
    /// To the standard output of this process.
    #[must_use]
    pub fn of(format: Format, world: &World) -> Self {
        Self { format, style: Style::of_process(Timestamp(world.clock.now_millis())) }
    }

    /// Prints a value: as `human` says for people, else as it is.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn show<T: Serialize>(
        &self,
        value: &T,
        human: impl FnOnce(&T, Style) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Wide | Format::Name => self.text(&human(value, self.style)),
            Format::Json => self.text(&json(value)?),
            Format::Yaml => self.text(&yaml(value)?),
        }
    }

    /// Prints one of many values, each by itself: a line for people, a line of JSON, or a YAML document.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn show_line<T: Serialize>(
        &self,
        value: &T,
        human: impl FnOnce(&T, Style) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Wide | Format::Name => self.text(&human(value, self.style)),
            Format::Json => {
                self.text(&serde_json::to_string(value).map_err(|error| Failure::Print(error.to_string()))?)
            }
            Format::Yaml => self.text(&format!("---\n{}", yaml(value)?)),
        }
    }

    /// Prints text, with a line end.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        let written = |detail| Failure::Io { doing: "print".to_owned(), detail };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).map_err(written)?;
        if !text.ends_with('\n') {
            out.write_all(b"\n").map_err(written)?;
        }
        out.flush().map_err(written)
    }
}

fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(|error| Failure::Print(error.to_string()))
}

/// YAML that a reader of version 1.1 understands as well: what it could take for a number, a date or a truth is quoted.
///
/// # Errors
/// When the value cannot be expressed.
pub fn yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    let mut text = String::new();
    // Long texts stay on their line: programs compare them, and people search for them.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_fmt_writer_with_options(&mut text, value, options)
        .map_err(|error| Failure::Print(error.to_string()))?;
    Ok(text)
}

#[cfg(test)]
mod tests;
