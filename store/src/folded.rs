//! A projection's state, what it is the fold of, and with what a fold begins.

use events::position::Stream;
use events::{EncodeError, Position};

use crate::log::{EventLog, ReadError, ReadFilter, Record, check_has_retention};
use crate::model::Heads;
use crate::projection::{Projection, Snapshot};
use crate::reading::{Aggregates, Catalogue, Reading, fold};
use crate::snapshots::Snapshots;

/// A state, and what it is the fold of.
pub(crate) struct Folded<P> {
    pub(crate) state: P,
    pub(crate) position: Position,
    pub(crate) heads: Heads,
    filter: ReadFilter,
}

impl<P: Projection> Folded<P> {
    pub(crate) fn start() -> Self {
        let (position, heads, filter) = (Position::start(), Heads::default(), P::filter());
        Self { state: P::start(), position, heads, filter }
    }

    /// Folds the next record.
    ///
    /// # Errors
    /// When it is not the next one: then nothing is folded.
    pub(crate) fn fold(&mut self, record: &Record) -> Result<(), ReadError> {
        let before = self.position.sequence(record.shard);
        let is_next = if self.filter.takes_all_of(record.shard.0) {
            record.sequence == before + 1
        } else {
            record.sequence > before
        };
        if !is_next {
            return Err(ReadError::not_dense(record, format!("it comes behind record {before}")));
        }
        self.heads.advance(record)?;
        let left_out = fold(record, |fact| self.state.apply(fact));
        self.heads.note(record, P::NAME, left_out);
        self.position.advance(record.shard, record.sequence);
        Ok(())
    }

    /// Folds on up to a position, beside whoever follows.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) async fn up_to(mut self, log: &dyn EventLog, until: &Position) -> Result<Self, ReadError> {
        let mut records = log.read(&self.position, &self.filter).await?;
        while let Some(record) = records.recv().await {
            let record = record?;
            if record.sequence <= until.sequence(record.shard) {
                self.fold(&record)?;
            }
        }
        self.position.merge(until);
        Ok(self)
    }

    /// What is stored of it.
    ///
    /// # Errors
    /// When the state cannot be expressed.
    pub(crate) fn snapshot(&self, name: String) -> Result<Snapshot, EncodeError> {
        let Heads { commits, aggregates, left_out } = &self.heads;
        Ok(Snapshot {
            name,
            fold_version: P::FOLD_VERSION,
            position: self.position.clone(),
            heads: Some(commits.clone()),
            reading: Some(Reading::new::<P::Event>(aggregates.clone(), *left_out)),
            state: self.state.snapshot()?,
        })
    }

    /// The state of a snapshot, if it is one of this log, and this fold can read it.
    async fn of(snapshot: Snapshot, end: &Position, log: &dyn EventLog) -> Result<Option<Self>, ReadError> {
        let Snapshot { fold_version, position, heads, state, reading, .. } = snapshot;
        if !end.covers(&position) {
            return Ok(None);
        }
        let (Some(state), Some(commits)) = (P::restore(fold_version, &state), heads) else { return Ok(None) };
        let filter = P::filter();
        let (aggregates, left_out) = match reading {
            Some(reading) if !reading.is_newer::<P::Event>() => (reading.aggregates, reading.left_out),
            // Of the decisions, this build may not know all that the one which made the snapshot knew.
            other => (
                aggregates_of::<P::Event>(log, &filter, &position, P::NAME).await?,
                other.is_some_and(|reading| reading.left_out),
            ),
        };
        Ok(Some(Self { state, position, heads: Heads { commits, aggregates, left_out }, filter }))
    }
}

/// What this build knows of the aggregates up to a position. Decisions never leave the log.
async fn aggregates_of<E: Catalogue>(
    log: &dyn EventLog,
    filter: &ReadFilter,
    until: &Position,
    projection: &str,
) -> Result<Aggregates, ReadError> {
    let mut aggregates = Aggregates::default();
    if !filter.streams.contains(&Stream::Decisions) {
        return Ok(aggregates);
    }
    let decisions = ReadFilter { streams: vec![Stream::Decisions], ..filter.clone() };
    let mut records = log.read(&Position::start(), &decisions).await?;
    while let Some(record) = records.recv().await {
        let record = record?;
        if record.sequence > until.sequence(record.shard) {
            continue;
        }
        aggregates.advance(&record)?;
        if let Some(detail) = fold::<E>(&record, |_| {}).event {
            aggregates.close(&record, projection, detail);
        }
    }
    Ok(aggregates)
}

/// The name under which the snapshot lies that stands for what has left the log.
pub(crate) fn anchor_name(projection: &str) -> String {
    format!("{projection}{ANCHOR}")
}

/// The projection whose anchor has this name.
pub(crate) fn projection_of(anchor: &str) -> Option<&str> {
    anchor.strip_suffix(ANCHOR)
}

const ANCHOR: &str = "-anchor";

async fn load(snapshots: &dyn Snapshots, name: &str) -> Option<Snapshot> {
    let loaded = snapshots.load(name).await;
    loaded.unwrap_or_else(|error| {
        tracing::warn!(snapshot = name, %error, "snapshot is not readable");
        None
    })
}

/// A projection as the first of these snapshots has it that is of use, or before everything.
///
/// # Errors
/// When the log cannot be read, or what has left it is needed and in none of them.
pub(crate) async fn begin_with<P: Projection>(
    log: &dyn EventLog,
    snapshots: &dyn Snapshots,
    names: &[String],
) -> Result<Folded<P>, ReadError> {
    let streams = P::filter().streams;
    let end = log.position(&streams).await?;
    let mut horizon = Position::start();
    for stream in streams.iter().filter(|stream| check_has_retention(**stream).is_ok()) {
        horizon.merge(&log.retained(*stream).await?.horizon);
    }
    let mut incomplete = None;
    for name in names {
        let Some(snapshot) = load(snapshots, name).await else { continue };
        let lacks = snapshot.reading.as_ref().is_some_and(Reading::lacks::<P::Event>);
        let folded = Folded::of(snapshot, &end, log).await?.filter(|folded| folded.position.covers(&horizon));
        match folded {
            Some(folded) if lacks => incomplete = incomplete.or(Some(folded)),
            Some(folded) => return Ok(folded),
            None => tracing::info!(snapshot = name, "snapshot is of another fold or log"),
        }
    }
    if horizon == Position::start() {
        return Ok(Folded::start());
    }
    if let Some(folded) = incomplete {
        tracing::warn!(
            projection = P::NAME,
            "unknown observations were removed from the log, the fold continues without them"
        );
        return Ok(folded);
    }
    Err(ReadError::Left { what: format!("what {} is folded from up to {horizon}", P::NAME) })
}

#[cfg(test)]
mod tests;
