//! The event log: its trait and its laws.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use events::commit::MAXIMUM_COMMIT_BYTES;
use events::position::{Shard, Stream};
use events::subject::{partition_of_organization, partition_of_writer};
use events::{
    Actor, AggregateKind, AggregateRef, ChainHash, CloudEvent, CommandRecord, Commit, CommitId,
    CorrelationId, EventId, Grounds, NewEvent, OrganizationId, Position, Timestamp,
};

use crate::checkpoint::Checkpoint;
use crate::feed::Feed;
use crate::verify::VerifyReport;

/// Partitions of a new log, wherever it is kept: a copy has as many.
pub const PARTITIONS: u16 = 16;

/// An append-only log of commits and of batches.
///
/// Laws, each checked by `conformance` against every implementation:
/// 1. **Durable when acknowledged**: what `append` answered with success is there after a crash.
/// 2. **One version, one commit**: of two appends with the same expected version of one aggregate, at most one succeeds; the
///    other gets [`AppendError::Conflict`] with the actual version.
/// 3. **Never doubled**: an append whose commit id is in the aggregate's history already answers `duplicate` with the version
///    it got then, however late it is tried again.
/// 4. **Ordered**: in a shard, sequences grow; an aggregate's versions are dense and in order; readers see records in order.
/// 5. **No gap, no double** in `follow`, across the change from catching up to live.
/// 6. **Chained**: each commit carries the hash of its aggregate's previous commit over the stored bytes.
/// 7. **Unknown is not failure**: after [`AppendError::Unknown`] the same commit may be appended again; it is never doubled.
/// 8. **What has left is said**: behind the horizon of [`Retained`] nothing is missing, before it nothing is given out; who begins to read
///    before it gets what is behind it. Positions keep their meaning, sequences go on.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Which log it is. A copy is another one: positions of the one mean nothing in the other.
    fn id(&self) -> uuid::Uuid;

    /// How many partitions each stream has. Fixed for ever when the log is made.
    fn partitions(&self) -> u16;

    /// Appends one commit to the decisions.
    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError>;

    /// Appends one record to a stream that is not chained; returns its position once it is durable.
    async fn append_batch(&self, record: NewBatch) -> Result<Position, AppendError>;

    /// All commits of an aggregate, oldest first.
    async fn history(
        &self,
        organization: OrganizationId,
        aggregate: &AggregateRef,
    ) -> Result<Vec<Record>, ReadError>;

    /// The commit of that id in an aggregate's history, if it is there: how an unknown outcome is resolved.
    async fn find(
        &self,
        organization: OrganizationId,
        aggregate: &AggregateRef,
        commit: CommitId,
    ) -> Result<Option<Record>, ReadError> {
        let history = self.history(organization, aggregate).await?;
        Ok(history.into_iter().find(|record| record.commit().is_some_and(|found| found.id == commit)))
    }

    /// Records behind `from`, until the log's end as of now.
    async fn read(&self, from: &Position, filter: &ReadFilter) -> Result<RecordReader, ReadError>;

    /// Records behind `from`, then live ones as they become durable. Between the two, one [`Followed::CaughtUp`].
    async fn follow(&self, from: &Position, filter: &ReadFilter) -> Result<FollowReader, ReadError>;

    /// The end of some streams as of the call: it covers everything in them that was acknowledged to anybody before, and every
    /// record that a reader or follower has got; and whoever begins to read now gets all that it covers.
    async fn position(&self, streams: &[Stream]) -> Result<Position, ReadError>;

    /// Where some streams were at a moment: behind all that was recorded by then, that moment included. A reader that begins there gets
    /// just what was recorded later. Where all of that has left, it is the horizon.
    async fn position_at(&self, streams: &[Stream], time: Timestamp) -> Result<Position, ReadError>;

    /// What is kept of a stream.
    async fn retained(&self, stream: Stream) -> Result<Retained, ReadError>;

    /// Lets records up to a position leave for good, as far as the implementation can cut there; never more, and never decisions.
    ///
    /// # Errors
    /// When the position names decisions, or what is stored cannot be reached.
    async fn forget(&self, until: &Position) -> Result<(), ForgetError>;

    /// A projection says how far it has folded these streams. For whoever watches over projections; a log has no use for it.
    fn folded(&self, projection: &'static str, streams: &[Stream], position: &Position) {
        let _ = (projection, streams, position);
    }

    /// The newest checkpoint of each partition of a stream, as it is kept outside of the partition. What it counts was durable before
    /// it was made, so that whoever reads the partition afterwards finds it, or something is lost.
    async fn checkpoints(&self, stream: Stream) -> Result<BTreeMap<u16, Checkpoint>, ReadError>;

    /// Reads everything up to the end as of now and checks it, while others append: order, versions, chains, and whatever
    /// else the implementation keeps for it (checksums, checkpoints of partitions).
    ///
    /// # Errors
    /// What does not fit first.
    async fn verify(&self) -> Result<VerifyReport, ReadError> {
        crate::verify::verify_records(self).await
    }
}

