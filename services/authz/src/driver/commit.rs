//! From a decision to the log and back to the state.

use std::time::Duration;

use events::{CommitId, Event, Refusal, RefusalKind};
use store::{AppendError, NewCommit, WaitError, append_known, new_events};
use uuid::Uuid;

use super::Driver;
use crate::call::Call;
use crate::model::claims::NameId;
use crate::model::{Decided, Directory, Draft};

/// How often a decision is made again when others change the same aggregate.
pub(super) const ATTEMPTS: u32 = 8;
/// Longest wait until the directory has folded what the log took.
const FOLDED_WITHIN: Duration = Duration::from_secs(5);
/// Upper end of the first pause after a conflict; it doubles.
const PAUSE_MILLIS: u64 = 5;

impl Driver {
    /// Decides on the directory as it is, appends, and waits until the directory has it; decides again when another was
    /// faster.
    pub(super) async fn commit<T>(
        &self,
        call: &Call,
        id: CommitId,
        decide: impl Fn(&Directory) -> Result<Decided<T>, Refusal> + Send,
    ) -> Result<T, Refusal>
    where
        T: Send,
    {
        for attempt in 0..ATTEMPTS {
            let Decided { draft, outcome } = self.directory.read(&decide)?;
            let Some(draft) = draft else { return Ok(outcome) };
            let commit = self.new_commit(call, id, draft)?;
            match append_known(&self.world, &*self.log, commit).await {
                Ok(appended) => {
                    self.directory
                        .wait_for(&appended.position, FOLDED_WITHIN)
                        .await
                        .map_err(|error| behind(&error))?;
                    return Ok(outcome);
                }
                Err(AppendError::Conflict { .. }) => self.pause_after_conflict(attempt).await?,
                Err(error) => return Err(not_appended(&error)),
            }
        }
        Err(Refusal::new(RefusalKind::Unavailable, "others change the same thing all the time; retry"))
    }

    /// Lets whoever was faster finish, and learns what that was.
    pub(super) async fn pause_after_conflict(&self, attempt: u32) -> Result<(), Refusal> {
        let pause = self.world.random.below(PAUSE_MILLIS << attempt.min(8));
        self.world.clock.sleep(Duration::from_millis(pause)).await;
        self.catch_up().await
    }

    /// Waits until the directory has all that is in the log by now.
    pub(super) async fn catch_up(&self) -> Result<(), Refusal> {
        self.directory.catch_up(FOLDED_WITHIN).await?;
        Ok(())
    }

    /// Claims a name; answers the id under which the thing is to be created by the commit `created_by`.
    pub(super) async fn claim(
        &self,
        call: &Call,
        name: NameId,
        fresh: Uuid,
        created_by: CommitId,
    ) -> Result<Uuid, Refusal> {
        let step = call.step(&format!("claim {}", name.id));
        self.commit(call, step, |directory| directory.claim(name, fresh, created_by)).await
    }

    fn new_commit(&self, call: &Call, id: CommitId, draft: Draft) -> Result<NewCommit, Refusal> {
        let events = new_events(&self.world, draft.events.into_iter().map(Event::from))
            .map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
        Ok(NewCommit {
            id,
            organization: draft.organization,
            aggregate: draft.aggregate,
            expected: draft.expected,
            actor: call.context.actor.clone(),
            correlation_id: call.context.correlation_id,
            causation_id: call.context.causation_id,
            traceparent: call.context.traceparent.clone(),
            occurred_at: self.now(),
            command: Some(call.command.clone()),
            events,
        })
    }
}

fn behind(error: &WaitError) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"))
}

fn not_appended(error: &AppendError) -> Refusal {
    let kind = match error {
        AppendError::TooLarge { .. } => RefusalKind::Invalid,
        AppendError::Invalid { .. } => RefusalKind::Internal,
        AppendError::Conflict { .. }
        | AppendError::Unknown { .. }
        | AppendError::Away { .. }
        | AppendError::ReadOnly { .. } => RefusalKind::Unavailable,
    };
    Refusal::new(kind, error.to_string())
}
