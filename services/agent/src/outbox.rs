//! What the agent has to tell: kept in order until the server says that it is durable, bounded, and never with an unmarked gap.

use std::collections::VecDeque;
use std::sync::Arc;

use chassis::metrics::Counter;
use events::Timestamp;
use events::observation::{Observation, Observed};
use parking_lot::Mutex;
use tokio::sync::watch;
use tunnel::wire::{Acknowledged, Batch};
use world::World;

/// Observations in one batch.
const BATCH: usize = 100;
/// Approximate bytes in one batch: well below what a frame may have.
const BATCH_BYTES: usize = 192 * 1024;
/// Observations that wait for the server.
const WAITING: usize = 20_000;
/// Observations that were sent and are not durable yet; above this, sending waits.
const UNACKNOWLEDGED: usize = 10_000;

/// What is reported in order, and kept until it is durable.
pub trait ObservationQueue: Send + Sync {
    /// Wakes at each change.
    fn subscribe(&self) -> watch::Receiver<()>;

    /// Durable up to here: forgets it. Another epoch's cursor changes nothing.
    fn acknowledge(&self, cursor: Acknowledged);

    /// How many wait to be sent for the first time.
    fn unsent(&self) -> usize;

    /// The next batch for a response that gave everything up to `after`; `None`: nothing now.
    fn next(&self, after: Acknowledged) -> Option<Batch>;
}

/// The queue. One epoch at a time.
pub struct Outbox {
    world: World,
    state: Mutex<State>,
    wake: watch::Sender<()>,
    dropped: Counter,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    /// Sequence of the first in `sent`; everything before it is durable.
    first: u64,
    sent: VecDeque<Arc<Observation>>,
    waiting: VecDeque<Arc<Observation>>,
    dropped: u64,
    restate: bool,
    /// The first parts of a statement of the inventory are sent, and its last one waits.
    is_stating: bool,
}

impl Outbox {
    /// Empty, in epoch 0, in which nothing is reported; `dropped` counts what is left out.
    #[must_use]
    pub fn new(world: World, dropped: Counter) -> Self {
        Self { world, state: Mutex::default(), wake: watch::Sender::new(()), dropped }
    }

    /// Starts an epoch: what the former one had not told is for the statement of this one to show.
    pub fn begin(&self, epoch: u64) {
        *self.state.lock() = State { epoch, first: 1, ..State::default() };
        self.wake.send_replace(());
    }

    /// The epoch, 0 when this process never applied.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    /// Tells one thing.
    pub fn report(&self, what: Observed) {
        self.report_all([what]);
    }

    /// Tells several things, all of which are kept or left out.
    pub fn report_all(&self, all: impl IntoIterator<Item = Observed>) {
        let at = Timestamp(self.world.clock.now_millis());
        let observations = all.into_iter().map(|what| Arc::new(Observation { at, what }));
        {
            let mut state = self.state.lock();
            if state.epoch == 0 {
                return;
            }
            state.waiting.extend(observations);
            self.dropped.inc_by(state.shed());
        }
        self.wake.send_replace(());
    }

    /// Whether inventory was left out, so that it has to be stated anew; a yes clears it. Not before the server has taken nearly
    /// all of the rest: while it is away, a statement would only be left out as well.
    #[must_use]
    pub fn take_restate(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting.len() < BATCH && std::mem::take(&mut state.restate)
    }

    /// How many are not durable.
    #[must_use]
    pub fn pending(&self) -> usize {
        let state = self.state.lock();
        state.sent.len() + state.waiting.len()
    }

    /// Durable up to here: forgets it. Another epoch's cursor changes nothing.
    pub fn acknowledge(&self, cursor: Acknowledged) {
        self.state.lock().acknowledge(cursor);
        self.wake.send_replace(());
    }

    /// The next batch for a response that gave everything up to `after`; `None`: nothing now.
    #[must_use]
    pub fn next(&self, after: Acknowledged) -> Option<Batch> {
        self.state.lock().next(after)
    }
}

impl ObservationQueue for Outbox {
    fn subscribe(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    fn acknowledge(&self, cursor: Acknowledged) {
        Self::acknowledge(self, cursor);
    }

    fn unsent(&self) -> usize {
        self.state.lock().waiting.len()
    }

    fn next(&self, after: Acknowledged) -> Option<Batch> {
        Self::next(self, after)
    }
}

impl State {
    fn acknowledge(&mut self, cursor: Acknowledged) {
        if cursor.epoch != self.epoch {
            return;
        }
        while self.first <= cursor.sequence && self.sent.pop_front().is_some() {
            self.first += 1;
        }
    }

