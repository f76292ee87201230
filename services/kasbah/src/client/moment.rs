//! Moments as people give them.

use std::time::Duration;

use chassis::args::parse_duration;
use events::Timestamp;

/// A moment, or how long ago it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// This one.
    At(Timestamp),
    /// So long before now.
    Ago(Duration),
}

impl Moment {
    /// Reads `10m`, `2h` or a time such as `2026-01-31T12:00:00Z`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        let at = Timestamp::parse(text).map(Self::At);
        at.or_else(|_| parse_duration(text).map(Self::Ago)).map_err(|_| {
            format!("{text:?} is neither a duration such as 10m nor a time such as 2026-01-31T12:00:00Z")
        })
    }

    /// The moment, where it is now `now`.
    #[must_use]
    pub fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Ago(ago) => {
                now.plus_millis(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX).saturating_neg())
            }
        }
    }
}

/// A state of the log in the past: by time, or a position that an answer came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// What was recorded by then.
    By(Moment),
    /// What the position covers.
    Position(String),
}

impl Past {
    /// How the API's positions begin.
    const POSITION: &str = "p_";

    /// Reads a moment, also with a minus as in `-15m`, or a position.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with(Self::POSITION) {
            return Ok(Self::Position(text.to_owned()));
        }
        let moment = Moment::parse(text.strip_prefix('-').unwrap_or(text)).map(Self::By);
        moment.map_err(|wrong| format!("{wrong}, and no position that an answer came with"))
    }

    /// As the API takes it: a while ago becomes a time, so that all pages of a list are of the same moment.
    #[must_use]
    pub fn to_query(&self, now: Timestamp) -> String {
        match self {
            Self::By(moment) => moment.before(now).to_string(),
            Self::Position(position) => position.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_a_moment_or_a_position() {
        let now = Timestamp(3_600_000);
        for (text, query) in [
            ("10m", "1970-01-01T00:50:00.000Z"),
            ("-10m", "1970-01-01T00:50:00.000Z"),
            ("1970-01-01T00:00:01Z", "1970-01-01T00:00:01.000Z"),
            ("p_abc", "p_abc"),
        ] {
            assert_eq!(Past::parse(text).map(|past| past.to_query(now)), Ok(query.to_owned()), "{text}");
        }
        for text in ["", "-", "yesterday", "d0-1"] {
            assert!(Past::parse(text).unwrap_err().contains("nor a time"), "{text}");
        }
    }

    #[test]
    fn a_moment_is_a_time_or_a_while_ago() {
        let now = Timestamp(3_600_000);
        for (text, moment) in
            [("10m", 3_000_000), ("1h", 0), ("90s", 3_510_000), ("1970-01-01T00:00:01Z", 1000)]
        {
            assert_eq!(Moment::parse(text).map(|moment| moment.before(now)), Ok(Timestamp(moment)), "{text}");
        }
        for text in ["", "10", "yesterday", "-10m"] {
            assert!(Moment::parse(text).is_err(), "{text}");
        }
    }
}
