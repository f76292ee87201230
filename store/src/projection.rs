//! Projections: state as a fold over the log.

use events::Position;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::log::{ReadFilter, Record};
use crate::model::Heads;

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

    /// What it folds.
    fn filter() -> ReadFilter;

    /// The state before the first record.
    fn start() -> Self;

    /// Folds one record. A record that it cannot read must be kept as "read-only for that aggregate", never skipped silently.
    fn apply(&mut self, record: &Record);

    /// The state as bytes.
    fn snapshot(&self) -> Vec<u8> {
        events::encode(self).unwrap_or_default()
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
    pub heads: Option<Heads>,
    /// The state.
    #[serde(with = "serde_bytes")]
    pub state: Vec<u8>,
}
