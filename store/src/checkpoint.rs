//! Checkpoints of partitions: how many records one holds, and a hash over all of them, kept outside of the partition.
//!
//! A chain finds what was changed or is missing in the middle of an aggregate. That a partition lost its end, was exchanged for
//! another one, or lacks a record of what is not chained, is found by its checkpoint. One is only ever made of what is durable, so
//! that it may lag behind its partition, and a partition that ends before its checkpoint has lost something.

use events::{ChainHash, Sha256};
use serde::{Deserialize, Serialize};

use crate::log::Record;

/// How many records a partition holds, and the hash over their hashes. The same in each copy of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Records.
    pub count: u64,
    /// SHA-256 over the hash before and that of the record's bytes, from record to record.
    pub hash: Sha256,
}

impl Tally {
    /// Counts the next record.
    pub fn add(&mut self, record: ChainHash) {
        self.count += 1;
        self.hash = Sha256::of(&[self.hash.0, record.0].concat());
    }
}

/// What a partition holds up to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The record's sequence.
    pub sequence: u64,
    /// All records up to it.
    pub tally: Tally,
    /// Those among them that have left.
    #[serde(default)]
    pub left: Left,
}

/// What has left a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Left {
    /// The sequence of the last record that has left, 0 for none.
    pub sequence: u64,
    /// All records up to it.
    pub tally: Tally,
}

/// Checks one partition while it is read from where it begins now.
#[derive(Debug, Default)]
pub struct PartitionCheck {
    checkpoint: Option<Checkpoint>,
    last: u64,
    tally: Tally,
}

impl PartitionCheck {
    /// Of a partition with this checkpoint, which must have been read before the partition is.
    #[must_use]
    pub fn new(checkpoint: Option<Checkpoint>) -> Self {
        let checkpoint = checkpoint.filter(|checkpoint| checkpoint.sequence > 0);
        let left = checkpoint.map(|checkpoint| checkpoint.left).unwrap_or_default();
        Self { checkpoint, last: left.sequence, tally: left.tally }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// What does not fit.
    pub fn add(&mut self, record: &Record) -> Result<(), &'static str> {
        // What is to leave is counted before it leaves.
        if self.checkpoint.is_some_and(|checkpoint| record.sequence <= checkpoint.left.sequence) {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.last, record.sequence);
        if record.sequence <= before {
            return Err("the sequence does not grow");
        }
        self.tally.add(ChainHash::of(&record.bytes));
        match self.checkpoint {
            Some(checkpoint) if checkpoint.sequence == record.sequence && checkpoint.tally != self.tally => {
                Err("the records up to here are not those that the partition's checkpoint counts")
            }
            Some(checkpoint) if before < checkpoint.sequence && checkpoint.sequence < record.sequence => {
                Err("the last record that the partition's checkpoint counts is missing before it")
            }
            _ => Ok(()),
        }
    }

    /// What was read, once everything was; the sequence that is missing and why otherwise.
    ///
    /// # Errors
    /// When the end is lost.
    pub fn end(&self) -> Result<Tally, (u64, &'static str)> {
        match self.checkpoint {
            Some(checkpoint) if self.last < checkpoint.sequence => {
                Err((self.last + 1, "the end is lost: the partition's checkpoint counts more records"))
            }
            _ => Ok(self.tally),
        }
    }

    /// What was read so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether there is a checkpoint.
    #[must_use]
    pub const fn has_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }
}

#[cfg(test)]
mod tests {
    use events::position::Stream;
    use events::{OrganizationId, Timestamp};

    use super::*;

    fn record(sequence: u64, content: &'static [u8]) -> Record {
        let bytes = bytes::Bytes::from_static(content);
        Record::new((Stream::Audit, 0), sequence, Timestamp(0), OrganizationId::SYSTEM, bytes)
    }

    fn checked(checkpoint: Option<Checkpoint>, records: &[Record]) -> Result<Tally, String> {
        let mut check = PartitionCheck::new(checkpoint);
        for record in records {
            check.add(record).map_err(|what| format!("{}: {what}", record.sequence))?;
        }
        check.end().map_err(|(sequence, what)| format!("{sequence}: {what}"))
    }

    #[test]
    fn a_checkpoint_finds_a_lost_end_a_hole_and_an_exchange_and_may_lag() {
        let all = [record(1, b"one"), record(2, b"two"), record(4, b"three")];
        let tally = checked(None, &all[..2]).unwrap();
        assert_eq!(tally.count, 2);
        let checkpoint = Some(Checkpoint { sequence: 2, tally, left: Left::default() });
        assert_eq!(checked(checkpoint, &all[..2]), Ok(tally));
        assert_eq!(checked(checkpoint, &all).unwrap().count, 3, "it lags behind what was appended since");
        let lost = checked(checkpoint, &all[..1]).unwrap_err();
        assert!(lost.starts_with("2: the end is lost"), "{lost}");
        let empty = checked(checkpoint, &[]).unwrap_err();
        assert!(empty.starts_with("1: the end is lost"), "{empty}");
        let hole = checked(checkpoint, &[all[0].clone(), all[2].clone()]).unwrap_err();
        assert!(hole.contains("is missing before it"), "{hole}");
        let exchanged = checked(checkpoint, &[record(1, b"other"), all[1].clone()]).unwrap_err();
        assert!(exchanged.starts_with("2: the records up to here are not"), "{exchanged}");
        let left = Left { sequence: 1, tally: checked(None, &all[..1]).unwrap() };
        let some_left = Some(Checkpoint { sequence: 2, tally, left });
        for read in [&all[..], &all[1..]] {
            assert_eq!(checked(some_left, read).unwrap().count, 3, "the first one may have left");
        }
        assert!(checked(some_left, &all[2..]).is_err(), "no more than that");
        let again = checked(None, &[all[0].clone(), all[0].clone()]).unwrap_err();
        assert_eq!(again, "1: the sequence does not grow");
    }
}
