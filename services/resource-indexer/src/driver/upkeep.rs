//! What is done from time to time: syncs, verdicts that are due, and what leaves.

use std::sync::Arc;
use std::time::Duration;

use events::position::Stream;
use events::{AgentId, Position, Timestamp};
use world::spawn::blocking;

use super::{Driver, FollowError, State, UPKEEP};
use crate::model::{Slot, Verdict, asks_pods, before_imported, options_of, own_verdict};
use crate::store::{Batch, Pruned};

/// Between two looks at what has left the log.
const PRUNE: Duration = Duration::from_secs(600);
/// Pieces of what is kept of deleted agents that are removed in one go.
const PIECES: usize = 10;
/// Objects that are judged again in one go.
const JUDGED: usize = 1_000;

/// When what was done last, by the monotonic clock.
pub(super) struct Upkeep {
    done: Duration,
    pruned: Option<Duration>,
}

impl Upkeep {
    pub(super) const fn new(now: Duration) -> Self {
        Self { done: now, pruned: None }
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.done) >= UPKEEP
    }

    fn prunes(&mut self, now: Duration) -> bool {
        self.done = now;
        let due = self.pruned.is_none_or(|pruned| now.saturating_sub(pruned) >= PRUNE);
        if due {
            self.pruned = Some(now);
        }
        due
    }
}

impl Driver {
    pub(super) async fn keep_up(&self, upkeep: &mut Upkeep) -> Result<(), FollowError> {
        let now = self.deps.world.clock.monotonic();
        self.mend(now)?;
        self.moments.sweep(now);
        let _some_are_left = self.judge_due();
        if upkeep.prunes(now) {
            self.prune().await?;
        }
        self.forget_deleted().await?;
        self.sync().await
    }

    /// Makes what was written durable, beside those that read.
    pub(super) async fn sync(&self) -> Result<(), FollowError> {
        let store = self.store();
        blocking(&*self.deps.world.spawner, "index-sync", move || store.sync()).await??;
        Ok(())
    }

    /// Judges what was loaded: verdicts with pods are not stored, and time went by.
    pub(super) fn judge_loaded(&self) {
        {
            let mut state = self.state.write();
            let agents: Vec<AgentId> = state.directory.with_declarations().collect();
            for agent in agents {
                self.follow_declarations(&mut state, agent);
            }
        }
        let rounds = self.state.read().fold.index.len() / JUDGED;
        for _ in 0..=rounds {
            if !self.judge_due() {
                break;
            }
        }
        let mut state = self.state.write();
        let index = &state.fold.index;
        let asks = |slot: &Slot| index.get(*slot).is_some_and(asks_pods);
        let open: Vec<Slot> = index.slots().filter(asks).collect();
        self.judge_workloads(&mut state, open);
    }

    /// Judges again what changes with time alone, as much as is done in one go; says whether some may be left.
    fn judge_due(&self) -> bool {
        let now = self.now();
        if self.state.read().fold.index.next_deadline().is_none_or(|at| at > now) {
            return false;
        }
        let mut state = self.state.write();
        let due: Vec<Slot> = state.fold.index.due(now).take(JUDGED).collect();
        for slot in &due {
            if !state.fold.index.get(*slot).is_some_and(|record| record.own.is_due(now)) {
                continue;
            }
            self.judge_again(&mut state, *slot, now);
        }
        let may_be_more = due.len() >= JUDGED;
        self.judge_workloads(&mut state, due);
        may_be_more
    }

    /// Removes what is older than the log's horizon.
    async fn prune(&self) -> Result<(), FollowError> {
        let retained = self.deps.log.retained(Stream::Objects).await;
        let horizon = match retained {
            Ok(retained) => retained.horizon,
            Err(error) => {
                tracing::warn!(%error, "what has left the log is not known, and nothing leaves the index until the next look");
                return Ok(());
            }
        };
        if horizon == Position::start() {
            return Ok(());
        }
        let mut done = None;
        loop {
            let pruned = self.prune_some(&horizon, done)?;
            if !pruned.has_more {
                break;
            }
            done = pruned.done;
            tokio::task::yield_now().await;
        }
        self.state.write().fold.index.sweep();
        Ok(())
    }

    fn prune_some(&self, horizon: &Position, done: Option<AgentId>) -> Result<Pruned, FollowError> {
        let mut state = self.state.write();
        let store = self.store();
        let pruned = store.prune(horizon, &state.fold.index, done)?;
        for (agent, uid) in &pruned.objects {
            if let Some(slot) = state.fold.index.by_uid(*agent, uid) {
                state.fold.index.remove(slot);
            }
        }
        self.counts.pruned.inc_by(u64::try_from(pruned.changes).unwrap_or(0));
        state.standing.horizon = state.standing.horizon.max(pruned.until);
        if !pruned.has_more {
            state.standing.base.merge(horizon);
        }
        state.reader = Arc::new(store.reader()?);
        Ok(pruned)
    }

    /// Removes some rows of agents that were deleted.
    async fn forget_deleted(&self) -> Result<(), FollowError> {
        for _ in 0..PIECES {
            if !self.forget_piece()? {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Removes some rows of one agent; says whether there may be more to do.
    fn forget_piece(&self) -> Result<bool, FollowError> {
        let Some(agent) = self.state.read().standing.leaving.first().copied() else { return Ok(false) };
        let has_more = self.store().forget_some(agent)?;
        let mut state = self.state.write();
        if !has_more {
            state.standing.leaving.remove(&agent);
        }
        self.write(&mut state, &Batch::default())?;
        Ok(true)
    }

    pub(super) fn judge_again(&self, state: &mut State, slot: Slot, now: Timestamp) {
        let State { fold, reader, .. } = state;
        let Some(record) = fold.index.get(slot) else { return };
        let body = reader.body(record.agent, &record.uid);
        let body = body.inspect_err(|error| self.suspect(error)).ok().flatten();
        let parsed = body.and_then(|body| serde_json::from_slice(&body).ok());
        let options = options_of(&fold.index, record.agent, &record.kind);
        let links = parsed.as_ref().map(|body| fold.index.declared_links(record.agent, &record.kind, body));
        let mut verdict = match parsed {
            Some(body) => own_verdict(&body, now, &options),
            None => Verdict::clone(&record.own),
        };
        // Otherwise it would be due for ever.
        verdict.recheck_at = verdict.recheck_at.time().filter(|at| *at > now).into();
        let verdict = before_imported(&fold.index, (record.agent, &record.kind), verdict, &record.own);
        fold.index.judge(slot, verdict);
        if let Some(links) = links {
            fold.index.relate(slot, links);
        }
    }
}
