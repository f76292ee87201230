//! Scenario `log`: the embedded log beside the bare disk and the bare decoder.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use events::directory::{DirectoryEvent, TokenUsed};
use events::{
    Actor, AggregateKind, AggregateRef, Commit, CommitId, CorrelationId, Event, EventBody, EventId, NewEvent,
    OrganizationId, Position, Timestamp, TokenId,
};
use store::{EventLog, NewCommit, ReadFilter};
use uuid::Uuid;
use world::World;

use crate::counting_disk::{CountingDisk, Groups};
use crate::figure::{Figure, Target};

/// How long writers append in one run.
const APPENDING: Duration = Duration::from_secs(2);
/// Events behind a replay.
pub const REPLAYED: usize = 100_000;

/// Measures appends with 1, 16 and 64 writers, and replay.
pub async fn run(count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for writers in [1, 16, 64] {
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push(append_run(writers).await?);
        }
        figures.push(Figure::of(
            &format!("log.append-{writers}"),
            "appends/s",
            Target::RatioAtLeast(0.7),
            runs,
        ));
    }
    figures.push(Figure::of("log.replay", "events/s", Target::RatioAtLeast(0.6), replay_runs(count).await?));
    Ok(figures)
}

/// Appends for a while, then writes the same bytes in the same groups to a bare file. Both as appends a second.
async fn append_run(writers: usize) -> anyhow::Result<(f64, Option<f64>)> {
    let folder = tempfile::tempdir_in(scratch()?)?;
    let real = World::real();
    let (disk, groups) = CountingDisk::new(Arc::clone(&real.disk), "decisions");
    let world = World { disk: Arc::new(disk), ..real };
    let store = store::embedded::open(&world, folder.path(), store::embedded::Options::default())?;
    groups.lock().clear();
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..writers {
        tasks.push(tokio::spawn(append_until(Arc::clone(&store.log), start + APPENDING)));
    }
    let mut appended = 0_u32;
    for task in tasks {
        appended += task.await??;
    }
    let rate = f64::from(appended) / start.elapsed().as_secs_f64();
    drop(store);
    let bare = bare_seconds(&folder.path().join("bare"), &groups)?;
    Ok((rate, Some(f64::from(appended) / bare)))
}

/// Whose commits all are.
pub const ORGANIZATION: OrganizationId = OrganizationId(Uuid::from_u128(1));

/// Appends to an aggregate of its own; how often.
pub async fn append_until(log: Arc<dyn EventLog>, end: Instant) -> anyhow::Result<u32> {
    let aggregate = AggregateRef::new(AggregateKind::Agent, Uuid::now_v7());
    let body = body()?;
    let mut appended = 0;
    while Instant::now() < end {
        log.append(commit(&aggregate, u64::from(appended), &body)).await?;
        appended += 1;
    }
    Ok(appended)
}

/// An event as it is stored; made once, as it is the log that is measured.
fn body() -> anyhow::Result<EventBody> {
    let used = TokenUsed { token: TokenId(Uuid::from_u128(7)), at: Timestamp(1_800_000_000_000) };
    Ok(Event::from(DirectoryEvent::TokenUsed(used)).encode()?)
}

/// A commit whose stored form is about 300 bytes.
fn commit(aggregate: &AggregateRef, expected: u64, body: &EventBody) -> NewCommit {
    NewCommit {
        // No random number is needed: an aggregate's commits are told apart by their versions.
        id: CommitId(Uuid::from_u128(u128::from(expected) + 1)),
        organization: ORGANIZATION,
        aggregate: aggregate.clone(),
        expected,
        actor: Actor::service("loadtest"),
        correlation_id: CorrelationId(Uuid::from_u128(2)),
        causation_id: None,
        traceparent: None,
        occurred_at: Timestamp(1_800_000_000_000),
        command: None,
        grounds: None,
        events: vec![NewEvent { id: EventId(Uuid::from_u128(3)), body: body.clone() }],
    }
}

/// Seconds that the bare disk takes for the same bytes in the same groups.
fn bare_seconds(path: &Path, groups: &Groups) -> anyhow::Result<f64> {
    use std::io::Write as _;
    let groups = groups.lock().clone();
    let bytes = vec![0xa5_u8; groups.iter().copied().max().unwrap_or(0)];
    let mut file = std::fs::File::create(path)?;
    let start = Instant::now();
    for size in groups {
        file.write_all(bytes.get(..size).context("group is no longer than the longest")?)?;
        file.sync_data()?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Reads a log of [`REPLAYED`] events into types, and decodes the same bytes from memory.
async fn replay_runs(count: usize) -> anyhow::Result<Vec<(f64, Option<f64>)>> {
    let folder = tempfile::tempdir_in(scratch()?)?;
    let world = World::real();
    let store = store::embedded::open(&world, folder.path(), store::embedded::Options::default())?;
    fill(&store.log, REPLAYED).await?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        let mut reader = store.log.read(&Position::start(), &ReadFilter::decisions(&[])).await?;
        let mut stored = Vec::with_capacity(REPLAYED);
        let mut events = 0_usize;
        while let Some(record) = reader.recv().await {
            let record = record?;
            events += decoded(record.commit().context("decisions are commits")?)?;
            stored.push(record.bytes);
        }
        let replay = events_per_second(events, start);
        let start = Instant::now();
        let mut again = 0_usize;
        for bytes in &stored {
            again += decoded(&events::decode::<Commit>(bytes)?)?;
        }
        anyhow::ensure!(again == events && events == REPLAYED, "all events are read");
        runs.push((replay, Some(events_per_second(again, start))));
    }
    Ok(runs)
}

/// Appends so many commits to a log, to a hundred aggregates at the same time.
pub async fn fill(log: &Arc<dyn EventLog>, commits: usize) -> anyhow::Result<()> {
    let writers = 100;
    let tasks = (0..writers).map(|_| {
        let log = Arc::clone(log);
        tokio::spawn(async move {
            let aggregate = AggregateRef::new(AggregateKind::Agent, Uuid::now_v7());
            let body = body()?;
            for version in 0..commits / writers {
                log.append(commit(&aggregate, u64::try_from(version)?, &body)).await?;
            }
            anyhow::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

/// Decodes the events of a commit; how many there are.
pub fn decoded(commit: &Commit) -> anyhow::Result<usize> {
    for event in &commit.events {
        std::hint::black_box(Event::decode(&event.body)?);
    }
    Ok(commit.events.len())
}

/// So many events since a moment, a second.
#[expect(clippy::cast_precision_loss, reason = "counts of events are far below 2^52")]
pub fn events_per_second(events: usize, start: Instant) -> f64 {
    events as f64 / start.elapsed().as_secs_f64()
}

/// A folder on the disk that holds the build, not in memory.
pub fn scratch() -> anyhow::Result<std::path::PathBuf> {
    let folder = std::path::PathBuf::from("target/bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
