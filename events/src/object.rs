//! Which Kubernetes object is meant.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Group, version, kind, namespace and name of one object. The version takes part in equality; compare
/// [`ObjectIdentity::key`] to ask whether two identities name the same object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ObjectIdentity"))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectIdentity<S: Text = String> {
    /// API group, empty for the core group.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub group: S,
    /// API version, such as `v1`.
    pub version: S,
    /// Kind, such as `ConfigMap`.
    pub kind: S,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub namespace: S,
    /// Name.
    pub name: S,
}

/// What text is held as: owned, or borrowed by somebody who looks at what was received and keeps nothing of it.
pub trait Text: AsRef<str> + Default {}

impl Text for String {}
impl Text for &str {}

pub(crate) fn is_empty(text: &impl Text) -> bool {
    text.as_ref().is_empty()
}

/// What makes an object the same object whichever version of its API is used.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A kind of object, whichever version of its API is used.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupKind {
    /// API group.
    pub group: String,
    /// Kind; empty for every kind of the group.
    pub kind: String,
}

impl ObjectKey {
    /// Whether the object is of this kind.
    #[must_use]
    pub fn is_of(&self, kind: &GroupKind) -> bool {
        self.group == kind.group && (kind.kind.is_empty() || self.kind == kind.kind)
    }
}

impl ObjectIdentity {
    /// `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// This identity without its version.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            group: self.group.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        f.write_str(" ")?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl fmt::Display for ObjectIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.api_version(), self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}
