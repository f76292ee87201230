//! The event log, blobs, projections, snapshots and the key ring: all state that outlives a process.
//!
//! Purpose: a fact is durable once it is acknowledged, and state is a fold over facts.
//!
//! The traits document their laws: [`EventLog`], [`Blobs`], [`KeyRing`], [`Projection`], [`Snapshots`]. The module `conformance`
//! (in tests and behind the feature of that name) checks them against every implementation.
//!
//! - No code outside this crate depends on the implementation.
//! - Segment files are the source of truth; the index and snapshots can be deleted at any time.
//! - Code never deletes or recreates recorded facts. An inconsistency is an error with segment and offset.
//!
//! Deliberately absent: the meaning of events, which belongs to the services.
#![warn(missing_docs)]

pub mod blobs;
pub mod checkpoint;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod consumers;
pub mod copy;
pub mod decide;
pub mod embedded;
pub mod feed;
mod folded;
pub mod following;
pub mod jetstream;
pub mod keyring;
pub mod layer;
pub mod listing;
pub mod log;
pub mod model;
pub mod projection;
mod reading;
pub mod replay;
pub mod retention;
pub mod root;
mod seal;
pub mod sealing;
pub mod slice;
pub mod snapshots;
pub mod verify;
mod waiting;

pub use blobs::{Addresses, BlobError, Blobs};
pub use checkpoint::{Checkpoint, PartitionCheck, Tally};
pub use consumers::{Consumer, ConsumerError, ExportConsumers, NewConsumer};
pub use decide::{Backoff, Basis, DecideError, Decided, Origin, Policy, new_events};
pub use feed::{Feed, Feeder, ReaderGone};
pub use following::{
    CatchUpError, FollowError, Following, WaitError, follow_from_now, follow_projection, retry_until_ready,
};
pub use keyring::{KeyName, KeyRing, KeyRingError};
pub use layer::LogLayer;
pub use log::{
    AppendError, Appended, EventLog, FollowReader, Followed, ForgetError, NewBatch, NewCommit, ReadError,
    ReadFilter, Record, RecordReader, Retained,
};
pub use model::{Commits, Decides, Draft, Heads, ReadSet};
pub use projection::{Projection, Snapshot};
pub use reading::{Batch, Catalogue, Committed, Fact, Reading};
pub use root::{RootKey, RootKeyError, new_root_key, root_key};
pub use seal::MasterKey;
pub use sealing::Sealing;
pub use snapshots::{SnapshotError, Snapshots};
pub use verify::{StreamReport, VerifyReport, verify_records};

use std::sync::Arc;

/// Everything that outlives a process, wherever it is kept.
#[derive(Clone)]
pub struct Parts {
    /// The event log.
    pub log: Arc<dyn EventLog>,
    /// The blobs.
    pub blobs: Arc<dyn Blobs>,
    /// The key ring.
    pub keys: Arc<dyn KeyRing>,
    /// Snapshots of projections.
    pub snapshots: Arc<dyn Snapshots>,
    /// Consumers for programs outside; only NATS has them.
    pub consumers: Option<Arc<dyn ExportConsumers>>,
}
