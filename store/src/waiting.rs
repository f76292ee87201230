//! Who waits for a fold. Each is woken once, when what it waits for is folded: waking all of them after each fold would be most of
//! the work where thousands wait.

use std::collections::BTreeMap;

use events::Position;
use events::position::Shard;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

type Sequences = BTreeMap<u64, Vec<oneshot::Sender<()>>>;

/// How far a fold has come, and who waits for more of it.
pub(crate) struct Waiting {
    position: watch::Sender<Position>,
    shards: Mutex<BTreeMap<Shard, Sequences>>,
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Self { position: watch::Sender::new(Position::start()), shards: Mutex::default() }
    }

    pub(crate) fn position(&self) -> Position {
        self.position.borrow().clone()
    }

    /// Sees each change.
    pub(crate) fn changes(&self) -> watch::Receiver<Position> {
        self.position.subscribe()
    }

    /// The fold has come so far.
    pub(crate) fn reach(&self, position: Position) {
        let mut reached = Vec::new();
        // First of all: whoever looks from now on need not wait.
        self.position.send_replace(position.clone());
        let mut shards = self.shards.lock();
        shards.retain(|shard, sequences| {
            let behind = sequences.split_off(&position.sequence(*shard).saturating_add(1));
            reached.extend(std::mem::replace(sequences, behind).into_values().flatten());
            !sequences.is_empty()
        });
        drop(shards);
        for waiting in reached {
            // Who waited may have given up.
            let _woken = waiting.send(());
        }
    }

    /// Returns once the fold has come so far in each shard.
    pub(crate) async fn until(&self, wanted: &Position) {
        for (shard, sequence) in &wanted.0 {
            let Some(reached) = self.enter(*shard, *sequence) else { continue };
            // The sender is dropped with this only.
            let _reached = reached.await;
        }
    }

    fn enter(&self, shard: Shard, sequence: u64) -> Option<oneshot::Receiver<()>> {
        let mut shards = self.shards.lock();
        if self.position.borrow().sequence(shard) >= sequence {
            return None;
        }
        let (reached, waits) = oneshot::channel();
        shards.entry(shard).or_default().entry(sequence).or_default().push(reached);
        Some(waits)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use events::position::Stream;
    use futures::FutureExt as _;

    use super::*;

    fn at(sequences: [u64; 2]) -> Position {
        let shards = (0..).map(|partition| (Stream::Decisions, partition));
        Position(shards.zip(sequences).filter(|(_, sequence)| *sequence > 0).collect())
    }

    #[tokio::test]
    async fn each_is_woken_once_all_that_it_waits_for_is_folded() {
        let waiting = Waiting::new();
        let (one, both, start) = (at([2, 0]), at([3, 1]), at([0, 0]));
        let (mut one, mut both) = (pin!(waiting.until(&one)), pin!(waiting.until(&both)));
        waiting.until(&start).await;
        assert!(one.as_mut().now_or_never().is_none() && both.as_mut().now_or_never().is_none());
        waiting.reach(at([1, 1]));
        assert!(one.as_mut().now_or_never().is_none() && both.as_mut().now_or_never().is_none());
        waiting.reach(at([2, 1]));
        one.await;
        assert!(both.as_mut().now_or_never().is_none());
        waiting.reach(at([7, 1]));
        both.await;
        waiting.until(&at([7, 1])).await;
        assert!(waiting.shards.lock().is_empty(), "nobody is left");
    }

    #[tokio::test]
    async fn who_gave_up_is_forgotten_with_the_next_fold() {
        let waiting = Waiting::new();
        let wanted = at([2, 0]);
        assert!(waiting.until(&wanted).now_or_never().is_none());
        waiting.reach(at([2, 0]));
        assert!(waiting.shards.lock().is_empty());
    }
}
