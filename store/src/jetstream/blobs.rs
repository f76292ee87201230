//! Blobs in a stream: one subject each, found by its address.
//!
//! A blob's message begins with its nonce; one that is larger than a message has further parts under subjects of their own, which
//! are stored first, so that whoever finds the message finds them. They are named by the nonce, because two who store the same
//! content at once seal it differently.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{BufMut as _, Bytes, BytesMut};
use events::{BlobDigest, OrganizationId, Sha256};
use futures::{StreamExt as _, TryStreamExt as _};
use world::World;

use super::server::{Publish, PublishError, Server, Stored};
use crate::blobs::{Addresses, BlobError, BlobKeys, Blobs, LARGEST_BLOB};
use crate::keyring::{KeyName, KeyRing};

/// The stream's name.
pub(super) const STREAM: &str = "kasbah-blobs";
/// All subjects of blobs.
pub(super) const SUBJECTS: &str = "kasbah.blob.>";

const NONCE: usize = 12;
/// Bytes of a part; the first is shorter where there are more, because who looks whether a blob is there gets it as well.
const PART: usize = 512 * 1024;
const FIRST_PART: usize = 16 * 1024;
/// Messages under way at once.
const LOOKS: usize = 64;
const WRITES: usize = 16;
const ATTEMPTS: u32 = 5;

/// The blobs of one installation.
pub(super) struct BlobStream {
    pub(super) server: Arc<dyn Server>,
    pub(super) keys: Arc<dyn KeyRing>,
    pub(super) world: World,
}

fn failed(error: impl std::fmt::Display) -> BlobError {
    BlobError::Failed { detail: error.to_string() }
}

fn subject(organization: OrganizationId, digest: BlobDigest) -> String {
    format!("kasbah.blob.{organization}.{digest}")
}

fn subject_of_part(
    organization: OrganizationId,
    digest: BlobDigest,
    nonce: [u8; NONCE],
    part: u32,
) -> String {
    let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("kasbah.blob.{organization}.{digest}.{nonce}.{part}")
}

/// A blob's message: nonce, number of further parts, first bytes of what is sealed.
struct First {
    nonce: [u8; NONCE],
    parts: u32,
    sealed: Bytes,
}

impl First {
    fn write(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(NONCE + 4 + self.sealed.len());
        bytes.put_slice(&self.nonce);
        bytes.put_u32_le(self.parts);
        bytes.put_slice(&self.sealed);
        bytes.freeze()
    }

    fn read(message: &Bytes) -> Option<Self> {
        let nonce = *message.first_chunk::<NONCE>()?;
        let parts = message.get(NONCE..NONCE + 4)?.first_chunk::<4>().copied().map(u32::from_le_bytes)?;
        Some(Self { nonce, parts, sealed: message.slice(NONCE + 4..) })
    }
}

impl BlobStream {
    async fn keys_of(&self, organization: OrganizationId) -> Result<BlobKeys, BlobError> {
        let key = self.keys.get(KeyName::Organization(organization)).await.map_err(failed)?;
        BlobKeys::of(organization, &key.ok_or(BlobError::NoKey { organization })?)
    }

    /// A message, also where the nearest replica does not have it yet.
    async fn message(&self, subject: &str) -> Result<Option<Stored>, BlobError> {
        match self.server.nearest(STREAM, subject).await {
            Ok(Some(message)) => Ok(Some(message)),
            _ => self.server.newest(STREAM, subject).await.map_err(failed),
        }
    }

    async fn is_near(&self, organization: OrganizationId, digest: BlobDigest) -> bool {
        matches!(self.server.nearest(STREAM, &subject(organization, digest)).await, Ok(Some(_)))
    }

    async fn store(&self, keys: &BlobKeys, digest: BlobDigest, content: &Bytes) -> Result<(), BlobError> {
        let mut nonce = [0; NONCE];
        self.world.random.fill(&mut nonce);
        let mut sealed = Bytes::from(keys.seal(digest, nonce, content)?);
        let first =
            if sealed.len() > PART { sealed.split_to(FIRST_PART) } else { std::mem::take(&mut sealed) };
        let mut parts = 0;
        while !sealed.is_empty() {
            parts += 1;
            let part = sealed.split_to(sealed.len().min(PART));
            self.put_message(subject_of_part(keys.organization, digest, nonce, parts), part).await?;
        }
        let first = First { nonce, parts, sealed: first }.write();
        self.put_message(subject(keys.organization, digest), first).await
    }

