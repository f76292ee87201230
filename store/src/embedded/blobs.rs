//! Blobs in segment files, encrypted, found through the index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use events::{BlobDigest, OrganizationId, Sha256};
use parking_lot::Mutex;
use redb::TableDefinition;
use world::Random;
use world::disk::{DiskFile, FolderLock};

use super::database::{Database, Durability, IndexError, StoredCursor, cursor_bytes, read_cursor};
use super::frame::{self, Frame, FrameKind};
use super::keyring::KeyFile;
use super::record::take;
use super::recovery::{TornTail, cut};
use super::scan::{Scanner, Step};
use super::segments::{Cursor, Segments};
use crate::blobs::{Addresses, BlobError, BlobKeys, Blobs, LARGEST_BLOB};
use crate::keyring::KeyName;
use crate::log::ReadError;

/// Entries that go into the index together when it is filled from the segments.
const BATCH: usize = 4096;

/// Blobs between two syncs of the index. After a crash at most so many are read from the segments again.
const SYNC_EVERY: usize = 4096;

/// Where each blob lies.
const PLACES: TableDefinition<'_, &[u8; 32], &StoredCursor> = TableDefinition::new("blobs");

/// The blobs of one folder.
pub(super) struct BlobFiles {
    inner: Arc<Inner>,
}

struct Inner {
    segments: Arc<Segments>,
    index: Database,
    keys: KeyFile,
    random: Arc<dyn Random>,
    segment_bytes: u64,
    writer: Mutex<Writer>,
    _lock: Arc<dyn FolderLock>,
}

struct Writer {
    file: Arc<dyn DiskFile>,
    end: Cursor,
    /// Why nothing more is written until restart.
    stopped: Option<String>,
    /// Blobs that the index has, but would not have after a crash.
    unsynced: usize,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // An empty write that is kept keeps those before it, too.
        if self.writer.get_mut().unsynced > 0
            && let Err(error) = self.index.write(Durability::Immediate, |_| Ok(()))
        {
            tracing::warn!(%error, "index of blobs is not synced, it is completed at the next start");
        }
    }
}

/// What opening blobs needs.
pub(super) struct BlobParts {
    pub(super) segments: Arc<Segments>,
    pub(super) index: Database,
    pub(super) keys: KeyFile,
    pub(super) random: Arc<dyn Random>,
    pub(super) segment_bytes: u64,
    pub(super) lock: Arc<dyn FolderLock>,
}

impl BlobFiles {
    /// Opens the blobs: finds their end, cuts a torn tail, lets the index catch up.
    pub(super) fn open(parts: BlobParts) -> Result<(Self, Option<TornTail>), OpenBlobsError> {
        let BlobParts { segments, index, keys, random, segment_bytes, lock } = parts;
        index.write(Durability::Deferred, |writing| {
            writing.open_table(PLACES).map(|_| ()).map_err(IndexError::of)
        })?;
        let last = match segments.numbers().map_err(failed_io)?.last() {
            Some(last) => *last,
            None => {
                segments.create(1, &[]).map_err(failed_io)?;
                1
            }
        };
        let (end, torn) = catch_up(&segments, &index, last)?;
        let file = segments.file(end.segment).map_err(failed_io)?;
        let writer = Mutex::new(Writer { file, end, stopped: None, unsynced: 0 });
        let inner = Inner { segments, index, keys, random, segment_bytes, writer, _lock: lock };
        Ok((Self { inner: Arc::new(inner) }, torn))
    }

    /// Names of all blobs. Blocks.
    pub(super) fn names(&self) -> Result<Vec<(OrganizationId, BlobDigest)>, BlobError> {
        let mut names = Vec::new();
        self.each(|head, _, _| {
            names.push((head.organization, head.digest));
            Ok(())
        })?;
        Ok(names)
    }

