//! Durations as people write them.

use std::time::Duration;

/// A text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a duration such as 250ms, 30s, 5m, 1h or 90d")]
pub struct DurationError;

/// Parses `<whole number><ms|s|m|h|d>`, parts added up: `1h30m`.
///
/// # Errors
/// Anything else, also an overflow.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    loop {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or(DurationError)?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().map_err(|_| DurationError)?;
        let millis = match unit {
            "ms" => Some(number),
            "s" => number.checked_mul(1_000),
            "m" => number.checked_mul(60_000),
            "h" => number.checked_mul(3_600_000),
            "d" => number.checked_mul(86_400_000),
            _ => None,
        };
        let part = Duration::from_millis(millis.ok_or(DurationError)?);
        total = total.checked_add(part).ok_or(DurationError)?;
        if after.is_empty() {
            return Ok(total);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, millis) in [
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "5 s",
            "1.5s",
            "5w",
            "5sm",
            "99999999999999999999s",
            "18446744073709551615d",
            "1h30",
        ] {
            assert_eq!(parse_duration(text), Err(DurationError), "{text}");
        }
    }
}
