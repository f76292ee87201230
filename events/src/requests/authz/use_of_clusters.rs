//! The use of clusters' APIs.

use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;
use crate::pass::AccessAs;
use crate::request::request;

/// May a user do this with the API of an agent's cluster? Says which entry of the agent's configuration grants it, or what is
/// missing.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanUse {
    /// Name of the agent, `group/project:name`, or id.
    pub agent: String,
    /// Another user (name or id), for those who may see users; the asker if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What they would do.
    pub attributes: Attributes,
}
request!(CanUse => UseDecision, "authz.can-use");

/// The answer to [`CanUse`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseDecision {
    /// Whether Kasbah lets it through; the cluster's own authorization has the last word.
    pub allowed: bool,
    /// As whom the cluster sees them, if it is let through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_as: Option<AccessAs>,
    /// Which entry of which file grants it, or what is missing.
    pub reason: String,
}
