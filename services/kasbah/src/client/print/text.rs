//! Pieces of text.

use events::Timestamp;

/// What a piece of text says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Paint {
    /// Nothing.
    #[default]
    Plain,
    /// It is as it should be.
    Good,
    /// It needs a look.
    Odd,
    /// It is wrong.
    Bad,
    /// It matters less.
    Dim,
    /// It is a heading.
    Strong,
}

impl Paint {
    /// The text with its colour, or as it is.
    #[must_use]
    pub fn on(self, text: &str, colour: bool) -> String {
        let code = match self {
            _ if !colour || text.is_empty() => return text.to_owned(),
            Self::Plain => return text.to_owned(),
            Self::Good => "32",
            Self::Odd => "33",
            Self::Bad => "31",
            Self::Dim => "2",
            Self::Strong => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Text that came from elsewhere, in one line and without anything that a terminal would obey.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for part in text
        .split(|letter: char| letter.is_whitespace() || letter.is_control())
        .filter(|part| !part.is_empty())
    {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(part);
    }
    line
}

/// The first ten digits of a Git commit.
#[must_use]
pub fn short_commit(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

/// How long ago it was, in its largest unit: `12s`, `5m`, `3h`, `9d`; `in 5m` when it is to come.
#[must_use]
pub fn age(at: Timestamp, now: Timestamp) -> String {
    let millis = now.millis_since(at);
    let seconds = millis.unsigned_abs() / 1000;
    let text = match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    };
    if millis < -999 { format!("in {text}") } else { text }
}

/// A moment and how long ago it was.
#[must_use]
pub fn at(moment: Timestamp, now: Timestamp) -> String {
    let age = age(moment, now);
    match age.strip_prefix("in ") {
        Some(_) => format!("{moment} ({age})"),
        None => format!("{moment} ({age} ago)"),
    }
}
