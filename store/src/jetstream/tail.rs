//! The newest records of each shard, in memory, for those who follow.
//!
//! The servers send each message again once it is stored. A copy can be lost, so it is only ever a hint that there is
//! something new, and a short cut to it: whoever follows goes by sequences, and reads what is missing here from the stream.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use events::position::{Shard, Stream};
use parking_lot::Mutex;
use tokio::sync::watch;
use world::World;

use super::ends::ask_each;
use super::records::{STORED, shard_of, token};
use super::server::{Live, Server, ServerError, Stored};

/// Messages of a shard that are kept, and their bytes.
const MESSAGES: usize = 256;
const BYTES: usize = 1024 * 1024;
/// Messages that are taken together: whoever follows is woken once for them.
const AT_ONCE: usize = 64;
/// Between two looks at where the shards end, in case that a last message's copy was lost.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After the servers did not answer.
const PAUSE: Duration = Duration::from_millis(200);

/// The tails of all shards of the streams that somebody follows.
pub(super) struct Tail {
    server: Arc<dyn Server>,
    world: World,
    partitions: u16,
    shards: Mutex<Shards>,
    grown: watch::Sender<u64>,
}

#[derive(Default)]
struct Shards {
    followed: Vec<Stream>,
    rings: BTreeMap<Shard, Ring>,
}

/// The last messages of one shard, without a gap.
#[derive(Default)]
struct Ring {
    end: u64,
    messages: VecDeque<Stored>,
    bytes: usize,
}

impl Ring {
    fn push(&mut self, message: Stored) {
        if message.sequence <= self.end {
            return;
        }
        if message.sequence > self.end + 1 {
            self.messages.clear();
            self.bytes = 0;
        }
        self.end = message.sequence;
        self.bytes += message.payload.len();
        self.messages.push_back(message);
        while self.messages.len() > MESSAGES || self.bytes > BYTES {
            let Some(oldest) = self.messages.pop_front() else { return };
            self.bytes -= oldest.payload.len();
        }
    }

    fn ends_at(&mut self, end: u64) {
        if end > self.end {
            *self = Self { end, ..Self::default() };
        }
    }

    /// Everything from a sequence on; `None` when some of it is not here.
    fn from(&self, sequence: u64) -> Option<Vec<Stored>> {
        let first = self.messages.front()?.sequence;
        let skipped = usize::try_from(sequence.checked_sub(first)?).ok()?;
        Some(self.messages.iter().skip(skipped).cloned().collect())
    }
}

impl Tail {
    pub(super) fn new(server: Arc<dyn Server>, world: World, partitions: u16) -> Arc<Self> {
        Arc::new(Self { server, world, partitions, shards: Mutex::default(), grown: watch::Sender::new(0) })
    }

    /// Follows a stream from now on, for as long as the tail is held.
    pub(super) async fn follow(self: &Arc<Self>, stream: Stream) -> Result<(), ServerError> {
        if self.shards.lock().followed.contains(&stream) {
            return Ok(());
        }
        let mut live = self.server.stored(&format!("{STORED}.{}.>", token(stream))).await?;
        {
            let mut shards = self.shards.lock();
            if shards.followed.contains(&stream) {
                return Ok(());
            }
            shards.followed.push(stream);
        }
        let (tail, world) = (Arc::downgrade(self), self.world.clone());
        let task = async move {
            let mut looked = world.clock.monotonic();
            let mut heard = Vec::new();
            loop {
                let since = world.clock.monotonic().saturating_sub(looked);
                tokio::select! {
                    biased;
                    () = world.clock.sleep(LOOK_EVERY.saturating_sub(since)) => heard.push(Live::Missed),
                    count = live.recv_many(&mut heard, AT_ONCE) => if count == 0 { return },
                };
                let Some(tail) = Weak::upgrade(&tail) else { return };
                if tail.hear(heard.drain(..)) {
                    tail.look(stream).await;
                    looked = world.clock.monotonic();
                }
            }
        };
        self.world.spawner.spawn("log-tail", Box::pin(task));
        Ok(())
    }

    /// Changes when something is new.
    pub(super) fn grown(&self) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }

    /// Where a shard ends, as far as is known here.
    pub(super) fn end(&self, shard: Shard) -> u64 {
        self.shards.lock().rings.get(&shard).map_or(0, |ring| ring.end)
    }

    /// A shard's messages from a sequence on, if all of them are here.
    pub(super) fn from(&self, shard: Shard, sequence: u64) -> Option<Vec<Stored>> {
        self.shards.lock().rings.get(&shard)?.from(sequence)
    }

    /// Takes what was stored, and says so once; whether something was missed.
    fn hear(&self, heard: impl Iterator<Item = Live>) -> bool {
        let (mut grown, mut missed) = (false, false);
        {
            let mut shards = self.shards.lock();
            for heard in heard {
                match heard {
                    Live::Missed => missed = true,
                    Live::Stored(message) => {
                        let Some(shard) = shard_of(&message) else { continue };
                        shards.rings.entry(shard).or_default().push(message);
                        grown = true;
                    }
                }
            }
        }
        if grown {
            self.grown.send_modify(|count| *count += 1);
        }
        missed
    }

    /// Asks where the shards end.
    async fn look(&self, stream: Stream) {
        let (mut grown, mut failed) = (false, false);
        for (shard, end) in ask_each(&*self.server, stream, self.partitions).await {
            match end {
                Ok(end) => {
                    grown |= end > self.end(shard);
                    self.shards.lock().rings.entry(shard).or_default().ends_at(end);
                }
                Err(error) => {
                    tracing::debug!(%error, "the end of a shard is not known");
                    failed = true;
                }
            }
        }
        if grown {
            self.grown.send_modify(|count| *count += 1);
        }
        if failed {
            self.world.clock.sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use events::Timestamp;

    use super::*;

    fn message(sequence: u64, bytes: usize) -> Stored {
        Stored {
            subject: String::new(),
            sequence,
            recorded_at: Timestamp(0),
            id: None,
            payload: Bytes::from(vec![0; bytes]),
        }
    }

    fn sequences(ring: &Ring, from: u64) -> Option<Vec<u64>> {
        ring.from(from).map(|messages| messages.iter().map(|message| message.sequence).collect())
    }

    #[test]
    fn a_ring_holds_the_last_messages_without_a_gap() {
        let mut ring = Ring::default();
        for sequence in [1, 2, 2, 3] {
            ring.push(message(sequence, 10));
        }
        assert_eq!(sequences(&ring, 2), Some(vec![2, 3]));
        ring.push(message(7, 10));
        ring.push(message(8, 10));
        assert_eq!((sequences(&ring, 4), sequences(&ring, 7)), (None, Some(vec![7, 8])));
        ring.ends_at(8);
        assert_eq!(sequences(&ring, 8), Some(vec![8]));
        ring.ends_at(9);
        assert_eq!((ring.end, sequences(&ring, 8)), (9, None));
    }

    #[test]
    fn a_ring_is_bounded_in_messages_and_bytes() {
        let mut ring = Ring::default();
        for sequence in 1..=1000 {
            ring.push(message(sequence, 10));
        }
        assert_eq!((ring.messages.len(), ring.bytes), (MESSAGES, MESSAGES * 10));
        for sequence in 1001..=1010 {
            ring.push(message(sequence, BYTES / 3));
        }
        assert!(ring.bytes <= BYTES && ring.end == 1010);
    }
}
