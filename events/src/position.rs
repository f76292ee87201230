//! Where a reader stands in the log.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The streams of the log, by what is kept in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// Commits, kept for good, chained.
    Decisions,
    /// Batches of what agents did, and connections.
    Observations,
    /// Batches of changes of objects that agents saw.
    Objects,
    /// API requests.
    Audit,
    /// Commands that were refused, with the reason.
    Refusals,
    /// What went through sessions with containers.
    Recordings,
    /// CloudEvents for programs outside.
    Exports,
}

impl Stream {
    /// Every stream that a log has.
    pub const ALL: &'static [Self] = &[
        Self::Decisions,
        Self::Observations,
        Self::Objects,
        Self::Audit,
        Self::Refusals,
        Self::Recordings,
        Self::Exports,
    ];

    /// Its name in folders, settings and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decisions => "decisions",
            Self::Observations => "observations",
            Self::Objects => "objects",
            Self::Audit => "audit",
            Self::Refusals => "refusals",
            Self::Recordings => "recordings",
            Self::Exports => "exports",
        }
    }

    const fn letter(self) -> char {
        match self {
            Self::Decisions => 'd',
            Self::Observations => 'o',
            Self::Objects => 'j',
            Self::Audit => 'a',
            Self::Refusals => 'r',
            Self::Recordings => 'c',
            Self::Exports => 'e',
        }
    }
}

/// One partition of one stream.
pub type Shard = (Stream, u16);

/// A vector over (stream, partition): for each the sequence of the last record that was seen; absent means none.
/// Sequences start at 1 and grow, with gaps allowed. Opaque to users: its text form is for cursors, `at=` and SSE ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position(pub BTreeMap<Shard, u64>);

impl Position {
    /// Before everything.
    #[must_use]
    pub fn start() -> Self {
        Self::default()
    }

    /// The position right behind one record.
    #[must_use]
    pub fn of(stream: Stream, partition: u16, sequence: u64) -> Self {
        Self(BTreeMap::from([((stream, partition), sequence)]))
    }

    /// The sequence last seen in a shard, 0 if none.
    #[must_use]
    pub fn sequence(&self, shard: Shard) -> u64 {
        self.0.get(&shard).copied().unwrap_or(0)
    }

    /// Moves on in one shard; never backwards.
    pub fn advance(&mut self, shard: Shard, sequence: u64) {
        let seen = self.0.entry(shard).or_insert(0);
        *seen = (*seen).max(sequence);
    }

    /// Moves on to `other` in each shard that it names.
    pub fn merge(&mut self, other: &Self) {
        for (shard, sequence) in &other.0 {
            self.advance(*shard, *sequence);
        }
    }

    /// Only what it says of some streams.
    #[must_use]
    pub fn in_streams(&self, streams: &[Stream]) -> Self {
        let named = self.0.iter().filter(|((stream, _), _)| streams.contains(stream));
        Self(named.map(|(shard, sequence)| (*shard, *sequence)).collect())
    }

    /// Whether everything that `other` has seen was seen here.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|(shard, sequence)| self.sequence(*shard) >= *sequence)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("start");
        }
        for (index, ((stream, partition), sequence)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "." };
            write!(f, "{separator}{}{partition}-{sequence}", stream.letter())?;
        }
        Ok(())
    }
}

/// A text is not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a position: use one that the log printed, or `start`")]
pub struct ParsePositionError(String);

impl FromStr for Position {
    type Err = ParsePositionError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParsePositionError(text.to_owned());
        let mut position = Self::start();
        if text == "start" {
            return Ok(position);
        }
        for part in text.split('.') {
            let mut letters = part.chars();
            let letter = letters.next().ok_or_else(wrong)?;
            let stream = Stream::ALL.iter().find(|stream| stream.letter() == letter).ok_or_else(wrong)?;
            let (partition, sequence) = letters.as_str().split_once('-').ok_or_else(wrong)?;
            let partition = partition.parse().map_err(|_| wrong())?;
            position.advance((*stream, partition), sequence.parse().map_err(|_| wrong())?);
        }
        Ok(position)
    }
}

impl Serialize for Position {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
