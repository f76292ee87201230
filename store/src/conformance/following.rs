//! Laws of projections that follow, and of deciding on them.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use events::position::Stream;
use events::{
    AggregateKind, AggregateRef, CommandRecord, CorrelationId, Event, OrganizationId, Position, Refusal,
    RefusalKind,
};
use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use world::World;

use super::{DEADLINE, ORGANIZATION, OTHER, Storage, agent, commit, commit_on, event, fill, parallel};
use crate::Parts;
use crate::decide::{Basis, DecideError, Decided, Origin, Policy};
use crate::following::{Following, WaitError, follow_projection};
use crate::log::ReadFilter;
use crate::model::{Commits, Decides, Draft, ReadSet};
use crate::projection::{Projection, Snapshot};
use crate::reading::{Committed, Fact};

/// Versions of agents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Versions {
    versions: BTreeMap<(OrganizationId, String), u64>,
    folded: u64,
}

impl Projection for Versions {
    const NAME: &'static str = "versions";
    const FOLD_VERSION: u32 = 2;
    const SNAPSHOT_EVERY: u64 = 50;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[AggregateKind::Agent])
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        let Fact::Commit(Committed { commit, .. }) = fact else { panic!("decisions only") };
        let key = (commit.organization, commit.aggregate.id.clone());
        let before = self.versions.insert(key, commit.version).unwrap_or(0);
        assert_eq!(commit.version, before + 1, "a gap, or a record twice");
        self.folded += 1;
    }
}

impl Versions {
    fn version(&self, id: &str) -> u64 {
        self.versions.get(&(ORGANIZATION, id.to_owned())).copied().unwrap_or(0)
    }
}

/// One event, while the aggregate is below a version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Touch {
    pub(crate) organization: OrganizationId,
    pub(crate) id: String,
    pub(crate) below: u64,
}

impl Decides for Versions {
    const DECIDES: &'static [AggregateKind] = &[AggregateKind::Agent];

    type Given = Touch;

    fn make(&self, given: &Touch) -> Result<Option<Draft>, Refusal> {
        let aggregate = agent(&given.id);
        match self.version_of(given.organization, &aggregate) {
            expected if expected < given.below => {
                let (organization, events) = (given.organization, vec![event()]);
                Ok(Some(Draft { organization, aggregate, expected, events }))
            }
            version => Err(Refusal::new(RefusalKind::Conflict, format!("full at {version}"))),
        }
    }

    fn read_set(&self, given: &Touch) -> ReadSet {
        ReadSet::decisions_of(given.organization)
    }

    fn version_of(&self, organization: OrganizationId, aggregate: &AggregateRef) -> u64 {
        self.versions.get(&(organization, aggregate.id.clone())).copied().unwrap_or(0)
    }

    fn describe(&self, organization: OrganizationId, aggregate: &AggregateRef) -> Option<String> {
        let version = self.version_of(organization, aggregate);
        (version > 0).then(|| format!("at version {version}"))
    }
}