    fn next(&mut self, after: Acknowledged) -> Option<Batch> {
        if self.epoch == 0 {
            return None;
        }
        let from = if after.epoch == self.epoch {
            after.sequence.saturating_add(1).max(self.first)
        } else {
            self.first
        };
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        while self.sent.len() < skip.saturating_add(BATCH) && self.sent.len() < UNACKNOWLEDGED {
            let Some(next) = self.waiting.pop_front() else { break };
            if let Observed::InventoryStated { last, .. } = &next.what {
                self.is_stating = !last;
            }
            self.sent.push_back(next);
        }
        let mut observations = Vec::new();
        let mut bytes = 0;
        for observation in self.sent.iter().skip(skip).take(BATCH) {
            bytes += weight(&observation.what);
            if bytes > BATCH_BYTES && !observations.is_empty() {
                break;
            }
            observations.push(Observation::clone(observation));
        }
        (!observations.is_empty()).then_some(Batch { epoch: self.epoch, first: from, observations })
    }

    /// Over the budget the newest wins: first what only informs goes, then what a statement of the inventory can replace. Either way all is
    /// stated anew, and what is reported of it then takes the place of what went.
    fn shed(&mut self) -> u64 {
        if self.waiting.len() <= WAITING {
            return 0;
        }
        let before = self.waiting.len();
        self.waiting.retain(|observation| !is_information(&observation.what));
        if self.waiting.len() > WAITING / 2 {
            // Half a statement would count as the whole of what is owned: what has begun is ended.
            let mut is_stating = self.is_stating;
            self.waiting.retain(|observation| match &observation.what {
                Observed::InventoryStated { last, .. } if is_stating => {
                    is_stating = !last;
                    true
                }
                what => !is_inventory(what),
            });
        }
        self.restate = true;
        self.waiting.retain(|observation| !matches!(observation.what, Observed::Gap { .. }));
        let dropped = u64::try_from(before - self.waiting.len()).unwrap_or(u64::MAX);
        self.dropped += dropped;
        let gap = Observation {
            at: self.waiting.front().map_or(Timestamp(0), |observation| observation.at),
            what: Observed::Gap { dropped: self.dropped },
        };
        self.waiting.push_front(Arc::new(gap));
        self.dropped = 0;
        dropped
    }
}

const fn is_information(what: &Observed) -> bool {
    matches!(
        what,
        Observed::HealthChanged { .. }
            | Observed::DriftSeen { .. }
            | Observed::DriftCorrected { .. }
            | Observed::SyncWaiting { .. }
            | Observed::ObjectFailed { .. }
            | Observed::CorrectionFailed { .. }
    )
}

const fn is_inventory(what: &Observed) -> bool {
    matches!(
        what,
        Observed::ObjectApplied { .. } | Observed::ObjectPruned { .. } | Observed::InventoryStated { .. }
    )
}

/// About how many bytes it takes on the wire.
fn weight(what: &Observed) -> usize {
    match what {
        Observed::InventoryStated { objects, .. } => 100 + objects.len() * 400,
        Observed::SyncFinished { failures, .. } => {
            200 + failures.iter().map(|failure| 300 + failure.message.len()).sum::<usize>()
        }
        Observed::ObjectFailed { failure, .. } | Observed::CorrectionFailed { failure, .. } => {
            300 + failure.message.len()
        }
        Observed::SourceBlocked { reason, missing, .. } => 200 + reason.len() + missing.len() * 200,
        Observed::SyncWaiting { reason, .. } | Observed::ApiServerLost { reason } => 200 + reason.len(),
        Observed::WatchesBroken { broken, .. } => {
            200 + broken.iter().map(|watch| 400 + watch.reason.len()).sum::<usize>()
        }
        Observed::DriftSeen { fields, .. } | Observed::ExtraSeen { fields, .. } => 300 + fields.len() * 150,
        Observed::ObjectApplied { taken_over, .. } => 400 + taken_over.len() * 150,
        _ => 300,
    }
}

#[cfg(test)]
mod tests {
    use events::SourceId;

    use super::*;

    fn outbox() -> Outbox {
        let outbox = Outbox::new(World::real(), Counter::default());
        outbox.begin(7);
        outbox
    }

    fn blocked(reason: usize) -> Observed {
        let source = SourceId(uuid::Uuid::nil());
        Observed::SourceBlocked { source, reason: reason.to_string(), missing: Vec::new() }
    }

    fn cursor(epoch: u64, sequence: u64) -> Acknowledged {
        Acknowledged { epoch, sequence }
    }

