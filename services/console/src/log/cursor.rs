//! Cursors: positions of the log, sealed.
//!
//! A position counts the records of partitions that organizations share. Given out in clear it would tell how much others do,
//! so it leaves the console encrypted under a key of the organization, and comes back the same way. It is bound to the log: in a copy,
//! whose positions are others, a cursor of the original is refused and never begins somewhere else.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use events::position::{Shard, Stream};
use events::{OrganizationId, Position, Refusal, RefusalKind};
use store::{EventLog, KeyRing, Sealing};
use world::Random;

const CURSORS: &[u8] = b"kasbah cursors";
/// What a cursor begins with: a leading hyphen, which base64url may have, would be an option on a command line.
const MARK: &str = "p_";

/// Where a reader stands: behind a position, and maybe within the next record of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor {
    /// Everything up to here was given out.
    pub position: Position,
    /// Of the record with this sequence in this shard, so many events were given out too.
    pub within: Option<(Shard, u64, usize)>,
}

impl Cursor {
    /// The position that covers all that was given out, the record within which it stands included.
    #[must_use]
    pub fn covering(self) -> Position {
        let mut position = self.position;
        if let Some((shard, sequence, _)) = self.within {
            position.advance(shard, sequence);
        }
        position
    }
}

/// Seals and opens the cursors of one organization.
pub struct Cursors {
    sealing: Sealing,
    /// The log that they are cursors of.
    log: [u8; 16],
}

impl Cursors {
    /// Those of an organization in a log.
    ///
    /// # Errors
    /// When the key ring is away.
    pub async fn of(
        keys: &dyn KeyRing,
        log: &dyn EventLog,
        organization: OrganizationId,
    ) -> Result<Self, Refusal> {
        let sealing = Sealing::of(keys, organization, CURSORS).await;
        let sealing =
            sealing.map_err(|error| Refusal::new(RefusalKind::Unavailable, format!("{error}; retry")))?;
        Ok(Self { sealing, log: log.id().into_bytes() })
    }

    /// The text that is given out.
    #[must_use]
    pub fn seal(&self, random: &dyn Random, cursor: &Cursor) -> String {
        // Sealing fails only over lengths that no position has.
        let sealed = self.sealing.seal(random, &self.log, cursor.to_text().as_bytes()).unwrap_or_default();
        MARK.to_owned() + &URL_SAFE_NO_PAD.encode(sealed)
    }

    /// The cursor of a text that was given out to this organization; `start` is before everything.
    ///
    /// # Errors
    /// When it was not.
    pub fn open(&self, field: &str, text: &str) -> Result<Cursor, Refusal> {
        if text == "start" {
            return Ok(Cursor::default());
        }
        let open = || {
            let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(MARK)?).ok()?;
            Cursor::from_text(std::str::from_utf8(&self.sealing.open(&self.log, &bytes)?).ok()?)
        };
        open().ok_or_else(|| Refusal::invalid(field, "is neither a position of this log nor `start`"))
    }
}

impl Cursor {
    fn to_text(&self) -> String {
        match self.within {
            None => self.position.to_string(),
            Some(((stream, partition), sequence, given)) => {
                format!("{} {} {partition} {sequence} {given}", self.position, stream.as_str())
            }
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let position = parts.next()?.parse().ok()?;
        let Some(stream) = parts.next() else { return Some(Self { position, within: None }) };
        let stream = *Stream::ALL.iter().find(|known| known.as_str() == stream)?;
        let partition = parts.next()?.parse().ok()?;
        let (sequence, given) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { position, within: Some(((stream, partition), sequence, given)) })
    }
}

#[cfg(test)]
mod tests {
    use world::random::SystemRandom;

    use super::*;

    fn cursors(organization_number: u128) -> Cursors {
        in_log(1, organization_number)
    }

    fn in_log(log: u128, organization_number: u128) -> Cursors {
        let sealing = Sealing::under(&[7; 32], organization(organization_number), CURSORS).unwrap();
        Cursors { sealing, log: log.to_be_bytes() }
    }

    fn organization(number: u128) -> OrganizationId {
        format!("00000000-0000-0000-0000-{number:012}").parse().unwrap()
    }

    #[test]
    fn a_cursor_comes_back_as_it_was_and_tells_nothing() {
        let (random, cursors) = (SystemRandom::new(), cursors(1));
        let position = Position::of(Stream::Decisions, 3, 123_456);
        for within in [None, Some(((Stream::Observations, 2), 77, 5))] {
            let cursor = Cursor { position: position.clone(), within };
            let text = cursors.seal(&random, &cursor);
            assert!(!text.contains("123456"));
            assert_eq!(cursors.open("from", &text), Ok(cursor));
        }
        assert_eq!(cursors.open("from", "start"), Ok(Cursor::default()));
    }

    #[test]
    fn a_cursor_never_looks_like_an_option_of_a_command_line() {
        let (random, cursors) = (SystemRandom::new(), cursors(1));
        for _ in 0..500 {
            let text = cursors.seal(&random, &Cursor::default());
            assert!(text.starts_with(|first: char| first.is_ascii_alphabetic()), "{text}");
        }
    }

    #[test]
    fn what_was_not_given_out_here_is_refused() {
        let random = SystemRandom::new();
        let text = cursors(1).seal(&random, &Cursor::default());
        for wrong in [text.as_str(), "d0-1", "", "p_AAAA", "p_"] {
            assert_eq!(cursors(2).open("from", wrong).unwrap_err().field.as_deref(), Some("from"), "{wrong}");
            assert!(in_log(2, 1).open("from", wrong).is_err(), "{wrong} in a copy of the log");
        }
    }
}
