//! Decide and append: the loop around a pure decision.

use std::time::Duration;

use events::{
    Actor, AggregateRef, CommandRecord, CommitId, CorrelationId, EncodeError, Event, EventId, Grounds,
    NewEvent, OrganizationId, Position, Refusal, RefusalKind, Timestamp,
};
use uuid::Uuid;
use world::World;

use crate::following::{CatchUpError, Following};
use crate::log::{AppendError, Appended, EventLog, NewCommit, ReadError};
use crate::model::{Decides, Draft, make};

/// How often a decision is made again after somebody else was faster.
const ATTEMPTS: u32 = 8;

/// How often the same commit is appended again after an unknown outcome.
const APPENDS: u32 = 5;

/// Milliseconds that the first pause lasts at most; each next one twice as long.
const PAUSE_MILLIS: u64 = 5;

/// How long the projection may take to see what somebody else appended.
const FOLDED_WITHIN: Duration = Duration::from_secs(5);

/// What a commit records besides its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Id of the commit: the request's idempotency key.
    pub commit: CommitId,
    /// Whose.
    pub organization: OrganizationId,
    /// Which aggregate decides.
    pub aggregate: AggregateRef,
    /// Who asked.
    pub actor: Actor,
    /// The chain.
    pub correlation_id: CorrelationId,
    /// The event that led to it.
    pub causation_id: Option<EventId>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// Such as `delivery.suspend_source`.
    pub name: String,
    /// The command in MessagePack with named fields, secrets removed.
    pub data: Vec<u8>,
    /// Fresh ids that were passed in.
    pub ids: Vec<Uuid>,
}

/// What was decided and is in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The events; those of the log when the commit was there already. Empty: nothing needed to be done.
    pub events: Vec<Event>,
    /// The aggregate's version after them.
    pub version: u64,
    /// Wait for it to read one's own write.
    pub position: Position,
    /// The commit was there already.
    pub duplicate: bool,
}

/// A decision did not come into the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// The decision itself says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Others changed the same aggregate again and again.
    #[error("{aggregate} is changed by others all the time; retry")]
    Contended {
        /// Which aggregate.
        aggregate: AggregateRef,
    },
    /// An event cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The log did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log could not be asked for the commit.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The projection is too far behind, or ended.
    #[error(transparent)]
    Behind(#[from] CatchUpError),
}

impl From<DecideError> for Refusal {
    fn from(error: DecideError) -> Self {
        let kind = match &error {
            DecideError::Refused(refusal) => return refusal.clone(),
            DecideError::Append(AppendError::TooLarge { .. }) => RefusalKind::Invalid,
            DecideError::Encode(_) | DecideError::Append(AppendError::Invalid { .. }) => {
                RefusalKind::Internal
            }
            DecideError::Contended { .. }
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

/// Appends a commit; after an unknown outcome the same one again, a few times, until the outcome is known.
///
/// # Errors
/// As of the log; [`AppendError::Unknown`] when the outcome stays unknown.
pub async fn append_known(
    world: &World,
    log: &dyn EventLog,
    commit: NewCommit,
) -> Result<Appended, AppendError> {
    let mut attempt = 0;
    loop {
        match log.append(commit.clone()).await {
            Err(AppendError::Unknown { detail }) if attempt < APPENDS => {
                tracing::warn!(aggregate = %commit.aggregate, detail, "outcome of append unknown, trying again");
                pause(world, attempt).await;
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Decides on the projection's state and appends what was decided.
///
/// What the decision is `given` is recorded with it, `now` as when it happened. When somebody else was faster, the projection
/// catches up and the decision is made again. A command whose commit is in the log already answers as it did then, whatever
/// the state says now.
///
/// # Errors
/// The decision's refusal; or the log, or the projection, does not do its part.
pub async fn decide<P: Decides>(
    world: &World,
    log: &dyn EventLog,
    following: &Following<P>,
    command: Command,
    now: Timestamp,
    given: &P::Given,
) -> Result<Decided, DecideError> {
    for attempt in 0..ATTEMPTS {
        let (version, decided, position) = following.read_at(|state, heads, position| {
            let version = state.version_of(command.organization, &command.aggregate);
            (version, make(state, heads, given), position.clone())
        });
        let (draft, grounds) = match decided {
            Ok(Some(made)) => made,
            nothing => {
                if let Some(earlier) = earlier(log, &command).await? {
                    return Ok(earlier);
                }
                nothing?;
                return Ok(Decided { events: Vec::new(), version, position, duplicate: false });
            }
        };
        let events = draft.events.clone();
        let commit = commit(world, &command, now, draft, grounds)?;
        match append_known(world, log, commit).await {
            Ok(appended) if appended.duplicate => {
                if let Some(earlier) = earlier(log, &command).await? {
                    return Ok(earlier);
                }
                return Ok(decided_now(events, appended));
            }
            Ok(appended) => return Ok(decided_now(events, appended)),
            Err(AppendError::Conflict { .. }) => {
                following.catch_up(FOLDED_WITHIN).await?;
                if attempt > 0 {
                    pause(world, attempt).await;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(DecideError::Contended { aggregate: command.aggregate })
}

fn decided_now(events: Vec<Event>, appended: Appended) -> Decided {
    Decided { events, version: appended.version, position: appended.position, duplicate: appended.duplicate }
}

fn commit(
    world: &World,
    command: &Command,
    now: Timestamp,
    draft: Draft,
    grounds: Grounds,
) -> Result<NewCommit, EncodeError> {
    Ok(NewCommit {
        id: command.commit,
        organization: draft.organization,
        aggregate: draft.aggregate,
        expected: draft.expected,
        actor: command.actor.clone(),
        correlation_id: command.correlation_id,
        causation_id: command.causation_id,
        traceparent: command.traceparent.clone(),
        occurred_at: now,
        command: Some(CommandRecord {
            name: command.name.clone(),
            data: command.data.clone(),
            ids: command.ids.clone(),
        }),
        grounds: Some(grounds),
        events: new_events(world, draft.events)?,
    })
}

/// What the log holds under the command's commit id.
async fn earlier(log: &dyn EventLog, command: &Command) -> Result<Option<Decided>, DecideError> {
    let found = log.find(command.organization, &command.aggregate, command.commit).await?;
    let Some(record) = found else { return Ok(None) };
    let Some(commit) = record.commit() else { return Ok(None) };
    let decoded: Result<Vec<Event>, _> =
        commit.events.iter().map(|event| Event::decode(&event.body)).collect();
    let events = decoded.map_err(|error| ReadError::Failed { detail: error.to_string() })?;
    let position = Position::of(record.shard.0, record.shard.1, record.sequence);
    Ok(Some(Decided { events, version: commit.version, position, duplicate: true }))
}

/// A pause with full jitter, doubling.
async fn pause(world: &World, attempt: u32) {
    let most = PAUSE_MILLIS << attempt.min(8);
    world.clock.sleep(Duration::from_millis(world.random.below(most) + 1)).await;
}