/// A projection that follows, until it is stopped.
pub(crate) struct Running {
    pub(crate) following: Following<Versions>,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

pub(crate) fn start(world: &World, parts: &Parts) -> Running {
    let (log, snapshots) = (Arc::clone(&parts.log), Arc::clone(&parts.snapshots));
    let following = follow_projection::<Versions>(log, snapshots, world.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let (end, ended) = oneshot::channel();
    let driven = following.clone();
    let task = async move {
        driven.drive(stopped.map(|_| ())).await.unwrap();
        assert!(end.send(()).is_ok(), "nobody waits");
    };
    world.spawner.spawn("conformance", Box::pin(task));
    Running { following, stop, ended }
}

impl Running {
    async fn stop(self) {
        drop(self.stop);
        self.ended.await.expect("the projection panicked");
    }
}

pub(super) async fn a_projection_reads_its_own_writes(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..30).await;
    let running = start(&world, &parts);
    running.following.caught_up().await.unwrap();
    assert_eq!(running.following.read(|state| state.version("one")), 30);
    for expected in 30..40 {
        let appended = parts.log.append(commit(&world, "one", expected)).await.unwrap();
        running.following.wait_for(&appended.position, DEADLINE).await.unwrap();
        assert_eq!(running.following.read(|state| state.version("one")), expected + 1);
    }
    let source = AggregateRef::new(AggregateKind::Source, "s");
    let unseen = parts.log.append(commit_on(&world, ORGANIZATION, source, 0)).await.unwrap();
    running.following.wait_for(&unseen.position, DEADLINE).await.unwrap();
    let audit = parts.log.append_batch(super::batch(Stream::Audit, "w", b"x")).await.unwrap();
    running.following.wait_for(&audit, DEADLINE).await.unwrap();
    running.stop().await;
}

pub(super) async fn a_snapshot_folded_on_equals_a_fold_from_the_start(
    world: World,
    storage: Box<dyn Storage>,
) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..70).await;
    let running = start(&world, &parts);
    running.following.caught_up().await.unwrap();
    running.stop().await;
    let saved = parts.snapshots.load(Versions::NAME).await.unwrap().expect("a snapshot at shutdown");
    assert_eq!(saved.position, parts.log.position(Stream::ALL).await.unwrap());
    drop(parts);
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 70..75).await;
    let running = start(&world, &parts);
    running.following.caught_up().await.unwrap();
    let restored = running.following.read(Clone::clone);
    assert_eq!((restored.version("one"), restored.folded), (75, 75));
    let mut fresh = Versions::start();
    for record in super::read(&*parts.log, &Position::start(), &Versions::filter()).await {
        fresh.fold(&record);
    }
    assert_eq!(fresh.snapshot(), restored.snapshot());
    running.stop().await;
}

pub(super) async fn a_snapshot_of_another_fold_is_not_used(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..3).await;
    let wrong = Versions { folded: 1000, ..Versions::default() };
    let other_fold = Snapshot {
        name: Versions::NAME.to_owned(),
        fold_version: Versions::FOLD_VERSION + 1,
        position: Position::start(),
        heads: Some(Commits::new()),
        reading: None,
        state: wrong.snapshot().unwrap(),
    };
    let behind_the_end = Snapshot {
        fold_version: Versions::FOLD_VERSION,
        position: Position::of(Stream::Decisions, 0, 1000),
        ..other_fold.clone()
    };
    let undecodable =
        Snapshot { fold_version: Versions::FOLD_VERSION, state: b"no".to_vec(), ..other_fold.clone() };
    let without_heads = Snapshot { fold_version: Versions::FOLD_VERSION, heads: None, ..other_fold.clone() };
    for snapshot in [other_fold, behind_the_end, undecodable, without_heads] {
        parts.snapshots.save(snapshot).await.unwrap();
        let running = start(&world, &parts);
        running.following.caught_up().await.unwrap();
        assert_eq!(running.following.read(|state| state.folded), 3);
        running.stop().await;
    }
}

pub(super) async fn waiting_ends_at_its_deadline_or_with_the_projection(
    world: World,
    storage: Box<dyn Storage>,
) {
    let parts = storage.open().await;
    let running = start(&world, &parts);
    running.following.caught_up().await.unwrap();
    let never = Position::of(Stream::Decisions, 0, 1_000_000);
    let late = running.following.wait_for(&never, Duration::from_millis(20)).await;
    assert!(matches!(late, Err(WaitError::Deadline { .. })), "{late:?}");
    let following = running.following.clone();
    running.stop().await;
    let ended = following.wait_for(&never, DEADLINE).await;
    assert_eq!(ended, Err(WaitError::Ended { projection: Versions::NAME }));
    let never_driven =
        follow_projection::<Versions>(Arc::clone(&parts.log), Arc::clone(&parts.snapshots), world.clone());
    assert!(!never_driven.is_caught_up());
    drop(never_driven.drive(pending()));
}

fn command(world: &World, id: &str, organization: OrganizationId) -> Origin {
    let command = CommandRecord {
        name: "conformance.touch".to_owned(),
        data: Vec::new(),
        ids: vec![world.new_uuid(), world.new_uuid()],
    };
    Origin {
        command: Some(command),
        repeats: Some((organization, agent(id))),
        ..Origin::of_service(world, "conformance", CorrelationId(world.new_uuid()))
    }
}

