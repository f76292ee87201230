//! Requests over the bus: what every one has in common.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::id::{CommitId, CorrelationId, EventId, OrganizationId};

/// A typed request. The answer is `Result<Reply, Refusal>` in MessagePack with named fields.
pub trait Request: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What a success answers.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// Service and verb, such as `authz.decide`: [`crate::subject::Subject::request`] makes the subject of it.
    const NAME: &'static str;
}

/// A typed notice: told to whoever listens now, answered by nobody. MessagePack with named fields.
pub trait Notice: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What it is about, such as `repository.pushed`: [`crate::subject::Subject::notice`] makes the subject of it.
    const NAME: &'static str;
}

/// What travels in the headers of each request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestContext {
    /// For whom the request is made. The answering service asks authz before it acts.
    pub actor: Actor,
    /// The organization in which the actor acts.
    pub organization: OrganizationId,
    /// From the first cause to the last effect.
    pub correlation_id: CorrelationId,
    /// The event that led to it.
    pub causation_id: Option<EventId>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// The same for each retry; becomes the commit id of what the request decides.
    pub idempotency_key: CommitId,
    /// Milliseconds that the asker waits.
    pub deadline_millis: u32,
}

/// Kinds of refusal. They decide HTTP status and exit code.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// A field is wrong.
    Invalid,
    /// Nobody is known by this token.
    Unauthenticated,
    /// Not allowed.
    Denied,
    /// No such thing, or not for this actor: both read the same.
    NotFound,
    /// The state does not allow it, or the name is taken.
    Conflict,
    /// Not now; retry.
    Unavailable,
    /// A fault of ours.
    Internal,
}

/// Why a request was refused: says what was wrong and what to do.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind.
    pub kind: RefusalKind,
    /// The field that was wrong, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was wrong and what to do, lower-case, without a final dot.
    pub message: String,
}

impl Refusal {
    /// A refusal of that kind.
    #[must_use]
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, field: None, message: message.into() }
    }

    /// A field is wrong.
    #[must_use]
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self { kind: RefusalKind::Invalid, field: Some(field.to_owned()), message: message.into() }
    }

    /// No such thing, or not for this actor.
    #[must_use]
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(RefusalKind::NotFound, format!("{what} not found, or not visible to you"))
    }
}

/// A command that was refused, as it lies in the stream of refusals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCommand {
    /// Who asked.
    pub actor: Actor,
    /// In which organization.
    pub organization: OrganizationId,
    /// The request's name, such as `authz.create-project`.
    pub request: String,
    /// Why not. Holds no secret and no person's name.
    pub refusal: Refusal,
    /// The chain.
    pub correlation_id: CorrelationId,
    /// When, by the clock of the service that refused.
    pub at: crate::time::Timestamp,
}

/// Declares a request with its reply and name.
macro_rules! request {
    ($request:ty => $reply:ty, $name:literal) => {
        impl $crate::request::Request for $request {
            type Reply = $reply;
            const NAME: &'static str = $name;
        }
    };
}
pub(crate) use request;
