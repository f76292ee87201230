//! Copies: a log with all that belongs to it in another place, and a log that is made of a slice.
//!
//! A copy has the same records: bytes, order within each partition, recorded times; and the same keys and blobs. It is a log of its
//! own: its id is another, so that no cursor and no snapshot of the original is taken for one of its own. What is written says by itself
//! how far the copy is, so that one that was killed is gone on with. Until it is finished and was verified, nobody else opens it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use async_trait::async_trait;
use events::position::{Shard, Stream};
use events::subject::partition_of_organization;
use events::{BlobDigest, ChainHash, OrganizationId, Position};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::Parts;
use crate::blobs::BlobError;
use crate::checkpoint::{PartitionCheck, Tally};
use crate::keyring::{KeyName, KeyRingError};
use crate::log::{EventLog, ReadError, ReadFilter, Record};
use crate::projection::Snapshot;
use crate::retention::{anchors_of, keep_anchors};
use crate::root::RootKey;
use crate::seal::name_text;
use crate::slice::{SliceError, SliceReader};
use crate::snapshots::SnapshotError;
use crate::verify::damaged;

/// Records that are written together at most, and about how many bytes.
const RECORDS: usize = 2048;
const BYTES: usize = 2 * 1024 * 1024;
/// Bytes of blobs that are written together, but for the last one.
const BLOB_BYTES: usize = 4 * 1024 * 1024;

/// What a log is made of, in its description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyMark {
    of: String,
    finished: bool,
}

/// What a place is to hold a copy of.
pub struct CopyOf {
    /// Names the original: `log <id>`, or `slice <hash>`.
    of: String,
    /// The original's root key, which the copy has, too; a log that is made of a slice has one of its own.
    pub(crate) root: Option<Zeroizing<Vec<u8>>>,
}

/// A place holds something else than what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyMarkError {
    /// Nobody may work on a copy that is not finished.
    #[error("it is an unfinished copy of {of}: run the same `kasbah log copy` or `kasbah log import` again")]
    Unfinished {
        /// What it is a copy of.
        of: String,
    },
    /// It is not a copy of what is to be copied.
    #[error("it holds {holds}, and not a copy of {wanted}: use a place without a log")]
    Other {
        /// What it is.
        holds: String,
        /// What was to be copied.
        wanted: String,
    },
}

impl CopyOf {
    /// Of a log, with its root key.
    ///
    /// # Errors
    /// When the key ring cannot be read.
    pub async fn log(parts: &Parts) -> Result<Self, KeyRingError> {
        let root = parts.keys.get(KeyName::Root).await?;
        Ok(Self { of: format!("log {}", parts.log.id()), root })
    }

    /// Of a slice that was read to its end.
    pub fn slice<R: Read>(read: &SliceReader<R>) -> Self {
        Self { of: format!("slice {}", read.found().hash), root: None }
    }

    pub(crate) fn mark(&self) -> CopyMark {
        CopyMark { of: self.of.clone(), finished: false }
    }

    /// Whether a key is the one that the copy must have.
    pub(crate) fn has_root(&self, root: &RootKey) -> bool {
        let wanted = self.root.as_ref().map(|wanted| RootKey::from_pkcs8(wanted));
        wanted.is_none_or(|wanted| wanted.is_ok_and(|wanted| wanted.public_key() == root.public_key()))
    }
}

impl CopyMark {
    pub(crate) fn finished(self) -> Self {
        Self { finished: true, ..self }
    }

