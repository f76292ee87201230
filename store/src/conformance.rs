//! The laws of the traits as tests that every implementation joins: `run_all(&world, make).await`.
//!
//! A law that does not hold panics, with the law's name printed before.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a suite fails by panicking; no shipped binary holds it"
)]

mod blobs;
mod follow;
pub(crate) mod following;
mod keys;
mod log;
mod moment;
pub(crate) mod retention;
mod snapshots;
mod upgrade;

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use events::directory::{DirectoryEvent, TokenUsed};
use events::position::Stream;
use events::{
    Actor, AggregateKind, AggregateRef, CommitId, CorrelationId, Event, OrganizationId, Position, Timestamp,
    TokenId,
};
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use world::World;

use crate::Parts;
use crate::decide::new_events;
use crate::log::{EventLog, NewBatch, NewCommit, ReadFilter, Record};

/// How long anything may take before a law counts as broken.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// One storage. Dropped at the end of a law, with all that it keeps.
#[async_trait]
pub trait Storage: Send + Sync {
    /// Opens what is kept; called again after all parts of the call before were dropped.
    async fn open(&self) -> Parts;
}

type Law = fn(World, Box<dyn Storage>) -> BoxFuture<'static, ()>;

macro_rules! laws {
    ($($module:ident :: $law:ident,)*) => {
        &[$((concat!(stringify!($module), "::", stringify!($law)), |world, storage| Box::pin($module::$law(world, storage))),)*]
    };
}

/// Every law.
const LAWS: &[(&str, Law)] = laws![
    log::acknowledged_is_durable,
    log::one_version_one_commit,
    log::a_wrong_expectation_conflicts_with_the_actual_version,
    log::a_commit_is_never_doubled_however_late,
    log::a_commit_of_many_tasks_is_stored_once,
    log::shards_and_versions_are_in_order,
    log::commits_are_chained_over_their_stored_bytes,
    log::what_is_not_valid_is_refused_and_leaves_nothing,
    log::a_commit_that_is_too_large_with_its_grounds_is_stored_without,
    log::organizations_do_not_touch_each_other,
    log::filters_choose_streams_organizations_and_kinds,
    log::reading_goes_on_behind_any_position,
    log::batches_lie_in_their_partitions,
    log::a_commit_is_found_by_its_id,
    log::many_tasks_on_many_aggregates_lose_nothing,
    moment::the_position_at_a_moment_is_behind_what_was_recorded_by_then,
    moment::what_has_left_was_there_at_each_moment,
    moment::where_nothing_is_recorded_each_moment_is_the_start,
    follow::no_gap_and_no_double_under_load,
    follow::a_slow_follower_holds_up_nobody,
    follow::a_follower_that_falls_behind_gets_the_same_order,
    follow::who_begins_together_gets_all_of_a_long_log,
    follow::caught_up_is_said_once_and_covers_what_was_there,
    follow::the_position_covers_what_a_follower_has_seen,
    follow::what_the_filter_leaves_out_is_passed,
    follow::following_goes_on_behind_any_position,
    blobs::what_was_put_is_got,
    blobs::addresses_are_keyed_by_organization,
    blobs::equal_content_is_stored_once,
    blobs::nothing_is_found_where_nothing_is,
    blobs::many_tasks_put_at_once,
    blobs::without_its_key_a_blob_is_lost,
    keys::two_callers_get_the_same_key,
    keys::the_first_key_stays,
    keys::a_destroyed_key_is_gone_for_good,
    keys::the_root_signs_and_stays,
    snapshots::the_newest_snapshot_is_read_whole,
    snapshots::names_are_apart_and_checked,
    following::a_projection_reads_its_own_writes,
    following::a_snapshot_folded_on_equals_a_fold_from_the_start,
    following::a_snapshot_of_another_fold_is_not_used,
    following::waiting_ends_at_its_deadline_or_with_the_projection,
    following::decisions_of_many_tasks_are_all_made_on_the_newest_state,
    following::a_command_tried_again_answers_as_before,
    following::a_decision_on_a_version_that_is_over_is_given_up,
    retention::behind_the_horizon_nothing_is_missing,
    retention::a_horizon_stays_and_sequences_go_on,
    retention::streams_leave_apart_from_each_other,
    retention::decisions_never_leave,
    retention::a_fold_begins_with_an_anchor,
    retention::what_is_young_and_little_stays,
    retention::nothing_leaves_while_a_snapshot_is_wrong,
    upgrade::builds_that_know_different_things_share_a_log,
    upgrade::no_anchor_stands_for_what_was_left_out,
];

