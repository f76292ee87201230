//! Where snapshots of projections lie. They save time, never truth: one that is lost is folded again.

use async_trait::async_trait;
use events::EncodeError;

use crate::projection::Snapshot;

/// Snapshots by the projection's name.
///
/// Laws:
/// 1. `load` returns what the last successful `save` of that name stored, whole, or nothing. Never a part, never another's.
/// 2. A damaged snapshot, or one of another log, reads as none.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// The newest snapshot of that name.
    async fn load(&self, name: &str) -> Result<Option<Snapshot>, SnapshotError>;

    /// Replaces the snapshot of its name.
    async fn save(&self, snapshot: Snapshot) -> Result<(), SnapshotError>;
}

/// Refuses a name that no file and no bucket takes.
pub(crate) fn check_name(name: &str) -> Result<(), SnapshotError> {
    let fits = !name.is_empty()
        && name.len() <= 100
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if fits { Ok(()) } else { Err(SnapshotError::Name { name: name.to_owned() }) }
}

/// Snapshots could not be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A name that no file and no bucket takes: use letters, digits, `-` and `_`.
    #[error("{name:?} cannot name a snapshot: use letters, digits, - and _")]
    Name {
        /// The name.
        name: String,
    },
    /// The state cannot be expressed: nothing is saved.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Input or output failed.
    #[error("cannot reach snapshots: {detail}")]
    Failed {
        /// What happened.
        detail: String,
    },
}