    #[tokio::test]
    async fn nothing_is_lost_or_doubled_over_a_reconnect() {
        let outbox = outbox();
        (0..250).for_each(|reason| outbox.report(blocked(reason)));
        let first = outbox.next(cursor(0, 0)).expect("a batch");
        assert_eq!((first.epoch, first.first, first.observations.len(), first.last()), (7, 1, 100, 100));
        let second = outbox.next(cursor(7, first.last())).expect("a batch");
        assert_eq!((second.first, second.last()), (101, 200));
        // The link broke; the server made 150 durable.
        outbox.acknowledge(cursor(7, 150));
        let again = outbox.next(cursor(7, 150)).expect("a batch");
        assert_eq!((again.first, again.last()), (151, 250));
        assert_eq!(again.observations[0].what, blocked(150));
        outbox.acknowledge(cursor(7, 250));
        assert_eq!(outbox.pending(), 0);
        assert_eq!(outbox.next(cursor(7, 250)), None);
    }

    #[tokio::test]
    async fn an_older_cursor_starts_at_what_is_not_durable() {
        let outbox = outbox();
        (0..3).for_each(|reason| outbox.report(blocked(reason)));
        assert_eq!(outbox.next(cursor(6, 99)).map(|batch| batch.first), Some(1));
        outbox.acknowledge(cursor(7, 2));
        outbox.acknowledge(cursor(6, 3));
        assert_eq!(
            outbox.next(cursor(0, 0)).map(|batch| (batch.first, batch.observations.len())),
            Some((3, 1))
        );
    }

    #[tokio::test]
    async fn a_new_epoch_counts_anew_and_epoch_0_tells_nothing() {
        let outbox = Outbox::new(World::real(), Counter::default());
        outbox.report(blocked(1));
        assert_eq!((outbox.pending(), outbox.next(cursor(0, 0))), (0, None));
        outbox.begin(7);
        outbox.report(blocked(1));
        outbox.begin(8);
        outbox.report(blocked(2));
        let batch = outbox.next(cursor(7, 1)).expect("a batch");
        assert_eq!((batch.epoch, batch.first, batch.observations.len()), (8, 1, 1));
    }

    #[tokio::test]
    async fn over_the_budget_a_gap_is_told_and_what_matters_stays() {
        let outbox = outbox();
        outbox.report(blocked(0));
        let identity = events::ObjectIdentity {
            group: String::new(),
            version: "v1".into(),
            kind: "X".into(),
            namespace: String::new(),
            name: "x".into(),
        };
        for _ in 0..=WAITING {
            outbox.report(Observed::DriftCorrected {
                source: SourceId(uuid::Uuid::nil()),
                identity: identity.clone(),
            });
        }
        let batch = outbox.next(cursor(0, 0)).expect("a batch");
        assert!(matches!(batch.observations[0].what, Observed::Gap { dropped } if dropped >= WAITING as u64));
        assert_eq!(batch.observations[1].what, blocked(0));
        assert!(outbox.take_restate(), "what was left out is told anew");
    }

    #[tokio::test]
    async fn a_statement_is_told_whole_or_not_at_all() {
        let part = |last| Observed::InventoryStated { objects: Vec::new(), last, unlisted: Vec::new() };
        let statement = |parts: usize| (1..=parts).map(move |place| part(place == parts));
        let stated = |outbox: &Outbox| {
            let mut seen = cursor(0, 0);
            let mut parts = Vec::new();
            while let Some(batch) = outbox.next(seen) {
                seen = cursor(batch.epoch, batch.last());
                parts.extend(batch.observations.iter().filter_map(|one| match one.what {
                    Observed::InventoryStated { last, .. } => Some(last),
                    _ => None,
                }));
                outbox.acknowledge(seen);
            }
            parts
        };
        let outbox = outbox();
        outbox.report_all(statement(WAITING + 1));
        assert_eq!(stated(&outbox), [false; 0]);
        // A part is on its way when the server falls behind.
        outbox.report_all(statement(BATCH + 5));
        assert_eq!(
            outbox.next(cursor(7, 0)).map(|batch| batch.observations.len()).unwrap_or_default(),
            BATCH
        );
        outbox.report_all(statement(5));
        (0..=WAITING).for_each(|reason| outbox.report(blocked(reason)));
        let parts = stated(&outbox);
        assert_eq!((parts.len(), parts.last()), (BATCH + 5, Some(&true)));
    }

    #[tokio::test]
    async fn inventory_is_stated_again_once_the_server_has_the_rest() {
        let outbox = outbox();
        (0..BATCH).for_each(|reason| outbox.report(blocked(reason)));
        for _ in 0..=WAITING {
            outbox.report(Observed::InventoryStated {
                objects: Vec::new(),
                last: true,
                unlisted: Vec::new(),
            });
        }
        assert!(!outbox.take_restate(), "the server is away: a statement would be left out as well");
        let mut seen = cursor(0, 0);
        while let Some(batch) = outbox.next(seen) {
            seen = cursor(batch.epoch, batch.last());
            outbox.acknowledge(seen);
        }
        assert!(outbox.take_restate());
        assert!(!outbox.take_restate(), "once");
    }
}
