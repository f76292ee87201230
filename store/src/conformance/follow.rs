//! Laws of following.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::position::{Shard, Stream};
use events::{AggregateKind, AggregateRef, Position};
use futures::FutureExt as _;
use world::World;

use super::{ORGANIZATION, Storage, batch, commit, commit_on, fill, parallel};
use crate::log::{EventLog, FollowReader, Followed, ReadFilter, Record};

fn everything() -> ReadFilter {
    ReadFilter::decisions(&[]).and(Stream::Observations).and(Stream::Objects)
}

/// Both streams of many writers, in turn.
fn stream_of(number: u64) -> Stream {
    if number.is_multiple_of(2) { Stream::Observations } else { Stream::Objects }
}

/// Takes records until there are `count`; says whether "caught up" came, and how often.
async fn take(follow: &mut FollowReader, count: usize) -> (Vec<Record>, usize) {
    let mut records = Vec::new();
    let mut caught_up = 0;
    while records.len() < count {
        match follow.recv().await.expect("the follow ended").unwrap() {
            Followed::Record(record) => records.push(record),
            Followed::CaughtUp(_) => caught_up += 1,
            Followed::Passed(_) => {}
        }
    }
    (records, caught_up)
}

/// Each shard's sequences, in the order in which they came.
fn sequences(records: &[Record]) -> BTreeMap<Shard, Vec<u64>> {
    let mut shards: BTreeMap<Shard, Vec<u64>> = BTreeMap::new();
    for record in records {
        shards.entry(record.shard).or_default().push(record.sequence);
    }
    shards
}

async fn write(world: World, log: Arc<dyn EventLog>, writer: usize, count: u64) {
    for expected in 0..count {
        log.append(commit(&world, format!("w{writer}"), expected)).await.unwrap();
        log.append_batch(batch(stream_of(expected), &format!("w{writer}"), b"seen")).await.unwrap();
    }
}

pub(super) async fn no_gap_and_no_double_under_load(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let total = 8 * 100 * 2;
    let writers = (0..8).map(|writer| write(world.clone(), Arc::clone(&parts.log), writer, 100).boxed());
    let followers = (0..6).map(|index| {
        let (world, log) = (world.clone(), Arc::clone(&parts.log));
        async move {
            // Begin at different moments of the load: whenever so much is durable.
            let mut waiting = log.follow(&Position::start(), &everything()).await.unwrap();
            take(&mut waiting, index * 200).await;
            drop(waiting);
            let mut follow = log.follow(&Position::start(), &everything()).await.unwrap();
            let (records, _) = super::within(&world, "a follower", take(&mut follow, total)).await;
            let shards = sequences(&records);
            assert!(shards.values().all(|shard| shard.is_sorted_by(|a, b| a < b)), "out of order or doubled");
        }
        .boxed()
    });
    parallel(&world, writers.chain(followers).collect::<Vec<_>>()).await;
}

pub(super) async fn a_slow_follower_holds_up_nobody(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let mut slow = parts.log.follow(&Position::start(), &everything()).await.unwrap();
    let writers = (0..16).map(|writer| write(world.clone(), Arc::clone(&parts.log), writer, 150).boxed());
    parallel(&world, writers).await;
    let (records, _) = take(&mut slow, 16 * 150 * 2).await;
    assert!(sequences(&records).values().all(|shard| shard.is_sorted_by(|a, b| a < b)));
    fill(&world, &*parts.log, "last", 0..1).await;
    assert_eq!(take(&mut slow, 1).await.0.len(), 1);
}

/// A follower that waits for its reader in the middle of what it took from memory, while memory moves on, reads the rest elsewhere.
pub(super) async fn a_follower_that_falls_behind_gets_the_same_order(
    world: World,
    storage: Box<dyn Storage>,
) {
    const SMALL: u64 = 1_500;
    const LARGE: usize = 3;
    let parts = storage.open().await;
    let filter = ReadFilter::streams(&[Stream::Observations]);
    let mut follow = parts.log.follow(&Position::start(), &filter).await.unwrap();
    assert!(matches!(follow.recv().await.unwrap().unwrap(), Followed::CaughtUp(_)));
    for _ in 0..4 {
        let small = (0..SMALL).map(|_| parts.log.append_batch(batch(Stream::Observations, "w", b"small")));
        futures::future::try_join_all(small).await.unwrap();
        let large = vec![7; 400 * 1024];
        for _ in 0..LARGE {
            parts.log.append_batch(batch(Stream::Observations, "w", &large)).await.unwrap();
        }
        let wanted = usize::try_from(SMALL).unwrap() + LARGE;
        let (records, _) = super::within(&world, "a follower", take(&mut follow, wanted)).await;
        for pair in records.windows(2) {
            assert_eq!(pair[1].sequence, pair[0].sequence + 1, "a record overtook another");
        }
    }
}

