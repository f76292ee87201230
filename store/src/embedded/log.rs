//! The embedded log: segments, writers and index behind the trait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use events::position::Stream;
use events::subject::partition_of_organization;
use events::{AggregateRef, ChainHash, CommitId, OrganizationId, Position, Timestamp};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use world::Spawner;
use world::disk::FolderLock;

use super::answers::Reply;
use super::heads::{AggregateHeads, LookUpError};
use super::index::{AggregateHead, Index};
use super::moment::sequences_at;
use super::reader::{Follower, StreamReader, read_all};
use super::record::{AggregateKey, ChainedHead, RecordHead, kind_tag};
use super::recovery::failed;
use super::segments::Cursor;
use super::stream::{ReadOnly, StreamCore};
use super::tally::CheckpointFile;
use super::verify::verify;
use super::writer::Request;
use crate::checkpoint::{Checkpoint, Left, Tally};
use crate::feed::Feed;
use crate::log::{
    AppendError, Appended, EventLog, FollowReader, ForgetError, NewBatch, NewCommit, ReadError, ReadFilter,
    Record, RecordReader, Retained, check_has_retention,
};
use crate::verify::VerifyReport;

/// The log in one folder.
pub(super) struct EmbeddedLog {
    pub(super) id: uuid::Uuid,
    pub(super) partitions: u16,
    pub(super) spawner: Arc<dyn Spawner>,
    pub(super) streams: Vec<Arc<StreamCore>>,
    pub(super) heads: Arc<AggregateHeads>,
    pub(super) read_only: Arc<ReadOnly>,
    pub(super) threads: Mutex<Threads>,
    pub(super) _lock: Arc<dyn FolderLock>,
}

/// The threads behind a log.
#[derive(Default)]
pub(super) struct Threads {
    pub(super) writers: Vec<JoinHandle<()>>,
    pub(super) index: Option<JoinHandle<()>>,
}

impl Drop for EmbeddedLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// Work that waits for the disk, beside what the runtime does.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ReadError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ReadError::Failed { detail: error.to_string() })
}

fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    if thread.join().is_err() {
        tracing::error!(thread = name, "a thread of the log panicked");
    }
}

impl EmbeddedLog {
    /// Writes what waits, makes the index durable, ends the threads. Appends from now on are refused.
    pub(super) fn close(&self) {
        for stream in &self.streams {
            stream.close();
        }
        let mut threads = self.threads.lock();
        threads.writers.drain(..).for_each(join);
        self.index().close();
        threads.index.take().into_iter().for_each(join);
    }

    pub(super) fn index(&self) -> &Arc<Index> {
        &self.heads.index
    }

    pub(super) fn core(&self, stream: Stream) -> Option<&Arc<StreamCore>> {
        self.streams.iter().find(|core| core.stream == stream)
    }

