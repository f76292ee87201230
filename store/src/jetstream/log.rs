//! The log: commits with an expected sequence, batches without one, reading and following.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use events::position::{Shard, Stream};
use events::subject::{Subject, partition_of_organization};
use events::{AggregateRef, ChainHash, CommitId, NewEvent, OrganizationId, Position, Timestamp};
use world::World;

use super::checkpoints::Checkpoints;
use super::ends::Ends;
use super::follow::Follower;
use super::heads::{AggregateHead, AggregateHeads, AppendBase, Key};
use super::moment::Search;
use super::pages::SequenceRange;
use super::records::{Parsed, RecordFilter, stream_name, subject_of_batch};
use super::server::{Ack, Publish, PublishError, Server, ServerError, Stored};
use super::shared_reading::SharedReading;
use super::tail::Tail;
use crate::checkpoint::Checkpoint;
use crate::feed::{Feed, Feeder, ReaderGone};
use crate::log::{
    AppendError, Appended, EventLog, FollowReader, ForgetError, NewBatch, NewCommit, ReadError, ReadFilter,
    Record, RecordReader, Retained, check_has_retention,
};

/// How long an append tries, while others are in its way or nobody leads the stream.
const APPEND_TIME: Duration = Duration::from_secs(10);
/// How long it waits for a connection.
const AWAY_TIME: Duration = Duration::from_secs(2);
/// Types of events that a commit's header names at most.
const MOST_TYPES: usize = 16;
/// How long a leader may know less than was stored.
const STALE_TIME: Duration = Duration::from_secs(10);
const STALE_PAUSE: Duration = Duration::from_millis(500);
const FIRST_PAUSE_MILLIS: u64 = 2;
const LONGEST_PAUSE_MILLIS: u64 = 200;

/// The log on a JetStream server.
pub(super) struct JetStreamLog {
    pub(super) id: uuid::Uuid,
    pub(super) server: Arc<dyn Server>,
    pub(super) world: World,
    pub(super) partitions: u16,
    pub(super) heads: AggregateHeads,
    pub(super) ends: Ends,
    pub(super) tail: Arc<Tail>,
    pub(super) shared: Arc<SharedReading>,
    pub(super) checkpoints: Arc<Checkpoints>,
}

impl From<ServerError> for ReadError {
    fn from(error: ServerError) -> Self {
        Self::Failed { detail: error.0 }
    }
}

impl From<ServerError> for ForgetError {
    fn from(error: ServerError) -> Self {
        Self::Read(error.into())
    }
}

/// One append, until its outcome is known or its time is over.
struct Attempts<'a> {
    world: &'a World,
    server: &'a dyn Server,
    began: Duration,
    made: u32,
    /// One was sent whose outcome is not known.
    uncertain: bool,
}

impl Attempts<'_> {
    /// Waits before the next attempt; what went wrong when there is to be none.
    async fn pause(&mut self, detail: String) -> Result<(), AppendError> {
        let patience = if self.server.is_connected() { APPEND_TIME } else { AWAY_TIME };
        if self.world.clock.monotonic().saturating_sub(self.began) > patience {
            return Err(if self.uncertain {
                AppendError::Unknown { detail }
            } else {
                AppendError::Away { detail }
            });
        }
        let most = (FIRST_PAUSE_MILLIS << self.made.min(10)).min(LONGEST_PAUSE_MILLIS);
        let millis = 1 + self.world.random.below(most);
        self.world.clock.sleep(Duration::from_millis(millis)).await;
        self.made += 1;
        Ok(())
    }

    /// What a refused message means for the commit.
    fn refused(&self, reason: String) -> AppendError {
        if self.uncertain {
            AppendError::Unknown { detail: reason }
        } else {
            AppendError::ReadOnly { reason }
        }
    }
}

