//! Records leave the streams that are kept by time and size, and only those.
//!
//! What has left cannot be folded again, so before anything does, each projection that is folded from it has an anchor: a
//! snapshot that was compared with a fold of the log, and from which a fold can begin for as long as the log lives. Anchors are
//! taken in generations. The next generation is taken when the one before is put to use, and is put to use when all that lies
//! before it is old enough, or too much: so what is kept is between one and two times as old as was asked for.
//!
//! Any number of replicas may do this at once: each step leaves what is true, and one that comes too late finds nothing to do.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use events::position::Stream;
use events::{Position, Timestamp};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use world::World;

use crate::Parts;
use crate::folded::{Folded, anchor_name, begin_with, projection_of};
use crate::log::{ForgetError, ReadError, Retained, check_has_retention};
use crate::projection::{Projection, Snapshot};
use crate::reading::Reading;
use crate::snapshots::{SnapshotError, Snapshots};

/// The streams that projections are folded from, beside decisions.
const FOLDED: [Stream; 2] = [Stream::Observations, Stream::Objects];
/// The shape of a generation's record.
const VERSION: u32 = 1;
/// Between two looks, at most and at least; the first one comes after a pause as well, as whoever starts has other things to do.
const LOOK_EVERY: Duration = Duration::from_secs(10 * 60);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// How long records are kept, and how many.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The stream by which the generation is called; never decisions.
    pub first: Stream,
    /// Those that records leave together with it.
    pub further: Vec<Stream>,
    /// What is younger stays, unless it is too much.
    pub age: Duration,
    /// What is younger stays even then.
    pub least_age: Duration,
    /// Bytes of all these streams together.
    pub bytes: u64,
}

/// Takes an anchor; its position, or nothing while there is no snapshot that could be one.
type Take = for<'a> fn(&'a Parts) -> BoxFuture<'a, Result<Option<Position>, RetentionError>>;

impl Limits {
    /// Once in the time for which records stay in any case; where there is none, nothing is too young.
    fn is_time_to_warn(&self, before: Option<Timestamp>, now: Timestamp) -> bool {
        let since = before.map(|before| age_of(before, now));
        !self.least_age.is_zero() && since.is_none_or(|since| since >= self.least_age)
    }

    fn streams(&self) -> Vec<Stream> {
        [self.first].into_iter().chain(self.further.iter().copied()).collect()
    }
}

/// A projection that is folded from what leaves.
#[derive(Clone, Copy)]
pub struct Anchored {
    name: &'static str,
    fold_version: u32,
    reads: fn(u32, &[u8]) -> bool,
    streams: fn() -> Vec<Stream>,
    take: Take,
}

impl Anchored {
    /// This projection. What it is folded from leaves the log, so it has to read the snapshots of its former fold version; a test
    /// of the binary that names the projections looks for golden snapshots of both.
    #[must_use]
    pub const fn of<P: Projection>() -> Self {
        Self {
            name: P::NAME,
            fold_version: P::FOLD_VERSION,
            reads: |fold_version, bytes| P::restore(fold_version, bytes).is_some(),
            streams: || P::filter().streams,
            take: |parts| Box::pin(take::<P>(parts)),
        }
    }

    /// The projection's fold version.
    #[must_use]
    pub const fn fold_version(&self) -> u32 {
        self.fold_version
    }

    /// Whether the projection reads this snapshot of a fold version.
    #[must_use]
    pub fn reads(&self, fold_version: u32, bytes: &[u8]) -> bool {
        (self.reads)(fold_version, bytes)
    }

