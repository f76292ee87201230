//! What comes of folding: changes of objects.

use std::collections::BTreeSet;

use bytes::Bytes;
use events::observation::FieldWriter;
use events::requests::index::HealthState;
use events::{AgentId, Timestamp};

use super::text::Text;

/// Where a batch lies in the log.
#[derive(Debug, Clone, Copy)]
pub struct RecordedAt {
    /// Its sequence.
    pub sequence: u64,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// The instant at which objects are judged: now, which is later when an old log is folded again.
    pub now: Timestamp,
    /// The beginning of its partition had left the log when the fold began: an agent's first batch there is need not be its first one.
    pub misses_beginning: bool,
}

/// What a change was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Nobody had told of it before.
    FirstSeen,
    /// It was made since its kind was listed, whether its agent saw that happen or found it in a later list.
    Created,
    /// It is another than before.
    Changed,
    /// It was deleted.
    Deleted,
    /// A later list did not have it any more, or its kind is not served any more: it was deleted while nobody watched.
    Vanished,
    /// Between this and the change before, states may not have been seen.
    Gap,
    /// Nobody tells of it any more; it may well be there.
    Unobserved,
}

impl What {
    /// Whether the object is not there any more, as far as anybody knows.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Deleted | Self::Vanished | Self::Unobserved)
    }

    /// As it is answered.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstSeen => "first-seen",
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
            Self::Vanished => "vanished",
            Self::Gap => "gap",
            Self::Unobserved => "unobserved",
        }
    }
}

/// One change of one object, as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// In which cluster.
    pub agent: AgentId,
    /// Of which object.
    pub uid: Text,
    /// Counts the object's changes, from 1.
    pub number: u64,
    /// Sequence of the record that told of it.
    pub sequence: u64,
    /// When that was recorded.
    pub recorded_at: Timestamp,
    /// When the agent saw it, as it claims.
    pub seen_at: Timestamp,
    /// When it happened at the earliest, as far as lists say, where its agent did not see it happen.
    pub not_before: Option<Timestamp>,
    /// What it was.
    pub what: What,
    /// Who wrote it.
    pub writer: Option<FieldWriter>,
    /// The body after it, where it is another one and is known.
    pub body: Option<Bytes>,
    /// Health by itself after it, at the instant of recording.
    pub health: HealthState,
}

/// What came of folding.
#[derive(Debug, Default)]
pub struct Folded {
    /// Changes, in order.
    pub changes: Vec<Change>,
    /// Objects that were stated, whether they changed or not.
    pub stated: BTreeSet<(AgentId, Text)>,
    /// Objects whose record is another one.
    pub records: BTreeSet<(AgentId, Text)>,
    /// Objects of which nothing is kept, also not what was kept before; what came later of them is among the changes.
    pub erased: BTreeSet<(AgentId, Text)>,
}
