//! Decide and append: the one loop around every decision.

mod policy;

use events::{
    Actor, AggregateRef, CommandRecord, CommitId, CorrelationId, EncodeError, Event, EventId, Grounds,
    NewEvent, OrganizationId, Position, Refusal, RefusalKind, Timestamp,
};
use world::World;

use crate::following::{CatchUpError, Following, WaitError};
use crate::log::{AppendError, Appended, EventLog, NewCommit, ReadError};
use crate::model::{Decides, Draft, Heads, make};

pub use policy::{Backoff, Basis, Policy};

/// What a commit records besides its events and the grounds of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Id of the commit. The log takes a commit once, so a request that may be repeated derives the id from its idempotency key.
    pub commit: CommitId,
    /// Who caused it.
    pub actor: Actor,
    /// The chain.
    pub correlation_id: CorrelationId,
    /// The event that led to it.
    pub causation_id: Option<EventId>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// When, by the decision's clock.
    pub occurred_at: Timestamp,
    /// The command, secrets removed.
    pub command: Option<CommandRecord>,
    /// The aggregate whose history may have the commit already: a repeated command is then answered as it was the first time,
    /// whatever the state is now. `None` where the id is fresh, or the model knows by itself what it did for which commit.
    pub repeats: Option<(OrganizationId, AggregateRef)>,
}

impl Origin {
    /// Of what a service decides by itself: a fresh commit, now.
    #[must_use]
    pub fn of_service(world: &World, service: &str, correlation_id: CorrelationId) -> Self {
        Self {
            commit: CommitId(world.new_uuid()),
            actor: Actor::service(service),
            correlation_id,
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(world.clock.now_millis()),
            command: None,
            repeats: None,
        }
    }

    /// In this trace.
    #[must_use]
    pub fn traced(self, traceparent: Option<String>) -> Self {
        Self { traceparent, ..self }
    }
}

/// What was decided and is in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The events; those of the log when the commit was there already. Empty: nothing needed to be done.
    pub events: Vec<Event>,
    /// The aggregate's version after them. When nothing needed to be done, the version of the one that the origin names, if any.
    pub version: u64,
    /// Wait for it to read one's own write.
    pub position: Position,
    /// The commit was there already.
    pub duplicate: bool,
    /// Whether the projection has folded it. It is in the log in any case.
    pub folded: Result<(), WaitError>,
}

/// A decision did not come into the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// The decision itself refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Others changed the aggregate since it was looked at, or again and again.
    #[error("{aggregate} was changed by others at the same moment; retry")]
    Overtaken {
        /// Which aggregate.
        aggregate: AggregateRef,
    },
    /// Nobody knows whether the log has it. It may still come to the log, on this version.
    #[error("outcome of a decision on {aggregate} is unknown: {detail}")]
    Unsettled {
        /// Which aggregate.
        aggregate: AggregateRef,
        /// The version that it was decided on.
        version: u64,
        /// What happened.
        detail: String,
    },
    /// An event cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The log did not take it.
    #[error(transparent)]
    Append(AppendError),
    /// The log could not be asked for the commit.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The projection is too far behind, or ended.
    #[error(transparent)]
    Behind(#[from] CatchUpError),
}

impl DecideError {
    /// Whether the same may succeed a moment later, without a change of the state or of the code.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.kind == RefusalKind::Unavailable,
            Self::Overtaken { .. } | Self::Unsettled { .. } | Self::Read(_) | Self::Behind(_) => true,
            Self::Encode(_) => false,
            Self::Append(error) => error.is_transient(),
        }
    }
}

