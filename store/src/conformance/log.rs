//! Laws of the log but for following.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::commit::MAXIMUM_COMMIT_BYTES;
use events::position::Stream;
use events::{AggregateKind, AggregateRef, ChainHash, Commit, CommitId, Event, Grounds, NewEvent, Position};
use futures::FutureExt as _;
use world::World;

use super::{
    ORGANIZATION, OTHER, Storage, agent, batch, commit, commit_on, decisions, event, fill, parallel, read,
};
use crate::log::{AppendError, Appended, EventLog, NewCommit, ReadFilter, Record};

pub(super) async fn acknowledged_is_durable(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..20).await;
    let observed = parts.log.append_batch(batch(Stream::Observations, "w", b"seen")).await.unwrap();
    let before = decisions(&*parts.log).await;
    let position = parts.log.position(Stream::ALL).await.unwrap();
    assert!(position.covers(&observed));
    drop(parts);
    let parts = storage.open().await;
    assert_eq!(decisions(&*parts.log).await, before);
    assert_eq!(parts.log.position(Stream::ALL).await.unwrap(), position);
    assert_eq!(parts.log.history(ORGANIZATION, &agent("one")).await.unwrap(), before);
    fill(&world, &*parts.log, "one", 20..21).await;
}

pub(super) async fn one_version_one_commit(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    for expected in 0..20 {
        let racers = (0..8).map(|_| {
            let (log, commit) = (Arc::clone(&parts.log), commit(&world, "raced", expected));
            async move { log.append(commit).await }.boxed()
        });
        let outcomes = parallel(&world, racers).await;
        let won: Vec<&Appended> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
        assert_eq!(won.len(), 1, "{outcomes:?}");
        assert_eq!((won[0].version, won[0].duplicate), (expected + 1, false));
        for lost in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            let conflict =
                AppendError::Conflict { aggregate: agent("raced"), expected, actual: expected + 1 };
            assert_eq!(lost, &conflict);
        }
    }
    assert_eq!(decisions(&*parts.log).await.len(), 20);
}

pub(super) async fn a_wrong_expectation_conflicts_with_the_actual_version(
    world: World,
    storage: Box<dyn Storage>,
) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..3).await;
    for expected in [0, 2, 4, u64::MAX - 1] {
        let refused = parts.log.append(commit(&world, "one", expected)).await;
        assert_eq!(refused, Err(AppendError::Conflict { aggregate: agent("one"), expected, actual: 3 }));
    }
    let refused = parts.log.append(commit(&world, "new", 1)).await;
    assert_eq!(refused, Err(AppendError::Conflict { aggregate: agent("new"), expected: 1, actual: 0 }));
}

pub(super) async fn a_commit_is_never_doubled_however_late(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..2).await;
    let late = commit(&world, "one", 2);
    let first = parts.log.append(late.clone()).await.unwrap();
    let again = Appended { duplicate: true, ..first.clone() };
    assert_eq!(parts.log.append(late.clone()).await.unwrap(), again);
    fill(&world, &*parts.log, "one", 3..3000).await;
    assert_eq!(parts.log.append(late.clone()).await.unwrap(), again);
    drop(parts);
    let parts = storage.open().await;
    for expected in [0, 2, 3000, 5000] {
        let mut retried = late.clone();
        retried.expected = expected;
        assert_eq!(parts.log.append(retried).await.unwrap(), again, "expected {expected}");
    }
    assert_eq!(parts.log.history(ORGANIZATION, &agent("one")).await.unwrap().len(), 3000);
}

pub(super) async fn a_commit_of_many_tasks_is_stored_once(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    for expected in 0..20 {
        let same = commit(&world, "one", expected);
        let retries = (0..6).map(|_| {
            let (log, same) = (Arc::clone(&parts.log), same.clone());
            async move { log.append(same).await }.boxed()
        });
        let outcomes = parallel(&world, retries).await;
        let fresh =
            outcomes.iter().filter(|outcome| outcome.as_ref().is_ok_and(|appended| !appended.duplicate));
        assert_eq!(fresh.count(), 1, "{outcomes:?}");
        for outcome in outcomes {
            assert_eq!(outcome.unwrap().version, expected + 1);
        }
    }
    assert_eq!(decisions(&*parts.log).await.len(), 20);
}

