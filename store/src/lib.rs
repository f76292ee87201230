//! The event log, blobs, projections, snapshots and the key ring.
#![warn(missing_docs)]

pub mod blobs;
pub mod keyring;
pub mod log;
pub mod projection;

pub use blobs::{BlobError, Blobs};
pub use keyring::{KeyName, KeyRing, KeyRingError};
pub use log::{
    AppendError, Appended, EventLog, FollowReader, Followed, NewBatch, NewCommit, ReadError, ReadFilter, Record,
    RecordReader,
};
pub use projection::{Projection, Snapshot};