/// What is kept of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retained {
    /// Everything up to here has left.
    pub horizon: Position,
    /// How many bytes are stored.
    pub bytes: u64,
}

/// Records do not leave.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// What is chained is kept for good.
    #[error("decisions never leave a log")]
    Decisions,
    /// What is stored cannot be reached.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Refuses a stream that is kept for good.
pub(crate) fn check_has_retention(stream: Stream) -> Result<(), ForgetError> {
    if stream == Stream::Decisions { Err(ForgetError::Decisions) } else { Ok(()) }
}

/// A commit to be appended. The log adds version, previous hash and position.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCommit {
    /// Its id and idempotency key.
    pub id: CommitId,
    /// Whose.
    pub organization: OrganizationId,
    /// To which aggregate.
    pub aggregate: AggregateRef,
    /// The aggregate's version that the decision was made on; 0 when it does not exist.
    pub expected: u64,
    /// Who caused it.
    pub actor: Actor,
    /// The chain.
    pub correlation_id: CorrelationId,
    /// The event that led to it.
    pub causation_id: Option<EventId>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// When, by the decision's clock.
    pub occurred_at: Timestamp,
    /// The command, without secrets.
    pub command: Option<CommandRecord>,
    /// What it was decided on.
    pub grounds: Option<Grounds>,
    /// At least one.
    pub events: Vec<NewEvent>,
}

/// A record for a stream that is not chained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBatch {
    /// Which stream; never decisions.
    pub stream: Stream,
    /// Whose.
    pub organization: OrganizationId,
    /// Decides the partition in observations, objects and recordings; the organization does elsewhere. In exports: the type of the event.
    pub writer: String,
    /// The encoded record, at most [`events::commit::MAXIMUM_COMMIT_BYTES`].
    pub data: Vec<u8>,
}

impl NewCommit {
    pub(crate) fn check(&self) -> Result<(), AppendError> {
        if self.events.is_empty() {
            return Err(AppendError::Invalid { detail: "a commit holds at least one event".to_owned() });
        }
        Ok(())
    }

    /// As it is stored, behind a commit of this hash.
    pub(crate) fn encode(self, previous: ChainHash) -> Result<Vec<u8>, AppendError> {
        let mut commit = Commit {
            id: self.id,
            organization: self.organization,
            aggregate: self.aggregate,
            version: self.expected + 1,
            previous,
            actor: self.actor,
            correlation_id: self.correlation_id,
            causation_id: self.causation_id,
            traceparent: self.traceparent,
            occurred_at: self.occurred_at,
            command: self.command,
            grounds: self.grounds,
            events: self.events,
        };
        let encode = |commit: &Commit| {
            events::encode(commit).map_err(|error| AppendError::Invalid { detail: error.to_string() })
        };
        let mut bytes = encode(&commit)?;
        // A fact is worth more than being able to make its decision again.
        if bytes.len() > MAXIMUM_COMMIT_BYTES && commit.grounds.take().is_some() {
            tracing::warn!(aggregate = %commit.aggregate, bytes = bytes.len(), "commit is recorded without its grounds");
            bytes = encode(&commit)?;
        }
        fits(bytes.len())?;
        Ok(bytes)
    }
}

