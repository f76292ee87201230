//! Projections: state as a fold over the log.

use events::{Commit, EncodeError, Position};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::log::{ReadFilter, Record};
use crate::model::Commits;
use crate::reading::{Catalogue, Fact, Reading, fold, fold_commit};

/// State that is folded from the log. Pure: no clock, no I/O, no randomness, no randomly ordered map.
///
/// Laws:
/// 1. Folding the same records in the same order gives equal state and equal snapshot bytes.
/// 2. A snapshot restored and folded on equals a fold from the start.
pub trait Projection: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Names snapshots, metrics and readiness.
    const NAME: &'static str;
    /// Grows when the fold or the snapshot's shape changes; older snapshots are then thrown away.
    const FOLD_VERSION: u32;
    /// Records between two snapshots, about: one that is due waits for a lull.
    const SNAPSHOT_EVERY: u64;

    /// The events that it knows: [`events::Event`], but in a test of upgrades.
    type Event: Catalogue;

    /// What it folds.
    fn filter() -> ReadFilter;

    /// The state before the first record.
    fn start() -> Self;

    /// Folds what one record says. What cannot be decoded does not come here: the store keeps the aggregate read-only.
    fn apply(&mut self, fact: Fact<'_, Self::Event>);

    /// Decodes and folds one record, without a look at what came before it: for those who fold by hand. Says why the record's
    /// aggregate is read-only from here on, if it is.
    fn fold(&mut self, record: &Record) -> Option<String> {
        fold(record, |fact| self.apply(fact)).event
    }

    /// As [`Projection::fold`], of a commit.
    fn fold_commit(&mut self, commit: &Commit) -> Option<String> {
        fold_commit(commit, |fact| self.apply(fact))
    }

    /// The state as bytes.
    ///
    /// # Errors
    /// When the state cannot be expressed.
    fn snapshot(&self) -> Result<Vec<u8>, EncodeError> {
        events::encode(self)
    }

    /// The state from what [`Projection::snapshot`] of a fold version gave; `None` when it cannot be read. Who follows a stream
    /// that records leave reads older versions, too: what has left cannot be folded again.
    #[must_use]
    fn restore(fold_version: u32, bytes: &[u8]) -> Option<Self> {
        if fold_version == Self::FOLD_VERSION { events::decode(bytes).ok() } else { None }
    }
}

/// A snapshot as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// Name of the projection.
    pub name: String,
    /// Its fold version.
    pub fold_version: u32,
    /// Everything up to here is in it.
    pub position: Position,
    /// The last commit of each organization in it; a snapshot without is not used.
    #[serde(default)]
    pub heads: Option<Commits>,
    /// What was read, by which build; snapshots of former builds have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// The state.
    #[serde(with = "serde_bytes")]
    pub state: Vec<u8>,
}
