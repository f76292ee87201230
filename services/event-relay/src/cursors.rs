//! How far each subscription is: checkpoints, in `store` beside the log. A lost one repeats events, and never skips any.
//!
//! Organizations are spread over a fixed number of groups. A group belongs to one replica at a time, which drives its subscriptions
//! and saves how far they are, all together. Of two who save by accident the later one counts.

use std::collections::{BTreeMap, VecDeque};

use events::export::{ExportLane, ExportPosition};
use events::requests::subscriptions::DeadLetter;
use events::subject::partition_of_organization;
use events::{CloudEvent, OrganizationId, Position, SubscriptionId, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Snapshot, SnapshotError, Snapshots};

use crate::alerts::Alerts;

/// The names of the groups' checkpoints among the snapshots.
pub(crate) const NAMES: [&str; 16] = [
    "event-relay-cursors-0",
    "event-relay-cursors-1",
    "event-relay-cursors-2",
    "event-relay-cursors-3",
    "event-relay-cursors-4",
    "event-relay-cursors-5",
    "event-relay-cursors-6",
    "event-relay-cursors-7",
    "event-relay-cursors-8",
    "event-relay-cursors-9",
    "event-relay-cursors-10",
    "event-relay-cursors-11",
    "event-relay-cursors-12",
    "event-relay-cursors-13",
    "event-relay-cursors-14",
    "event-relay-cursors-15",
];
/// Dead letters of a subscription that are kept; older ones are given up, and counted.
pub(crate) const MOST_LETTERS: usize = 500;

/// A group of organizations.
pub(crate) type Group = u16;

/// The group of an organization.
pub(crate) fn group_of(organization: OrganizationId) -> Group {
    partition_of_organization(organization, u16::try_from(NAMES.len()).unwrap_or(1))
}

/// How far a subscription is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The version of the subscription that said from where events are sent.
    pub(crate) placed: u64,
    /// The version that last told it to go on.
    pub(crate) resumed: u64,
    /// The version with which dead letters were last sent again.
    pub(crate) resent: u64,
    /// The last event that was dealt with.
    pub(crate) position: Option<ExportPosition>,
    /// The exports up to that event.
    pub(crate) lane: ExportLane,
    /// The sequence of its record in its partition, in this log.
    pub(crate) record: u64,
    /// When the log recorded the event that is to be sent next; none while nothing waits.
    #[serde(default)]
    pub(crate) oldest: Option<Timestamp>,
    /// When the last event was delivered.
    pub(crate) delivered_at: Option<Timestamp>,
    /// The receiver does not take the next event.
    pub(crate) failing: Option<Failing>,
    /// Nothing is sent: since when, and why.
    pub(crate) parked: Option<(Timestamp, String)>,
    /// Events that the receiver refused, the oldest first.
    pub(crate) letters: VecDeque<DeadLetter>,
    /// Dead letters that were given up.
    pub(crate) dropped: u64,
    /// How the environments stand, where messages are sent about them.
    #[serde(default)]
    pub(crate) alerts: Alerts,
}

/// Attempts at one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failing {
    /// Since when.
    pub(crate) since: Timestamp,
    /// How many there were.
    pub(crate) attempts: u32,
    /// How many of them said that the event itself is not wanted.
    pub(crate) refusals: u32,
    /// What the last one came to.
    pub(crate) reason: String,
    /// When the next one is made.
    pub(crate) next: Timestamp,
}

impl Progress {
    /// Meets an event that is wanted and waits now. `lane` counts it, unless events in front of it are missing.
    pub(crate) fn meet(&mut self, event: &CloudEvent, lane: Option<ExportLane>) {
        self.oldest = Some(event.recordedat);
        // Once an event waits it is known where the subscription is: should the event leave the log before it is sent, a gap says so.
        if let (None, Some(lane)) = (self.position, lane) {
            let sequence = lane.sequence.saturating_sub(1);
            self.position = ExportPosition::of(event).map(|position| ExportPosition { sequence, ..position });
            self.lane = ExportLane { sequence, ..lane };
        }
    }

    /// How many exported events it has not dealt with, given the number of the last one; `None` until it has met one.
    pub(crate) fn behind(&self, end: Option<u64>) -> Option<u64> {
        end.filter(|_| self.position.is_some()).map(|end| end.saturating_sub(self.lane.sequence))
    }

    /// Keeps an event that the receiver refused.
    pub(crate) fn bury(&mut self, letter: DeadLetter) {
        self.letters.push_back(letter);
        while self.letters.len() > MOST_LETTERS {
            self.letters.pop_front();
            self.dropped = self.dropped.saturating_add(1);
        }
    }
}

/// The subscriptions of one group.
pub(crate) type GroupProgress = BTreeMap<SubscriptionId, Progress>;

/// What is saved of a group; nothing where nothing was.
pub(crate) async fn load(snapshots: &dyn Snapshots, group: Group) -> Result<GroupProgress, SnapshotError> {
    let Some(name) = NAMES.get(usize::from(group)) else { return Ok(GroupProgress::new()) };
    let loaded = snapshots.load(name).await?;
    let decoded = loaded.map(|snapshot| events::decode::<GroupProgress>(&snapshot.state));
    Ok(decoded.transpose().ok().flatten().unwrap_or_default())
}

/// Saves a group.
pub(crate) async fn save(
    snapshots: &dyn Snapshots,
    group: Group,
    progress: &GroupProgress,
) -> Result<(), SnapshotError> {
    let Some(name) = NAMES.get(usize::from(group)) else { return Ok(()) };
    let state = events::encode(progress)?;
    let name = (*name).to_owned();
    let position = Position::start();
    snapshots.save(Snapshot { name, fold_version: 1, position, heads: None, reading: None, state }).await
}

#[cfg(test)]
mod tests {
    use events::export::{Resume, Resumed};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    const LOG: Uuid = Uuid::from_u128(1);

    fn event(sequence: u64) -> CloudEvent {
        let event = json!({
            "specversion": "1.0", "id": format!("e{sequence}"), "source": "/organizations/1",
            "type": "kasbah.sync.finished", "subject": "source/1", "time": "2026-01-01T00:00:00Z",
            "datacontenttype": "application/json", "recordedat": Timestamp(1_000),
            "exportlog": LOG, "exportsequence": sequence, "exportrun": Uuid::from_u128(2), "data": {},
        });
        CloudEvent::from_json(event.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_event_that_waits_says_where_the_subscription_is_though_it_dealt_with_none() {
        let (mut progress, mut lane) = (Progress::default(), ExportLane::default());
        assert_eq!(progress.behind(Some(9)), None);
        lane.take(&event(7));
        progress.meet(&event(7), Some(lane));
        assert_eq!((progress.oldest, progress.behind(Some(9))), (Some(Timestamp(1_000)), Some(3)));
        // It left before it was sent.
        let mut resume = Resume::new(progress.position, LOG).behind(progress.lane);
        assert_eq!(resume.take(&event(9)), Resumed::GiveBehindGap(Some((7, 8))));
        // It is still there.
        let mut resume = Resume::new(progress.position, LOG).behind(progress.lane);
        assert_eq!(resume.take(&event(7)), Resumed::Give);
        // Behind a gap that was not told yet, nothing is noted.
        let mut progress = Progress::default();
        progress.meet(&event(7), None);
        assert_eq!((progress.oldest, progress.position), (Some(Timestamp(1_000)), None));
    }
}