/// Checks every law, each on a fresh storage that `make` gives.
///
/// # Panics
/// When a law does not hold.
pub async fn run_all(world: &World, make: impl AsyncFn() -> Box<dyn Storage>) {
    for (name, law) in LAWS {
        println!("law {name}");
        let storage = make().await;
        within(world, name, law(world.clone(), storage)).await;
    }
}

async fn within<T>(world: &World, what: &str, future: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = future => done,
        () = world.clock.sleep(DEADLINE) => panic!("{what} takes longer than {DEADLINE:?}"),
    }
}

pub(crate) const ORGANIZATION: OrganizationId = OrganizationId(uuid::Uuid::from_u128(0xa1));
pub(crate) const OTHER: OrganizationId = OrganizationId(uuid::Uuid::from_u128(0xb2));

/// Runs futures as tasks of their own and returns what they return, in order.
pub(crate) async fn parallel<T: Send + 'static>(
    world: &World,
    futures: impl IntoIterator<Item = BoxFuture<'static, T>>,
) -> Vec<T> {
    let mut answers = Vec::new();
    for future in futures {
        let (to, answer) = oneshot::channel();
        let task = async move {
            assert!(to.send(future.await).is_ok(), "nobody waits");
        };
        world.spawner.spawn("conformance", Box::pin(task));
        answers.push(answer);
    }
    let mut results = Vec::new();
    for answer in answers {
        results.push(answer.await.expect("a task panicked"));
    }
    results
}

pub(crate) fn agent(id: impl std::fmt::Display) -> AggregateRef {
    AggregateRef::new(AggregateKind::Agent, id)
}

pub(crate) fn event() -> Event {
    let used = TokenUsed { token: TokenId(uuid::Uuid::from_u128(7)), at: Timestamp(1_800_000_000_000) };
    Event::from(DirectoryEvent::TokenUsed(used))
}

pub(crate) fn commit_on(
    world: &World,
    organization: OrganizationId,
    aggregate: AggregateRef,
    expected: u64,
) -> NewCommit {
    NewCommit {
        id: CommitId(world.new_uuid()),
        organization,
        aggregate,
        expected,
        actor: Actor::service("conformance"),
        correlation_id: CorrelationId(world.new_uuid()),
        causation_id: None,
        traceparent: None,
        occurred_at: Timestamp(world.clock.now_millis()),
        command: None,
        grounds: None,
        events: new_events(world, [event()]).unwrap(),
    }
}

pub(crate) fn commit(world: &World, id: impl std::fmt::Display, expected: u64) -> NewCommit {
    commit_on(world, ORGANIZATION, agent(id), expected)
}

pub(crate) fn batch(stream: Stream, writer: &str, data: &[u8]) -> NewBatch {
    NewBatch { stream, organization: ORGANIZATION, writer: writer.to_owned(), data: data.to_vec() }
}

/// Appends commits to one aggregate.
pub(crate) async fn fill(world: &World, log: &dyn EventLog, id: &str, versions: std::ops::Range<u64>) {
    for expected in versions {
        log.append(commit(world, id, expected)).await.unwrap();
    }
}

pub(crate) async fn read(log: &dyn EventLog, from: &Position, filter: &ReadFilter) -> Vec<Record> {
    let mut reader = log.read(from, filter).await.unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.recv().await {
        records.push(record.unwrap());
    }
    records
}

pub(crate) async fn decisions(log: &dyn EventLog) -> Vec<Record> {
    read(log, &Position::start(), &ReadFilter::decisions(&[])).await
}
