//! Reading a whole log and checking it.

use std::collections::{BTreeMap, HashMap};

use events::position::{Shard, Stream};
use events::{AggregateRef, ChainHash, Commit, OrganizationId, Position};

use crate::checkpoint::{Checkpoint, PartitionCheck, Tally};
use crate::log::{EventLog, ReadError, ReadFilter, Record};

/// What was read and fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// Each stream.
    pub streams: Vec<StreamReport>,
}

/// One stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamReport {
    /// Which.
    pub stream: Stream,
    /// Segment files read; 0 where there are none.
    pub segments: u32,
    /// Records.
    pub records: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Aggregates whose chain is whole; 0 where nothing is chained.
    pub aggregates: u64,
    /// Checkpoints of partitions that fit; 0 where the implementation keeps none.
    pub checkpoints: u64,
    /// Commits that this version cannot decode; their chain fits.
    pub unreadable: u64,
    /// What each partition holds.
    pub partitions: Vec<Tally>,
}

impl StreamReport {
    /// A report of nothing read yet.
    #[must_use]
    pub fn empty(stream: Stream, partitions: u16) -> Self {
        Self {
            stream,
            segments: 0,
            records: 0,
            bytes: 0,
            aggregates: 0,
            checkpoints: 0,
            unreadable: 0,
            partitions: vec![Tally::default(); usize::from(partitions)],
        }
    }
}

/// Checks what any log gives out: order in shards, dense versions, chains, and checkpoints of partitions where the log has some.
///
/// # Errors
/// What does not fit first; the shard stands where a file's name would, the sequence where its offset would.
pub async fn verify_records<L: EventLog + ?Sized>(log: &L) -> Result<VerifyReport, ReadError> {
    let mut streams = Vec::new();
    for stream in Stream::ALL {
        // Before the records: a checkpoint of one that is appended later would not be met.
        let mut check = Check::new(*stream, log.partitions(), &log.checkpoints(*stream).await?);
        let filter = ReadFilter::streams(&[*stream]);
        let mut reader = log.read(&Position::start(), &filter).await?;
        while let Some(record) = reader.recv().await {
            let record = record?;
            check.add(&record).map_err(|detail| damaged(record.shard, record.sequence, detail))?;
        }
        streams.push(check.end()?);
    }
    Ok(VerifyReport { streams })
}

/// A shard that does not fit at a sequence.
pub(crate) fn damaged((stream, partition): Shard, sequence: u64, detail: &str) -> ReadError {
    let segment = format!("{}/{partition}", stream.as_str());
    ReadError::Damaged { segment, offset: sequence, detail: detail.to_owned() }
}

struct Check {
    report: StreamReport,
    partitions: BTreeMap<u16, PartitionCheck>,
    heads: HashMap<(OrganizationId, AggregateRef), (u64, ChainHash)>,
}

impl Check {
    fn new(stream: Stream, partitions: u16, checkpoints: &BTreeMap<u16, Checkpoint>) -> Self {
        let check = |partition| (partition, PartitionCheck::new(checkpoints.get(&partition).copied()));
        Self {
            report: StreamReport::empty(stream, partitions),
            partitions: (0..partitions).map(check).collect(),
            heads: HashMap::new(),
        }
    }

    fn end(mut self) -> Result<StreamReport, ReadError> {
        for ((partition, check), tally) in self.partitions.iter().zip(&mut self.report.partitions) {
            let ended = check.end();
            *tally = ended.map_err(|(at, detail)| damaged((self.report.stream, *partition), at, detail))?;
            self.report.checkpoints += u64::from(check.has_checkpoint());
        }
        self.report.aggregates = self.heads.len() as u64;
        Ok(self.report)
    }

    fn add(&mut self, record: &Record) -> Result<(), &'static str> {
        self.partitions.get_mut(&record.shard.1).ok_or("no such partition")?.add(record)?;
        self.report.records += 1;
        self.report.bytes += record.bytes.len() as u64;
        match record.commit() {
            Some(commit) => self.commit(record, commit),
            None => {
                self.report.unreadable += u64::from(record.shard.0 == Stream::Decisions);
                Ok(())
            }
        }
    }

    fn commit(&mut self, record: &Record, commit: &Commit) -> Result<(), &'static str> {
        let key = (commit.organization, commit.aggregate.clone());
        let (version, hash) = self.heads.get(&key).copied().unwrap_or_default();
        if commit.version != version + 1 {
            return Err("the version is not the aggregate's next one");
        }
        if commit.previous != hash {
            return Err("the chain is broken: the hash of the aggregate's previous commit does not fit");
        }
        self.heads.insert(key, (commit.version, ChainHash::of(&record.bytes)));
        Ok(())
    }
}
