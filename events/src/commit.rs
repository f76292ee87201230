//! One commit: the events that one decision made for one aggregate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::aggregate::AggregateRef;
use crate::catalogue::EventBody;
use crate::digest::ChainHash;
use crate::id::{CommitId, CorrelationId, EventId, OrganizationId};
use crate::time::Timestamp;

/// The largest encoded commit, in bytes, in every log. Lists that grow with a source are blobs.
pub const MAXIMUM_COMMIT_BYTES: usize = 512 * 1024;

/// One commit, exactly as it is stored (MessagePack with named fields). Stored bytes are never encoded again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// Its id, and the idempotency key of its append.
    pub id: CommitId,
    /// Whose it is.
    pub organization: OrganizationId,
    /// The aggregate.
    pub aggregate: AggregateRef,
    /// The aggregate's version after this commit; dense, from 1.
    pub version: u64,
    /// Hash of the aggregate's previous commit over its stored bytes; all zero for version 1.
    pub previous: ChainHash,
    /// Who caused it.
    pub actor: Actor,
    /// From the first cause to the last effect.
    pub correlation_id: CorrelationId,
    /// The event that led to this decision, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<EventId>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// When it happened, by the clock that was passed into the decision.
    pub occurred_at: Timestamp,
    /// The command, with secrets removed, so that the decision can be made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandRecord>,
    /// What it was decided on, so that the decision can be made again. Commits from before this was recorded have none, nor has
    /// one that would not fit into the log with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grounds: Option<Grounds>,
    /// What was decided; at least one.
    pub events: Vec<NewEvent>,
}

/// What a decision was made on, beside the code: what it was given, and how much of the log it had seen. Names no position,
/// so that it holds in every copy of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grounds {
    /// Command, clock, ids, and facts from elsewhere, as the service's model takes them, in MessagePack with named fields;
    /// secrets removed.
    #[serde(with = "serde_bytes")]
    pub given: Vec<u8>,
    /// Of each organization that the decision looked at, the last commit that was folded and how many were, of the kinds that the
    /// model follows; `None` when none was.
    pub commits: BTreeMap<OrganizationId, Option<(CommitId, u64)>>,
    /// Epoch and sequence of the last observation that was folded of each writer that the decision looked at.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub observed: BTreeMap<String, (u64, u64)>,
}

/// The command that caused a commit, and what was passed in beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// Its name, such as `delivery.suspend-source`.
    pub name: String,
    /// The command in MessagePack with named fields, secrets removed.
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
    /// The ids that were passed in, in the order in which the decision took them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<uuid::Uuid>,
}

/// One event inside a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewEvent {
    /// Its id.
    pub id: EventId,
    /// Type, schema version and data.
    pub body: EventBody,
}

/// One event with everything that CloudEvents 1.0 wants of it: what readers see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// The event's id.
    pub id: EventId,
    /// Whose it is.
    pub organization: OrganizationId,
    /// The aggregate.
    pub aggregate: AggregateRef,
    /// Who caused it.
    pub actor: Actor,
    /// From the first cause to the last effect.
    pub correlation_id: CorrelationId,
    /// The event that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<EventId>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// When it happened, as its writer claims.
    pub occurred_at: Timestamp,
    /// Type, schema version and data.
    pub body: EventBody,
}

impl Commit {
    /// The envelopes of its events, in order.
    pub fn envelopes(&self) -> impl Iterator<Item = Envelope> + '_ {
        self.events.iter().map(|event| Envelope {
            id: event.id,
            organization: self.organization,
            aggregate: self.aggregate.clone(),
            actor: self.actor.clone(),
            correlation_id: self.correlation_id,
            causation_id: self.causation_id,
            traceparent: self.traceparent.clone(),
            occurred_at: self.occurred_at,
            body: event.body.clone(),
        })
    }
}
