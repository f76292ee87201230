//! Changes of objects that an agent saw: observations in the stream of objects, with a sequence of their own.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::{BlobDigest, Sha256};
use crate::object::{ObjectIdentity, Text, is_empty};
use crate::time::Timestamp;

/// An object as it is in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenObject<S: Text = String> {
    /// Which object.
    pub identity: ObjectIdentity<S>,
    /// Its UID.
    pub uid: S,
    /// Its `metadata.resourceVersion`: opaque, equal only for equal states.
    pub resource_version: S,
    /// SHA-256 over the pruned body, as JSON without spaces and with sorted keys, without `metadata.resourceVersion`. The same digest is the
    /// same object.
    pub digest: Sha256,
    /// The pruned body.
    pub body: ObjectBody<S>,
    /// Who wrote to it, the newest first, as `metadata.managedFields` said before they were left out: at most
    /// [`WRITERS`](Self::WRITERS). Their times are whole seconds, so only those that were not there before can have made a change.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub writers: Vec<FieldWriter<S>>,
}

impl<S: Text> SeenObject<S> {
    /// Writers told of one object.
    pub const WRITERS: usize = 8;
}

/// The body of an object without managed fields, values of Secrets and what else a configuration leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectBody<S: Text = String> {
    /// JSON, exactly as its digest counts it, but with `metadata.resourceVersion` left out.
    Json(S),
    /// What is too large for a frame: the gateway fetches it from the agent by the object's digest, and stores it as this blob.
    Blob {
        /// The blob, once the gateway has stored it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<BlobDigest>,
        /// Length of the JSON in bytes.
        bytes: u64,
    },
}

/// One writer of an object's fields.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FieldWriter"))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldWriter<S: Text = String> {
    /// Field manager, such as `kubectl-client-side-apply`.
    pub manager: S,
    /// `Apply` or `Update`.
    pub operation: S,
    /// Such as `status`; empty for the object itself.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub subresource: S,
    /// When, by the API server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A kind in one namespace or in all: what one feed of the agent is about.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ObservedKind"))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObservedKind<S: Text = String> {
    /// API group, empty for the core group.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub group: S,
    /// API version under which the agent reads it.
    pub version: S,
    /// The kind.
    pub kind: S,
    /// The resource, such as `deployments`.
    pub plural: S,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// The namespace that the feed is about; empty for all.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub namespace: S,
}

impl<S: Text> fmt::Display for ObservedKind<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plural.as_ref())?;
        if !self.group.as_ref().is_empty() {
            write!(f, ".{}", self.group.as_ref())?;
        }
        if !self.namespace.as_ref().is_empty() {
            write!(f, " in namespace {}", self.namespace.as_ref())?;
        }
        Ok(())
    }
}

/// Why an object is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gone {
    /// The API server said that it was deleted.
    Deleted,
    /// It was not in a list any more: it was deleted while nobody watched.
    Vanished,
    /// Its kind is not served any more.
    KindGone,
    /// The configuration leaves its kind or namespace out from now on; it may well be there.
    NotObserved,
}
