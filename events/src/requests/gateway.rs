//! What tunnel-gateway answers.

use serde::{Deserialize, Serialize};

use crate::digest::Sha256;
use crate::id::{AgentId, InstanceId};
use crate::request::request;
use crate::requests::page::{PageCursor, PageLimit, paged};
use crate::time::Timestamp;

/// The tunnels of an agent on the replica that answers.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListTunnels {
    /// Which agent; all that the actor may see if not given.
    pub agent: Option<AgentId>,
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListTunnels => TunnelView, by (AgentId, InstanceId), "tunnel-gateway.list-tunnels");

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
