//! The log with metrics: what becomes of appends, and how far behind its projections are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chassis::{Metrics, Shutdown};
use events::Position;
use events::position::Stream;
use parking_lot::Mutex;
use store::{AppendError, Appended, EventLog, LogLayer, NewBatch, NewCommit};
use world::World;

use super::metrics::LogMetrics;

/// How often projections are compared with the log's end, for which a log on NATS asks its servers.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A log that counts.
pub(super) struct MeasuredLog {
    inner: Arc<dyn EventLog>,
    world: World,
    counts: LogMetrics,
    /// How far projections have come in their streams.
    folded: Mutex<BTreeMap<&'static str, (Vec<Stream>, Position)>>,
}

impl MeasuredLog {
    pub(super) fn new(inner: Arc<dyn EventLog>, world: World, metrics: &Metrics) -> Self {
        Self { inner, world, counts: LogMetrics::register(metrics), folded: Mutex::default() }
    }

    /// Compares projections with the log's end from time to time, until shutdown is asked for.
    pub(super) async fn watch_projections(self: Arc<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        loop {
            // What cannot be read now is read the next time; the log's own failures are counted where they are met.
            if let Ok(end) = self.inner.position(Stream::ALL).await {
                for (projection, (streams, position)) in &*self.folded.lock() {
                    let lag = i64::try_from(lag(streams, position, &end)).unwrap_or(i64::MAX);
                    self.counts.projection_lag_records.with([projection]).set(lag);
                }
            }
            tokio::select! {
                () = shutdown.requested() => return Ok(()),
                () = self.world.clock.sleep(LOOK_EVERY) => {}
            }
        }
    }

    fn appended<T>(
        &self,
        stream: Stream,
        began: Duration,
        outcome: Result<T, AppendError>,
        fine: impl FnOnce(&T) -> &'static str,
    ) -> Result<T, AppendError> {
        let took = self.world.clock.monotonic().saturating_sub(began);
        let what = match &outcome {
            Ok(appended) => fine(appended),
            Err(AppendError::Conflict { .. }) => "conflict",
            Err(AppendError::Unknown { .. }) => "unknown",
            Err(AppendError::TooLarge { .. }) => "too_large",
            Err(AppendError::Invalid { .. }) => "invalid",
            Err(AppendError::Away { .. }) => "away",
            Err(AppendError::ReadOnly { .. }) => "read_only",
        };
        self.counts.appends.with([stream.as_str(), what]).inc();
        self.counts.append_seconds.with([stream.as_str()]).observe(took.as_secs_f64());
        outcome
    }
}

/// How many records lie between a position and the end, in these streams.
fn lag(streams: &[Stream], position: &Position, end: &Position) -> u64 {
    let followed = end.0.iter().filter(|((stream, _), _)| streams.contains(stream));
    followed.map(|(shard, end)| end.saturating_sub(position.sequence(*shard))).sum()
}

#[async_trait]
impl LogLayer for MeasuredLog {
    fn inner(&self) -> &dyn EventLog {
        &*self.inner
    }

    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError> {
        let began = self.world.clock.monotonic();
        let outcome = self.inner.append(commit).await;
        self.appended(Stream::Decisions, began, outcome, |appended| {
            if appended.duplicate { "duplicate" } else { "appended" }
        })
    }

    async fn append_batch(&self, record: NewBatch) -> Result<Position, AppendError> {
        let (stream, began) = (record.stream, self.world.clock.monotonic());
        let outcome = self.inner.append_batch(record).await;
        self.appended(stream, began, outcome, |_| "appended")
    }

    fn folded(&self, projection: &'static str, streams: &[Stream], position: &Position) {
        let mut folded = self.folded.lock();
        let known = folded.entry(projection).or_insert_with(|| (streams.to_vec(), Position::start()));
        known.1.merge(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_projection_follows_counts_as_its_lag() {
        let mut end = Position::of(Stream::Decisions, 0, 10);
        end.advance((Stream::Decisions, 1), 4);
        end.advance((Stream::Observations, 0), 100);
        let position = Position::of(Stream::Decisions, 0, 7);
        assert_eq!(lag(&[Stream::Decisions], &position, &end), 3 + 4);
        assert_eq!(lag(&[Stream::Decisions], &end, &end), 0);
        assert_eq!(lag(&[Stream::Audit], &position, &end), 0);
    }
}
