//! A projection that follows the log.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use events::position::Stream;
use events::{EncodeError, Position, Refusal, RefusalKind};
use parking_lot::RwLock;
use tokio::sync::watch;
use world::World;
use world::spawn::{TaskHandle, blocking};

use crate::folded::{Folded, anchor_name, begin_with};
use crate::log::{EventLog, FollowReader, Followed, ReadError, ReadFilter};
use crate::model::Heads;
use crate::projection::{Projection, Snapshot};
use crate::snapshots::{SnapshotError, Snapshots};
use crate::waiting::Waiting;

/// How long the log may take to answer when this starts, as nodes may be electing who leads them.
const START_TIME: Duration = Duration::from_secs(60);
const START_PAUSE: Duration = Duration::from_millis(500);
/// How long a refused request waits for the projection to catch up.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// A snapshot that is due waits until the log has been still for so long: it is folded beside, and what comes now is waited for.
const STILL: Duration = Duration::from_secs(1);
/// It waits for so many times the records between two snapshots at most.
const OVERDUE: u64 = 4;
/// Records that are folded under one lock.
const AT_ONCE: usize = 64;

/// A projection kept up to date by [`Following::drive`]. Cheap to clone; all clones see the same state.
pub struct Following<P> {
    inner: Arc<Inner<P>>,
}

impl<P> Clone for Following<P> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

struct Inner<P> {
    log: Arc<dyn EventLog>,
    snapshots: Arc<dyn Snapshots>,
    world: World,
    folded: RwLock<Folded<P>>,
    waiting: Waiting,
    caught_up: watch::Sender<bool>,
    ended: watch::Sender<bool>,
}

/// Following ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// The log could not be read.
    #[error("projection {projection} cannot follow the log")]
    Read {
        /// Which projection.
        projection: &'static str,
        /// Why.
        #[source]
        source: ReadError,
    },
    /// The log was closed while the projection was still wanted.
    #[error("the log ended while projection {projection} followed it")]
    LogEnded {
        /// Which projection.
        projection: &'static str,
    },
}

/// A position was not reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// Not in the time that the caller has.
    #[error("projection {projection} has not reached {wanted} in time; it is at {reached}")]
    Deadline {
        /// Which projection.
        projection: &'static str,
        /// What was waited for.
        wanted: Position,
        /// Where it is.
        reached: Position,
    },
    /// The projection follows no longer.
    #[error("projection {projection} has stopped following the log")]
    Ended {
        /// Which projection.
        projection: &'static str,
    },
}

/// A projection did not come as far as the log's end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatchUpError {
    /// The log does not say where it ends.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The end was not reached.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl From<CatchUpError> for Refusal {
    fn from(error: CatchUpError) -> Self {
        Self::new(RefusalKind::Unavailable, format!("{error}; retry"))
    }
}

/// Begins what the log has to answer, and again for a minute when it does not: of many nodes, some may have nobody who leads
/// them when this process starts.
///
/// # Errors
/// The last refusal.
pub async fn retry_until_ready<T, F>(world: &World, who: &str, begin: impl Fn() -> F) -> Result<T, ReadError>
where
    F: Future<Output = Result<T, ReadError>>,
{
    let began = world.clock.monotonic();
    loop {
        match begin().await {
            // What has left does not come back.
            Err(error @ ReadError::Left { .. }) => return Err(error),
            Err(error) if world.clock.monotonic().saturating_sub(began) < START_TIME => {
                tracing::warn!(who, %error, "waiting for the log");
                world.clock.sleep(START_PAUSE).await;
            }
            begun => return begun,
        }
    }
}

/// Follows what comes from now on, as patiently as a start needs.
///
/// # Errors
/// The last refusal.
pub async fn follow_from_now(
    world: &World,
    who: &str,
    log: &dyn EventLog,
    filter: &ReadFilter,
) -> Result<FollowReader, ReadError> {
    retry_until_ready(world, who, || async {
        log.follow(&log.position(&filter.streams).await?, filter).await
    })
    .await
}

/// A projection over the log. It stands at its start until [`Following::drive`] runs.
#[must_use]
pub fn follow_projection<P: Projection>(
    log: Arc<dyn EventLog>,
    snapshots: Arc<dyn Snapshots>,
    world: World,
) -> Following<P> {
    Following {
        inner: Arc::new(Inner {
            log,
            snapshots,
            world,
            folded: RwLock::new(Folded::start()),
            waiting: Waiting::new(),
            caught_up: watch::Sender::new(false),
            ended: watch::Sender::new(false),
        }),
    }
}

impl<P: Projection> Following<P> {
    /// Looks at the state. Keep it short: folding waits meanwhile.
    pub fn read<R>(&self, look: impl FnOnce(&P) -> R) -> R {
        look(&self.inner.folded.read().state)
    }

