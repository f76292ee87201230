//! Checkpoints of partitions in a stream of their own: one message a partition, its newest.
//!
//! Whoever makes the log also reads what is new in each partition from time to time, and counts it in. Many may do so: one who comes
//! second with the same is refused by the expectation of the message before. What a checkpoint counts was read from the stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use events::ChainHash;
use events::position::{Shard, Stream};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use world::World;

use super::pages::SequenceRange;
use super::records::{stream_name, token};
use super::server::{Page, Publish, PublishError, Server, ServerError};
use crate::checkpoint::{Checkpoint, Left};

/// The stream's name.
pub(super) const STREAM: &str = "kasbah-checkpoints";
/// All subjects of checkpoints.
pub(super) const SUBJECTS: &str = "kasbah.checkpoint.>";

/// Between two rounds; up to half as long again, so that replicas do not all read the same.
const EVERY: Duration = Duration::from_secs(30);
/// Records that are read at once.
const MESSAGES: usize = 512;

/// As it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct StoredCheckpoint {
    checkpoint: Checkpoint,
    /// Hash of the last record that is counted: whoever counts on sees whether it is still there.
    last: ChainHash,
}

/// A partition's newest checkpoint, and its message's sequence.
#[derive(Debug, Clone, Copy, Default)]
struct Newest {
    sequence: u64,
    kept: Option<StoredCheckpoint>,
}

/// The checkpoints of one log.
pub(super) struct Checkpoints {
    server: Arc<dyn Server>,
    world: World,
    partitions: u16,
    /// What was read or written last; others may have written since.
    known: Mutex<BTreeMap<Shard, Newest>>,
}

fn subject((stream, partition): Shard) -> String {
    format!("kasbah.checkpoint.{}.{partition}", token(stream))
}

impl Checkpoints {
    pub(super) fn new(server: Arc<dyn Server>, world: World, partitions: u16) -> Arc<Self> {
        Arc::new(Self { server, world, partitions, known: Mutex::default() })
    }

    /// Those of a stream.
    pub(super) async fn of(&self, stream: Stream) -> Result<BTreeMap<u16, Checkpoint>, ServerError> {
        let asked = (0..self.partitions).map(|partition| async move {
            let newest = self.newest((stream, partition)).await?;
            Ok::<_, ServerError>(newest.kept.map(|kept| (partition, kept.checkpoint)))
        });
        let newest = futures::future::try_join_all(asked).await?;
        Ok(newest.into_iter().flatten().collect())
    }

    /// Writes checkpoints from time to time, for as long as the log is held.
    pub(super) fn keep_up(self: &Arc<Self>) {
        let (checkpoints, world) = (Arc::downgrade(self), self.world.clone());
        let task = async move {
            loop {
                let most = u64::try_from(EVERY.as_millis() / 2).unwrap_or(u64::MAX);
                let more = Duration::from_millis(world.random.below(most));
                world.clock.sleep(EVERY + more).await;
                let Some(checkpoints) = Weak::upgrade(&checkpoints) else { return };
                if let Err(error) = checkpoints.round().await {
                    tracing::debug!(%error, "checkpoints are written later");
                }
            }
        };
        self.world.spawner.spawn("log-checkpoints", Box::pin(task));
    }

    /// Brings the checkpoint of each partition up to its end.
    pub(super) async fn round(&self) -> Result<(), ServerError> {
        for stream in Stream::ALL {
            for partition in 0..self.partitions {
                self.advance((*stream, partition)).await?;
            }
        }
        Ok(())
    }

    async fn advance(&self, shard: Shard) -> Result<(), ServerError> {
        let end = self.server.end(&stream_name(shard)).await?;
        let known = self.known.lock().get(&shard).copied();
        if end == known.and_then(|known| known.kept).map_or(0, |kept| kept.checkpoint.sequence) {
            return Ok(());
        }
        loop {
            let newest = self.newest(shard).await?;
            self.known.lock().insert(shard, newest);
            let before = newest.kept.map_or(0, |kept| kept.checkpoint.sequence);
            if before > end {
                // Perhaps a leader that was parted from the others; verifying finds out.
                tracing::warn!(
                    stream = stream_name(shard),
                    end,
                    counted = before,
                    "partition ends before its checkpoint"
                );
                return Ok(());
            }
            let Some(counted) = self.count(shard, newest.kept, end).await? else { return Ok(()) };
            let payload = events::encode(&counted).map_err(|error| ServerError(error.to_string()))?;
            let message = Publish::plain(STREAM, subject(shard), Some(newest.sequence), payload.into());
            match self.server.publish(&message).await {
                Ok(ack) => {
                    let newest = Newest { sequence: ack.sequence, kept: Some(counted) };
                    self.known.lock().insert(shard, newest);
                }
                // Another one counted as well.
                Err(PublishError::Expectation) => {}
                Err(error) => return Err(ServerError(error.to_string())),
            }
            if counted.checkpoint.sequence >= end {
                return Ok(());
            }
        }
    }

