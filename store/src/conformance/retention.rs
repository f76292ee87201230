//! Laws of records that leave.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use events::position::{Shard, Stream};
use events::{Event, Position, Timestamp};
use serde::{Deserialize, Serialize};
use world::World;

use super::{DEADLINE, Storage, agent, batch, commit, fill};
use crate::Parts;
use crate::following::{FollowError, Following, follow_projection};
use crate::log::{Followed, ForgetError, ReadError, ReadFilter, Retained};
use crate::projection::{Projection, Snapshot};
use crate::reading::Fact;
use crate::retention::{Anchored, Limits, RetentionError, turn};

const BATCHES: usize = 60;
/// Large enough that many of them fill small segments.
const BYTES: usize = 4096;
const STREAM: Stream = Stream::Observations;
/// Streams of many writers that records leave.
const LEAVING: [Stream; 2] = [STREAM, Stream::Objects];

/// How often each writer was seen, and each agent decided.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    seen: BTreeMap<u8, u64>,
    decided: u64,
}

impl Projection for Counts {
    const NAME: &'static str = "counts";
    const FOLD_VERSION: u32 = 1;
    // Only who is stopped leaves a snapshot.
    const SNAPSHOT_EVERY: u64 = u64::MAX;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[]).and(STREAM)
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        match fact {
            Fact::Batch(batch) => *self.seen.entry(batch.record().bytes[0]).or_default() += 1,
            Fact::Commit(_) => self.decided += 1,
        }
    }
}

async fn observe(parts: &Parts, count: usize) {
    observe_in(STREAM, parts, count).await;
}

async fn observe_in(stream: Stream, parts: &Parts, count: usize) {
    let append = |number: usize| {
        let writer = u8::try_from(number % 5).unwrap();
        parts.log.append_batch(batch(stream, &format!("w{writer}"), &[writer; BYTES]))
    };
    futures::future::try_join_all((0..count).map(append)).await.unwrap();
}

/// The sequences of each shard, as a reader from a position on gets them.
async fn sequences(stream: Stream, parts: &Parts, from: &Position) -> BTreeMap<Shard, Vec<u64>> {
    let mut records = parts.log.read(from, &ReadFilter::streams(&[stream])).await.unwrap();
    let mut found: BTreeMap<Shard, Vec<u64>> = BTreeMap::new();
    while let Some(record) = records.recv().await {
        let record = record.unwrap();
        found.entry(record.shard).or_default().push(record.sequence);
    }
    found
}

fn behind(all: &BTreeMap<Shard, Vec<u64>>, horizon: &Position) -> BTreeMap<Shard, Vec<u64>> {
    let mut left = all.clone();
    for (shard, sequences) in &mut left {
        sequences.retain(|sequence| *sequence > horizon.sequence(*shard));
    }
    left.retain(|_, sequences| !sequences.is_empty());
    left
}

/// How many records a follower gets that begins before everything.
async fn followed_up_to(stream: Stream, parts: &Parts, end: &Position) -> usize {
    let filter = ReadFilter::streams(&[stream]);
    let mut followed = parts.log.follow(&Position::start(), &filter).await.unwrap();
    let mut got = 0;
    loop {
        match followed.recv().await.unwrap().unwrap() {
            Followed::Record(_) => got += 1,
            Followed::Passed(_) => {}
            Followed::CaughtUp(position) => {
                assert!(position.covers(end));
                return got;
            }
        }
    }
}

pub(super) async fn behind_the_horizon_nothing_is_missing(_: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    for stream in LEAVING {
        observe_in(stream, &parts, BATCHES).await;
        let until = parts.log.position(&[stream]).await.unwrap();
        observe_in(stream, &parts, BATCHES).await;
        let all = sequences(stream, &parts, &Position::start()).await;
        parts.log.forget(&until).await.unwrap();
        let horizon = parts.log.retained(stream).await.unwrap().horizon;
        assert!(until.covers(&horizon), "{horizon} is behind {until}");
        let left = behind(&all, &horizon);
        assert_eq!(sequences(stream, &parts, &Position::start()).await, left);
        assert_eq!(sequences(stream, &parts, &until).await, behind(&all, &until));
    }
    parts.log.verify().await.unwrap();
}

