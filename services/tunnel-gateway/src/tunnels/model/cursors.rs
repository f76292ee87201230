//! How far each of an agent's two streams is durable.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use events::observation::{BatchHead, ObservationBatch};
use events::position::Stream;
use events::{AgentId, Event};
use serde::{Deserialize, Serialize};
use store::{Fact, Projection, ReadFilter};
use tunnel::wire::Acknowledged;

/// Epoch and last sequence of each agent that ever wrote to a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Cursors<O> {
    agents: BTreeMap<String, Cursor>,
    #[serde(skip)]
    of: PhantomData<O>,
}

/// How far agents' observations are durable.
pub type ObservationCursors = Cursors<Observations>;
/// How far the changes of objects that agents saw are durable: a sequence of its own.
pub type ObjectCursors = Cursors<Objects>;

/// The stream that cursors are of, and how their fold is kept.
pub trait CursorsOf: Clone + Send + Sync + 'static {
    /// The stream.
    const STREAM: Stream;
    /// See [`Projection::NAME`].
    const NAME: &'static str;
    /// See [`Projection::FOLD_VERSION`].
    const FOLD_VERSION: u32;
}

/// See [`ObservationCursors`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observations;

/// See [`ObjectCursors`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Objects;

impl CursorsOf for Observations {
    const STREAM: Stream = Stream::Observations;
    const NAME: &'static str = "tunnel-gateway-cursors";
    const FOLD_VERSION: u32 = 2;
}

impl CursorsOf for Objects {
    const STREAM: Stream = Stream::Objects;
    const NAME: &'static str = "tunnel-gateway-object-cursors";
    const FOLD_VERSION: u32 = 1;
}

/// How far one agent is durable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Cursor {
    durable: Acknowledged,
    /// First and last sequence of what lies behind a gap: of batches that were on their way at once, one that had to be sent
    /// again is stored behind those after it.
    early: BTreeMap<u64, u64>,
}

impl<O> Cursors<O> {
    /// Up to where an agent is durable.
    #[must_use]
    pub fn of(&self, agent: AgentId) -> Acknowledged {
        self.agents
            .get(&ObservationBatch::agent_writer(agent))
            .map_or_else(Acknowledged::default, |cursor| cursor.durable)
    }

    fn advance(&mut self, head: BatchHead) {
        let BatchHead { writer, epoch, first, count } = head;
        if !writer.starts_with("agent-") || count == 0 {
            return;
        }
        let last = first.saturating_add(count).saturating_sub(1);
        let cursor = self.agents.entry(writer).or_default();
        if epoch > cursor.durable.epoch {
            *cursor = Cursor { durable: Acknowledged { epoch, sequence: 0 }, early: BTreeMap::new() };
        }
        if epoch == cursor.durable.epoch {
            let early = cursor.early.entry(first).or_default();
            *early = last.max(*early);
            cursor.close_gaps();
        }
    }
}

impl Cursor {
    /// What is durable ends where something is missing: from there on the agent sends it again.
    fn close_gaps(&mut self) {
        while let Some(next) = self.early.first_entry()
            && *next.key() <= self.durable.sequence.saturating_add(1)
        {
            self.durable.sequence = self.durable.sequence.max(next.remove());
        }
    }
}

/// The state of fold version 1 of observations, which forgot what came early: it is sent again.
#[derive(Deserialize)]
struct First {
    agents: BTreeMap<String, Acknowledged>,
}

impl<O> From<First> for Cursors<O> {
    fn from(first: First) -> Self {
        let cursor = |durable| Cursor { durable, early: BTreeMap::new() };
        let agents = first.agents.into_iter().map(|(agent, durable)| (agent, cursor(durable))).collect();
        Self { agents, of: PhantomData }
    }
}