    /// Counts what is to leave, as far as it is counted at all; returns up to where it may leave by now.
    pub(super) async fn leave(&self, shard: Shard, until: u64) -> Result<u64, ServerError> {
        self.advance(shard).await?;
        loop {
            let newest = self.newest(shard).await?;
            let Some(mut kept) = newest.kept else { return Ok(0) };
            let until = until.min(kept.checkpoint.sequence);
            if until <= kept.checkpoint.left.sequence {
                return Ok(kept.checkpoint.left.sequence);
            }
            kept.checkpoint.left = self.count_left(shard, kept.checkpoint.left, until).await?;
            let payload = events::encode(&kept).map_err(|error| ServerError(error.to_string()))?;
            let message = Publish::plain(STREAM, subject(shard), Some(newest.sequence), payload.into());
            match self.server.publish(&message).await {
                Ok(_) => return Ok(kept.checkpoint.left.sequence),
                // Another one counted meanwhile.
                Err(PublishError::Expectation) => {}
                Err(error) => return Err(ServerError(error.to_string())),
            }
        }
    }

    async fn count_left(&self, shard: Shard, mut left: Left, until: u64) -> Result<Left, ServerError> {
        let stretch = SequenceRange::of_shard(&self.server, &self.world, shard, left.sequence + 1, until);
        let mut pieces = stretch.pieces();
        while let Some(messages) = pieces.next().await {
            for message in messages? {
                left.tally.add(ChainHash::of(&message.payload));
                left.sequence = message.sequence;
            }
        }
        Ok(left)
    }

    /// Counts on behind a checkpoint, some way up to the end; `None` when there is nothing to count, or what was counted is not there.
    async fn count(
        &self,
        shard: Shard,
        from: Option<StoredCheckpoint>,
        end: u64,
    ) -> Result<Option<StoredCheckpoint>, ServerError> {
        let begin = from.map_or(0, |kept| kept.checkpoint.sequence);
        let stream = stream_name(shard);
        let page = Page { stream: stream.clone(), from: begin.max(1), most: MESSAGES, subject: None };
        let mut messages = self.server.page(&page).await?.into_iter();
        let mut counted = from;
        if let Some(kept) = from {
            // A replica that lags has nothing there yet.
            let Some(last) = messages.next() else { return Ok(None) };
            if (last.sequence, ChainHash::of(&last.payload)) != (begin, kept.last) {
                tracing::error!(
                    stream,
                    sequence = begin,
                    "the record that a checkpoint counts last is not there"
                );
                return Ok(None);
            }
        }
        for message in messages.take_while(|message| message.sequence <= end) {
            let last = ChainHash::of(&message.payload);
            let before = counted.map(|kept| kept.checkpoint);
            let mut tally = before.map(|before| before.tally).unwrap_or_default();
            tally.add(last);
            let left = before.map(|before| before.left).unwrap_or_default();
            counted = Some(StoredCheckpoint {
                checkpoint: Checkpoint { sequence: message.sequence, tally, left },
                last,
            });
        }
        Ok(counted.filter(|_| counted != from))
    }

    async fn newest(&self, shard: Shard) -> Result<Newest, ServerError> {
        let Some(message) = self.server.newest(STREAM, &subject(shard)).await? else {
            return Ok(Newest::default());
        };
        let unreadable =
            |error| ServerError(format!("the checkpoint of {} is not readable: {error}", stream_name(shard)));
        let kept = events::decode(&message.payload).map_err(unreadable)?;
        Ok(Newest { sequence: message.sequence, kept: Some(kept) })
    }
}