impl From<DecideError> for Refusal {
    fn from(error: DecideError) -> Self {
        let kind = match &error {
            DecideError::Refused(refusal) => return refusal.clone(),
            DecideError::Append(AppendError::TooLarge { .. }) => RefusalKind::Invalid,
            DecideError::Encode(_) | DecideError::Append(AppendError::Invalid { .. }) => {
                RefusalKind::Internal
            }
            DecideError::Overtaken { .. }
            | DecideError::Unsettled { .. }
            | DecideError::Append(_)
            | DecideError::Read(_)
            | DecideError::Behind(_) => RefusalKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}

/// Encodes events as they go into a commit, each with a fresh id.
///
/// # Errors
/// When one cannot be encoded.
pub fn new_events(
    world: &World,
    events: impl IntoIterator<Item = Event>,
) -> Result<Vec<NewEvent>, EncodeError> {
    let encoded =
        events.into_iter().map(|event| Ok(NewEvent { id: EventId(world.new_uuid()), body: event.encode()? }));
    encoded.collect()
}

impl<P: Decides> Following<P> {
    /// Decides on the state, appends what was decided, and waits until the state has it.
    ///
    /// What the decision is `given` is recorded with it.
    ///
    /// # Errors
    /// The decision's refusal; or the log, or the projection, does not do its part.
    pub async fn decide(
        &self,
        policy: &Policy,
        origin: &Origin,
        basis: Basis,
        given: &P::Given,
    ) -> Result<Decided, DecideError> {
        self.decide_with(policy, origin, basis, |state, heads| make(state, heads, given)).await
    }

    /// As [`Following::decide`], with a decision that means more to its caller than what it appends. It is made again for each
    /// attempt.
    ///
    /// # Errors
    /// As of [`Following::decide`].
    pub async fn decide_with(
        &self,
        policy: &Policy,
        origin: &Origin,
        basis: Basis,
        mut make: impl FnMut(&P, &Heads) -> Result<Option<(Draft, Grounds)>, Refusal> + Send,
    ) -> Result<Decided, DecideError> {
        let mut attempt = 0;
        loop {
            let (made, version, position) = self.read_at(|state, heads, position| {
                let named = origin.repeats.as_ref();
                let version = named.map_or(0, |(of, aggregate)| state.version_of(*of, aggregate));
                (make(state, heads), version, position.clone())
            });
            let (draft, grounds) = match made {
                Ok(Some(made)) => made,
                nothing => {
                    if let Some(earlier) = self.earlier(policy, origin).await? {
                        return Ok(earlier);
                    }
                    nothing?;
                    let (events, folded) = (Vec::new(), Ok(()));
                    return Ok(Decided { events, version, position, duplicate: false, folded });
                }
            };
            let recorded = match basis {
                Basis::Version(seen) if draft.expected != seen => {
                    Err(DecideError::Overtaken { aggregate: draft.aggregate })
                }
                _ => self.record(policy, origin, draft, grounds).await,
            };
            let Err(DecideError::Overtaken { .. }) = &recorded else { return recorded };
            let caught_up = self.catch_up(policy.fold_within).await;
            attempt += 1;
            if matches!(basis, Basis::Version(_)) || attempt >= policy.decisions {
                if let Err(error) = caught_up {
                    tracing::warn!(%error, "the next decision may be made on an older state");
                }
                return recorded;
            }
            caught_up?;
            // After the first conflict there is nothing to wait for: the other decision is made.
            if attempt > 1 {
                let pause = policy.backoff.pause(attempt - 1, &*self.world().random);
                self.world().clock.sleep(pause).await;
            }
        }
    }

    /// Appends a decision that was made already, on the version that it was made on, and waits until the state has it.
    ///
    /// # Errors
    /// As of [`Following::decide`]; [`DecideError::Overtaken`] when the aggregate moved on.
    pub async fn record(
        &self,
        policy: &Policy,
        origin: &Origin,
        draft: Draft,
        grounds: Grounds,
    ) -> Result<Decided, DecideError> {
        let (events, aggregate, version) = (draft.events.clone(), draft.aggregate.clone(), draft.expected);
        let commit = new_commit(self.world(), origin, draft, grounds)?;
        let appending = append_known(self.world(), &**self.log(), policy, commit);
        let appended = tokio::select! {
            biased;
            appended = appending => appended,
            () = self.world().clock.sleep(policy.patience) => {
                Err(AppendError::Unknown { detail: "the log does not answer in time".to_owned() })
            }
        };
        let appended = appended.map_err(|error| match error {
            AppendError::Conflict { aggregate, .. } => DecideError::Overtaken { aggregate },
            AppendError::Unknown { detail } => DecideError::Unsettled { aggregate, version, detail },
            error => DecideError::Append(error),
        })?;
        if appended.duplicate
            && let Some(earlier) = self.earlier(policy, origin).await?
        {
            return Ok(earlier);
        }
        let Appended { version, position, duplicate } = appended;
        let folded = self.wait_for(&position, policy.fold_within).await;
        Ok(Decided { events, version, position, duplicate, folded })
    }

    /// What the log holds under the commit's id.
    async fn earlier(&self, policy: &Policy, origin: &Origin) -> Result<Option<Decided>, DecideError> {
        let Some((organization, aggregate)) = &origin.repeats else { return Ok(None) };
        let found = self.log().find(*organization, aggregate, origin.commit).await?;
        let Some(record) = found else { return Ok(None) };
        let Some(commit) = record.commit() else { return Ok(None) };
        let decoded: Result<Vec<Event>, _> =
            commit.events.iter().map(|event| Event::decode(&event.body)).collect();
        let events = decoded.map_err(|error| ReadError::Failed { detail: error.to_string() })?;
        let position = Position::of(record.shard.0, record.shard.1, record.sequence);
        let folded = self.wait_for(&position, policy.fold_within).await;
        Ok(Some(Decided { events, version: commit.version, position, duplicate: true, folded }))
    }
}

/// Appends a commit; after an unknown outcome the same one again, a few times, until the outcome is known.
async fn append_known(
    world: &World,
    log: &dyn EventLog,
    policy: &Policy,
    commit: NewCommit,
) -> Result<Appended, AppendError> {
    let mut attempt = 0;
    loop {
        match log.append(commit.clone()).await {
            Err(AppendError::Unknown { detail }) if attempt + 1 < policy.appends => {
                tracing::warn!(aggregate = %commit.aggregate, detail, "outcome of an append is unknown, retrying");
                world.clock.sleep(policy.backoff.pause(attempt, &*world.random)).await;
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

fn new_commit(
    world: &World,
    origin: &Origin,
    draft: Draft,
    grounds: Grounds,
) -> Result<NewCommit, EncodeError> {
    Ok(NewCommit {
        id: origin.commit,
        organization: draft.organization,
        aggregate: draft.aggregate,
        expected: draft.expected,
        actor: origin.actor.clone(),
        correlation_id: origin.correlation_id,
        causation_id: origin.causation_id,
        traceparent: origin.traceparent.clone(),
        occurred_at: origin.occurred_at,
        command: origin.command.clone(),
        grounds: Some(grounds),
        events: new_events(world, draft.events)?,
    })
}

#[cfg(test)]
mod tests;