pub(super) async fn shards_and_versions_are_in_order(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let writers = (0..8_u128).map(|writer| {
        let (world, log) = (world.clone(), Arc::clone(&parts.log));
        async move {
            let organization = events::OrganizationId(uuid::Uuid::from_u128(writer));
            for expected in 0..30 {
                let commit = commit_on(&world, organization, agent(writer), expected);
                log.append(commit).await.unwrap();
            }
        }
        .boxed()
    });
    parallel(&world, writers).await;
    let records = decisions(&*parts.log).await;
    in_order(&records);
    assert_eq!(records.len(), 240);
    assert!(
        records.iter().map(|record| record.shard).collect::<BTreeSet<_>>().len() > 1,
        "several partitions"
    );
}

/// Sequences and times grow in each shard, versions are dense in each aggregate.
fn in_order(records: &[Record]) {
    let mut shards = BTreeMap::new();
    let mut versions = BTreeMap::new();
    for record in records {
        let last = shards.entry(record.shard).or_insert((0, record.recorded_at));
        assert!(record.sequence > last.0 && record.recorded_at >= last.1, "{record:?} after {last:?}");
        *last = (record.sequence, record.recorded_at);
        let commit = record.commit().unwrap();
        let version = versions.entry((commit.organization, commit.aggregate.clone())).or_insert(0);
        assert_eq!(commit.version, *version + 1);
        *version = commit.version;
    }
}

pub(super) async fn commits_are_chained_over_their_stored_bytes(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    for expected in 0..10 {
        parts.log.append(commit(&world, "one", expected)).await.unwrap();
        parts.log.append(commit(&world, "two", expected)).await.unwrap();
    }
    drop(parts);
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 10..12).await;
    let history = parts.log.history(ORGANIZATION, &agent("one")).await.unwrap();
    assert_eq!(history.len(), 12);
    let mut previous = ChainHash::default();
    for record in history {
        let commit: Commit = events::decode(&record.bytes).unwrap();
        assert_eq!(commit.previous, previous);
        assert_eq!(record.commit(), Some(&commit));
        previous = ChainHash::of(&record.bytes);
    }
}

pub(super) async fn what_is_not_valid_is_refused_and_leaves_nothing(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let mut empty = commit(&world, "one", 0);
    empty.events.clear();
    assert!(matches!(parts.log.append(empty).await, Err(AppendError::Invalid { .. })));
    let mut large = commit(&world, "one", 0);
    large.events[0].body.data = vec![1; MAXIMUM_COMMIT_BYTES];
    assert!(matches!(parts.log.append(large).await, Err(AppendError::TooLarge { .. })));
    let wrong = parts.log.append_batch(batch(Stream::Decisions, "w", b"x")).await;
    assert!(matches!(wrong, Err(AppendError::Invalid { .. })));
    let large = vec![1; MAXIMUM_COMMIT_BYTES + 1];
    let wrong = parts.log.append_batch(batch(Stream::Audit, "w", &large)).await;
    assert!(matches!(wrong, Err(AppendError::TooLarge { .. })));
    assert_eq!(parts.log.position(Stream::ALL).await.unwrap(), Position::start());
    let mut largest = commit(&world, "one", 0);
    largest.events = (0..4).map(|_| padded(&world, MAXIMUM_COMMIT_BYTES / 4 - 1024)).collect();
    assert_eq!(parts.log.append(largest).await.unwrap().version, 1);
}