impl JetStreamLog {
    fn attempts(&self) -> Attempts<'_> {
        let began = self.world.clock.monotonic();
        Attempts { world: &self.world, server: &*self.server, began, made: 0, uncertain: false }
    }

    fn subject(&self, (organization, aggregate): &Key) -> (Shard, String) {
        let partition = partition_of_organization(*organization, self.partitions);
        ((Stream::Decisions, partition), Subject::log(partition, *organization, aggregate).to_string())
    }

    fn stretch(&self, shard: Shard, from: u64, to: u64) -> SequenceRange {
        SequenceRange::of_shard(&self.server, &self.world, shard, from, to)
    }

    /// The head of an aggregate as the stream's leader has it now.
    async fn look_up(&self, key: &Key) -> Result<Arc<AggregateHead>, ServerError> {
        let (shard, subject) = self.subject(key);
        let newest = self.newest(key, shard, &subject).await?;
        let Some(newest) = newest else { return Ok(Arc::default()) };
        self.ends.saw(shard, newest.sequence);
        let mut head = self.heads.get(key).unwrap_or_default();
        if head.sequence < newest.sequence {
            let missing = self.stretch(shard, head.sequence + 1, newest.sequence).of(subject);
            let grown = Arc::make_mut(&mut head);
            for message in missing.whole().await? {
                let hash = ChainHash::of(&message.payload);
                grown.advance(commit_id(&message)?, message.sequence, hash);
            }
            self.heads.keep(key, Arc::clone(&head));
        }
        Ok(head)
    }

    /// An aggregate's newest commit. A leader that was parted from the others goes on answering for a while: one that knows less than
    /// was stored before is not believed.
    async fn newest(&self, key: &Key, shard: Shard, subject: &str) -> Result<Option<Stored>, ServerError> {
        let known = self.heads.get(key).map_or(0, |known| known.sequence);
        let newest = self.server.newest(&stream_name(shard), subject).await?;
        if newest.as_ref().map_or(0, |newest| newest.sequence) < known {
            return Err(ServerError("the stream leader has fewer records than were stored".to_owned()));
        }
        Ok(newest)
    }

    /// What is known of an aggregate without asking, as far as that can be enough to append.
    fn guess(&self, key: &Key, commit: &NewCommit) -> Option<AppendBase> {
        match self.heads.get(key) {
            Some(head) => Some(head.append_base(commit.id)),
            // Nothing has to be known of one that is to be new: if it is not, the server says so.
            None => (commit.expected == 0).then(AppendBase::default),
        }
    }

    async fn publish_commit(
        &self,
        shard: Shard,
        subject: &str,
        commit: &NewCommit,
        seen: &AppendBase,
    ) -> Result<Result<(Ack, ChainHash), PublishError>, AppendError> {
        let headers = headers(&commit.events, commit.traceparent.as_deref());
        let payload = commit.clone().encode(seen.hash)?;
        let hash = ChainHash::of(&payload);
        let message = Publish {
            stream: stream_name(shard),
            subject: subject.to_owned(),
            id: Some(message_id(commit.id, subject)),
            expected: Some(seen.sequence),
            copied: None,
            headers,
            payload: payload.into(),
        };
        Ok(self.server.publish(&message).await.map(|ack| (ack, hash)))
    }
}

/// For people who watch the subjects; a header takes printable letters only, and not many.
pub(super) fn headers(events: &[NewEvent], traceparent: Option<&str>) -> Vec<(&'static str, String)> {
    let plain = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let types: BTreeSet<&str> = events.iter().map(|event| event.body.event_type.as_str()).collect();
    let types: Vec<&str> = types.into_iter().filter(plain).take(MOST_TYPES).collect();
    let mut headers = vec![("Kasbah-Events", types.join(","))];
    let traceparent = traceparent.filter(plain);
    headers.extend(traceparent.map(|traceparent| ("traceparent", traceparent.to_owned())));
    headers
}

/// The id by which the server drops a commit that it got before. A stream holds many aggregates, a commit's id is one aggregate's.
pub(super) fn message_id(commit: CommitId, subject: &str) -> String {
    format!("{commit}.{:08x}", crc32fast::hash(subject.as_bytes()))
}

fn commit_id(message: &Stored) -> Result<CommitId, ServerError> {
    let id = message.id.as_deref().and_then(|id| id.split('.').next()?.parse().ok());
    id.ok_or_else(|| ServerError(format!("{} of {} names no commit", message.sequence, message.subject)))
}

#[async_trait]
impl EventLog for JetStreamLog {
    fn id(&self) -> uuid::Uuid {
        self.id
    }