/// Decides one event while the aggregate is below a version, and refuses then.
async fn touch(
    following: &Following<Versions>,
    command: Origin,
    basis: Basis,
    below: u64,
) -> Result<Decided, DecideError> {
    let (organization, aggregate) = command.repeats.clone().unwrap();
    let given = Touch { organization, id: aggregate.id, below };
    following.decide(&Policy::REQUEST, &command, basis, &given).await
}

pub(super) async fn decisions_of_many_tasks_are_all_made_on_the_newest_state(
    world: World,
    storage: Box<dyn Storage>,
) {
    let parts = storage.open().await;
    let running = start(&world, &parts);
    running.following.caught_up().await.unwrap();
    let deciders = (0..6).map(|_| {
        let (world, following) = (world.clone(), running.following.clone());
        async move {
            let mut made = 0;
            for _ in 0..10 {
                let command = command(&world, "shared", ORGANIZATION);
                match touch(&following, command, Basis::Newest, 25).await {
                    Ok(_) => made += 1,
                    Err(DecideError::Refused(_) | DecideError::Overtaken { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            made
        }
        .boxed()
    });
    let made: u64 = parallel(&world, deciders).await.into_iter().sum();
    let stored = parts.log.history(ORGANIZATION, &agent("shared")).await.unwrap();
    assert_eq!(stored.len() as u64, made);
    assert!(made <= 25, "decided on a state that was not the newest");
    let ids = stored[0].commit().and_then(|commit| commit.command.as_ref()).map(|command| command.ids.len());
    assert_eq!(ids, Some(2), "what was passed in is recorded");
    let mut before = None;
    for (record, count) in stored.iter().zip(1..) {
        let commit = record.commit().unwrap();
        let grounds = commit.grounds.as_ref().unwrap();
        assert_eq!(grounds.commits, [(ORGANIZATION, before)].into(), "on the commit before, whoever made it");
        before = Some((commit.id, count));
    }
    running.stop().await;
}

pub(super) async fn a_command_tried_again_answers_as_before(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let running = start(&world, &parts);
    running.following.caught_up().await.unwrap();
    let once = command(&world, "one", ORGANIZATION);
    let first = touch(&running.following, once.clone(), Basis::Newest, 1).await.unwrap();
    assert_eq!(first.folded, Ok(()), "the state has it");
    let again = touch(&running.following, once, Basis::Newest, 1).await.unwrap();
    assert_eq!(again, Decided { duplicate: true, ..first });
    let refused = touch(&running.following, command(&world, "one", ORGANIZATION), Basis::Newest, 1).await;
    assert_eq!(refused, Err(DecideError::Refused(Refusal::new(RefusalKind::Conflict, "full at 1"))));
    let other = touch(&running.following, command(&world, "two", OTHER), Basis::Newest, 1).await.unwrap();
    assert_eq!(other.version, 1);
    running.stop().await;
}

pub(super) async fn a_decision_on_a_version_that_is_over_is_given_up(
    world: World,
    storage: Box<dyn Storage>,
) {
    let parts = storage.open().await;
    let running = start(&world, &parts);
    running.following.caught_up().await.unwrap();
    let on = async |seen| {
        let command = command(&world, "one", ORGANIZATION);
        touch(&running.following, command, Basis::Version(seen), 9).await.map(|decided| decided.version)
    };
    let overtaken = Err(DecideError::Overtaken { aggregate: agent("one") });
    assert_eq!((on(0).await, on(0).await, on(1).await), (Ok(1), overtaken.clone(), Ok(2)));
    // Another replica is faster than this one's fold, or is heard of before: either way it is not decided on what it left.
    parts.log.append(commit(&world, "one", 2)).await.unwrap();
    assert_eq!(on(2).await, overtaken);
    assert_eq!(running.following.read(|state| state.version("one")), 3, "what the other one did is known");
    assert_eq!(on(3).await, Ok(4));
    running.stop().await;
}