impl NewBatch {
    pub(crate) fn check(&self) -> Result<(), AppendError> {
        if self.stream == Stream::Decisions {
            return Err(AppendError::Invalid { detail: "decisions take commits only".to_owned() });
        }
        fits(self.data.len())
    }

    /// Its partition, out of so many.
    pub(crate) fn partition(&self, partitions: u16) -> u16 {
        match self.stream {
            Stream::Observations | Stream::Objects | Stream::Recordings => {
                partition_of_writer(&self.writer, partitions)
            }
            Stream::Decisions | Stream::Audit | Stream::Refusals | Stream::Exports => {
                partition_of_organization(self.organization, partitions)
            }
        }
    }
}

fn fits(bytes: usize) -> Result<(), AppendError> {
    if bytes > MAXIMUM_COMMIT_BYTES {
        return Err(AppendError::TooLarge { bytes, limit: MAXIMUM_COMMIT_BYTES });
    }
    Ok(())
}

/// A successful append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The aggregate's version after this commit.
    pub version: u64,
    /// Where it lies.
    pub position: Position,
    /// It was there already.
    pub duplicate: bool,
}

/// An append did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The aggregate moved on: load it again and decide again.
    #[error("{aggregate} is at version {actual}, not {expected}")]
    Conflict {
        /// Which aggregate.
        aggregate: AggregateRef,
        /// What was expected.
        expected: u64,
        /// What is.
        actual: u64,
    },
    /// It may or may not be stored: append the same commit again.
    #[error("outcome unknown: {detail}")]
    Unknown {
        /// What happened.
        detail: String,
    },
    /// The record is larger than any log takes.
    #[error("record of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A commit without events, or a batch for the decisions.
    #[error("not a valid record: {detail}")]
    Invalid {
        /// What is wrong.
        detail: String,
    },
    /// The log cannot be reached, and has not got it: append the same commit again later.
    #[error("the log is not available: {detail}")]
    Away {
        /// What happened.
        detail: String,
    },
    /// The log takes no writes until it is started again.
    #[error("the log is read-only: {reason}")]
    ReadOnly {
        /// Why, such as a full disk or a failed sync.
        reason: String,
    },
}

impl AppendError {
    /// Whether the same may be appended later: the outcome is unknown, or the log is away.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Away { .. })
    }
}

/// The log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Stored bytes are damaged. Nothing behind them is given out.
    #[error("segment {segment} is damaged at offset {offset}: {detail}")]
    Damaged {
        /// The segment file's name.
        segment: String,
        /// Byte offset of the record.
        offset: u64,
        /// What does not fit.
        detail: String,
    },
    /// It was to be read from before the horizon on.
    #[error("{what} was removed from the log: start at its horizon")]
    Left {
        /// The segment or shard.
        what: String,
    },
    /// A record came that is not the next one: what lies before it is missing, or comes later.
    #[error("record {sequence} of {stream} in partition {partition} is not the next one: {detail}")]
    NotDense {
        /// Its stream.
        stream: &'static str,
        /// Its partition.
        partition: u16,
        /// Its sequence.
        sequence: u64,
        /// What was to come.
        detail: String,
    },
    /// Input or output failed.
    #[error("cannot read the log: {detail}")]
    Failed {
        /// What happened.
        detail: String,
    },
}

impl ReadError {
    pub(crate) fn not_dense(record: &Record, detail: String) -> Self {
        let (stream, partition) = record.shard;
        Self::NotDense { stream: stream.as_str(), partition, sequence: record.sequence, detail }
    }
}

