//! Recordings: what went through sessions with containers, where an agent's configuration wants it kept.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::id::{AgentId, InstanceId};

/// What of sessions with containers (exec and attach) is kept.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordSessions {
    /// Nothing of what went through them.
    #[default]
    None,
    /// What the container said, and how large the terminal was.
    Output,
    /// What it was told, too.
    All,
}

impl RecordSessions {
    /// Whether it is what holds when nothing is said.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether what went through a channel is kept.
    #[must_use]
    pub const fn keeps(self, channel: SessionChannel) -> bool {
        match self {
            Self::None => false,
            Self::Output => !matches!(channel, SessionChannel::Input),
            Self::All => true,
        }
    }
}

/// The channels of a session, which Kubernetes' remote command protocol numbers from 0 for the input.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionChannel {
    /// What was asked for: the path and query of the request, with the command. No channel of the protocol; it comes first.
    Request,
    /// What the command reads.
    Input,
    /// What it writes.
    Output,
    /// What it writes to standard error, where there is no terminal.
    ErrorOutput,
    /// How it ended: a `Status` in JSON, or nothing.
    Outcome,
    /// How large the terminal is: `{"Width":80,"Height":24}`.
    Resize,
}

/// Something that went through a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPiece {
    /// Milliseconds since the session began.
    pub at_millis: u64,
    /// Where.
    pub channel: SessionChannel,
    /// What.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Pieces of one session that a gateway writes together. A batch may be stored twice: readers go by [`RecordingBatch::number`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingBatch {
    /// The request that the session is: [`crate::audit::AuditRecord::id`].
    pub session: Uuid,
    /// Whose cluster.
    pub agent: AgentId,
    /// Which gateway writes.
    pub gateway: InstanceId,
    /// Batches of the session before this one.
    pub number: u32,
    /// Nothing comes behind it: the session was over.
    pub is_last: bool,
    /// The encoded list of [`SessionPiece`], sealed under the organization's key and bound to session and number.
    #[serde(with = "serde_bytes")]
    pub sealed: Vec<u8>,
}

impl RecordingBatch {
    /// What the pieces are sealed for, besides the organization.
    pub const PURPOSE: &'static [u8] = b"kasbah recordings";

    /// What the seal of the pieces of a session's batch is bound to.
    #[must_use]
    pub fn bound_to(session: Uuid, number: u32, is_last: bool) -> Vec<u8> {
        [session.as_bytes().as_slice(), &number.to_be_bytes(), &[u8::from(is_last)]].concat()
    }
}