impl<O: CursorsOf> Projection for Cursors<O> {
    const NAME: &'static str = O::NAME;
    const FOLD_VERSION: u32 = O::FOLD_VERSION;
    const SNAPSHOT_EVERY: u64 = 10_000;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::streams(&[O::STREAM])
    }

    fn start() -> Self {
        Self { agents: BTreeMap::new(), of: PhantomData }
    }

    fn restore(fold_version: u32, bytes: &[u8]) -> Option<Self> {
        match fold_version {
            version if version == O::FOLD_VERSION => events::decode(bytes).ok(),
            1 => events::decode::<First>(bytes).ok().map(Self::from),
            _ => None,
        }
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        if let Fact::Batch(batch) = fact
            && let Some(head) = batch.head()
        {
            self.advance(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use events::observation::{Observation, Observed};
    use events::{OrganizationId, Timestamp};
    use store::Record;
    use uuid::Uuid;

    use super::*;

    fn agent() -> AgentId {
        AgentId(Uuid::from_u128(1))
    }

    fn record(writer: &str, epoch: u64, first: u64, count: u64) -> Record {
        let observation: Observation = Observation { at: Timestamp(0), what: Observed::Gap { dropped: 1 } };
        let batch = ObservationBatch {
            organization: OrganizationId::SYSTEM,
            writer: writer.to_owned(),
            epoch,
            first,
            observations: (0..count).map(|_| observation.clone()).collect(),
        };
        let bytes = events::encode(&batch).unwrap().into();
        Record::new((Stream::Observations, 0), 1, Timestamp(0), OrganizationId::SYSTEM, bytes)
    }

    fn folded(batches: &[(u64, u64, u64)]) -> Acknowledged {
        let mut cursors = ObservationCursors::start();
        for (epoch, first, count) in batches {
            cursors.fold(&record(&ObservationBatch::agent_writer(agent()), *epoch, *first, *count));
        }
        let restored =
            ObservationCursors::restore(ObservationCursors::FOLD_VERSION, &cursors.snapshot().unwrap());
        assert_eq!(restored, Some(cursors.clone()));
        cursors.of(agent())
    }

    #[test]
    fn batches_doubles_gaps_and_epochs() {
        assert_eq!(folded(&[]), Acknowledged { epoch: 0, sequence: 0 });
        assert_eq!(folded(&[(1, 1, 10), (1, 11, 5)]), Acknowledged { epoch: 1, sequence: 15 });
        assert_eq!(folded(&[(1, 1, 10), (1, 4, 3)]), Acknowledged { epoch: 1, sequence: 10 });
        assert_eq!(folded(&[(1, 1, 10), (1, 9, 4)]), Acknowledged { epoch: 1, sequence: 12 });
        assert_eq!(folded(&[(1, 1, 10), (1, 12, 4)]), Acknowledged { epoch: 1, sequence: 10 });
        assert_eq!(folded(&[(1, 1, 10), (3, 1, 2), (1, 11, 2)]), Acknowledged { epoch: 3, sequence: 2 });
        assert_eq!(folded(&[(3, 2, 2)]), Acknowledged { epoch: 3, sequence: 0 });
    }

    #[test]
    fn what_was_stored_late_closes_the_gap_before_what_was_stored_early() {
        assert_eq!(folded(&[(1, 1, 1), (1, 9, 3), (1, 2, 7)]), Acknowledged { epoch: 1, sequence: 11 });
        assert_eq!(folded(&[(1, 9, 3), (1, 5, 4), (1, 1, 4)]), Acknowledged { epoch: 1, sequence: 11 });
        assert_eq!(folded(&[(1, 9, 3), (1, 9, 1), (1, 1, 8)]), Acknowledged { epoch: 1, sequence: 11 });
        assert_eq!(folded(&[(1, 9, 3), (2, 1, 1), (1, 1, 8)]), Acknowledged { epoch: 2, sequence: 1 });
    }

    fn golden<O: CursorsOf>(version: u32) -> std::path::PathBuf {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_snapshots");
        folder.join(format!("{}.v{version}.snapshot", O::NAME))
    }

    fn stays_as_it_is<O: CursorsOf + std::fmt::Debug + PartialEq>() {
        let mut cursors = Cursors::<O>::start();
        for (epoch, first, count) in [(1, 1, 10), (2, 1, 4), (2, 9, 3)] {
            cursors.fold(&record(&ObservationBatch::agent_writer(agent()), epoch, first, count));
        }
        let path = golden::<O>(O::FOLD_VERSION);
        if !path.exists() && std::env::var("KASBAH_GOLDEN").as_deref() == Ok("add") {
            std::fs::write(&path, cursors.snapshot().unwrap()).unwrap();
        }
        let stored = std::fs::read(&path).expect("a golden snapshot: add it with KASBAH_GOLDEN=add");
        assert_eq!(stored, cursors.snapshot().unwrap(), "another shape needs another fold version");
        assert_eq!(Cursors::<O>::restore(O::FOLD_VERSION, &stored), Some(cursors));
    }

    /// Written once and never changed: another shape needs another fold version, which reads this one.
    #[test]
    fn snapshots_stay_as_they_are() {
        stays_as_it_is::<Observations>();
        stays_as_it_is::<Objects>();
        let first = std::fs::read(golden::<Observations>(1)).unwrap();
        let restored = ObservationCursors::restore(1, &first).unwrap();
        assert_eq!(restored.of(agent()), Acknowledged { epoch: 2, sequence: 4 });
        assert_eq!(ObjectCursors::restore(2, &ObjectCursors::start().snapshot().unwrap()), None);
    }

    #[test]
    fn each_is_of_its_own_stream() {
        assert_eq!(ObservationCursors::filter(), ReadFilter::streams(&[Stream::Observations]));
        assert_eq!(ObjectCursors::filter(), ReadFilter::streams(&[Stream::Objects]));
    }

    #[test]
    fn gateways_have_no_cursor() {
        let mut cursors = ObservationCursors::start();
        cursors.fold(&record("gateway-1", 1, 1, 3));
        assert_eq!(cursors, ObservationCursors::start());
    }
}
