//! Blobs: what is too large for a commit.

mod sealed;

use async_trait::async_trait;
use bytes::Bytes;
use events::{BlobDigest, OrganizationId, Sha256};

pub use self::sealed::Addresses;
pub(crate) use self::sealed::BlobKeys;

/// The largest blob, in bytes.
pub(crate) const LARGEST_BLOB: usize = 32 * 1024 * 1024;

/// Content-addressed storage, encrypted with a key per organization.
///
/// Laws:
/// 1. The address is keyed per organization: equal content of two organizations has two addresses.
/// 2. Durable when `put` returned; one group commit per call. Put before the event that names it.
/// 3. `get` returns exactly what was put, or an error; damage is found, never returned.
/// 4. Nothing is removed but by a collector that proves that no retained record names it: no event, and no observation of an object
///    ([`events::observation::ObjectBody::Blob`]). There is no collector yet, so that an object's body outlives the observation that
///    names it.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores contents, each once; returns their addresses in order. `Bytes` of known content cost a look-up only.
    async fn put(
        &self,
        organization: OrganizationId,
        contents: Vec<Bytes>,
    ) -> Result<Vec<BlobDigest>, BlobError>;

    /// The content at an address.
    async fn get(&self, organization: OrganizationId, digest: BlobDigest) -> Result<Bytes, BlobError>;

    /// Which addresses the organization's contents have.
    async fn addresses(&self, organization: OrganizationId) -> Result<Addresses, BlobError>;

    /// The address that content with this plain digest has, stored or not.
    async fn address(&self, organization: OrganizationId, content: Sha256) -> Result<BlobDigest, BlobError> {
        Ok(self.addresses(organization).await?.of(content))
    }

    /// Whether something is stored at an address.
    async fn contains(&self, organization: OrganizationId, digest: BlobDigest) -> Result<bool, BlobError>;
}

/// A blob could not be stored or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// Nothing is stored there.
    #[error("no blob {digest}")]
    Missing {
        /// The address.
        digest: BlobDigest,
    },
    /// The organization's key was destroyed or never made.
    #[error("no key for organization {organization}")]
    NoKey {
        /// Whose.
        organization: OrganizationId,
    },
    /// Stored bytes are damaged.
    #[error("blob {digest} is damaged in segment {segment} at offset {offset}")]
    Damaged {
        /// The address.
        digest: BlobDigest,
        /// The segment file's name.
        segment: String,
        /// Byte offset.
        offset: u64,
    },
    /// Input or output failed.
    #[error("cannot reach the blobs: {detail}")]
    Failed {
        /// What happened.
        detail: String,
    },
}
