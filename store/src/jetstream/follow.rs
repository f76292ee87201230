//! Following: what is there, then what comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use events::Position;
use events::position::Shard;
use tokio::sync::watch;
use world::World;

use super::pages::SequenceRange;
use super::records::{Parsed, RecordFilter};
use super::server::{Server, ServerError, Stored};
use super::shared_reading::SharedReading;
use super::tail::Tail;
use crate::feed::{Feeder, ReaderGone};
use crate::log::Followed;

/// From so many messages on it is worth while to wait for others who want the same.
const WORTH_SHARING: u64 = 4 * 1024;
/// After the servers did not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// One follow.
pub(super) struct Follower {
    /// The next sequence of each shard.
    pub(super) next: BTreeMap<Shard, u64>,
    pub(super) grown: watch::Receiver<u64>,
    pub(super) tail: Arc<Tail>,
    pub(super) shared: Arc<SharedReading>,
    pub(super) server: Arc<dyn Server>,
    pub(super) world: World,
    pub(super) sieve: RecordFilter,
    pub(super) to: Feeder<Followed>,
}

impl Follower {
    /// Catches up to `end`, says so, and goes on until the reader has gone.
    pub(super) async fn run(mut self, end: Position, caught_up: Position) {
        // The reader's going is the only way to end.
        let _gone = self.go(end, caught_up).await;
    }

    async fn go(&mut self, end: Position, caught_up: Position) -> Result<(), ReaderGone> {
        for (shard, end) in end.0 {
            self.read_with_others(shard, end).await?;
            self.read(shard, end).await?;
        }
        self.to.push(Ok(Followed::CaughtUp(caught_up)), 0);
        self.to.flush().await?;
        loop {
            self.grown.mark_unchanged();
            let mut passed = Position::start();
            let shards: Vec<Shard> = self.next.keys().copied().collect();
            for shard in shards {
                self.take(shard, &mut passed).await?;
            }
            if passed != Position::start() {
                self.to.push(Ok(Followed::Passed(passed)), 0);
            }
            self.to.flush().await?;
            tokio::select! {
                biased;
                // An error means that the log is closed; what is in it was read.
                changed = self.grown.changed() => if changed.is_err() { return Ok(()) },
                () = self.to.gone() => return Err(ReaderGone),
            }
        }
    }

    /// Takes what a shard has more than was taken.
    async fn take(&mut self, shard: Shard, passed: &mut Position) -> Result<(), ReaderGone> {
        loop {
            let next = self.next.get(&shard).copied().unwrap_or(1);
            let end = self.tail.end(shard);
            if next > end {
                return Ok(());
            }
            let last_is_wanted = match self.tail.from(shard, next) {
                Some(messages) => self.give(shard, parsed(messages)).await?,
                None => self.read(shard, end).await?,
            };
            if !last_is_wanted {
                passed.advance(shard, self.next.get(&shard).map_or(0, |next| next - 1));
            }
        }
    }

    /// Reads a shard up to its end, however long the servers are away; says whether the last one was wanted.
    async fn read(&mut self, shard: Shard, end: u64) -> Result<bool, ReaderGone> {
        let mut last_is_wanted = true;
        loop {
            let next = self.next.get(&shard).copied().unwrap_or(1);
            if next > end {
                return Ok(last_is_wanted);
            }
            let mut pieces = SequenceRange::of_shard(&self.server, &self.world, shard, next, end).pieces();
            loop {
                match pieces.next().await {
                    Some(Ok(messages)) => last_is_wanted = self.give(shard, parsed(messages)).await?,
                    Some(Err(error)) => break self.wait(&error).await?,
                    // What has left the stream by now is not missing.
                    None => {
                        self.next.insert(shard, end + 1);
                        break;
                    }
                }
            }
        }
    }

    /// Reads a long stretch together with others who begin now, as far as that goes.
    async fn read_with_others(&mut self, shard: Shard, end: u64) -> Result<(), ReaderGone> {
        let mut next = self.next.get(&shard).copied().unwrap_or(1);
        if (end + 1).saturating_sub(next) < WORTH_SHARING {
            return Ok(());
        }
        let mut pieces = self.shared.join(shard, next, end, self.sieve.filter());
        while next <= end
            && let Some(piece) = pieces.recv().await
        {
            let wanted = piece.iter().filter(|message| (next..=end).contains(&message.sequence));
            let wanted = wanted.cloned().collect();
            self.give(shard, wanted).await?;
            next = self.next.get(&shard).copied().unwrap_or(1);
        }
        Ok(())
    }

    async fn wait(&mut self, error: &ServerError) -> Result<(), ReaderGone> {
        tracing::debug!(%error, "the log cannot be followed now");
        self.to.flush().await?;
        tokio::select! {
            biased;
            () = self.world.clock.sleep(PAUSE) => Ok(()),
            () = self.to.gone() => Err(ReaderGone),
        }
    }

    /// Gives messages to the reader; says whether the last one was wanted.
    async fn give(&mut self, shard: Shard, messages: Vec<Parsed>) -> Result<bool, ReaderGone> {
        let mut last_is_wanted = true;
        for message in messages {
            self.next.insert(shard, message.sequence + 1);
            match self.sieve.take(message) {
                Some(record) => {
                    last_is_wanted = true;
                    let bytes = record.bytes.len();
                    if self.to.push(Ok(Followed::Record(record)), bytes) {
                        self.to.flush().await?;
                    }
                }
                None => last_is_wanted = false,
            }
        }
        Ok(last_is_wanted)
    }
}

fn parsed(messages: Vec<Stored>) -> Vec<Parsed> {
    messages.into_iter().map(Parsed::of).collect()
}
