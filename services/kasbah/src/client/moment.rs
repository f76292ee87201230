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

#[cfg(test)]
mod tests {
    use super::*;

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