    /// The projection's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Nothing leaves, and why.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log does not let go.
    #[error(transparent)]
    Forget(#[from] ForgetError),
    /// Snapshots cannot be reached.
    #[error(transparent)]
    Snapshots(#[from] SnapshotError),
    /// A projection is not what the log says.
    #[error("the snapshot of {projection} differs from a fold of the log up to {position}")]
    Differs {
        /// Which.
        projection: &'static str,
        /// Where.
        position: Position,
    },
}

/// Anchors that were taken, to be put to use later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Generation {
    taken_at: Timestamp,
    /// Names of all projections that have anchors.
    projections: Vec<String>,
}

impl Generation {
    fn record(&self, name: String, position: Position) -> Result<Snapshot, SnapshotError> {
        let state = events::encode(self)?;
        Ok(Snapshot { name, fold_version: VERSION, position, heads: None, reading: None, state })
    }
}

/// The name under which the next generation of what leaves with a stream lies among the snapshots.
pub(crate) fn generation_name(first: Stream) -> String {
    format!("retention-{}", first.as_str())
}

/// The name under which an anchor lies until it is put to use.
pub(crate) fn next_name(projection: &str) -> String {
    format!("{projection}-next")
}

/// Looks again and again, until `shutdown`. Says after each look how many bytes are too much and stay, as they are too young.
pub async fn keep(
    parts: &Parts,
    world: &World,
    limits: &Limits,
    anchored: &[Anchored],
    too_much: impl Fn(u64) + Send,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut shutdown = pin!(shutdown);
    let mut warned = None;
    let pause = LOOK_EVERY.min(limits.age / 10).max(SHORTEST_PAUSE);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => return,
            () = world.clock.sleep(pause) => {}
        }
        let now = Timestamp(world.clock.now_millis());
        tokio::select! {
            biased;
            () = &mut shutdown => return,
            turn = turn(parts, limits, anchored, now) => match turn {
                Ok(Some(horizon)) => tracing::info!(%horizon, "old records were removed from the log"),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "no records leave the log"),
            },
        }
        let Some(bytes) = excess(parts, limits).await else { continue };
        too_much(bytes);
        if bytes > 0 && limits.is_time_to_warn(warned, now) {
            warned = Some(now);
            warn_of(limits, bytes);
        }
    }
}

/// How much more is kept than the maximum size; `None` where that is not known.
async fn excess(parts: &Parts, limits: &Limits) -> Option<u64> {
    match kept(parts, limits).await {
        Ok(kept) => Some(kept.bytes.saturating_sub(limits.bytes)),
        Err(error) => {
            tracing::debug!(%error, "what the log keeps is not known");
            None
        }
    }
}

fn warn_of(limits: &Limits, bytes: u64) {
    let (stream, young) = (limits.first.as_str(), limits.least_age);
    tracing::warn!(
        stream,
        bytes,
        ?young,
        "the log keeps more than its maximum size, as no younger records are removed"
    );
}

/// Looks once: lets go what is old enough or too much, and takes the next generation where there is none. Returns the horizon if
/// it moved.
///
/// # Errors
/// When the log or snapshots cannot be reached, or a snapshot is not what the log says: then nothing left.
pub async fn turn(
    parts: &Parts,
    limits: &Limits,
    anchored: &[Anchored],
    now: Timestamp,
) -> Result<Option<Position>, RetentionError> {
    let next = next_generation(&*parts.snapshots, limits.first).await?;
    let before = kept(parts, limits).await?;
    let Some((generation, until)) = next else {
        take_generation(parts, limits, anchored, now).await?;
        return Ok(None);
    };
    let age = age_of(generation.taken_at, now);
    let is_too_much = before.bytes > limits.bytes && age >= limits.least_age;
    if age < limits.age && !is_too_much {
        return Ok(None);
    }
    if put_to_use(parts, anchored, &until).await? {
        parts.log.forget(&until).await?;
    }
    take_generation(parts, limits, anchored, now).await?;
    let after = kept(parts, limits).await?;
    Ok((after.horizon != before.horizon).then_some(after.horizon))
}

fn age_of(moment: Timestamp, now: Timestamp) -> Duration {
    u64::try_from(now.millis_since(moment)).map_or(Duration::ZERO, Duration::from_millis)
}

async fn kept(parts: &Parts, limits: &Limits) -> Result<Retained, ReadError> {
    let mut all = Retained::default();
    for stream in limits.streams() {
        let kept = parts.log.retained(stream).await?;
        all.horizon.merge(&kept.horizon);
        all.bytes += kept.bytes;
    }
    Ok(all)
}

async fn next_generation(
    snapshots: &dyn Snapshots,
    first: Stream,
) -> Result<Option<(Generation, Position)>, SnapshotError> {
    let Some(stored) = snapshots.load(&generation_name(first)).await? else { return Ok(None) };
    if stored.fold_version != VERSION {
        return Ok(None);
    }
    Ok(events::decode(&stored.state).ok().map(|generation| (generation, stored.position)))
}

/// The anchors that folds of this log may need to begin with, and by which stream their generation is called.
pub(crate) async fn anchors_of(snapshots: &dyn Snapshots) -> Result<Vec<(Stream, Snapshot)>, SnapshotError> {
    let mut anchors = Vec::new();
    for first in FOLDED {
        let Some((generation, _)) = next_generation(snapshots, first).await? else { continue };
        for projection in generation.projections {
            let anchor = snapshots.load(&anchor_name(&projection)).await?;
            anchors.extend(anchor.map(|anchor| (first, anchor)));
        }
    }
    Ok(anchors)
}

