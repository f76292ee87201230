//! From a decision to the log and back to the state.

use std::time::Duration;

use events::{CommitId, Position, Refusal, RefusalKind};
use store::{Basis, Origin, Policy};
use uuid::Uuid;

use super::{Driver, gone};
use crate::call::Call;
use crate::model::Decided;
use crate::model::claims::NameId;
use crate::model::steps::{Given, Step};

/// Longest wait until the directory has folded what the caller has seen.
const FOLDED_WITHIN: Duration = Policy::REQUEST.fold_within;

impl Driver {
    /// Decides on the directory as it is, appends, and waits until the directory has it. Answers what the step is about.
    pub(super) async fn commit(&self, call: &Call, id: CommitId, step: Step) -> Result<Uuid, Refusal> {
        let given = Given { asker: call.asker(), now: self.now(), step };
        let origin = Origin {
            commit: id,
            actor: call.context.actor.clone(),
            correlation_id: call.context.correlation_id,
            causation_id: call.context.causation_id,
            traceparent: call.context.traceparent.clone(),
            occurred_at: given.now,
            command: Some(call.command.clone()),
            // The directory knows which commit created what.
            repeats: None,
        };
        let mut about = None;
        let decided =
            self.directory.decide_with(&Policy::REQUEST, &origin, Basis::Newest, |directory, heads| {
                let Decided { draft, outcome } = directory.decide(&given)?;
                about = Some(outcome);
                draft.map(|draft| heads.grounded(directory, &given, draft.into())).transpose()
            });
        decided.await?.folded.map_err(|error| behind(&error))?;
        about.ok_or_else(gone)
    }

    /// Lets a replica that was faster finish, and learns what it did.
    pub(super) async fn pause_after_conflict(&self, attempt: u32) -> Result<(), Refusal> {
        let pause = Policy::REQUEST.backoff.pause(attempt, &*self.world.random);
        self.world.clock.sleep(pause).await;
        self.catch_up().await
    }

    /// Waits until the directory has what the asker has seen.
    pub(super) async fn wait_for_position(&self, position: &Position) -> Result<(), Refusal> {
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
            Some(_) => Err(Refusal::new(RefusalKind::Unavailable, "the same request is in progress; retry")),
        }
    }
}

fn behind(error: &store::WaitError) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"))
}