    /// Stores a message under a subject that has none.
    async fn put_message(&self, subject: String, payload: Bytes) -> Result<(), BlobError> {
        let message = Publish::plain(STREAM, subject, Some(0), payload);
        let mut attempt = 0;
        loop {
            match self.server.publish(&message).await {
                Ok(_) => return Ok(()),
                // Somebody's, or ours of an attempt without an answer; unless it is still under way, it is there.
                Err(PublishError::Expectation)
                    if self.server.newest(STREAM, &message.subject).await.map_err(failed)?.is_some() =>
                {
                    return Ok(());
                }
                Err(PublishError::Refused(detail)) => return Err(failed(detail)),
                Err(error) if attempt == ATTEMPTS => return Err(failed(error)),
                Err(_) => {
                    attempt += 1;
                    self.world.clock.sleep(std::time::Duration::from_millis(20 << attempt)).await;
                }
            }
        }
    }

    fn damaged(digest: BlobDigest, message: &Stored) -> BlobError {
        BlobError::Damaged { digest, segment: STREAM.to_owned(), offset: message.sequence }
    }
}

#[async_trait]
impl Blobs for BlobStream {
    async fn put(
        &self,
        organization: OrganizationId,
        contents: Vec<Bytes>,
    ) -> Result<Vec<BlobDigest>, BlobError> {
        if let Some(large) = contents.iter().find(|content| content.len() > LARGEST_BLOB) {
            return Err(failed(format!(
                "a blob of {} bytes is over the limit of {LARGEST_BLOB}",
                large.len()
            )));
        }
        let key = self.keys.get_or_create(KeyName::Organization(organization)).await.map_err(failed)?;
        let keys = &BlobKeys::of(organization, &key)?;
        let digests: Vec<BlobDigest> =
            contents.iter().map(|content| keys.addresses.of(Sha256::of(content))).collect();
        let mut seen = BTreeSet::new();
        let distinct: Vec<(BlobDigest, Bytes)> =
            digests.iter().copied().zip(contents).filter(|(digest, _)| seen.insert(*digest)).collect();
        let looks: Vec<_> = distinct.iter().map(|(digest, _)| self.is_near(organization, *digest)).collect();
        let there: Vec<bool> = futures::stream::iter(looks).buffered(LOOKS).collect().await;
        let missing = distinct.iter().zip(there).filter(|(_, there)| !there);
        let writes: Vec<_> =
            missing.map(|((digest, content), _)| self.store(keys, *digest, content)).collect();
        futures::stream::iter(writes).buffer_unordered(WRITES).try_collect::<()>().await?;
        Ok(digests)
    }

    async fn get(&self, organization: OrganizationId, digest: BlobDigest) -> Result<Bytes, BlobError> {
        let keys = self.keys_of(organization).await?;
        let message = self.message(&subject(organization, digest)).await?;
        let message = message.ok_or(BlobError::Missing { digest })?;
        let First { nonce, parts, sealed } =
            First::read(&message.payload).ok_or_else(|| Self::damaged(digest, &message))?;
        let mut whole = sealed.to_vec();
        let rest = (1..=parts).map(|part| subject_of_part(organization, digest, nonce, part));
        let mut rest = futures::stream::iter(rest)
            .map(|subject| async move { self.message(&subject).await })
            .buffered(WRITES);
        while let Some(part) = rest.try_next().await? {
            whole.extend_from_slice(&part.ok_or_else(|| Self::damaged(digest, &message))?.payload);
        }
        keys.open(digest, nonce, whole).ok_or_else(|| Self::damaged(digest, &message))
    }

    async fn addresses(&self, organization: OrganizationId) -> Result<Addresses, BlobError> {
        Ok(self.keys_of(organization).await?.addresses)
    }

    async fn contains(&self, organization: OrganizationId, digest: BlobDigest) -> Result<bool, BlobError> {
        let known = self.keys.get(KeyName::Organization(organization)).await.map_err(failed)?.is_some();
        Ok(known && self.message(&subject(organization, digest)).await?.is_some())
    }
}