/// Keeps anchors of another log, whose positions are those of this one, and generations that let nothing go.
pub(crate) async fn keep_anchors(
    snapshots: &dyn Snapshots,
    anchors: Vec<(Stream, Snapshot)>,
) -> Result<(), SnapshotError> {
    let mut generations: BTreeMap<Stream, Vec<String>> = BTreeMap::new();
    for (first, anchor) in anchors {
        let Some(projection) = projection_of(&anchor.name) else { continue };
        generations.entry(first).or_default().push(projection.to_owned());
        snapshots.save(anchor).await?;
    }
    for (first, projections) in generations {
        let generation = Generation { taken_at: Timestamp(0), projections };
        snapshots.save(generation.record(generation_name(first), Position::start())?).await?;
    }
    Ok(())
}

/// Takes an anchor of each projection; the generation's record comes last, so that it is whole or not there.
async fn take_generation(
    parts: &Parts,
    limits: &Limits,
    anchored: &[Anchored],
    now: Timestamp,
) -> Result<(), RetentionError> {
    let mut until = parts.log.position(&limits.streams()).await?;
    for projection in anchored {
        let Some(folded) = (projection.take)(parts).await? else {
            tracing::debug!(projection = projection.name, "no snapshot yet that could be an anchor");
            return Ok(());
        };
        let streams = (projection.streams)();
        for (shard, sequence) in until.0.iter_mut().filter(|(shard, _)| streams.contains(&shard.0)) {
            *sequence = folded.sequence(*shard).min(*sequence);
        }
    }
    let projections = anchored.iter().map(|projection| projection.name.to_owned()).collect();
    until.0.retain(|(stream, _), sequence| *sequence > 0 && check_has_retention(*stream).is_ok());
    let generation = Generation { taken_at: now, projections };
    Ok(parts.snapshots.save(generation.record(generation_name(limits.first), until)?).await?)
}

/// Folds the log up to where the running snapshot is, from the anchor on, and keeps the snapshot if it is the same.
async fn take<P: Projection>(parts: &Parts) -> Result<Option<Position>, RetentionError> {
    let Some(running) = parts.snapshots.load(P::NAME).await? else { return Ok(None) };
    let anchor: Folded<P> = begin_with(&*parts.log, &*parts.snapshots, &[anchor_name(P::NAME)]).await?;
    let is_of_this_build = running.reading.as_ref().is_some_and(Reading::is_of_this_build::<P::Event>);
    if running.fold_version != P::FOLD_VERSION
        || !is_of_this_build
        || !running.position.covers(&anchor.position)
    {
        return Ok(None);
    }
    let folded = anchor.up_to(&*parts.log, &running.position).await?;
    if folded.heads.aggregates.is_incomplete() {
        tracing::warn!(
            projection = P::NAME,
            "no anchor is taken: some decisions are of a newer version, upgrade"
        );
        return Ok(None);
    }
    let again = folded.snapshot(next_name(P::NAME)).map_err(SnapshotError::from)?;
    if (&again.state, &again.heads) != (&running.state, &running.heads) {
        return Err(RetentionError::Differs { projection: P::NAME, position: running.position });
    }
    parts.snapshots.save(again).await?;
    Ok(Some(running.position))
}

/// Makes the next generation's anchors the ones that folds begin with; says whether they stand for all that is to leave.
async fn put_to_use(parts: &Parts, anchored: &[Anchored], until: &Position) -> Result<bool, RetentionError> {
    let mut all = Vec::new();
    for projection in anchored {
        match parts.snapshots.load(&next_name(projection.name)).await? {
            Some(next) if next.position.covers(&until.in_streams(&(projection.streams)())) => {
                all.push((projection, next));
            }
            _ => return Ok(false),
        }
    }
    for (projection, next) in all {
        parts.snapshots.save(Snapshot { name: anchor_name(projection.name), ..next }).await?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_warned_once_in_the_time_for_which_records_stay() {
        let hour = Duration::from_secs(3600);
        let limits = |least_age| Limits {
            first: Stream::Objects,
            further: Vec::new(),
            age: 2 * hour,
            least_age,
            bytes: 1,
        };
        let at = |minute: i64| Timestamp(minute * 60_000);
        assert!(limits(hour).is_time_to_warn(None, at(0)));
        assert!(!limits(hour).is_time_to_warn(Some(at(0)), at(59)));
        assert!(limits(hour).is_time_to_warn(Some(at(0)), at(60)));
        assert!(!limits(Duration::ZERO).is_time_to_warn(None, at(0)), "nothing is too young");
    }
}