pub(super) async fn who_begins_together_gets_all_of_a_long_log(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let writers = (0..32).map(|writer| {
        let (world, log) = (world.clone(), Arc::clone(&parts.log));
        async move { fill(&world, &*log, &format!("w{writer}"), 0..200).await }.boxed()
    });
    parallel(&world, writers).await;
    let decisions = ReadFilter::decisions(&[]);
    let records = super::read(&*parts.log, &Position::start(), &decisions).await;
    let early = &records[999];
    let early = Position::of(early.shard.0, early.shard.1, early.sequence);
    let mut slow = parts.log.follow(&Position::start(), &decisions).await.unwrap();
    let others = [Position::start(), Position::start(), early].map(|from| {
        let (world, log, decisions) = (world.clone(), Arc::clone(&parts.log), decisions.clone());
        let expected: Vec<Record> =
            records.iter().filter(|record| record.sequence > from.sequence(record.shard)).cloned().collect();
        async move {
            let mut follow = log.follow(&from, &decisions).await.unwrap();
            let taken = take(&mut follow, expected.len());
            assert!(super::within(&world, "a follower beside a slow one", taken).await.0 == expected);
        }
        .boxed()
    });
    parallel(&world, others).await;
    assert!(take(&mut slow, records.len()).await.0 == records, "the slow one lost some");
}

pub(super) async fn caught_up_is_said_once_and_covers_what_was_there(
    world: World,
    storage: Box<dyn Storage>,
) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..10).await;
    parts.log.append_batch(batch(Stream::Observations, "w", b"seen")).await.unwrap();
    let there = parts.log.position(Stream::ALL).await.unwrap();
    let mut follow = parts.log.follow(&Position::start(), &everything()).await.unwrap();
    let (records, early) = take(&mut follow, 11).await;
    assert_eq!((records.len(), early), (11, 0));
    assert_eq!(follow.recv().await.unwrap().unwrap(), Followed::CaughtUp(there));
    fill(&world, &*parts.log, "one", 10..20).await;
    assert_eq!(take(&mut follow, 10).await.1, 0);
    let mut empty =
        parts.log.follow(&parts.log.position(Stream::ALL).await.unwrap(), &everything()).await.unwrap();
    assert_eq!(
        empty.recv().await.unwrap().unwrap(),
        Followed::CaughtUp(parts.log.position(Stream::ALL).await.unwrap())
    );
}

pub(super) async fn the_position_covers_what_a_follower_has_seen(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let writers = (0..4).map(|writer| write(world.clone(), Arc::clone(&parts.log), writer, 100).boxed());
    let followers = (0..2).map(|_| {
        let log = Arc::clone(&parts.log);
        async move {
            let mut follow = log.follow(&Position::start(), &everything()).await.unwrap();
            for _ in 0..4 * 100 * 2 {
                let (records, _) = take(&mut follow, 1).await;
                let mut seen = Position::start();
                seen.advance(records[0].shard, records[0].sequence);
                assert!(
                    log.position(Stream::ALL).await.unwrap().covers(&seen),
                    "{seen} was seen before it was covered"
                );
            }
        }
        .boxed()
    });
    parallel(&world, writers.chain(followers).collect::<Vec<_>>()).await;
}

pub(super) async fn what_the_filter_leaves_out_is_passed(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let filter = ReadFilter::decisions(&[AggregateKind::Source]);
    let source = AggregateRef::new(AggregateKind::Source, "s");
    let mut follow = parts.log.follow(&Position::start(), &filter).await.unwrap();
    assert!(matches!(follow.recv().await.unwrap().unwrap(), Followed::CaughtUp(_)));
    let wanted = parts.log.append(commit_on(&world, ORGANIZATION, source, 0)).await.unwrap();
    let left_out = parts.log.append(commit(&world, "one", 0)).await.unwrap();
    let mut reached = Position::start();
    let mut records = 0;
    while !reached.covers(&left_out.position) {
        match follow.recv().await.unwrap().unwrap() {
            Followed::Record(record) => {
                reached.advance(record.shard, record.sequence);
                records += 1;
            }
            Followed::Passed(position) => reached.merge(&position),
            Followed::CaughtUp(_) => panic!("said twice"),
        }
    }
    assert!(reached.covers(&wanted.position));
    assert_eq!(records, 1);
}

pub(super) async fn following_goes_on_behind_any_position(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..30).await;
    let mut first = parts.log.follow(&Position::start(), &everything()).await.unwrap();
    let (whole, _) = take(&mut first, 30).await;
    let mut position = Position::start();
    for (index, record) in whole.iter().enumerate() {
        position.advance(record.shard, record.sequence);
        let mut follow = parts.log.follow(&position, &everything()).await.unwrap();
        let (rest, _) = take(&mut follow, whole.len() - index - 1).await;
        assert_eq!(rest, whole[index + 1..]);
    }
}
