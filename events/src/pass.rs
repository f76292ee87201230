//! Passes: what somebody may do with a cluster's API, as whom, and for how long.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::AgentId;
use crate::object::is_empty;
use crate::time::Timestamp;

/// A grant's short-lived form that travels with a request. authz signs it; whoever lets the request through verifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// The agent whose cluster is meant.
    pub agent: AgentId,
    /// As whom the cluster sees the requests.
    pub access_as: AccessAs,
    /// What of that may be used.
    #[serde(default, skip_serializing_if = "Narrowing::is_empty")]
    pub narrowing: Narrowing,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// As whom a cluster sees requests.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessAs {
    /// As the agent's own service account.
    Agent,
    /// As somebody whom the agent impersonates.
    Impersonated(Impersonated),
}

/// Whom an agent impersonates (Kubernetes: "user impersonation").
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Impersonated {
    /// User name, such as `kasbah:user:ann`.
    pub username: String,
    /// Groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Unique id; empty for none.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub uid: String,
    /// Further fields, each with its values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What of a grant may be used; an empty list leaves everything.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Narrowing {
    /// Only in these namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Only these verbs of Kubernetes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    /// Only these resources, such as `pods`, `pods/log` or `deployments.apps`; `*` stands for any text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
}

impl Narrowing {
    /// Whether it leaves everything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.verbs.is_empty() && self.resources.is_empty()
    }
}
