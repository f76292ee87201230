//! Reading a long stretch once for all who follow: services that start together in one process want the same messages, and getting
//! them from a server costs more than folding them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use events::position::Shard;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use world::World;

use super::pages::SequenceRange;
use super::records::Parsed;
use super::server::Server;
use crate::log::ReadFilter;

/// How long others are waited for who begin at about the same time.
const GATHERING: Duration = Duration::from_millis(50);
/// How long the others wait for one in all; then that one reads on by itself.
const PATIENCE: Duration = Duration::from_secs(1);
/// Who begins further than so many messages behind the first one reads alone: that is sooner than to wait for what lies between.
const NEAR: u64 = 16 * 1024;
/// Pieces that one was given and has not taken.
const WAITING: usize = 4;

/// Messages that were read together, in order, for several; what more than one wants is decoded once for all.
type SharedPiece = Arc<Vec<Parsed>>;

/// Who is about to read a stretch.
pub(super) struct SharedReading {
    server: Arc<dyn Server>,
    world: World,
    gathering: Mutex<HashMap<Shard, Vec<Member>>>,
}

struct Member {
    from: u64,
    to: u64,
    filter: ReadFilter,
    pieces: mpsc::Sender<SharedPiece>,
    /// How long the others still wait for it.
    patience: Duration,
}

impl SharedReading {
    pub(super) fn new(server: Arc<dyn Server>, world: World) -> Arc<Self> {
        Arc::new(Self { server, world, gathering: Mutex::default() })
    }

    /// The messages of a shard from a sequence to another that is known to be stored, with some before and behind them that others
    /// want. It may end before: who is too slow, or finds that it broke off, reads on by itself.
    pub(super) fn join(
        self: &Arc<Self>,
        shard: Shard,
        from: u64,
        to: u64,
        filter: &ReadFilter,
    ) -> mpsc::Receiver<SharedPiece> {
        let (pieces, taken) = mpsc::channel(WAITING);
        let mut gathering = self.gathering.lock();
        let members = gathering.entry(shard).or_default();
        members.push(Member { from, to, filter: filter.clone(), pieces, patience: PATIENCE });
        if members.len() == 1 {
            let reading = Arc::clone(self);
            self.world
                .spawner
                .spawn("log-shared-reading", Box::pin(async move { reading.read(shard).await }));
        }
        taken
    }

    async fn read(&self, shard: Shard) {
        self.world.clock.sleep(GATHERING).await;
        let mut members = self.gathering.lock().remove(&shard).unwrap_or_default();
        let from = members.iter().map(|member| member.from).min().unwrap_or(1);
        members.retain(|member| member.from - from < NEAR);
        tracing::debug!(
            stream = shard.0.as_str(),
            partition = shard.1,
            from,
            readers = members.len(),
            "reading for several"
        );
        let to = members.iter().map(|member| member.to).max().unwrap_or(0);
        let mut pieces = SequenceRange::of_shard(&self.server, &self.world, shard, from, to).pieces();
        while let Some(Ok(piece)) = pieces.next().await {
            let piece: Vec<Parsed> = piece.into_iter().map(Parsed::of).collect();
            for message in &piece {
                let mut wanting = members.iter().filter(|member| message.is_wanted(&member.filter));
                if wanting.nth(1).is_some() {
                    message.decode();
                }
            }
            let piece = Arc::new(piece);
            let given = members.into_iter().map(|member| member.give(Arc::clone(&piece), &self.world));
            members = join_all(given).await.into_iter().flatten().collect();
            if members.is_empty() {
                return;
            }
        }
    }
}

impl Member {
    /// Gives a piece; nothing when whoever should take it has gone or is too slow.
    async fn give(mut self, piece: SharedPiece, world: &World) -> Option<Self> {
        let began = world.clock.monotonic();
        let is_given = tokio::select! {
            biased;
            given = self.pieces.send(piece) => given.is_ok(),
            () = world.clock.sleep(self.patience) => false,
        };
        self.patience = self.patience.saturating_sub(world.clock.monotonic().saturating_sub(began));
        if !is_given {
            tracing::debug!(from = self.from, to = self.to, "gone, or too slow to be read for with others");
        }
        is_given.then_some(self)
    }
}