pub(super) async fn a_horizon_stays_and_sequences_go_on(_: World, storage: Box<dyn Storage>) {
    for stream in LEAVING {
        let parts = storage.open().await;
        observe_in(stream, &parts, 2 * BATCHES).await;
        let end = parts.log.position(&[stream]).await.unwrap();
        parts.log.forget(&end).await.unwrap();
        let horizon = parts.log.retained(stream).await.unwrap().horizon;
        let left = sequences(stream, &parts, &Position::start()).await;
        drop(parts);
        let parts = storage.open().await;
        assert_eq!(parts.log.retained(stream).await.unwrap().horizon, horizon);
        assert_eq!(sequences(stream, &parts, &Position::start()).await, left);
        sequences_go_on(stream, &parts, &end).await;
        let followed = followed_up_to(stream, &parts, &end).await;
        assert_eq!(followed, left.values().map(Vec::len).sum::<usize>() + 1);
        parts.log.forget(&Position::start()).await.unwrap();
        assert_eq!(parts.log.retained(stream).await.unwrap().horizon, horizon);
        parts.log.verify().await.unwrap();
    }
}

/// What leaves one stream takes nothing of another, and needs no anchor where no fold is made of it alone.
pub(super) async fn streams_leave_apart_from_each_other(_: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    observe(&parts, BATCHES).await;
    observe_in(Stream::Objects, &parts, BATCHES).await;
    let limits = Limits { first: Stream::Objects, further: Vec::new(), ..limits(EVERYTHING, u64::MAX) };
    let before = sequences(STREAM, &parts, &Position::start()).await;
    for now in [1, 2] {
        turn(&parts, &limits, &[], Timestamp(now)).await.unwrap();
    }
    let left = parts.log.retained(Stream::Objects).await.unwrap().horizon;
    let sequences_left = sequences(Stream::Objects, &parts, &Position::start()).await;
    let kept: usize = sequences_left.values().map(Vec::len).sum();
    assert_eq!(kept < BATCHES, left != Position::start(), "{kept} of {BATCHES} are left behind {left}");
    assert_eq!(parts.log.retained(STREAM).await.unwrap().horizon, Position::start());
    assert_eq!(sequences(STREAM, &parts, &Position::start()).await, before);
}

async fn sequences_go_on(stream: Stream, parts: &Parts, end: &Position) {
    assert_eq!(parts.log.position(&[stream]).await.unwrap(), *end);
    let next = parts.log.append_batch(batch(stream, "w0", b"next")).await.unwrap();
    let (shard, sequence) = next.0.iter().next().unwrap();
    assert_eq!(*sequence, end.sequence(*shard) + 1);
}

pub(super) async fn decisions_never_leave(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..3).await;
    let end = parts.log.position(&[Stream::Decisions]).await.unwrap();
    assert_eq!(parts.log.forget(&end).await, Err(ForgetError::Decisions));
    assert_eq!(parts.log.history(super::ORGANIZATION, &agent("one")).await.unwrap().len(), 3);
}

/// A projection that follows, and has caught up.
async fn caught_up(world: &World, parts: &Parts) -> Following<Counts> {
    let following =
        follow_projection::<Counts>(Arc::clone(&parts.log), Arc::clone(&parts.snapshots), world.clone());
    let driven = following.clone();
    world.spawner.spawn("conformance", Box::pin(async move { driven.drive(pending()).await.unwrap() }));
    following.caught_up().await.unwrap();
    following
}

/// Folds everything, and leaves a snapshot.
pub(crate) async fn fold_and_save(world: &World, parts: &Parts) -> Counts {
    let following =
        follow_projection::<Counts>(Arc::clone(&parts.log), Arc::clone(&parts.snapshots), world.clone());
    let caught_up = following.clone();
    let stop = async move { caught_up.caught_up().await.unwrap() };
    following.clone().drive(stop).await.unwrap();
    following.read(Clone::clone)
}

const EVERYTHING: Duration = Duration::ZERO;

fn limits(age: Duration, bytes: u64) -> Limits {
    Limits { first: STREAM, further: vec![Stream::Refusals], age, least_age: Duration::ZERO, bytes }
}

const ANCHORED: [Anchored; 1] = [Anchored::of::<Counts>()];