/// Which records a reader wants. Filtering happens before decoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFilter {
    /// Which streams.
    pub streams: Vec<Stream>,
    /// Only this organization.
    pub organization: Option<OrganizationId>,
    /// Of decisions, only these kinds of aggregates; all when empty.
    pub kinds: Vec<AggregateKind>,
}

impl ReadFilter {
    /// All of these streams.
    #[must_use]
    pub fn streams(streams: &[Stream]) -> Self {
        Self { streams: streams.to_vec(), organization: None, kinds: Vec::new() }
    }

    /// Decisions on aggregates of these kinds; of all kinds when empty.
    #[must_use]
    pub fn decisions(kinds: &[AggregateKind]) -> Self {
        Self { kinds: kinds.to_vec(), ..Self::streams(&[Stream::Decisions]) }
    }

    /// Whether every record of a stream gets through.
    pub(crate) fn takes_all_of(&self, stream: Stream) -> bool {
        self.organization.is_none() && (stream != Stream::Decisions || self.kinds.is_empty())
    }

    /// Also this stream.
    #[must_use]
    pub fn and(mut self, stream: Stream) -> Self {
        self.streams.push(stream);
        self
    }
}

/// One record as it lies in the log.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its shard.
    pub shard: Shard,
    /// Its sequence in the shard, from 1.
    pub sequence: u64,
    /// When the log took it; never runs backwards within a shard.
    pub recorded_at: Timestamp,
    /// Whose.
    pub organization: OrganizationId,
    /// The stored bytes, exactly.
    pub bytes: bytes::Bytes,
    commit: Arc<OnceLock<Option<Commit>>>,
}

impl Record {
    /// A record of these bytes.
    #[must_use]
    pub fn new(
        shard: Shard,
        sequence: u64,
        recorded_at: Timestamp,
        organization: OrganizationId,
        bytes: bytes::Bytes,
    ) -> Self {
        Self { shard, sequence, recorded_at, organization, bytes, commit: Arc::default() }
    }

    /// The commit; `None` in the other streams, and where this build cannot read a commit (its writer was newer).
    ///
    /// It is decoded when first asked for, once for all clones: who passes bytes on pays nothing for it.
    #[must_use]
    pub fn commit(&self) -> Option<&Commit> {
        self.commit.get_or_init(|| self.decoded()).as_ref()
    }

    /// Its events as programs outside read them, in order.
    #[must_use]
    pub fn cloud_events(&self) -> Vec<CloudEvent> {
        events::cloud_event::of_record(&events::cloud_event::Recorded {
            stream: self.shard.0,
            recorded_at: self.recorded_at,
            organization: self.organization,
            bytes: &self.bytes,
            commit: self.commit(),
        })
    }

    /// Whether it is a commit, readable or not.
    #[must_use]
    pub fn is_commit(&self) -> bool {
        self.shard.0 == Stream::Decisions
    }

    fn decoded(&self) -> Option<Commit> {
        let (stream, partition) = self.shard;
        if !self.is_commit() {
            return None;
        }
        let decoded = events::decode(&self.bytes);
        if let Err(error) = &decoded {
            tracing::error!(
                stream = stream.as_str(),
                partition,
                sequence = self.sequence,
                %error,
                "commit is not readable by this version"
            );
        }
        decoded.ok()
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        let of = |record: &Self| (record.shard, record.sequence, record.recorded_at, record.organization);
        of(self) == of(other) && self.bytes == other.bytes
    }
}

/// What a follower gets.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are records")]
pub enum Followed {
    /// A record.
    Record(Record),
    /// Everything up to here was there when the follow began; what comes now is live. Said once.
    CaughtUp(Position),
    /// Live only: the filter left out everything between the last record and here. Lets a reader that waits for a position
    /// know that it will see nothing more up to there.
    Passed(Position),
}

/// Reads until the end as of the call.
pub type RecordReader = Feed<Record>;

/// Reads on for ever.
pub type FollowReader = Feed<Followed>;
