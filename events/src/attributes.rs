//! What a request to a cluster's API asks for, as the cluster's own authorization sees it (Kubernetes: "request attributes").

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::object::is_empty;

/// What is done to what.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; of a path the HTTP method in lower case.
    pub verb: String,
    /// What it is done to.
    pub target: Target,
}

/// What something is done to.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Objects.
    Resource(ResourceTarget),
    /// Something of the API server that is no object, such as `/version`.
    Path(String),
}

/// Which objects.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResourceTarget {
    /// API group, empty for the core group.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub group: String,
    /// API version; empty where it does not matter.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub version: String,
    /// The kind's name in paths, such as `pods`.
    pub resource: String,
    /// Such as `log`; empty for the object itself.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub subresource: String,
    /// Namespace; empty for cluster-scoped objects, and for those of all namespaces. Of a namespace itself it is its name.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub namespace: String,
    /// Name; empty when many are meant, or one that has no name yet.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub name: String,
}

impl fmt::Display for ResourceTarget {
    /// As `kubectl auth can-i` takes it: `deployments.apps/scale`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(formatter, ".{}", self.group)?;
        }
        if !self.subresource.is_empty() {
            write!(formatter, "/{}", self.subresource)?;
        }
        Ok(())
    }
}
