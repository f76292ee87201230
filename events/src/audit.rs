//! Audit records: who did what through a cluster's API, with whose permission and what result.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::actor::Actor;
use crate::attributes::Attributes;
use crate::id::{AgentId, InstanceId, OrganizationId};
use crate::object::is_empty;
use crate::time::Timestamp;

/// Records of one organization that a gateway writes together. A batch may be stored twice: readers go by [`AuditRecord::id`] and
/// [`AuditRecord::phase`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditBatch {
    /// Whose.
    pub organization: OrganizationId,
    /// Which gateway writes.
    pub gateway: InstanceId,
    /// In the order in which they were made.
    pub records: Vec<AuditRecord>,
}

/// One request, or one end of it. It names a person by their id only: people can be forgotten.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// The request: the same in both records of one that goes on.
    pub id: Uuid,
    /// What of the request is recorded.
    pub phase: AuditPhase,
    /// Whose cluster.
    pub agent: AgentId,
    /// Who asked.
    pub holder: Actor,
    /// Whether the cluster saw them, and not the agent's own service account.
    pub impersonated: bool,
    /// What was asked for.
    pub attributes: Attributes,
    /// It was to change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// What goes through it is kept: a session's recording has its id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_recorded: bool,
    /// Which entry of which file let it through; of one that was refused, why.
    pub because: String,
    /// HTTP status; 0 for a request that its client left before it was answered.
    pub code: u16,
    /// When it came, by the gateway's clock.
    pub began_at: Timestamp,
    /// Milliseconds from then to this record.
    pub millis: u64,
    /// Bytes of bodies, or of a session, that the client sent.
    pub received: u64,
    /// Bytes that it was sent.
    pub sent: u64,
    /// What the client says that it is (`User-Agent`).
    #[serde(default, skip_serializing_if = "is_empty")]
    pub client: String,
    /// The trace, or the number under which it stands in logs.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub trace: String,
}

/// What becomes of a request whose record the log does not take.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditMode {
    /// It goes on: records follow requests.
    #[default]
    FailOpen,
    /// It does not: the record that it begins is durable before anything of it goes on.
    FailClosed,
}

impl AuditMode {
    /// Whether it is what holds when nothing is said.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        matches!(self, Self::FailOpen)
    }
}

/// What of a request is recorded.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditPhase {
    /// All of it, once it was over.
    Whole,
    /// That it was answered and goes on: a watch, a log, a session. Under [`AuditMode::FailClosed`] that it begins, with code 0.
    Began,
    /// That it is over.
    Ended,
}

impl AuditPhase {
    /// As people read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Began => "began",
            Self::Ended => "ended",
        }
    }
}
