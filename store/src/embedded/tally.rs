//! Counts and running hashes of a stream's partitions, and where they are kept: in the stream, and in a file beside it.
//!
//! With a tally that lies outside the stream, a lost tail is found as well as a hole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use events::{ChainHash, Sha256, Timestamp};
use world::Disk;
use world::disk::DiskFile;

use super::frame::{self, Frame, FrameKind, Parsed, Place};
use super::record::{RecordHead, take};
use super::segments::Cursor;
use crate::checkpoint;

/// All partitions of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tally {
    /// The latest `recorded_at`.
    pub(super) recorded_at: Timestamp,
    pub(super) shards: Vec<checkpoint::Tally>,
}

impl Tally {
    pub(super) fn new(partitions: u16) -> Self {
        Self {
            recorded_at: Timestamp(0),
            shards: vec![checkpoint::Tally::default(); usize::from(partitions)],
        }
    }

    /// The sequence that the next record of a partition gets.
    pub(super) fn next_sequence(&self, partition: u16) -> u64 {
        self.shards.get(usize::from(partition)).map_or(1, |shard| shard.count + 1)
    }

    pub(super) fn sequences(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.count).collect()
    }

    /// Counts a record in; says what does not fit if it is not the next one of its partition.
    pub(super) fn add(&mut self, head: &RecordHead, link: ChainHash) -> Result<(), &'static str> {
        let shard = self.shards.get_mut(usize::from(head.partition)).ok_or("no such partition")?;
        if head.sequence != shard.count + 1 {
            return Err("the sequence is not the next one of its partition");
        }
        shard.add(link);
        // A copy takes one partition after the other from some logs.
        self.recorded_at = self.recorded_at.max(head.recorded_at);
        Ok(())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.shards.len() * 40);
        bytes.extend_from_slice(&self.recorded_at.0.to_le_bytes());
        for shard in &self.shards {
            bytes.extend_from_slice(&shard.count.to_le_bytes());
            bytes.extend_from_slice(&shard.hash.0);
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8], partitions: u16) -> Option<Self> {
        let mut rest = bytes;
        let recorded_at = Timestamp(i64::from_le_bytes(take(&mut rest)?));
        let mut shards = Vec::with_capacity(usize::from(partitions));
        for _ in 0..partitions {
            let count = u64::from_le_bytes(take(&mut rest)?);
            shards.push(checkpoint::Tally { count, hash: Sha256(take(&mut rest)?) });
        }
        rest.is_empty().then_some(Self { recorded_at, shards })
    }
}

/// A place in the stream from which a reader can begin, with what lies before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// Where the checkpoint's frame begins.
    pub(super) at: Cursor,
    /// The last sequence of each partition before it.
    pub(super) sequences: Box<[u64]>,
}

/// The file beside the stream: a frame for each checkpoint.
pub(super) struct CheckpointFile {
    file: Arc<dyn DiskFile>,
    salt: u64,
    length: u64,
}

/// Checkpoints have their own numbering, so that none of them passes for a part of a segment.
const CHECKPOINT_SEGMENT: u32 = u32::MAX;

impl CheckpointFile {
    pub(super) fn path(folder: &Path) -> PathBuf {
        folder.join("checkpoints")
    }

    /// Opens the file, and reads what is whole of it; behind the first frame that is not, the file is cut when next written.
    pub(super) fn open(
        disk: &dyn Disk,
        folder: &Path,
        salt: u64,
        partitions: u16,
    ) -> io::Result<(Self, Vec<(Cursor, Tally)>)> {
        let path = Self::path(folder);
        let file = disk.open(&path, true)?;
        let bytes = Bytes::from(disk.read(&path)?);
        let mut found = Vec::new();
        let mut length = 0;
        while let Parsed::Frame(frame) = frame::parse(&bytes, length, Self::place(salt, length as u64)) {
            let Some(entry) = read_entry(&frame, partitions) else { break };
            found.push(entry);
            length += usize::try_from(frame.length()).unwrap_or(0);
        }
        Ok((Self { file, salt, length: length as u64 }, found))
    }

    /// Adds a checkpoint. Called only once what it counts is durable.
    pub(super) fn add(&mut self, at: Cursor, tally: &Tally) -> io::Result<()> {
        let mut bytes = Vec::new();
        let place = Self::place(self.salt, self.length);
        frame::write(&mut bytes, place, FrameKind::Checkpoint, 0, &entry_head(at), &tally.encode());
        self.file.write_all_at(&bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Forgets everything, because it is about to be written anew.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.length = 0;
        self.file.set_length(0)
    }

    /// Cuts what does not fit behind the last checkpoint, and makes the file durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.set_length(self.length)?;
        self.file.sync_data()
    }

    const fn place(salt: u64, offset: u64) -> Place {
        Place { salt, segment: CHECKPOINT_SEGMENT, offset }
    }
}

/// The file beside the stream that says where it ended when it was last closed: between two checkpoints a lost end would
/// look like one that was never written.
pub(super) struct EndFile;

impl EndFile {
    fn path(folder: &Path) -> PathBuf {
        folder.join("end")
    }

    /// Where the stream ended and what it held. A file that is missing or damaged says nothing.
    pub(super) fn read(
        disk: &dyn Disk,
        folder: &Path,
        salt: u64,
        partitions: u16,
    ) -> io::Result<Option<(Cursor, Tally)>> {
        let bytes = match disk.read(&Self::path(folder)) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match frame::parse(&bytes, 0, CheckpointFile::place(salt, u64::MAX)) {
            Parsed::Frame(frame) => Ok(read_entry(&frame, partitions)),
            _ => Ok(None),
        }
    }

    /// Replaces what it said. Called only once the stream is durable up to there.
    pub(super) fn write(
        disk: &dyn Disk,
        folder: &Path,
        salt: u64,
        at: Cursor,
        tally: &Tally,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        let place = CheckpointFile::place(salt, u64::MAX);
        frame::write(&mut bytes, place, FrameKind::Checkpoint, 0, &entry_head(at), &tally.encode());
        disk.replace(&Self::path(folder), &bytes, false)
    }
}

fn entry_head(at: Cursor) -> Vec<u8> {
    let mut head = at.segment.to_le_bytes().to_vec();
    head.extend_from_slice(&at.offset.to_le_bytes());
    head
}

fn read_entry(frame: &Frame, partitions: u16) -> Option<(Cursor, Tally)> {
    let mut rest = frame.head();
    let at = Cursor {
        segment: u32::from_le_bytes(take(&mut rest)?),
        offset: u64::from_le_bytes(take(&mut rest)?),
    };
    Some((at, Tally::decode(&frame.payload, partitions)?))
}
