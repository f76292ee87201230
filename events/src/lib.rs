//! Every type that crosses a boundary between Kasbah's services, its log and its agents.
//!
//! Purpose: one crate that defines the recorded facts, the requests over the bus, and their subjects.
//!
//! Laws:
//! - A released event type never changes. A new version comes with an upcaster ([`upcast`]) and a golden file;
//!   golden files are only ever added to.
//! - Subjects are built only in [`subject`].
//! - The log and the bus carry MessagePack with named fields; users and external systems see JSON.
//! - Ids that a fold or a decision needs are passed in; no code here reads a clock or generates randomness.
//!
//! Deliberately absent: behaviour. Decisions are in the services' `model.rs`, transport in `store`, `bus` and `tunnel`.
#![warn(missing_docs)]

pub mod access;
pub mod actor;
pub mod aggregate;
pub mod attributes;
pub mod audit;
pub mod bundle;
pub mod catalogue;
pub mod cloud_event;
pub mod commit;
pub mod configuration;
pub mod consumer;
pub mod delivery;
pub mod desired;
pub mod digest;
pub mod directory;
pub mod environment;
pub mod export;
pub mod grants;
pub mod id;
pub mod object;
pub mod observation;
pub mod pass;
pub mod position;
pub mod recording;
pub mod repository;
pub mod request;
pub mod requests;
pub mod root;
#[cfg(feature = "schema")]
mod schema;
pub mod subject;
pub mod subscription;
pub mod time;
pub mod upcast;
pub mod value;

pub use actor::Actor;
pub use aggregate::{AggregateKind, AggregateRef};
pub use catalogue::{DecodeError, Event, EventBody};
pub use cloud_event::CloudEvent;
pub use commit::{CommandRecord, Commit, Envelope, Grounds, NewEvent};
pub use consumer::ConsumerName;
pub use digest::{BlobDigest, ChainHash, Sha256};
pub use id::*;
pub use object::{ObjectIdentity, Text};
pub use position::{Position, Stream};
pub use request::{Notice, Refusal, RefusalKind, Request};
pub use time::Timestamp;

/// Encodes a value as MessagePack with named fields, the one encoding of log and bus.
///
/// # Errors
/// Only when the type itself cannot be expressed (a map with unsupported keys), which tests of the type show.
pub fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, EncodeError> {
    rmp_serde::to_vec_named(value).map_err(|error| EncodeError { detail: error.to_string() })
}

/// How many bytes [`encode`] makes of a value, without keeping them.
///
/// # Errors
/// As [`encode`].
pub fn encoded_length<T: serde::Serialize>(value: &T) -> Result<usize, EncodeError> {
    let mut length = Length(0);
    rmp_serde::encode::write_named(&mut length, value)
        .map_err(|error| EncodeError { detail: error.to_string() })?;
    Ok(length.0)
}

/// Counts what is written.
struct Length(usize);

impl std::io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Decodes what [`encode`] wrote. Unknown fields are ignored, so that a newer writer is understood.
///
/// # Errors
/// When bytes are not MessagePack of this type.
pub fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    rmp_serde::from_slice(bytes).map_err(|error| DecodeError::Malformed { detail: error.to_string() })
}

/// A value could not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot encode: {detail}")]
pub struct EncodeError {
    /// What the encoder said.
    pub detail: String,
}