pub(super) async fn a_commit_that_is_too_large_with_its_grounds_is_stored_without(
    world: World,
    storage: Box<dyn Storage>,
) {
    let parts = storage.open().await;
    let grounds = |bytes: usize| Grounds {
        given: vec![7; bytes],
        commits: [(ORGANIZATION, None)].into(),
        observed: BTreeMap::new(),
    };
    for (version, bytes, kept) in [(0, 1024, true), (1, MAXIMUM_COMMIT_BYTES, false), (2, 0, true)] {
        let given = NewCommit { grounds: Some(grounds(bytes)), ..commit(&world, "one", version) };
        assert_eq!(parts.log.append(given).await.unwrap().version, version + 1);
        let history = parts.log.history(ORGANIZATION, &agent("one")).await.unwrap();
        let stored = history.last().unwrap().commit().unwrap();
        assert_eq!(stored.grounds, kept.then(|| grounds(bytes)));
    }
    parts.log.verify().await.unwrap();
}

fn padded(world: &World, bytes: usize) -> NewEvent {
    let mut body = event().encode().unwrap();
    body.data = vec![0; bytes];
    NewEvent { id: events::EventId(world.new_uuid()), body }
}

pub(super) async fn organizations_do_not_touch_each_other(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "same", 0..3).await;
    let other = parts.log.append(commit_on(&world, OTHER, agent("same"), 0)).await.unwrap();
    assert_eq!(other.version, 1);
    assert_eq!(parts.log.history(OTHER, &agent("same")).await.unwrap().len(), 1);
    assert_eq!(parts.log.history(ORGANIZATION, &agent("same")).await.unwrap().len(), 3);
}

pub(super) async fn filters_choose_streams_organizations_and_kinds(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let source = AggregateRef::new(AggregateKind::Source, "s");
    fill(&world, &*parts.log, "one", 0..2).await;
    parts.log.append(commit_on(&world, ORGANIZATION, source.clone(), 0)).await.unwrap();
    parts.log.append(commit_on(&world, OTHER, source.clone(), 0)).await.unwrap();
    parts.log.append_batch(batch(Stream::Observations, "w", b"seen")).await.unwrap();
    parts.log.append_batch(batch(Stream::Audit, "w", b"asked")).await.unwrap();
    let count = async |filter: ReadFilter| read(&*parts.log, &Position::start(), &filter).await.len();
    assert_eq!(count(ReadFilter::decisions(&[])).await, 4);
    assert_eq!(count(ReadFilter::decisions(&[AggregateKind::Source])).await, 2);
    assert_eq!(count(ReadFilter::decisions(&[AggregateKind::Group])).await, 0);
    assert_eq!(count(ReadFilter::decisions(&[]).and(Stream::Observations)).await, 5);
    assert_eq!(count(ReadFilter::decisions(&[AggregateKind::Source]).and(Stream::Audit)).await, 3);
    let mine =
        ReadFilter { organization: Some(ORGANIZATION), ..ReadFilter::decisions(&[AggregateKind::Source]) };
    assert_eq!(count(mine).await, 1);
}

pub(super) async fn reading_goes_on_behind_any_position(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    for expected in 0..20 {
        for organization in [ORGANIZATION, OTHER] {
            parts.log.append(commit_on(&world, organization, agent("one"), expected)).await.unwrap();
        }
        parts.log.append_batch(batch(Stream::Observations, "w", b"seen")).await.unwrap();
    }
    let filter = ReadFilter::decisions(&[]).and(Stream::Observations);
    let whole = read(&*parts.log, &Position::start(), &filter).await;
    assert_eq!(whole.len(), 60);
    let mut position = Position::start();
    for (index, record) in whole.iter().enumerate() {
        position.advance(record.shard, record.sequence);
        let rest = read(&*parts.log, &position, &filter).await;
        assert_eq!(rest, whole[index + 1..]);
    }
}

/// The streams that are not chained.
const BATCHES: [Stream; 6] = [
    Stream::Observations,
    Stream::Objects,
    Stream::Audit,
    Stream::Refusals,
    Stream::Recordings,
    Stream::Exports,
];

