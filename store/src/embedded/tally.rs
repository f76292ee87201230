//! Counts and running hashes of a stream's partitions, and where they are kept: in the stream, and in a file beside it.
//!
//! With a tally that lies outside the stream, a lost tail is found as well as a hole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use events::{ChainHash, Timestamp};
use world::Disk;
use world::disk::DiskFile;

use super::frame::{self, Frame, FrameKind, Parsed, Place};
use super::record::{RecordHead, take};
use super::segments::Cursor;

/// One partition: how many records, and the hash over their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ShardTally {
    pub(super) count: u64,
    pub(super) hash: [u8; 32],
}

/// All partitions of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tally {
    /// The latest `recorded_at`.
    pub(super) recorded_at: Timestamp,
    pub(super) shards: Vec<ShardTally>,
}

impl Tally {
    pub(super) fn new(partitions: u16) -> Self {
        Self { recorded_at: Timestamp(0), shards: vec![ShardTally::default(); usize::from(partitions)] }
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
        if head.recorded_at < self.recorded_at {
            return Err("recorded time runs backwards");
        }
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        context.update(&shard.hash);
        context.update(&link.0);
        for (to, from) in shard.hash.iter_mut().zip(context.finish().as_ref()) {
            *to = *from;
        }
        shard.count = head.sequence;
        self.recorded_at = head.recorded_at;
        Ok(())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.shards.len() * 40);
        bytes.extend_from_slice(&self.recorded_at.0.to_le_bytes());
        for shard in &self.shards {
            bytes.extend_from_slice(&shard.count.to_le_bytes());
            bytes.extend_from_slice(&shard.hash);
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8], partitions: u16) -> Option<Self> {
        let mut rest = bytes;
        let recorded_at = Timestamp(i64::from_le_bytes(take(&mut rest)?));
        let mut shards = Vec::with_capacity(usize::from(partitions));
        for _ in 0..partitions {
            shards.push(ShardTally { count: u64::from_le_bytes(take(&mut rest)?), hash: take(&mut rest)? });
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
        let mut head = at.segment.to_le_bytes().to_vec();
        head.extend_from_slice(&at.offset.to_le_bytes());
        let mut bytes = Vec::new();
        let place = Self::place(self.salt, self.length);
        frame::write(&mut bytes, place, FrameKind::Checkpoint, 0, &head, &tally.encode());
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

fn read_entry(frame: &Frame, partitions: u16) -> Option<(Cursor, Tally)> {
    let mut rest = frame.head();
    let at = Cursor {
        segment: u32::from_le_bytes(take(&mut rest)?),
        offset: u64::from_le_bytes(take(&mut rest)?),
    };
    Some((at, Tally::decode(&frame.payload, partitions)?))
}
