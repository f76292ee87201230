//! From a decision to the log and back to the state.

use std::time::Duration;

use events::{CommitId, EncodeError, Event, Grounds, Position, Refusal, RefusalKind, Timestamp};
use store::{AppendError, Decides as _, NewCommit, WaitError, append_known, new_events};
use uuid::Uuid;

use super::Driver;
use crate::call::Call;
use crate::model::claims::NameId;
use crate::model::steps::{Given, Step};
use crate::model::{Decided, Draft};

/// How often a decision is made again when others change the same aggregate.
pub(super) const ATTEMPTS: u32 = 8;
/// Longest wait until the directory has folded what the log took.
const FOLDED_WITHIN: Duration = Duration::from_secs(5);
/// Upper end of the first pause after a conflict; it doubles.
const PAUSE_MILLIS: u64 = 5;

impl Driver {
    /// Decides on the directory as it is, appends, and waits until the directory has it; decides again when another was
    /// faster.
    pub(super) async fn commit(&self, call: &Call, id: CommitId, step: Step) -> Result<Uuid, Refusal> {
        let given = Given { asker: call.asker(), now: self.now(), step };
        for attempt in 0..ATTEMPTS {
            let made = self.directory.read_with_heads(|directory, heads| {
                let Decided { draft, outcome } = directory.decide(&given)?;
                let Some(draft) = draft else { return Ok((None, outcome)) };
                let (organization, aggregate) = (draft.organization, &draft.aggregate);
                let looked_at = directory.looked_at(&given);
                let grounds = heads.grounds(&given, looked_at, organization, aggregate, Vec::new)?;
                Ok::<_, Refusal>((Some((draft, grounds)), outcome))
            });
            let (made, outcome) = made?;
            let Some((draft, grounds)) = made else { return Ok(outcome) };
            let commit = self.new_commit(call, id, given.now, draft, grounds)?;
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

    /// Waits until the directory has what the asker has seen.
    pub(super) async fn has_seen(&self, position: &Position) -> Result<(), Refusal> {
        let waited = self.directory.wait_for(position, FOLDED_WITHIN).await;
        waited.map_err(|error| Refusal::new(RefusalKind::Unavailable, error.to_string()))
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
        // What is taken over from somebody is another step than the claim of a free name.
        let step = match self.directory.read(|directory| directory.claimant(name)) {
            Some(former) => call.step(&format!("claim {} of {former}", name.id)),
            None => call.step(&format!("claim {}", name.id)),
        };
        let claimed = self.commit(call, step, Step::Claim { name, fresh, key: created_by }).await?;
        // The same request may be answered twice at once: then the log has the claim of the one that was faster.
        let settled = self.directory.read(|directory| match directory.claimant(name) {
            Some(holder) if holder != claimed => directory.claim(name, claimed, created_by).map(Some),
            _ => Ok(None),
        })?;
        match settled {
            None => Ok(claimed),
            Some(Decided { draft: None, outcome }) => Ok(outcome),
            Some(_) => Err(Refusal::new(
                RefusalKind::Unavailable,
                "the same request is being answered at this moment; retry",
            )),
        }
    }

    fn new_commit(
        &self,
        call: &Call,
        id: CommitId,
        now: Timestamp,
        draft: Draft,
        grounds: Grounds,
    ) -> Result<NewCommit, Refusal> {
        let events =
            new_events(&self.world, draft.events.into_iter().map(Event::from)).map_err(not_encoded)?;
        Ok(NewCommit {
            id,
            organization: draft.organization,
            aggregate: draft.aggregate,
            expected: draft.expected,
            actor: call.context.actor.clone(),
            correlation_id: call.context.correlation_id,
            causation_id: call.context.causation_id,
            traceparent: call.context.traceparent.clone(),
            occurred_at: now,
            command: Some(call.command.clone()),
            grounds: Some(grounds),
            events,
        })
    }
}

fn not_encoded(error: EncodeError) -> Refusal {
    Refusal::new(RefusalKind::Internal, error.to_string())
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
