//! The endless answers to `GET /v1/events` and `GET /v1/object-changes`.

use std::sync::Arc;
use std::time::Duration;

use tunnel::body::{EventBody, EventSender, event_body};
use tunnel::wire::{Acknowledged, EventFrame};

use crate::applier::Shared;
use crate::outbox::ObservationQueue;

/// Frames that the gateway has not taken yet.
const CAPACITY: usize = 8;
/// A frame at least this often, so that both ends see that the other lives.
const IDLE: Duration = Duration::from_secs(12);
/// What comes within this time goes together; while more and more comes, within longer ones: each batch is a record that the
/// server syncs, and the cluster's own store may lie on the same disk.
const GATHER: Duration = Duration::from_millis(5);
const LONGEST_GATHER: Duration = Duration::from_millis(50);
const WHOLE_BATCH: usize = 100;

/// How long the next batch gathers.
#[derive(Default)]
struct Pace {
    gathered: Duration,
    sent: Option<Duration>,
}

impl Pace {
    fn gather(&mut self, now: Duration) -> Duration {
        let flows = self.sent.is_some_and(|sent| now.saturating_sub(sent) < LONGEST_GATHER);
        self.gathered = if flows { (self.gathered * 2).min(LONGEST_GATHER) } else { GATHER };
        self.gathered
    }
}

/// Starts writing everything of a queue after a cursor.
pub(super) fn start(
    shared: &Arc<Shared>,
    queue: Arc<dyn ObservationQueue>,
    after: Acknowledged,
) -> EventBody {
    queue.acknowledge(after);
    let (sender, body) = event_body(CAPACITY);
    let task = write(Arc::clone(shared), queue, sender, after);
    shared.world.spawner.spawn("agent events", Box::pin(task));
    body
}

async fn write(
    shared: Arc<Shared>,
    queue: Arc<dyn ObservationQueue>,
    sender: EventSender,
    mut after: Acknowledged,
) {
    let mut changes = queue.subscribe();
    let mut held = shared.holding.subscribe();
    let mut told = None;
    let mut pace = Pace::default();
    loop {
        changes.mark_unchanged();
        let holds = *held.borrow_and_update();
        if told != Some(holds) {
            told = Some(holds);
            if sender.send(&EventFrame::Lease { held: holds }).await.is_err() {
                return;
            }
        }
        if queue.unsent() < WHOLE_BATCH && queue.unsent() > 0 {
            shared.world.clock.sleep(pace.gather(shared.now())).await;
        }
        if let Some(batch) = queue.next(after) {
            after = Acknowledged { epoch: batch.epoch, sequence: batch.last() };
            pace.sent = Some(shared.now());
            if let Err(error) = sender.send(&EventFrame::Batch(batch)).await {
                if !matches!(error, tunnel::body::SendError::Ended) {
                    tracing::error!(error = %error, "observations cannot be sent");
                }
                return;
            }
            continue;
        }
        tokio::select! {
            biased;
            () = sender.ended() => return,
            changed = changes.changed() => if changed.is_err() { return },
            changed = held.changed() => if changed.is_err() { return },
            () = shared.world.clock.sleep(IDLE) => {
                if sender.send(&EventFrame::Idle).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_flows_gathers_longer_and_a_pause_ends_that() {
        let mut pace = Pace::default();
        let mut now = Duration::from_secs(1);
        let mut gathered = Vec::new();
        for _ in 0..7 {
            gathered.push(pace.gather(now).as_millis());
            now += Duration::from_millis(3);
            pace.sent = Some(now);
        }
        assert_eq!(gathered, [5, 10, 20, 40, 50, 50, 50]);
        assert_eq!(pace.gather(now + LONGEST_GATHER), GATHER);
    }
}
