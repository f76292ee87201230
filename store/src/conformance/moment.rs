//! Laws of positions at moments.

use std::collections::BTreeSet;
use std::time::Duration;

use events::position::Stream;
use events::{Position, Timestamp};
use world::World;

use super::{ORGANIZATION, Storage, agent, batch, commit_on, read};
use crate::Parts;
use crate::log::{EventLog, ReadFilter, Record};

const ROUNDS: u64 = 24;
/// Large enough that a few rounds fill small segments.
const BYTES: usize = 4096;
/// Records of two rounds have two times.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(3);

/// Appends to all streams, at many moments.
async fn append_over_time(world: &World, parts: &Parts, rounds: u64) {
    for round in 0..rounds {
        let append = |stream: Stream, number: u64| {
            parts.log.append_batch(batch(stream, &format!("w{}", number % 5), &[7; BYTES]))
        };
        let batches = Stream::ALL.iter().filter(|stream| **stream != Stream::Decisions);
        let batches = batches.flat_map(|stream| (0..4).map(|number| append(*stream, round + number)));
        futures::future::try_join_all(batches).await.unwrap();
        parts.log.append(commit_on(world, ORGANIZATION, agent("one"), round)).await.unwrap();
        world.clock.sleep(BETWEEN_ROUNDS).await;
    }
}

/// What a reader has seen who read everything that was recorded by then, and began behind a horizon.
fn recorded_by(records: &[Record], time: Timestamp, horizon: &Position) -> Position {
    let mut position = horizon.clone();
    for record in records.iter().filter(|record| record.recorded_at <= time) {
        position.advance(record.shard, record.sequence);
    }
    position
}

/// Moments at which something was recorded, and those just before.
fn moments(records: &[Record]) -> BTreeSet<Timestamp> {
    let times = records.iter().map(|record| record.recorded_at);
    times.flat_map(|time| [time.plus_millis(-1), time]).collect()
}

async fn everything(log: &dyn EventLog) -> Vec<Record> {
    read(log, &Position::start(), &ReadFilter::streams(Stream::ALL)).await
}

pub(super) async fn the_position_at_a_moment_is_behind_what_was_recorded_by_then(
    world: World,
    storage: Box<dyn Storage>,
) {
    let parts = storage.open().await;
    append_over_time(&world, &parts, ROUNDS).await;
    let records = everything(&*parts.log).await;
    let moments = moments(&records);
    assert!(moments.len() > 6, "the test's clock stands still: {moments:?}");
    for time in moments.iter().copied().step_by(moments.len().div_ceil(24)) {
        let position = parts.log.position_at(Stream::ALL, time).await.unwrap();
        assert_eq!(position, recorded_by(&records, time, &Position::start()), "at {time}");
        let objects = parts.log.position_at(&[Stream::Objects], time).await.unwrap();
        assert_eq!(objects, position.in_streams(&[Stream::Objects]), "at {time}");
    }
    let ends = [(Timestamp(0), Position::start()), (Timestamp(i64::MAX), all_of(&parts).await)];
    for (time, position) in ends {
        assert_eq!(parts.log.position_at(Stream::ALL, time).await.unwrap(), position);
    }
}

async fn all_of(parts: &Parts) -> Position {
    parts.log.position(Stream::ALL).await.unwrap()
}

pub(super) async fn what_has_left_was_there_at_each_moment(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    append_over_time(&world, &parts, ROUNDS / 2).await;
    let until = parts.log.position(&[Stream::Objects]).await.unwrap();
    append_over_time_without_decisions(&world, &parts).await;
    parts.log.forget(&until).await.unwrap();
    let horizon = parts.log.retained(Stream::Objects).await.unwrap().horizon;
    let records = read(&*parts.log, &Position::start(), &ReadFilter::streams(&[Stream::Objects])).await;
    let first = records.iter().map(|record| record.recorded_at).min().unwrap();
    let last = records.iter().map(|record| record.recorded_at).max().unwrap();
    for time in [Timestamp(0), first.plus_millis(-1), first, last.plus_millis(-1), last] {
        let position = parts.log.position_at(&[Stream::Objects], time).await.unwrap();
        assert_eq!(position, recorded_by(&records, time, &horizon), "at {time}");
    }
}

async fn append_over_time_without_decisions(world: &World, parts: &Parts) {
    for round in 0..ROUNDS {
        parts
            .log
            .append_batch(batch(Stream::Objects, &format!("w{}", round % 5), &[7; BYTES]))
            .await
            .unwrap();
        world.clock.sleep(BETWEEN_ROUNDS).await;
    }
}

pub(super) async fn where_nothing_is_recorded_each_moment_is_the_start(_: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    for time in [Timestamp(0), Timestamp(i64::MAX)] {
        assert_eq!(parts.log.position_at(Stream::ALL, time).await.unwrap(), Position::start());
    }
}