    fn partitions(&self) -> u16 {
        self.partitions
    }

    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError> {
        commit.check()?;
        let key = (commit.organization, commit.aggregate.clone());
        let (shard, subject) = self.subject(&key);
        let mut attempts = self.attempts();
        let mut guess = self.guess(&key, &commit);
        loop {
            let (seen, guessed) = match guess.take() {
                Some(seen) => (seen, true),
                None => match self.look_up(&key).await {
                    Ok(head) => (head.append_base(commit.id), false),
                    Err(error) => {
                        attempts.pause(error.0).await?;
                        continue;
                    }
                },
            };
            if let Some((version, sequence)) = seen.earlier {
                let position = Position::of(shard.0, shard.1, sequence);
                return Ok(Appended { version, position, duplicate: true });
            }
            if seen.version != commit.expected {
                if guessed {
                    continue;
                }
                // What was sent on this version may be stored: a leader that knows less is none any more.
                if attempts.uncertain && seen.version < commit.expected {
                    attempts.pause("the stream leader has fewer records than before".to_owned()).await?;
                    continue;
                }
                let (aggregate, expected) = (commit.aggregate, commit.expected);
                return Err(AppendError::Conflict { aggregate, expected, actual: seen.version });
            }
            let detail = match self.publish_commit(shard, &subject, &commit, &seen).await? {
                Ok((Ack { sequence, duplicate: false }, hash)) => {
                    self.ends.saw(shard, sequence);
                    self.heads.advance(&key, seen.version, commit.id, sequence, hash);
                    let position = Position::of(shard.0, shard.1, sequence);
                    return Ok(Appended { version: seen.version + 1, position, duplicate: false });
                }
                // Which version it got stands in the aggregate's history.
                Ok(_) => {
                    attempts.uncertain = true;
                    "the commit is not in its aggregate's history yet".to_owned()
                }
                Err(PublishError::Refused(reason)) => return Err(attempts.refused(reason)),
                Err(PublishError::Unknown(detail)) => {
                    attempts.uncertain = true;
                    detail
                }
                Err(error @ PublishError::UnderWay) => {
                    attempts.uncertain = true;
                    error.to_string()
                }
                // Only where the guess was right is somebody else's message still on its way.
                Err(PublishError::Expectation) if guessed => continue,
                Err(error) => error.to_string(),
            };
            attempts.pause(detail).await?;
        }
    }

    async fn append_batch(&self, record: NewBatch) -> Result<Position, AppendError> {
        record.check()?;
        let shard = (record.stream, record.partition(self.partitions));
        let subject = subject_of_batch(&record, shard.1).ok_or_else(|| AppendError::Invalid {
            detail: format!("{:?} cannot name a writer: use letters, digits, - and _", record.writer),
        })?;
        let message = Publish {
            stream: stream_name(shard),
            subject,
            id: Some(self.world.new_uuid().to_string()),
            expected: None,
            copied: None,
            headers: Vec::new(),
            payload: record.data.into(),
        };
        let mut attempts = self.attempts();
        loop {
            let detail = match self.server.publish(&message).await {
                Ok(ack) => {
                    self.ends.saw(shard, ack.sequence);
                    return Ok(Position::of(shard.0, shard.1, ack.sequence));
                }
                Err(PublishError::Refused(reason)) => return Err(attempts.refused(reason)),
                Err(error) => {
                    attempts.uncertain |= matches!(error, PublishError::Unknown(_) | PublishError::UnderWay);
                    error.to_string()
                }
            };
            attempts.pause(detail).await?;
        }
    }

    async fn history(
        &self,
        organization: OrganizationId,
        aggregate: &AggregateRef,
    ) -> Result<Vec<Record>, ReadError> {
        let key = (organization, aggregate.clone());
        let (shard, subject) = self.subject(&key);
        let Some(newest) = self.newest(&key, shard, &subject).await? else { return Ok(Vec::new()) };
        let messages = self.stretch(shard, 1, newest.sequence).of(subject).whole().await?;
        let sieve = RecordFilter::new(ReadFilter::decisions(&[]));
        Ok(messages.into_iter().filter_map(|message| sieve.take(Parsed::of(message))).collect())
    }

    async fn find(
        &self,
        organization: OrganizationId,
        aggregate: &AggregateRef,
        commit: CommitId,
    ) -> Result<Option<Record>, ReadError> {
        let key = (organization, aggregate.clone());
        let head = self.look_up(&key).await?;
        let Some((_, sequence)) = head.commits.get(&commit) else { return Ok(None) };
        let (shard, _) = self.subject(&key);
        let found = self.stretch(shard, *sequence, *sequence).whole().await?;
        let sieve = RecordFilter::new(ReadFilter::decisions(&[]));
        Ok(found.into_iter().find_map(|message| sieve.take(Parsed::of(message))))
    }

    async fn read(&self, from: &Position, filter: &ReadFilter) -> Result<RecordReader, ReadError> {
        let end = self.ends.now(&*self.server, &filter.streams).await?;
        let stretches: Vec<SequenceRange> =
            end.0.iter().map(|(shard, end)| self.stretch(*shard, from.sequence(*shard) + 1, *end)).collect();
        let (mut to, records) = Feed::pair();
        let sieve = RecordFilter::new(filter.clone());
        let task = async move {
            for stretch in stretches {
                if give_all(stretch, &sieve, &mut to).await.is_err() {
                    return;
                }
            }
            drop(to.flush().await);
        };
        self.world.spawner.spawn("log-read", Box::pin(task));
        Ok(records)
    }