    /// Whether a log with this mark is opened: for a copy only its own, for everybody else only what is finished.
    pub(crate) fn check(mark: Option<&Self>, copy: Option<&CopyOf>) -> Result<(), CopyMarkError> {
        match (mark, copy) {
            (Some(mark), None) if !mark.finished => Err(CopyMarkError::Unfinished { of: mark.of.clone() }),
            (mark, Some(copy)) if mark.is_none_or(|mark| mark.of != copy.of) => {
                let holds = mark.map_or("a log".to_owned(), |mark| format!("a copy of {}", mark.of));
                Err(CopyMarkError::Other { holds, wanted: copy.of.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// A store as whoever copies needs it: what is in it, and a way in for another log's records.
#[async_trait]
pub trait Copies: Send + Sync {
    /// Log, blobs, keys and snapshots.
    fn parts(&self) -> Parts;

    /// Names of all keys that were not destroyed.
    async fn key_names(&self) -> Result<Vec<KeyName>, CopyError>;

    /// Names of all blobs.
    async fn blob_names(&self) -> Result<Vec<(OrganizationId, BlobDigest)>, CopyError>;

    /// Writes records of another log as they are; durable when it returns. Each says the sequence that it must get, the next one of its
    /// partition, and of an aggregate the next version. Nobody else may write.
    async fn take(&self, records: Vec<Record>) -> Result<(), CopyError>;

    /// Says that the copy is whole: from now on it is a log as any other.
    async fn finish(&self) -> Result<(), CopyError>;
}

/// A copy cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A log could not be read, or does not verify.
    #[error(transparent)]
    Log(#[from] ReadError),
    /// The slice is not what was written.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// Keys could not be read or written.
    #[error(transparent)]
    Keys(#[from] KeyRingError),
    /// Blobs could not be read or written.
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// Anchors could not be read or written.
    #[error(transparent)]
    Anchors(#[from] SnapshotError),
    /// A commit of a newer version.
    #[error("{}/{}: this version cannot read record {sequence}, and cannot copy it: use the version that wrote it", shard.0.as_str(), shard.1)]
    Unreadable {
        /// Where.
        shard: Shard,
        /// Which record.
        sequence: u64,
    },
    /// The copy has something else there.
    #[error("{}/{} differs at record {sequence}: {what}; copy to a place without a log", shard.0.as_str(), shard.1)]
    Differs {
        /// Where.
        shard: Shard,
        /// The first record that differs, or up to which one does.
        sequence: u64,
        /// What differs.
        what: &'static str,
    },
    /// The copy has a key that is not the original's.
    #[error(
        "the key {name} is another one there, or was destroyed in the original since: copy to a place without a log"
    )]
    OtherKey {
        /// Its name.
        name: String,
    },
    /// The logs have other partitions.
    #[error("{from} partitions cannot be copied into {to}: copy to a place without a log")]
    Partitions {
        /// The original's.
        from: u16,
        /// The copy's.
        to: u16,
    },
    /// What was written does not verify.
    #[error("{}/{} holds {found} records after {copied} were copied, or others; stop all writers while a log is copied", shard.0.as_str(), shard.1)]
    NotTheSame {
        /// Where.
        shard: Shard,
        /// Records that it should hold.
        copied: u64,
        /// Records that it holds.
        found: u64,
    },
    /// Reading or writing failed otherwise.
    #[error("cannot copy: {detail}")]
    Failed {
        /// What happened.
        detail: String,
    },
}

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copied {
    /// What each partition holds, in the original and in the copy.
    pub partitions: BTreeMap<Shard, Tally>,
    /// Records that were not there before.
    pub written: u64,
    /// Keys.
    pub keys: u64,
    /// Blobs.
    pub blobs: u64,
    /// Blobs whose key was destroyed: nobody can read them, and they are left out.
    pub sealed_for_good: u64,
}

impl Copied {
    /// Records of a stream.
    #[must_use]
    pub fn records(&self, stream: Stream) -> u64 {
        self.partitions.iter().filter(|((of, _), _)| *of == stream).map(|(_, tally)| tally.count).sum()
    }
}

/// Copies everything that a store holds as of now, or the rest of it; verifies the copy and finishes it.
///
/// # Errors
/// When something cannot be read or written, or the copy holds anything else.
pub async fn copy(from: &dyn Copies, to: &dyn Copies) -> Result<Copied, CopyError> {
    let (original, parts) = (from.parts(), to.parts());
    let mut carrier = Carrier::new(to, &*original.log).await?;
    // What a record names is stored before it: what is there now is all that the records up to here name.
    let end = original.log.position(Stream::ALL).await?;
    carrier.copied.keys = copy_keys(from, to, &original, &parts).await?;
    copy_blobs(from, &original, &parts, &mut carrier.copied).await?;
    // What has left the original is in no copy: folds of it begin with the same anchors.
    let mut anchors: Vec<Anchor> =
        anchors_of(&*original.snapshots).await?.into_iter().map(Anchor::of).collect();
    for stream in Stream::ALL {
        let checkpoints = original.log.checkpoints(*stream).await?;
        let check = |partition: u16| (partition, PartitionCheck::new(checkpoints.get(&partition).copied()));
        let mut checks: BTreeMap<u16, PartitionCheck> = (0..original.log.partitions()).map(check).collect();
        let filter = ReadFilter::streams(&[*stream]);
        let mut records = original.log.read(&Position::start(), &filter).await?;
        while let Some(record) = records.recv().await {
            let record = record?;
            if let Some(check) = checks.get_mut(&record.shard.1) {
                check.add(&record).map_err(|detail| damaged(record.shard, record.sequence, detail))?;
            }
            if record.sequence <= end.sequence(record.shard) {
                let (shard, sequence) = (record.shard, record.sequence);
                carrier.add(record).await?;
                let copied = carrier.copied.partitions.get(&shard).map_or(0, |tally| tally.count);
                anchors.iter_mut().for_each(|anchor| anchor.copied(shard, sequence, copied));
            }
        }
        for (partition, check) in checks {
            check.end().map_err(|(at, detail)| damaged((*stream, partition), at, detail))?;
        }
    }
    let there = anchors.into_iter().map(|anchor| (anchor.first, anchor.there)).collect();
    keep_anchors(&*parts.snapshots, there).await?;
    carrier.end().await
}

/// An anchor of the original, and the same in the copy, where records have other numbers.
struct Anchor {
    /// By which stream its generation is called.
    first: Stream,
    position: Position,
    there: Snapshot,
}

impl Anchor {
    fn of((first, mut there): (Stream, Snapshot)) -> Self {
        Self { first, position: std::mem::take(&mut there.position), there }
    }

    fn copied(&mut self, shard: Shard, sequence: u64, there: u64) {
        if sequence <= self.position.sequence(shard) {
            self.there.position.advance(shard, there);
        }
    }
}

/// Makes a log of a slice, or the rest of it; verifies it and finishes it. The slice was read to its end before, by a reader
/// [`SliceReader::of_whole_aggregates`].
///
/// # Errors
/// When the slice is not what was written or lacks the beginning of an aggregate, or the log holds anything else.
pub async fn import<R: Read + Send>(mut slice: SliceReader<R>, to: &dyn Copies) -> Result<Copied, CopyError> {
    let (partitions, has) = (slice.header().partitions, to.parts().log.partitions());
    if partitions != has {
        return Err(CopyError::Partitions { from: partitions, to: has });
    }
    let mut carrier = Carrier::with(to).await?;
    while let Some(record) = slice.next_record()? {
        carrier.add(record).await?;
    }
    carrier.end().await
}

async fn copy_keys(
    from: &dyn Copies,
    to: &dyn Copies,
    original: &Parts,
    parts: &Parts,
) -> Result<u64, CopyError> {
    let names: BTreeSet<KeyName> = from.key_names().await?.into_iter().collect();
    let other = |name: &KeyName| CopyError::OtherKey { name: name_text(*name) };
    if let Some(more) = to.key_names().await?.iter().find(|name| !names.contains(name)) {
        return Err(other(more));
    }
    for name in &names {
        // One that is destroyed meanwhile is no part of the copy.
        let Some(key) = original.keys.get(*name).await? else { continue };
        if parts.keys.put_new(*name, key.clone()).await? != key {
            return Err(other(name));
        }
    }
    Ok(names.len() as u64)
}

async fn copy_blobs(
    from: &dyn Copies,
    original: &Parts,
    parts: &Parts,
    copied: &mut Copied,
) -> Result<(), CopyError> {
    let mut names: BTreeMap<OrganizationId, BTreeSet<BlobDigest>> = BTreeMap::new();
    for (organization, digest) in from.blob_names().await? {
        names.entry(organization).or_default().insert(digest);
    }
    for (organization, digests) in names {
        if original.keys.get(KeyName::Organization(organization)).await?.is_none() {
            copied.sealed_for_good += digests.len() as u64;
            continue;
        }
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        for digest in digests {
            copied.blobs += 1;
            if parts.blobs.contains(organization, digest).await? {
                continue;
            }
            let content = original.blobs.get(organization, digest).await?;
            bytes += content.len();
            waiting.push(content);
            if bytes >= BLOB_BYTES {
                parts.blobs.put(organization, std::mem::take(&mut waiting)).await?;
                bytes = 0;
            }
        }
        if !waiting.is_empty() {
            parts.blobs.put(organization, waiting).await?;
        }
    }
    Ok(())
}

/// Carries records into a store: leaves out those that are there, if they are the same.
struct Carrier<'a> {
    to: &'a dyn Copies,
    partitions: u16,
    /// What was there.
    there: BTreeMap<Shard, Tally>,
    copied: Copied,
    waiting: Vec<Record>,
    bytes: usize,
}

impl<'a> Carrier<'a> {
    async fn new(to: &'a dyn Copies, original: &dyn EventLog) -> Result<Self, CopyError> {
        let (from, has) = (original.partitions(), to.parts().log.partitions());
        if from != has {
            return Err(CopyError::Partitions { from, to: has });
        }
        Self::with(to).await
    }

    async fn with(to: &'a dyn Copies) -> Result<Self, CopyError> {
        let log = to.parts().log;
        let mut there: BTreeMap<Shard, Tally> = BTreeMap::new();
        let filter = ReadFilter { streams: Stream::ALL.to_vec(), ..ReadFilter::decisions(&[]) };
        let mut records = log.read(&Position::start(), &filter).await?;
        while let Some(record) = records.recv().await {
            let record = record?;
            there.entry(record.shard).or_default().add(ChainHash::of(&record.bytes));
        }
        let (partitions, copied, waiting) = (log.partitions(), Copied::default(), Vec::new());
        Ok(Self { to, partitions, there, copied, waiting, bytes: 0 })
    }

    async fn add(&mut self, record: Record) -> Result<(), CopyError> {
        let shard = record.shard;
        let tally = self.copied.partitions.entry(shard).or_default();
        tally.add(ChainHash::of(&record.bytes));
        let tally = *tally;
        self.fits(&record, tally.count)?;
        match self.there.get(&shard) {
            Some(there) if tally.count < there.count => return Ok(()),
            Some(there) if tally.count == there.count => {
                let what = "the records up to here are not the original's";
                let differs = CopyError::Differs { shard, sequence: tally.count, what };
                return if *there == tally { Ok(()) } else { Err(differs) };
            }
            _ => {}
        }
        self.bytes += record.bytes.len();
        let Record { recorded_at, organization, bytes, .. } = record;
        // What is missing in the numbers of the original, or was left out of a slice, is no gap in the copy.
        self.waiting.push(Record::new(shard, tally.count, recorded_at, organization, bytes));
        if self.waiting.len() >= RECORDS || self.bytes >= BYTES {
            self.write().await?;
        }
        Ok(())
    }

    /// A slice can say anything.
    fn fits(&self, record: &Record, count: u64) -> Result<(), CopyError> {
        let (stream, partition) = record.shard;
        let differs = |what| CopyError::Differs { shard: record.shard, sequence: count, what };
        if partition >= self.partitions {
            return Err(differs("there is no such partition"));
        }
        if stream != Stream::Decisions {
            return Ok(());
        }
        let commit = record.commit();
        let commit =
            commit.ok_or(CopyError::Unreadable { shard: record.shard, sequence: record.sequence })?;
        let home = partition_of_organization(record.organization, self.partitions);
        if commit.organization != record.organization || home != partition {
            return Err(differs("it is the commit of another organization"));
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), CopyError> {
        self.bytes = 0;
        self.copied.written += self.waiting.len() as u64;
        self.to.take(std::mem::take(&mut self.waiting)).await
    }

    async fn end(mut self) -> Result<Copied, CopyError> {
        self.write().await?;
        for (shard, there) in &self.there {
            let copied = self.copied.partitions.get(shard).copied().unwrap_or_default();
            if copied.count < there.count {
                let what = "the original has no such record";
                return Err(CopyError::Differs { shard: *shard, sequence: copied.count + 1, what });
            }
        }
        let verified = self.to.parts().log.verify().await?;
        for stream in verified.streams {
            for (partition, found) in (0..).zip(stream.partitions) {
                let shard = (stream.stream, partition);
                let copied = self.copied.partitions.get(&shard).copied().unwrap_or_default();
                if copied != found {
                    return Err(CopyError::NotTheSame { shard, copied: copied.count, found: found.count });
                }
            }
        }
        self.to.finish().await?;
        Ok(self.copied)
    }
}

#[cfg(test)]
mod tests;
