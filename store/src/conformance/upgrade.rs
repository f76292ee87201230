//! Upgrades and rollbacks: two builds follow one log at once, of which one knows an event and an observation more.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use events::observation::{Observation, ObservationBatch, Observed, UnknownObservation};
use events::position::Stream;
use events::value::AnyValue;
use events::{
    AggregateKind, AggregateRef, DecodeError, Event, EventBody, OrganizationId, Refusal, RefusalKind,
    Timestamp,
};
use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use world::World;

use super::{DEADLINE, ORGANIZATION, Storage, agent, batch, commit, event};
use crate::Parts;
use crate::following::{Following, follow_projection};
use crate::log::ReadFilter;
use crate::model::{Decides, Draft, ReadSet, make};
use crate::projection::Projection;
use crate::reading::{Catalogue, Committed, Fact};
use crate::retention::{Anchored, Limits, turn};

const PAINTED: &str = "kasbah.door.painted";
const DOOR: &str = "door-seen";
const WRITER: &str = "agent-1";

/// The build that knows more.
#[derive(Debug)]
enum Newer {
    Known,
    Painted,
}

impl Catalogue for Newer {
    fn decode(body: &EventBody) -> Result<Self, DecodeError> {
        if body.event_type == PAINTED { Ok(Self::Painted) } else { Event::decode(body).map(|_| Self::Known) }
    }

    fn events() -> Vec<(&'static str, u16)> {
        [Event::types(), vec![(PAINTED, 1)]].concat()
    }

    fn observations() -> Vec<(&'static str, u16)> {
        [Observed::KINDS, &[(DOOR, 1)]].concat()
    }
}

/// What both builds fold, each as far as it knows it.
trait Build: Catalogue + Send + Sync + 'static {
    const KNOWS_DOORS: bool;

    fn is_painted(&self) -> bool;
}

impl Build for Event {
    const KNOWS_DOORS: bool = false;

    fn is_painted(&self) -> bool {
        false
    }
}

impl Build for Newer {
    const KNOWS_DOORS: bool = true;

    fn is_painted(&self) -> bool {
        matches!(self, Self::Painted)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
struct Doors<B> {
    versions: BTreeMap<String, u64>,
    used: u64,
    painted: u64,
    /// The last observation's sequence.
    last: u64,
    seen: u64,
    #[serde(skip)]
    build: PhantomData<B>,
}

/// Used, painted, last sequence, doors seen.
type Counts = (u64, u64, u64, u64);

impl<B: Build> Projection for Doors<B> {
    const NAME: &'static str = "doors";
    const FOLD_VERSION: u32 = 1;
    const SNAPSHOT_EVERY: u64 = u64::MAX;

    type Event = B;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[AggregateKind::Agent]).and(Stream::Observations)
    }

    fn start() -> Self {
        Self { versions: BTreeMap::new(), used: 0, painted: 0, last: 0, seen: 0, build: PhantomData }
    }

    fn apply(&mut self, fact: Fact<'_, B>) {
        match fact {
            Fact::Commit(Committed { commit, events, .. }) => {
                self.versions.insert(commit.aggregate.id.clone(), commit.version);
                for (_, event) in events {
                    *(if event.is_painted() { &mut self.painted } else { &mut self.used }) += 1;
                }
            }
            Fact::Batch(batch) => {
                let batch = batch.observations().unwrap();
                for (sequence, observation) in (batch.first..).zip(&batch.observations) {
                    assert_eq!(sequence, self.last + 1, "not dense");
                    self.last = sequence;
                    let is_door =
                        matches!(&observation.what, Observed::Unknown(unknown) if unknown.kind == DOOR);
                    self.seen += u64::from(B::KNOWS_DOORS && is_door);
                }
            }
        }
    }
}

/// An event on one agent, by somebody who relies on another one.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Use {
    id: String,
    relies_on: String,
}

impl<B: Build> Decides for Doors<B> {
    const DECIDES: &'static [AggregateKind] = &[AggregateKind::Agent];

    type Given = Use;

    fn make(&self, given: &Use) -> Result<Option<Draft>, Refusal> {
        let (organization, aggregate) = (ORGANIZATION, agent(&given.id));
        let expected = self.version_of(organization, &aggregate);
        Ok(Some(Draft { organization, aggregate, expected, events: vec![event()] }))
    }

    fn read_set(&self, _: &Use) -> ReadSet {
        ReadSet::decisions_of(ORGANIZATION)
    }

    fn relies_on(&self, given: &Use) -> Vec<AggregateRef> {
        vec![agent(&given.relies_on)]
    }

    fn version_of(&self, _: OrganizationId, aggregate: &AggregateRef) -> u64 {
        self.versions.get(&aggregate.id).copied().unwrap_or(0)
    }

    fn describe(&self, _: OrganizationId, _: &AggregateRef) -> Option<String> {
        None
    }
}

