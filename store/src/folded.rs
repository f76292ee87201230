//! A projection's state, what it is the fold of, and with what a fold begins.

use events::Position;

use crate::log::{EventLog, ReadError, Record, leaves};
use crate::model::Heads;
use crate::projection::{Projection, Snapshot};
use crate::snapshots::Snapshots;

/// A state, and what it is the fold of.
pub(crate) struct Folded<P> {
    pub(crate) state: P,
    pub(crate) position: Position,
    pub(crate) heads: Heads,
}

impl<P: Projection> Folded<P> {
    pub(crate) fn start() -> Self {
        Self { state: P::start(), position: Position::start(), heads: Heads::default() }
    }

    pub(crate) fn fold(&mut self, record: &Record) {
        self.state.apply(record);
        self.heads.note(record);
        self.position.advance(record.shard, record.sequence);
    }

    pub(crate) fn snapshot(&self, name: String) -> Snapshot {
        Snapshot {
            name,
            fold_version: P::FOLD_VERSION,
            position: self.position.clone(),
            heads: Some(self.heads.clone()),
            state: self.state.snapshot(),
        }
    }

    /// The state of a snapshot, if it is one of this log, and this fold can read it.
    fn of(snapshot: Snapshot, end: &Position) -> Option<Self> {
        let Snapshot { fold_version, position, heads, state, .. } = snapshot;
        if !end.covers(&position) {
            return None;
        }
        Some(Self { state: P::restore(fold_version, &state)?, position, heads: heads? })
    }
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
    for stream in streams.iter().filter(|stream| leaves(**stream).is_ok()) {
        horizon.merge(&log.kept(*stream).await?.horizon);
    }
    for name in names {
        let folded = match snapshots.load(name).await {
            Ok(Some(snapshot)) => Folded::of(snapshot, &end),
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(snapshot = name, %error, "snapshot is not readable");
                continue;
            }
        };
        match folded {
            Some(folded) if folded.position.covers(&horizon) => return Ok(folded),
            _ => tracing::info!(snapshot = name, "snapshot is of another fold or log"),
        }
    }
    if horizon == Position::start() {
        return Ok(Folded::start());
    }
    Err(ReadError::Left { what: format!("what {} is folded from up to {horizon}", P::NAME) })
}