    async fn follow(&self, from: &Position, filter: &ReadFilter) -> Result<FollowReader, ReadError> {
        for stream in &filter.streams {
            self.tail.follow(*stream).await?;
        }
        let end = self.ends.now(&*self.server, &filter.streams).await?;
        let shards = filter.streams.iter();
        let shards = shards.flat_map(|stream| (0..self.partitions).map(|partition| (*stream, partition)));
        let (to, followed) = Feed::pair();
        let follower = Follower {
            next: shards.map(|shard| (shard, from.sequence(shard) + 1)).collect(),
            grown: self.tail.grown(),
            tail: Arc::clone(&self.tail),
            shared: Arc::clone(&self.shared),
            server: Arc::clone(&self.server),
            world: self.world.clone(),
            sieve: RecordFilter::new(filter.clone()),
            to,
        };
        let mut caught_up = from.clone();
        caught_up.merge(&end);
        self.world.spawner.spawn("log-follow", Box::pin(follower.run(end, caught_up)));
        Ok(followed)
    }

    async fn position(&self, streams: &[Stream]) -> Result<Position, ReadError> {
        Ok(self.ends.now(&*self.server, streams).await?)
    }

    async fn position_at(&self, streams: &[Stream], time: Timestamp) -> Result<Position, ReadError> {
        let shards = streams.iter();
        let shards = shards.flat_map(|stream| (0..self.partitions).map(|partition| (*stream, partition)));
        let searched = shards.map(|shard| async move {
            let search = Search { server: &self.server, world: &self.world, shard };
            Ok::<_, ServerError>((shard, search.sequence_at(time).await?))
        });
        let mut position = Position::start();
        for (shard, sequence) in futures::future::try_join_all(searched).await? {
            if sequence > 0 {
                position.advance(shard, sequence);
            }
        }
        Ok(position)
    }

    async fn retained(&self, stream: Stream) -> Result<Retained, ReadError> {
        let names: Vec<String> =
            (0..self.partitions).map(|partition| stream_name((stream, partition))).collect();
        let extents = names.iter().map(|name| self.server.extent(name));
        let mut kept = Retained::default();
        for (partition, extent) in (0..).zip(futures::future::try_join_all(extents).await?) {
            let shard = (stream, partition);
            kept.bytes += extent.bytes;
            if extent.first > 1 {
                kept.horizon.advance(shard, extent.first - 1);
            }
        }
        Ok(kept)
    }

    async fn forget(&self, until: &Position) -> Result<(), ForgetError> {
        for (shard, sequence) in until.0.iter().map(|(shard, sequence)| (*shard, *sequence)) {
            check_has_retention(shard.0)?;
            let stream = stream_name(shard);
            // The last one stays: who reads up to a stream's end waits for it.
            let extent = self.server.extent(&stream).await?;
            let until = sequence.min(extent.last.saturating_sub(1));
            let first = self.checkpoints.leave(shard, until).await? + 1;
            if first > extent.first.max(1) {
                self.server.purge(&stream, ">", first).await?;
            }
        }
        Ok(())
    }

    async fn checkpoints(&self, stream: Stream) -> Result<BTreeMap<u16, Checkpoint>, ReadError> {
        let known = self.checkpoints.of(stream).await?;
        let mut waited = Duration::ZERO;
        loop {
            let end = self.ends.now(&*self.server, &[stream]).await?;
            let lost =
                known.iter().any(|(partition, known)| end.sequence((stream, *partition)) < known.sequence);
            // A leader that was parted from the others knows less for a while; that nothing is lost must then show later.
            if !lost || waited >= STALE_TIME {
                return Ok(known);
            }
            self.world.clock.sleep(STALE_PAUSE).await;
            waited += STALE_PAUSE;
        }
    }
}

/// Gives what a stretch holds to a reader. What breaks off is taken up once more where it did, as long as it gets on.
async fn give_all(
    mut stretch: SequenceRange,
    sieve: &RecordFilter,
    to: &mut Feeder<Record>,
) -> Result<(), ReaderGone> {
    let mut broke_off_at = None;
    while stretch.from <= stretch.to {
        let mut pieces = stretch.clone().pieces();
        loop {
            let piece = match pieces.next().await {
                Some(Ok(piece)) => piece,
                Some(Err(error)) if broke_off_at == Some(stretch.from) => {
                    to.push(Err(error.into()), 0);
                    to.flush().await?;
                    return Err(ReaderGone);
                }
                Some(Err(_)) => {
                    broke_off_at = Some(stretch.from);
                    break;
                }
                None => return Ok(()),
            };
            for message in piece {
                stretch.from = message.sequence + 1;
                let Some(record) = sieve.take(Parsed::of(message)) else { continue };
                let bytes = record.bytes.len();
                if to.push(Ok(record), bytes) {
                    to.flush().await?;
                }
            }
        }
    }
    Ok(())
}