/// A replica of one build.
struct Replica<B> {
    following: Following<Doors<B>>,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl<B: Build> Replica<B> {
    fn start(world: &World, parts: &Parts) -> Self {
        let (log, snapshots) = (Arc::clone(&parts.log), Arc::clone(&parts.snapshots));
        let following = follow_projection::<Doors<B>>(log, snapshots, world.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel();
        let driven = following.clone();
        let task = async move {
            driven.drive(stopped.map(|_| ())).await.unwrap();
            assert!(end.send(()).is_ok(), "nobody waits");
        };
        world.spawner.spawn("conformance", Box::pin(task));
        Self { following, stop, ended }
    }

    async fn stop(self) {
        drop(self.stop);
        self.ended.await.expect("the projection panicked");
    }

    async fn counts(&self) -> Counts {
        self.following.catch_up(DEADLINE).await.unwrap();
        self.following.read(|state| (state.used, state.painted, state.last, state.seen))
    }

    /// Decides and appends, as services do.
    async fn uses(&self, world: &World, parts: &Parts, id: &str, relies_on: &str) -> Result<(), RefusalKind> {
        self.following.catch_up(DEADLINE).await.unwrap();
        let given = Use { id: id.to_owned(), relies_on: relies_on.to_owned() };
        let made = self.following.read_with_heads(|state, heads| make(state, heads, &given));
        let (draft, _) = made.map_err(|refusal| refusal.kind)?.unwrap();
        parts.log.append(commit(world, id, draft.expected)).await.unwrap();
        Ok(())
    }
}

async fn paint(world: &World, parts: &Parts, id: &str, expected: u64) {
    let mut painted = commit(world, id, expected);
    painted.events[0].body =
        EventBody { event_type: PAINTED.to_owned(), schema_version: 1, data: Vec::new() };
    parts.log.append(painted).await.unwrap();
}

/// Appends observations from `first` on: what both know, a door, and what both know.
async fn observe(parts: &Parts, first: u64) {
    let door = UnknownObservation { kind: DOOR.to_owned(), version: 1, content: AnyValue::Nil };
    let whats =
        [Observed::Gap { dropped: 1 }, Observed::Unknown(Box::new(door)), Observed::Gap { dropped: 1 }];
    let observed: ObservationBatch = ObservationBatch {
        organization: ORGANIZATION,
        writer: WRITER.to_owned(),
        epoch: 1,
        first,
        observations: whats.into_iter().map(|what| Observation { at: Timestamp(1), what }).collect(),
    };
    let data = events::encode(&observed).unwrap();
    parts.log.append_batch(batch(Stream::Observations, WRITER, &data)).await.unwrap();
}

const REFUSED: Result<(), RefusalKind> = Err(RefusalKind::Unavailable);

/// Both run, while the newer one writes what the other does not know.
async fn upgrading(world: &World, parts: &Parts) {
    let former = Replica::<Event>::start(world, parts);
    former.following.caught_up().await.unwrap();
    former.uses(world, parts, "a", "b").await.unwrap();
    former.uses(world, parts, "b", "a").await.unwrap();
    let newer = Replica::<Newer>::start(world, parts);
    newer.following.caught_up().await.unwrap();
    paint(world, parts, "a", 1).await;
    observe(parts, 1).await;
    assert_eq!((newer.counts().await, former.counts().await), ((2, 1, 3, 1), (2, 0, 3, 0)));
    assert_eq!(former.uses(world, parts, "a", "b").await, REFUSED, "a newer build wrote to it");
    assert_eq!(former.uses(world, parts, "b", "a").await, REFUSED, "it relies on that one");
    newer.uses(world, parts, "a", "b").await.unwrap();
    former.uses(world, parts, "b", "b").await.unwrap();
    newer.uses(world, parts, "b", "a").await.unwrap();
    assert_eq!((newer.counts().await, former.counts().await), ((5, 1, 3, 1), (5, 0, 3, 0)));
    former.stop().await;
    newer.stop().await;
}

/// The former build goes on alone, from the newer one's snapshot.
async fn rolled_back(world: &World, parts: &Parts) {
    let former = Replica::<Event>::start(world, parts);
    former.following.caught_up().await.unwrap();
    assert_eq!(former.uses(world, parts, "a", "b").await, REFUSED, "a newer build wrote to it");
    former.uses(world, parts, "b", "b").await.unwrap();
    paint(world, parts, "c", 0).await;
    observe(parts, 4).await;
    assert_eq!(former.uses(world, parts, "c", "c").await, REFUSED);
    assert_eq!(former.counts().await, (6, 1, 6, 1));
    former.stop().await;
}

pub(super) async fn builds_that_know_different_things_share_a_log(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    upgrading(&world, &parts).await;
    rolled_back(&world, &parts).await;
    let newer = Replica::<Newer>::start(&world, &parts);
    newer.following.caught_up().await.unwrap();
    assert_eq!(newer.counts().await, (6, 2, 6, 2), "nothing is missing that the former build left out");
    newer.uses(&world, &parts, "c", "a").await.unwrap();
    newer.stop().await;
}

pub(super) async fn no_anchor_stands_for_what_was_left_out(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let limits = Limits {
        first: Stream::Observations,
        further: Vec::new(),
        age: DEADLINE,
        least_age: std::time::Duration::ZERO,
        bytes: u64::MAX,
    };
    paint(&world, &parts, "a", 0).await;
    observe(&parts, 1).await;
    let is_anchored = async |anchored: Anchored| {
        turn(&parts, &limits, &[anchored], Timestamp(1)).await.unwrap();
        parts.snapshots.load("doors-next").await.unwrap().is_some()
    };
    let former = Replica::<Event>::start(&world, &parts);
    former.following.caught_up().await.unwrap();
    former.stop().await;
    assert!(!is_anchored(Anchored::of::<Doors<Event>>()).await);
    assert!(!is_anchored(Anchored::of::<Doors<Newer>>()).await, "of the former build's snapshot");
    let newer = Replica::<Newer>::start(&world, &parts);
    newer.following.caught_up().await.unwrap();
    newer.stop().await;
    assert!(is_anchored(Anchored::of::<Doors<Newer>>()).await);
}