pub(super) async fn batches_lie_in_their_partitions(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let partitions = parts.log.partitions();
    let mut expected = Vec::new();
    for index in 0..40_u8 {
        let writer = format!("writer-{}", index % 7);
        for stream in BATCHES {
            let partition = match stream {
                Stream::Observations | Stream::Objects | Stream::Recordings => {
                    events::subject::partition_of_writer(&writer, partitions)
                }
                Stream::Decisions | Stream::Audit | Stream::Refusals | Stream::Exports => {
                    events::subject::partition_of_organization(ORGANIZATION, partitions)
                }
            };
            let position = parts.log.append_batch(batch(stream, &writer, &[index])).await.unwrap();
            assert_eq!(position.0.keys().copied().collect::<Vec<_>>(), vec![(stream, partition)]);
            expected.push((stream, vec![index]));
        }
    }
    let filter = ReadFilter::streams(&BATCHES);
    let records = read(&*parts.log, &Position::start(), &filter).await;
    let mut found: Vec<_> = records.iter().map(|record| (record.shard.0, record.bytes.to_vec())).collect();
    assert!(records.iter().all(|record| record.commit().is_none() && record.organization == ORGANIZATION));
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

pub(super) async fn a_commit_is_found_by_its_id(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    fill(&world, &*parts.log, "one", 0..5).await;
    let wanted = commit(&world, "one", 5);
    let id = wanted.id;
    parts.log.append(wanted).await.unwrap();
    fill(&world, &*parts.log, "one", 6..9).await;
    let found = parts.log.find(ORGANIZATION, &agent("one"), id).await.unwrap().unwrap();
    assert_eq!(found.commit().map(|commit| (commit.id, commit.version)), Some((id, 6)));
    let unknown = CommitId(world.new_uuid());
    assert_eq!(parts.log.find(ORGANIZATION, &agent("one"), unknown).await.unwrap(), None);
    assert_eq!(parts.log.find(OTHER, &agent("one"), id).await.unwrap(), None);
    assert_eq!(parts.log.find(ORGANIZATION, &agent("two"), id).await.unwrap(), None);
}

pub(super) async fn many_tasks_on_many_aggregates_lose_nothing(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    let writers = (0..64).map(|writer| {
        let (world, log) = (world.clone(), Arc::clone(&parts.log));
        async move {
            for expected in 0..25 {
                log.append(commit(&world, format!("w{writer}"), expected)).await.unwrap();
                for stream in [Stream::Observations, Stream::Objects] {
                    log.append_batch(batch(stream, &format!("w{writer}"), b"seen")).await.unwrap();
                }
            }
        }
        .boxed()
    });
    parallel(&world, writers).await;
    drop(parts);
    let parts = storage.open().await;
    let records = decisions(&*parts.log).await;
    assert_eq!(records.len(), 64 * 25);
    in_order(&records);
    let report = parts.log.verify().await.unwrap();
    let found: Vec<(Stream, u64)> =
        report.streams.iter().map(|report| (report.stream, report.records)).collect();
    let written = [Stream::Decisions, Stream::Observations, Stream::Objects];
    let all = 64 * 25;
    let expected = Stream::ALL.iter().map(|stream| (*stream, if written.contains(stream) { all } else { 0 }));
    assert_eq!(found, expected.collect::<Vec<_>>());
    assert_eq!(report.streams[0].aggregates, 64);
    for commit in records.iter().filter_map(|record| record.commit()) {
        assert_eq!(Event::decode(&commit.events[0].body).unwrap(), event());
    }
    assert_eq!(last_version(&*parts.log, "w63").await, 25);
}

async fn last_version(log: &dyn EventLog, id: &str) -> u64 {
    let history = log.history(ORGANIZATION, &agent(id)).await.unwrap();
    history.last().and_then(|record| record.commit()).map_or(0, |commit| commit.version)
}
