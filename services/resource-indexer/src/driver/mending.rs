//! A fault of the database ends nothing: it is a cache of the log, and is made anew.

use std::sync::Arc;
use std::time::Duration;

use events::Position;

use super::{Driver, FollowError, State};
use crate::store::{Store, StoreError};

/// The pause before the database is made anew a second time; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Between two times that a fault which an answer met makes it anew: one that comes back every time would leave no time to answer.
const MENDED: Duration = Duration::from_secs(600);

/// Faults of the database, and when it was made anew for one.
#[derive(Default)]
pub(super) struct Faults {
    /// What an answer or a verdict met.
    met: Option<StoreError>,
    mended: Option<Duration>,
}

impl Driver {
    /// The database.
    pub(super) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store.read())
    }

    /// Something could not be read: the database is made anew soon.
    pub(crate) fn suspect(&self, error: &StoreError) {
        tracing::error!(%error, "index cannot be read");
        self.faults.lock().met.get_or_insert_with(|| error.clone());
    }

    /// Gives the fault that an answer met, where it is time to do something about it.
    pub(super) fn mend(&self, now: Duration) -> Result<(), FollowError> {
        let mut faults = self.faults.lock();
        let is_time = faults.mended.is_none_or(|mended| now.saturating_sub(mended) >= MENDED);
        match faults.met.take() {
            Some(error) if is_time => {
                faults.mended = Some(now);
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// Deletes the database and begins with an empty one; folding it anew is for the caller. Does not give up.
    pub(super) async fn make_anew(&self, error: &StoreError, times: u32) {
        tracing::error!(%error, "index is made anew from the log");
        self.counts.rebuilt.inc();
        self.caught_up.send_replace(false);
        let mut times = times;
        loop {
            if times > 0 {
                let pause = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX));
                self.deps.world.clock.sleep(pause.min(LONGEST_PAUSE)).await;
            }
            match self.begin_empty() {
                Ok(()) => return,
                Err(error) => tracing::error!(%error, "index cannot be made anew yet"),
            }
            times = times.saturating_add(1);
        }
    }

    fn begin_empty(&self) -> Result<(), StoreError> {
        let (log, partitions) = (self.deps.log.id(), self.deps.log.partitions());
        let made = match &self.folder {
            Some(folder) => Store::make(folder, log, partitions)?,
            None => Store::in_memory(partitions)?,
        };
        let mut state = self.state.write();
        state.replace(State::load(&made)?);
        *self.store.write() = Arc::new(made);
        self.position.send_replace(Position::start());
        Ok(())
    }
}