    fn writable(&self) -> Result<(), AppendError> {
        match self.read_only.get() {
            Some(reason) => Err(AppendError::ReadOnly { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Hands a request to the stream's writer and waits for its answer.
    async fn submit(
        &self,
        stream: Stream,
        build: impl FnOnce(Reply) -> Request,
    ) -> Result<Appended, AppendError> {
        let closed = || AppendError::ReadOnly { reason: "the log is closed".to_owned() };
        let (reply, answer) = oneshot::channel();
        let core = self.core(stream).ok_or_else(closed)?;
        if !core.push(build(reply)) {
            return Err(closed());
        }
        answer.await.unwrap_or_else(|_| Err(AppendError::Unknown { detail: "the log ended".to_owned() }))
    }

    fn readers(&self, from: &Position, filter: &ReadFilter) -> Vec<StreamReader> {
        let wanted = self.streams.iter().filter(|core| filter.streams.contains(&core.stream));
        wanted.map(|core| StreamReader::new(Arc::clone(core), from, filter)).collect()
    }

    /// The durable ends of these streams, and everything that lies before them: what readers can see, and nothing else.
    fn ends(&self, streams: &[Stream]) -> (Vec<Cursor>, Position) {
        let mut position = Position::start();
        let mut ends = Vec::new();
        for core in self.streams.iter().filter(|core| streams.contains(&core.stream)) {
            let (end, sequences) = core.end_with_sequences();
            ends.push(end);
            for (partition, sequence) in (0_u16..).zip(sequences).filter(|(_, sequence)| *sequence > 0) {
                position.advance((core.stream, partition), sequence);
            }
        }
        (ends, position)
    }

    /// What can be answered without appending: `Ok(head)` to append on, or the append's answer.
    fn admit(
        &self,
        key: AggregateKey,
        commit: &NewCommit,
    ) -> Result<AggregateHead, Result<Appended, AppendError>> {
        let unknown = |error: LookUpError| Err(AppendError::Unknown { detail: error.to_string() });
        let head = self.heads.head(key).map_err(unknown)?;
        if head.version > 0
            && let Some(duplicate) = self.heads.duplicate(key, commit.id).map_err(unknown)?
        {
            return Err(Ok(duplicate));
        }
        if head.version == commit.expected {
            return Ok(head);
        }
        Err(Err(AppendError::Conflict {
            aggregate: commit.aggregate.clone(),
            expected: commit.expected,
            actual: head.version,
        }))
    }
}

#[async_trait]
impl EventLog for EmbeddedLog {
    fn id(&self) -> uuid::Uuid {
        self.id
    }

    fn partitions(&self) -> u16 {
        self.partitions
    }

    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError> {
        self.writable()?;
        commit.check()?;
        let key = AggregateKey::of(commit.organization, &commit.aggregate);
        let made_on = match self.admit(key, &commit) {
            Ok(head) => head,
            Err(answer) => return answer,
        };
        let head = RecordHead {
            partition: partition_of_organization(commit.organization, self.partitions),
            sequence: 0,
            recorded_at: Timestamp(0),
            organization: commit.organization,
            chained: Some(ChainedHead {
                kind: kind_tag(commit.aggregate.kind),
                aggregate: key,
                version: commit.expected + 1,
                commit: commit.id,
            }),
        };
        let aggregate = Some(commit.aggregate.clone());
        let payload = commit.encode(made_on.hash)?;
        let link = ChainHash::of(&payload);
        self.submit(Stream::Decisions, |reply| Request { head, payload, link, made_on, aggregate, reply })
            .await
    }

    async fn append_batch(&self, record: NewBatch) -> Result<Position, AppendError> {
        self.writable()?;
        record.check()?;
        let partition = record.partition(self.partitions);
        let head = RecordHead {
            partition,
            sequence: 0,
            recorded_at: Timestamp(0),
            organization: record.organization,
            chained: None,
        };
        let payload = record.data;
        let link = ChainHash::of(&payload);
        let made_on = AggregateHead::NONE;
        let appended = self
            .submit(record.stream, |reply| Request { head, payload, link, made_on, aggregate: None, reply })
            .await?;
        Ok(appended.position)
    }

    async fn history(
        &self,
        organization: OrganizationId,
        aggregate: &AggregateRef,
    ) -> Result<Vec<Record>, ReadError> {
        let key = AggregateKey::of(organization, aggregate);
        let heads = Arc::clone(&self.heads);
        blocking(move || heads.history(key)).await?.map_err(LookUpError::read)
    }

    async fn find(
        &self,
        organization: OrganizationId,
        aggregate: &AggregateRef,
        commit: CommitId,
    ) -> Result<Option<Record>, ReadError> {
        self.heads.find(AggregateKey::of(organization, aggregate), commit).map_err(LookUpError::read)
    }

    async fn read(&self, from: &Position, filter: &ReadFilter) -> Result<RecordReader, ReadError> {
        let (ends, _) = self.ends(&filter.streams);
        let readers = self.readers(from, filter).into_iter().zip(ends).collect();
        let (mut to, records) = Feed::pair();
        let task = async move {
            // A panic in there ends the feed, which the reader would take for the log's end: say it instead.
            let Ok(mut failure) = to.another().await else { return };
            if let Err(error) = blocking(move || read_all(readers, to)).await {
                failure.push(Err(error), 0);
                drop(failure.flush().await);
            }
        };
        self.spawner.spawn("log-read", Box::pin(task));
        Ok(records)
    }

    async fn follow(&self, from: &Position, filter: &ReadFilter) -> Result<FollowReader, ReadError> {
        let (ends, end) = self.ends(&filter.streams);
        let mut caught_up = from.clone();
        caught_up.merge(&end);
        let (to, followed) = Feed::pair();
        let follower = Follower { readers: self.readers(from, filter), ends, caught_up, to };
        self.spawner.spawn("log-follow", Box::pin(follower.run()));
        Ok(followed)
    }

    async fn position(&self, streams: &[Stream]) -> Result<Position, ReadError> {
        Ok(self.ends(streams).1)
    }

    async fn position_at(&self, streams: &[Stream], time: Timestamp) -> Result<Position, ReadError> {
        let mut position = Position::start();
        for core in self.streams.iter().filter(|core| streams.contains(&core.stream)) {
            let (stream, searched) = (core.stream, Arc::clone(core));
            let sequences = blocking(move || sequences_at(&searched, time)).await??;
            for (partition, sequence) in (0_u16..).zip(sequences).filter(|(_, sequence)| *sequence > 0) {
                position.advance((stream, partition), sequence);
            }
        }
        Ok(position)
    }

    async fn retained(&self, stream: Stream) -> Result<Retained, ReadError> {
        let Some(core) = self.core(stream).map(Arc::clone) else { return Ok(Retained::default()) };
        let look = move || core.segments.bytes().map(|bytes| Retained { horizon: core.horizon(), bytes });
        blocking(look).await?.map_err(failed)
    }

    async fn forget(&self, until: &Position) -> Result<(), ForgetError> {
        for (stream, _) in until.0.keys() {
            check_has_retention(*stream)?;
        }
        let (streams, until) = (self.streams.clone(), until.clone());
        let forget = move || {
            let mut unchained = streams.iter().filter(|core| check_has_retention(core.stream).is_ok());
            unchained.try_for_each(|core| core.forget(&until))
        };
        Ok(blocking(forget).await?.map_err(failed)?)
    }

    async fn checkpoints(&self, stream: Stream) -> Result<BTreeMap<u16, Checkpoint>, ReadError> {
        let Some(segments) = self.core(stream).map(|core| Arc::clone(&core.segments)) else {
            return Ok(BTreeMap::new());
        };
        let (partitions, begin) = (self.partitions, segments.begin());
        let read =
            move || CheckpointFile::open(segments.disk.as_ref(), &segments.folder, segments.salt, partitions);
        let (_, known) = blocking(read).await?.map_err(failed)?;
        let Some((_, newest)) = known.last() else { return Ok(BTreeMap::new()) };
        let before = known.iter().find(|(at, _)| *at == begin && begin != Cursor::START);
        let left = |partition| before.and_then(|(_, left)| left.shards.get(partition)).copied();
        let checkpoint = |(partition, tally): (usize, &Tally)| {
            let left = left(partition).unwrap_or_default();
            let left = Left { sequence: left.count, tally: left };
            Checkpoint { sequence: tally.count, tally: *tally, left }
        };
        Ok((0..).zip(newest.shards.iter().enumerate().map(checkpoint)).collect())
    }

    async fn verify(&self) -> Result<VerifyReport, ReadError> {
        let (streams, partitions) = (self.streams.clone(), self.partitions);
        blocking(move || verify(&streams, partitions)).await?
    }
}
