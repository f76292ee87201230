//! Reading a whole log and checking it.

use std::collections::{BTreeMap, HashMap};

use events::position::Stream;
use events::{AggregateRef, ChainHash, Commit, OrganizationId, Position};

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
    /// Records of each partition.
    pub partitions: Vec<u64>,
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
            partitions: vec![0; usize::from(partitions)],
        }
    }
}

/// Checks what any log gives out: order in shards, dense versions, chains.
///
/// # Errors
/// What does not fit first; the shard stands where a file's name would, the sequence where its offset would.
pub async fn verify_records<L: EventLog + ?Sized>(log: &L) -> Result<VerifyReport, ReadError> {
    let mut streams = Vec::new();
    for stream in Stream::ALL {
        let filter = ReadFilter { streams: vec![*stream], ..ReadFilter::decisions(&[]) };
        let mut reader = log.read(&Position::start(), &filter).await?;
        let mut check = Check {
            report: StreamReport::empty(*stream, log.partitions()),
            last: BTreeMap::new(),
            heads: HashMap::new(),
        };
        while let Some(record) = reader.recv().await {
            let record = record?;
            check.add(&record).map_err(|detail| ReadError::Damaged {
                segment: format!("{}/{}", record.shard.0.as_str(), record.shard.1),
                offset: record.sequence,
                detail: detail.to_owned(),
            })?;
        }
        check.report.aggregates = check.heads.len() as u64;
        streams.push(check.report);
    }
    Ok(VerifyReport { streams })
}

struct Check {
    report: StreamReport,
    last: BTreeMap<u16, u64>,
    heads: HashMap<(OrganizationId, AggregateRef), (u64, ChainHash)>,
}

impl Check {
    fn add(&mut self, record: &Record) -> Result<(), &'static str> {
        let last = self.last.entry(record.shard.1).or_insert(0);
        if record.sequence <= *last {
            return Err("the sequence does not grow");
        }
        *last = record.sequence;
        self.report.records += 1;
        self.report.bytes += record.bytes.len() as u64;
        if let Some(count) = self.report.partitions.get_mut(usize::from(record.shard.1)) {
            *count += 1;
        }
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
