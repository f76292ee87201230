//! What tunnel-gateway answers.

use serde::{Deserialize, Serialize};

use crate::digest::Sha256;
use crate::id::{AgentId, InstanceId, SourceId};
use crate::object::ObjectIdentity;
use crate::request::request;
use crate::time::Timestamp;

/// The tunnels of an agent on the replica that answers.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListTunnels {
    /// Which agent; all that the actor may see if not given.
    pub agent: Option<AgentId>,
}
request!(ListTunnels => Vec<TunnelView>, "tunnel-gateway.list-tunnels");

/// One tunnel.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelView {
    /// Whose.
    pub agent: AgentId,
    /// Which process.
    pub instance: InstanceId,
    /// Since when.
    pub since: Timestamp,
    /// The agent's version.
    pub version: String,
    /// This instance applies.
    pub applier: bool,
}

/// What the next sync of a source would change: a server-side dry run in the cluster, of the bundle that is held, or waits for a
/// resume, or else of the desired one. Sent under
/// [`crate::subject::Subject::agent_request`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffSource {
    /// Whose source.
    pub agent: AgentId,
    /// Which source.
    pub source: SourceId,
}
request!(DiffSource => SourceDiff, "tunnel-gateway.diff-source");

/// The answer to [`DiffSource`]; also the answer to the link's `POST /v1/sources/<id>/diff`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceDiff {
    /// The commit that was compared.
    pub commit: String,
    /// Objects that would change. Values of Secrets are redacted.
    pub objects: Vec<ObjectDiff>,
    /// Objects that would stay as they are.
    pub unchanged: u32,
    /// Fields that others added and Git does not state. They stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<ObjectExtra>,
    /// Why this commit is not delivered yet; absent when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}

/// Fields of one object that others added.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectExtra {
    /// Which object.
    pub identity: ObjectIdentity,
    /// Path, and the field manager who added it.
    pub fields: Vec<(String, String)>,
}

/// One object that would change.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectDiff {
    /// Which object.
    pub identity: ObjectIdentity,
    /// What would happen.
    pub change: DiffChange,
    /// Fields that would change: path, before, after, as JSON text.
    pub fields: Vec<(String, Option<String>, Option<String>)>,
    /// Why it cannot be told, in the API server's words.
    pub error: Option<String>,
}

/// What would happen to an object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffChange {
    /// It would be created.
    Create,
    /// It would change.
    Change,
    /// It would be pruned.
    Prune,
    /// The API server would refuse it.
    Refused,
}

/// Takes a ticket for a WebSocket, which is good for once, out of the gateway that issued it. Sent under
/// [`crate::subject::Subject::replica_request`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedeemTicket {
    /// Hash of what the ticket holds.
    pub secret: Sha256,
}
request!(RedeemTicket => RedeemedTicket, "tunnel-gateway.redeem-ticket");

/// What a ticket was issued for.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedeemedTicket {
    /// Hash of the token of whoever asked for it.
    pub token: Sha256,
    /// Path and query of the one WebSocket that it opens.
    pub target: String,
    /// The origin of the page that asked for it.
    pub origin: String,
}

/// One request to a cluster's API, from the gateway that it came to to the one that has the agent's tunnel. Opens a byte stream under
/// [`crate::subject::Subject::agent_request`]; a length of four bytes, big-endian, and this, then the body. The answer is a
/// [`ForwardedAnswer`] in the same form, then its body.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedRequest {
    /// HTTP method.
    pub method: String,
    /// Path and query as the agent is to see them.
    pub target: String,
    /// Headers, the pass among them.
    pub headers: Vec<(String, HeaderText)>,
    /// The head of the answer has to be there within this time, in milliseconds.
    pub head_time_millis: u64,
}
request!(ForwardedRequest => ForwardedAnswer, "tunnel-gateway.forward");

/// The value of a header: bytes that need not be UTF-8 (RFC 9110, section 5.5).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HeaderText(
    #[serde(with = "serde_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<u8>"))]
    pub Vec<u8>,
);

/// The head of the answer to [`ForwardedRequest`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardedAnswer {
    /// The agent answered.
    Head {
        /// HTTP status.
        status: u16,
        /// Headers.
        headers: Vec<(String, HeaderText)>,
        /// Trailers may follow the body. Then it comes in pieces, each behind its length in four bytes; trailers behind four bytes of ones,
        /// in the form of the head.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_trailers: bool,
    },
    /// It did not.
    Trouble(ForwardedTrouble),
}

/// Why there is no answer of an agent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedTrouble {
    /// HTTP status for the client.
    pub code: u16,
    /// Where it got stuck.
    pub hop: String,
    /// What is wrong and what to do.
    pub message: String,
    /// Worth another try after so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u16>,
}