    /// Reads every blob's frame; those of organizations whose key is there are opened, too. Returns how many there are.
    pub(super) fn verify(&self) -> Result<u64, BlobError> {
        let mut count = 0;
        self.each(|head, at, frame| {
            if let Some(keys) = self.inner.known_keys(head.organization)? {
                self.inner.unseal(&keys, head, at, frame)?;
            }
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    fn each(
        &self,
        mut look: impl FnMut(&BlobHead, Cursor, &Frame) -> Result<(), BlobError>,
    ) -> Result<(), BlobError> {
        let end = self.inner.writer.lock().end;
        let mut scanner = Scanner::until(Arc::clone(&self.inner.segments), Cursor::START, end);
        loop {
            match scanner.next().map_err(failed)? {
                Step::End => return Ok(()),
                Step::Frame(at, frame) => {
                    let head = BlobHead::read(&frame)
                        .ok_or_else(|| self.inner.damaged(BlobDigest::default(), at))?;
                    look(&head, at, &frame)?;
                }
                Step::Broken(broken) => {
                    return Err(self.inner.damaged(BlobDigest::default(), broken.at));
                }
            }
        }
    }
}

/// Blobs do not open.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenBlobsError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

fn failed_io(error: std::io::Error) -> ReadError {
    ReadError::Failed { detail: error.to_string() }
}

fn failed(error: impl std::fmt::Display) -> BlobError {
    BlobError::Failed { detail: error.to_string() }
}

/// Brings the index up to the segments' end.
fn catch_up(
    segments: &Arc<Segments>,
    index: &Database,
    last: u32,
) -> Result<(Cursor, Option<TornTail>), OpenBlobsError> {
    let covered = index.covered()?.unwrap_or(Cursor::START);
    let mut begin = covered;
    if covered.segment > last
        || covered.offset > segments.file(covered.segment).and_then(|f| f.length()).map_err(failed_io)?
    {
        tracing::error!(folder = %segments.folder.display(), "blobs end before what the index knew of them");
        index.write(Durability::Immediate, |writing| {
            writing.delete_table(PLACES).map_err(IndexError::of)?;
            writing.open_table(PLACES).map_err(IndexError::of)?;
            Database::clear_covered(writing)
        })?;
        begin = Cursor::START;
    }
    let mut scanner = Scanner::to_the_end(Arc::clone(segments), begin, last);
    let mut batch = Batch::default();
    loop {
        match scanner.next().map_err(failed_io)? {
            Step::Frame(at, frame) => {
                if let Some(head) = BlobHead::read(&frame) {
                    batch.0.insert(head.digest, at);
                }
                if batch.0.len() >= BATCH {
                    batch.apply(index, scanner.at(), Durability::Deferred)?;
                }
            }
            Step::End => {
                if scanner.at() != begin {
                    batch.apply(index, scanner.at(), Durability::Immediate)?;
                }
                return Ok((scanner.at(), None));
            }
            Step::Broken(broken) => {
                let end = broken.at;
                let torn = cut(segments, broken, last, None)?;
                batch.apply(index, end, Durability::Immediate)?;
                return Ok((end, Some(torn)));
            }
        }
    }
}

#[derive(Default)]
struct Batch(BTreeMap<BlobDigest, Cursor>);

impl Batch {
    fn apply(&mut self, index: &Database, covered: Cursor, kept: Durability) -> Result<(), IndexError> {
        let places = std::mem::take(&mut self.0);
        index.write(kept, |writing| {
            let mut table = writing.open_table(PLACES).map_err(IndexError::of)?;
            for (digest, at) in &places {
                table.insert(&digest.0, &cursor_bytes(*at)).map_err(IndexError::of)?;
            }
            Database::set_covered(writing, covered)
        })
    }
}

/// The head of a blob's frame.
struct BlobHead {
    organization: OrganizationId,
    digest: BlobDigest,
    nonce: [u8; 12],
}

impl BlobHead {
    fn write(&self) -> Vec<u8> {
        let mut bytes = self.organization.0.as_bytes().to_vec();
        bytes.extend_from_slice(&self.digest.0);
        bytes.extend_from_slice(&self.nonce);
        bytes
    }

    fn read(frame: &Frame) -> Option<Self> {
        let mut rest = frame.head();
        let organization = OrganizationId(uuid::Uuid::from_bytes(take(&mut rest)?));
        let head = Self { organization, digest: BlobDigest(take(&mut rest)?), nonce: take(&mut rest)? };
        (rest.is_empty() && frame.kind == FrameKind::Blob).then_some(head)
    }
}

impl Inner {
    fn known_keys(&self, organization: OrganizationId) -> Result<Option<BlobKeys>, BlobError> {
        let key = self.keys.key(KeyName::Organization(organization));
        key.map(|key| BlobKeys::of(organization, &key)).transpose()
    }

    fn place(&self, digest: BlobDigest) -> Result<Option<Cursor>, BlobError> {
        let places = self.index.read().map_err(failed)?.open_table(PLACES).map_err(failed)?;
        let found = places.get(&digest.0).map_err(failed)?;
        Ok(found.and_then(|at| read_cursor(*at.value())))
    }

    fn damaged(&self, digest: BlobDigest, at: Cursor) -> BlobError {
        BlobError::Damaged { digest, segment: self.segments.display_name(at.segment), offset: at.offset }
    }

    fn put(&self, organization: OrganizationId, contents: &[Bytes]) -> Result<Vec<BlobDigest>, BlobError> {
        if let Some(large) = contents.iter().find(|content| content.len() > LARGEST_BLOB) {
            return Err(failed(format!(
                "a blob of {} bytes is over the limit of {LARGEST_BLOB}",
                large.len()
            )));
        }
        let key = self.keys.key_or_new(KeyName::Organization(organization)).map_err(failed)?;
        let keys = BlobKeys::of(organization, &key)?;
        let digests: Vec<BlobDigest> =
            contents.iter().map(|content| keys.addresses.of(Sha256::of(content))).collect();
        let mut writer = self.writer.lock();
        let mut seen = BTreeSet::new();
        let mut new = Vec::new();
        for (digest, content) in digests.iter().zip(contents) {
            if seen.insert(*digest) && self.place(*digest)?.is_none() {
                new.push((*digest, content));
            }
        }
        if !new.is_empty() {
            self.write(&mut writer, &keys, organization, &new)?;
        }
        Ok(digests)
    }

    /// Writes new blobs behind each other, syncs once, and puts them into the index.
    fn write(
        &self,
        writer: &mut Writer,
        keys: &BlobKeys,
        organization: OrganizationId,
        new: &[(BlobDigest, &Bytes)],
    ) -> Result<(), BlobError> {
        if let Some(reason) = &writer.stopped {
            return Err(failed(reason));
        }
        if writer.end.offset >= self.segment_bytes {
            writer.file = self.segments.create(writer.end.segment + 1, &[]).map_err(failed)?;
            writer.end = Cursor { segment: writer.end.segment + 1, ..Cursor::START };
        }
        let start = writer.end;
        match self.write_frames(writer, keys, organization, new) {
            Ok(places) => {
                writer.unsynced += places.len();
                let sync = writer.unsynced >= SYNC_EVERY;
                let kept = if sync { Durability::Immediate } else { Durability::Deferred };
                Batch(places).apply(&self.index, writer.end, kept).map_err(failed)?;
                writer.unsynced = if sync { 0 } else { writer.unsynced };
                Ok(())
            }
            Err(error) => {
                writer.end = start;
                // After a failed write the half-written tail is cut; after a failed cut or sync nobody knows what is stored.
                let cut = writer.file.set_length(start.offset).and_then(|()| writer.file.sync_data());
                let reason = format!("blobs accept no writes until restart: {error}");
                tracing::error!(%error, cut = cut.is_ok(), "blobs accept no writes until restart");
                writer.stopped = Some(reason.clone());
                Err(failed(reason))
            }
        }
    }

    fn write_frames(
        &self,
        writer: &mut Writer,
        keys: &BlobKeys,
        organization: OrganizationId,
        new: &[(BlobDigest, &Bytes)],
    ) -> std::io::Result<BTreeMap<BlobDigest, Cursor>> {
        let start = writer.end;
        let mut places = BTreeMap::new();
        let mut bytes = Vec::new();
        for (digest, content) in new {
            let mut head = BlobHead { organization, digest: *digest, nonce: [0; 12] };
            self.random.fill(&mut head.nonce);
            let sealed = keys.seal(*digest, head.nonce, content).map_err(std::io::Error::other)?;
            let at = writer.end;
            let group = u32::try_from(at.offset - start.offset).unwrap_or(u32::MAX);
            bytes.clear();
            frame::write(&mut bytes, self.segments.place(at), FrameKind::Blob, group, &head.write(), &sealed);
            writer.file.write_all_at(&bytes, at.offset)?;
            writer.end = at.plus(bytes.len() as u64);
            places.insert(*digest, at);
        }
        writer.file.sync_data()?;
        Ok(places)
    }

    fn get(&self, organization: OrganizationId, digest: BlobDigest) -> Result<Bytes, BlobError> {
        let keys = self.known_keys(organization)?.ok_or(BlobError::NoKey { organization })?;
        let Some(at) = self.place(digest)? else { return Err(BlobError::Missing { digest }) };
        let end = at.plus(frame::PRELUDE as u64);
        let mut scanner = Scanner::until(Arc::clone(&self.segments), at, end).of_one();
        let Step::Frame(_, frame) = scanner.next().map_err(failed)? else {
            return Err(self.damaged(digest, at));
        };
        let head = BlobHead::read(&frame).filter(|head| head.digest == digest);
        let head = head.ok_or_else(|| self.damaged(digest, at))?;
        if head.organization != organization {
            return Err(BlobError::Missing { digest });
        }
        self.unseal(&keys, &head, at, &frame)
    }

    fn unseal(
        &self,
        keys: &BlobKeys,
        head: &BlobHead,
        at: Cursor,
        frame: &Frame,
    ) -> Result<Bytes, BlobError> {
        let opened = keys.open(head.digest, head.nonce, frame.payload.to_vec());
        opened.ok_or_else(|| self.damaged(head.digest, at))
    }
}

#[async_trait]
impl Blobs for BlobFiles {
    async fn put(
        &self,
        organization: OrganizationId,
        contents: Vec<Bytes>,
    ) -> Result<Vec<BlobDigest>, BlobError> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || inner.put(organization, &contents)).await.map_err(failed)?
    }

    async fn get(&self, organization: OrganizationId, digest: BlobDigest) -> Result<Bytes, BlobError> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || inner.get(organization, digest)).await.map_err(failed)?
    }

    async fn addresses(&self, organization: OrganizationId) -> Result<Addresses, BlobError> {
        let keys = self.inner.known_keys(organization)?.ok_or(BlobError::NoKey { organization })?;
        Ok(keys.addresses)
    }

    async fn contains(&self, organization: OrganizationId, digest: BlobDigest) -> Result<bool, BlobError> {
        // Addresses are keyed: one that the organization did not derive itself is not in the index by accident.
        let known = self.inner.known_keys(organization)?.is_some();
        Ok(known && self.inner.place(digest)?.is_some())
    }
}
