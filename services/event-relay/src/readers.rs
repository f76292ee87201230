//! Who reads `/api/events` now, as the replicas of the console say again and again. Nothing of it is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use bus::Received;
use events::requests::subscriptions::{EventReader, EventReaderView, EventReaders};
use events::subject::Subject;
use events::{Notice as _, OrganizationId};
use parking_lot::Mutex;

use crate::driver::Deps;
use crate::ends::Ends;

/// Readers that are remembered.
const MOST_READERS: usize = 5_000;
/// Who was not named for so long reads no more.
const GONE_AFTER: Duration = Duration::from_secs(3 * EventReaders::EVERY.as_secs());

/// Readers, each with when it was last named.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<BTreeMap<uuid::Uuid, (Duration, EventReader)>>);

impl Readers {
    pub(crate) async fn hear_for_ever(&self, deps: &Deps) -> anyhow::Result<()> {
        let mut notices = deps.bus.subscribe(&Subject::notice(EventReaders::NAME)).await?;
        loop {
            let heard = notices.receiver.recv().await.context("the bus ended the subscription")?;
            // What is lost is said again soon.
            let Received::Message(body) = heard else { continue };
            match events::decode::<EventReaders>(&body) {
                Ok(notice) => self.hear(notice, deps.world.clock.monotonic()),
                Err(error) => tracing::debug!(%error, "notice of readers is not readable"),
            }
        }
    }

    fn hear(&self, notice: EventReaders, now: Duration) {
        let mut readers = self.0.lock();
        readers.retain(|_, (heard, _)| now.saturating_sub(*heard) < GONE_AFTER);
        for reader in notice.readers {
            if readers.len() < MOST_READERS || readers.contains_key(&reader.id) {
                readers.insert(reader.id, (now, reader));
            }
        }
    }

    /// The readers of an organization's events, those who lag most first.
    pub(crate) fn of(
        &self,
        organization: OrganizationId,
        ends: &Ends,
        now: Duration,
    ) -> Vec<EventReaderView> {
        let end = ends.of(organization);
        let mut own = Vec::new();
        self.look_at_all(now, |reader| {
            if reader.organization == organization {
                own.push(view(reader, end));
            }
        });
        own.sort_by_key(|reader| (reader.oldest.is_none(), reader.oldest, reader.since));
        own
    }

    /// Looks at all who read now.
    pub(crate) fn look_at_all(&self, now: Duration, look: impl FnMut(&EventReader)) {
        let readers = self.0.lock();
        let live = readers.values().filter(|(heard, _)| now.saturating_sub(*heard) < GONE_AFTER);
        live.map(|(_, reader)| reader).for_each(look);
    }
}

/// How many exported events were not looked at for a reader, given the number of the last one.
pub(crate) fn behind(reader: &EventReader, end: Option<u64>) -> Option<u64> {
    let position = reader.position?;
    end.map(|end| end.saturating_sub(position.sequence))
}

fn view(reader: &EventReader, end: Option<u64>) -> EventReaderView {
    EventReaderView {
        actor: reader.actor.clone(),
        since: reader.since,
        filter: reader.filter.clone(),
        position: reader.position.map(|position| position.to_string()),
        behind: behind(reader, end),
        oldest: reader.oldest,
    }
}

#[cfg(test)]
mod tests {
    use events::export::EventFilter;
    use events::{Actor, Timestamp, UserId};
    use uuid::Uuid;

    use super::*;

    fn reader(number: u128, organization: OrganizationId, oldest: Option<i64>) -> EventReader {
        EventReader {
            id: Uuid::from_u128(number),
            organization,
            actor: Actor::User(UserId(Uuid::from_u128(number))),
            since: Timestamp(0),
            filter: EventFilter::default(),
            position: None,
            oldest: oldest.map(Timestamp),
        }
    }

    #[test]
    fn readers_are_those_that_were_named_lately_and_of_one_organization() {
        let (readers, ends) = (Readers::default(), Ends::default());
        let (home, other) = (OrganizationId(Uuid::from_u128(1)), OrganizationId(Uuid::from_u128(2)));
        let all = vec![reader(1, home, None), reader(2, home, Some(5)), reader(3, other, Some(1))];
        readers.hear(EventReaders { readers: all }, Duration::from_secs(1));
        let of = |now: u64| readers.of(home, &ends, Duration::from_secs(now));
        let found: Vec<_> = of(2).into_iter().map(|reader| reader.oldest).collect();
        assert_eq!(found, [Some(Timestamp(5)), None], "who waits longest comes first");
        readers.hear(EventReaders { readers: vec![reader(1, home, None)] }, Duration::from_secs(10));
        assert_eq!(of(17).len(), 1);
        assert!(of(26).is_empty());
    }

    #[test]
    fn no_more_readers_are_remembered_than_the_bound() {
        let readers = Readers::default();
        let home = OrganizationId(Uuid::from_u128(1));
        let many = |from: u128, to: u128| EventReaders {
            readers: (from..to).map(|n| reader(n, home, None)).collect(),
        };
        readers.hear(many(0, MOST_READERS as u128 + 10), Duration::ZERO);
        assert_eq!(readers.of(home, &Ends::default(), Duration::ZERO).len(), MOST_READERS);
        readers.hear(many(0, 1), GONE_AFTER);
        assert_eq!(readers.0.lock().len(), 1);
    }
}