/// Observes, decides, and lets go what was observed first; returns what a fold of everything is.
pub(crate) async fn lets_go_and_goes_on(world: &World, parts: &Parts) -> Counts {
    let limits = limits(EVERYTHING, u64::MAX);
    assert_eq!(turn(parts, &limits, &ANCHORED, Timestamp(1)).await.unwrap(), None);
    for round in 0..3_u64 {
        observe(parts, BATCHES).await;
        fill(world, &*parts.log, "one", round * 2..round * 2 + 2).await;
        fold_and_save(world, parts).await;
        turn(parts, &limits, &ANCHORED, Timestamp(10)).await.unwrap();
    }
    observe(parts, 7).await;
    let seen = (0..5).map(|writer| (writer, 3 * BATCHES as u64 / 5 + u64::from(writer < 2) + 1));
    Counts { seen: seen.collect(), decided: 6 }
}

pub(super) async fn a_fold_begins_with_an_anchor(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let whole = lets_go_and_goes_on(&world, &parts).await;
    let Retained { horizon, .. } = parts.log.retained(STREAM).await.unwrap();
    assert_eq!(fold_and_save(&world, &parts).await, whole);
    let lost = Snapshot {
        name: Counts::NAME.to_owned(),
        fold_version: 99,
        position: Position::start(),
        heads: None,
        reading: None,
        state: Vec::new(),
    };
    parts.snapshots.save(lost.clone()).await.unwrap();
    assert_eq!(caught_up(&world, &parts).await.read(Clone::clone), whole);

    parts.snapshots.save(Snapshot { name: "counts-anchor".to_owned(), ..lost }).await.unwrap();
    let following =
        follow_projection::<Counts>(Arc::clone(&parts.log), Arc::clone(&parts.snapshots), world.clone());
    if horizon != Position::start() {
        let without = following.drive(world.clock.sleep(3 * DEADLINE)).await;
        let left =
            |error: &FollowError| matches!(error, FollowError::Read { source: ReadError::Left { .. }, .. });
        assert!(without.as_ref().is_err_and(left), "{without:?}");
    }
}

pub(super) async fn what_is_young_and_little_stays(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let (hour, much) = (Duration::from_secs(3600), u64::MAX);
    observe(&parts, BATCHES).await;
    fold_and_save(&world, &parts).await;
    let begun = Timestamp(1_000_000);
    for (now, bytes) in [(begun, much), (begun, much), (Timestamp(begun.0 + 3_599_999), much)] {
        assert_eq!(turn(&parts, &limits(hour, bytes), &ANCHORED, now).await.unwrap(), None);
    }
    let young = Limits { least_age: hour / 2, ..limits(hour, 1) };
    for millis in [0, 1_799_999] {
        let now = Timestamp(begun.0 + millis);
        assert_eq!(turn(&parts, &young, &ANCHORED, now).await.unwrap(), None, "too much and too young");
    }
    let before = parts.log.retained(STREAM).await.unwrap();
    assert_eq!(before.horizon, Position::start());
    assert!(before.bytes >= (BATCHES * BYTES) as u64);
    let now = Timestamp(begun.0 + 1_800_000);
    let horizon = turn(&parts, &young, &ANCHORED, now).await.unwrap();
    let after = parts.log.retained(STREAM).await.unwrap();
    assert_eq!(horizon.unwrap_or_default(), after.horizon);
    assert_eq!(after.bytes < before.bytes, after.horizon != Position::start());
}

pub(super) async fn nothing_leaves_while_a_snapshot_is_wrong(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let limits = limits(EVERYTHING, u64::MAX);
    observe(&parts, BATCHES).await;
    parts.log.append(commit(&world, "one", 0)).await.unwrap();
    fold_and_save(&world, &parts).await;
    let right = parts.snapshots.load(Counts::NAME).await.unwrap().unwrap();
    let wrong = Counts { decided: 7, ..Counts::default() }.snapshot().unwrap();
    parts.snapshots.save(Snapshot { state: wrong, ..right.clone() }).await.unwrap();
    for _ in 0..2 {
        let error = turn(&parts, &limits, &ANCHORED, Timestamp(1)).await.unwrap_err();
        assert!(matches!(error, RetentionError::Differs { projection: "counts", .. }), "{error:?}");
    }
    assert_eq!(parts.log.retained(STREAM).await.unwrap().horizon, Position::start());
    parts.snapshots.save(right).await.unwrap();
    turn(&parts, &limits, &ANCHORED, Timestamp(1)).await.unwrap();
}