    /// Looks at the state together with what it is the fold of.
    pub(crate) fn read_at<R>(&self, look: impl FnOnce(&P, &Heads, &Position) -> R) -> R {
        let folded = self.inner.folded.read();
        look(&folded.state, &folded.heads, &folded.position)
    }

    /// Looks at the state together with the last commits that it is the fold of.
    pub fn read_with_heads<R>(&self, look: impl FnOnce(&P, &Heads) -> R) -> R {
        let folded = self.inner.folded.read();
        look(&folded.state, &folded.heads)
    }

    pub(crate) fn log(&self) -> &Arc<dyn EventLog> {
        &self.inner.log
    }

    pub(crate) fn world(&self) -> &World {
        &self.inner.world
    }

    /// What is folded.
    #[must_use]
    pub fn position(&self) -> Position {
        self.inner.waiting.position()
    }

    /// Moves on after each fold. The receiver starts at today's position.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Position> {
        self.inner.waiting.changes()
    }

    /// Whether everything that was in the log when it began to follow is folded.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        *self.inner.caught_up.borrow()
    }

    /// Returns once everything that was in the log when it began to follow is folded.
    ///
    /// # Errors
    /// When the projection follows no longer.
    pub async fn caught_up(&self) -> Result<(), WaitError> {
        let mut caught_up = self.inner.caught_up.subscribe();
        let mut ended = self.inner.ended.subscribe();
        tokio::select! {
            biased;
            _ = caught_up.wait_for(|caught_up| *caught_up) => Ok(()),
            _ = ended.wait_for(|ended| *ended) => Err(WaitError::Ended { projection: P::NAME }),
        }
    }

    /// Returns once `position` is folded, as far as it lies in streams that this projection follows.
    ///
    /// # Errors
    /// When `deadline` passes before, or the projection follows no longer.
    pub async fn wait_for(&self, position: &Position, deadline: Duration) -> Result<(), WaitError> {
        let streams = P::filter().streams;
        let wanted = position.in_streams(&streams);
        let mut ended = self.inner.ended.subscribe();
        tokio::select! {
            biased;
            () = self.inner.waiting.until(&wanted) => Ok(()),
            _ = ended.wait_for(|ended| *ended) => Err(WaitError::Ended { projection: P::NAME }),
            () = self.inner.world.clock.sleep(deadline) => {
                Err(WaitError::Deadline { projection: P::NAME, reached: self.position(), wanted })
            }
        }
    }

    /// Returns once everything is folded that is in the log by now; says whether there was something to fold.
    ///
    /// # Errors
    /// When the log does not say where it ends, `deadline` passes before, or the projection follows no longer.
    pub async fn catch_up(&self, deadline: Duration) -> Result<bool, CatchUpError> {
        let before = self.position();
        let end = self.inner.log.position(&P::filter().streams).await?;
        if before.covers(&end) {
            return Ok(false);
        }
        self.wait_for(&end, deadline).await?;
        Ok(true)
    }

    /// Answers a request. What is refused may be known to other replicas already, and to whoever asks: then it is looked at again on
    /// a state that has all that was in the log by now.
    ///
    /// # Errors
    /// The refusal that stays.
    pub async fn answer<R, A>(&self, answer: impl Fn() -> A) -> Result<R, Refusal>
    where
        A: Future<Output = Result<R, Refusal>>,
    {
        let answered = answer().await;
        let Err(refusal) = &answered else { return answered };
        let may_be_stale =
            !matches!(refusal.kind, RefusalKind::Invalid | RefusalKind::Internal | RefusalKind::Unavailable);
        if may_be_stale && self.catch_up(ANSWERED_WITHIN).await? { answer().await } else { answered }
    }

    /// Restores the snapshot, catches up and follows, until `shutdown`; then saves a snapshot. Run it once, supervised.
    ///
    /// # Errors
    /// When the log cannot be read, or ends before `shutdown`.
    pub async fn drive(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), FollowError> {
        let driven = self.follow(shutdown).await;
        self.inner.ended.send_replace(true);
        driven
    }

    async fn follow(&self, shutdown: impl Future<Output = ()> + Send) -> Result<(), FollowError> {
        let mut shutdown = pin!(shutdown);
        let mut records = tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            begun = retry_until_ready(&self.inner.world, P::NAME, || self.begin()) => {
                begun.map_err(|source| FollowError::Read { projection: P::NAME, source })?
            }
        };
        let streams = P::filter().streams;
        self.inner.log.folded(P::NAME, &streams, &self.position());
        let mut unsaved = 0;
        let mut saving: Option<TaskHandle> = None;
        let driven = loop {
            let is_saving = saving.as_ref().is_some_and(|saving| !saving.is_finished());
            let is_due = unsaved >= P::SNAPSHOT_EVERY && !is_saving;
            let is_still = tokio::select! {
                biased;
                () = &mut shutdown => break Ok(()),
                folded = self.fold_next(&mut records, &streams) => match folded {
                    Ok(count) => {
                        unsaved += count;
                        false
                    }
                    Err(error) => break Err(error),
                },
                () = self.inner.world.clock.sleep(STILL), if is_due => true,
            };
            if is_due && (is_still || unsaved >= OVERDUE * P::SNAPSHOT_EVERY) {
                unsaved = 0;
                let following = self.clone();
                let save = Box::pin(async move { following.save(true).await });
                saving = Some(self.inner.world.spawner.spawn("projection-snapshot", save));
            }
        };
        if let Some(saving) = saving
            && let Err(error) = saving.join().await
        {
            tracing::warn!(projection = P::NAME, %error, "snapshot is not saved");
        }
        if unsaved > 0 && driven.is_ok() {
            self.save(false).await;
        }
        driven
    }

    async fn begin(&self) -> Result<FollowReader, ReadError> {
        self.restore().await?;
        self.inner.log.follow(&self.position(), &P::filter()).await
    }

    /// Folds what is there, at least one message; returns how many records that were.
    async fn fold_next(&self, records: &mut FollowReader, streams: &[Stream]) -> Result<u64, FollowError> {
        let mut messages = Vec::with_capacity(AT_ONCE);
        if records.recv_many(&mut messages, AT_ONCE).await == 0 {
            return Err(FollowError::LogEnded { projection: P::NAME });
        }
        let mut count = 0;
        let mut caught_up = false;
        let mut failure = None;
        let position = {
            let mut folded = self.inner.folded.write();
            for message in messages {
                match message {
                    Ok(Followed::Record(record)) => match folded.fold(&record) {
                        Ok(()) => count += 1,
                        Err(source) => {
                            failure = Some(FollowError::Read { projection: P::NAME, source });
                            break;
                        }
                    },
                    Ok(Followed::Passed(position)) => folded.position.merge(&position),
                    Ok(Followed::CaughtUp(position)) => {
                        folded.position.merge(&position);
                        caught_up = true;
                    }
                    Err(source) => {
                        failure = Some(FollowError::Read { projection: P::NAME, source });
                        break;
                    }
                }
            }
            folded.position.clone()
        };
        self.inner.log.folded(P::NAME, streams, &position);
        self.inner.waiting.reach(position);
        if caught_up {
            self.inner.caught_up.send_replace(true);
        }
        failure.map_or(Ok(count), Err)
    }

    /// Takes the snapshot as state, or the anchor where there is none.
    async fn restore(&self) -> Result<(), ReadError> {
        let names = [P::NAME.to_owned(), anchor_name(P::NAME)];
        let begun = begin_with::<P>(&*self.inner.log, &*self.inner.snapshots, &names).await?;
        let position = begun.position.clone();
        *self.inner.folded.write() = begun;
        self.inner.waiting.reach(position);
        Ok(())
    }

    /// Saves today's state. A snapshot that cannot be saved costs time at the next start, nothing else.
    async fn save(&self, goes_on: bool) {
        let saved =
            if goes_on && self.is_caught_up() { self.save_beside().await } else { self.save_state().await };
        if let Err(error) = saved {
            tracing::warn!(projection = P::NAME, %error, "snapshot is not saved");
        }
    }

    /// Saves the state itself: while nobody is served yet, and once nothing is folded any more.
    async fn save_state(&self) -> Result<(), SnapshotError> {
        let following = self.clone();
        self.encode_and_save(move || following.inner.folded.read().snapshot(P::NAME.to_owned())).await
    }

    /// Saves what a second fold comes to, which begins with the snapshot before: encoding takes long, and neither the fold nor the readers
    /// of the state wait for it.
    async fn save_beside(&self) -> Result<(), SnapshotError> {
        let Inner { log, snapshots, .. } = &*self.inner;
        let names = [P::NAME.to_owned(), anchor_name(P::NAME)];
        let until = self.position();
        let failed = |error: ReadError| SnapshotError::Failed { detail: error.to_string() };
        let before = begin_with::<P>(&**log, &**snapshots, &names).await.map_err(failed)?;
        if before.position.covers(&until) {
            return Ok(());
        }
        let beside = before.up_to(&**log, &until).await.map_err(failed)?;
        self.encode_and_save(move || beside.snapshot(P::NAME.to_owned())).await
    }

    async fn encode_and_save(
        &self,
        encode: impl FnOnce() -> Result<Snapshot, EncodeError> + Send + 'static,
    ) -> Result<(), SnapshotError> {
        let encoded = blocking(&*self.inner.world.spawner, "projection-snapshot", encode).await;
        let snapshot = encoded.map_err(|error| SnapshotError::Failed { detail: error.to_string() })??;
        self.inner.snapshots.save(snapshot).await
    }
}

#[cfg(test)]
mod tests;
