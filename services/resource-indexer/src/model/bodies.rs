//! Bodies that are too large for a record: observations name them by their addresses in the store.

use std::collections::BTreeMap;

use bytes::Bytes;
use events::BlobDigest;
use events::observation::ObjectBody;

/// Longest body that is read, in bytes.
pub const LONGEST_BODY: u64 = 4 * 1024 * 1024;
/// Bytes of large bodies that one record may bring, each counted as often as it is named.
pub const LARGE_BODIES: u64 = 64 * 1024 * 1024;

/// What was fetched for one record.
#[derive(Debug, Default)]
pub struct Bodies {
    /// By address; `None` for what is not in the store.
    fetched: BTreeMap<BlobDigest, Option<Bytes>>,
    taken: u64,
}

impl Bodies {
    /// These, as the store has them.
    #[must_use]
    pub const fn of(fetched: BTreeMap<BlobDigest, Option<Bytes>>) -> Self {
        Self { fetched, taken: 0 }
    }

    /// The body of an observation, or why it is not known. Equal ones are shared.
    pub(crate) fn find(&self, body: ObjectBody) -> Result<Bytes, &'static str> {
        let (blob, bytes) = match body {
            ObjectBody::Json(json) => return Ok(Bytes::from(json)),
            ObjectBody::Blob { blob, bytes } => (blob, bytes),
        };
        if bytes > LONGEST_BODY {
            return Err("its body is longer than 4 MiB, and is not kept here");
        }
        let Some(blob) = blob else { return Err("its body was not stored when it was told") };
        match self.fetched.get(&blob) {
            Some(Some(found)) if self.taken.saturating_add(length(found)) <= LARGE_BODIES => {
                Ok(found.clone())
            }
            Some(None) => Err("its body is not in the store"),
            Some(Some(_)) | None => Err("too many large bodies came at once; its agent states it again"),
        }
    }

    /// Counts a body that was used.
    pub(crate) fn take(&mut self, body: &Bytes) {
        self.taken = self.taken.saturating_add(length(body));
    }
}

/// Addresses to be fetched for one record, in the order in which they are named.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The addresses, each once.
    pub blobs: Vec<BlobDigest>,
    bytes: u64,
}

impl Wanted {
    /// Adds a body, as long as all of them together are not too large.
    pub(crate) fn add(&mut self, body: &ObjectBody) {
        let ObjectBody::Blob { blob: Some(blob), bytes } = body else { return };
        if *bytes > LONGEST_BODY || self.bytes >= LARGE_BODIES {
            return;
        }
        self.bytes = self.bytes.saturating_add(*bytes);
        if !self.blobs.contains(blob) {
            self.blobs.push(*blob);
        }
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
