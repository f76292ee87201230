//! What was observed and is not durable yet.

use std::collections::VecDeque;

use events::Timestamp;
use events::observation::{Observation, Observed};
use parking_lot::Mutex;
use tokio::sync::watch;
use tunnel::wire::{Acknowledged, Batch};

const MOST: usize = 100;

#[derive(Default)]
struct Kept {
    epoch: u64,
    first: u64,
    observations: VecDeque<Observation>,
}

pub(super) struct Outbox {
    kept: Mutex<Kept>,
    grown: watch::Sender<u64>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { kept: Mutex::default(), grown: watch::Sender::new(0) }
    }
}

impl Outbox {
    /// A new epoch begins; what was not durable of the one before is gone.
    pub(super) fn begin(&self, epoch: u64) {
        *self.kept.lock() = Kept { epoch, first: 1, observations: VecDeque::new() };
    }

    pub(super) fn tell(&self, at: Timestamp, what: Observed) {
        self.kept.lock().observations.push_back(Observation { at, what });
        self.grown.send_modify(|count| *count += 1);
    }

    pub(super) fn grown(&self) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }

    /// The next batch behind what was sent.
    pub(super) fn behind(&self, sent: Acknowledged) -> Option<Batch> {
        let kept = self.kept.lock();
        let next = if sent.epoch == kept.epoch { sent.sequence + 1 } else { 1 };
        let first = next.max(kept.first);
        let skipped = usize::try_from(first - kept.first).ok()?;
        let observations: Vec<Observation> =
            kept.observations.iter().skip(skipped).take(MOST).cloned().collect();
        (!observations.is_empty()).then_some(Batch { epoch: kept.epoch, first, observations })
    }

    pub(super) fn acknowledged(&self, durable: Acknowledged) {
        let mut kept = self.kept.lock();
        while durable.epoch == kept.epoch && kept.first <= durable.sequence && !kept.observations.is_empty() {
            kept.observations.pop_front();
            kept.first += 1;
        }
    }
}
