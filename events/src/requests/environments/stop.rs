//! Stopping an environment together with the objects that its sources own.

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, EnvironmentId, SourceId};
use crate::object::ObjectIdentity;
use crate::request::request;
use crate::requests::delivery::KeptObject;

/// Shows which objects stopping an environment with `delete_objects` would delete.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewStop {
    /// Which environment.
    pub environment: EnvironmentId,
}
request!(PreviewStop => StopPreview, "delivery.preview-stop");

/// The answer to [`PreviewStop`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StopPreview {
    /// The sources that deploy into the environment and that the actor may see.
    pub sources: Vec<WithdrawnSource>,
    /// How many more there are. While there are some, nothing is deleted.
    #[serde(default)]
    pub hidden: u32,
}

/// What would be deleted of one source.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithdrawnSource {
    /// Which.
    pub source: SourceId,
    /// Its name.
    pub name: String,
    /// Whose.
    pub agent: AgentId,
    /// How many objects would be deleted.
    pub deletes: u32,
    /// The first of them, [`WithdrawnSource::SHOWN`] at most.
    #[serde(default)]
    pub objects: Vec<ObjectIdentity>,
    /// How many objects would stay.
    #[serde(default)]
    pub stay: u32,
    /// The first of them with the reasons, [`WithdrawnSource::SHOWN`] at most.
    #[serde(default)]
    pub kept: Vec<KeptObject>,
    /// Why the deletion would wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Why the actor may not delete them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl WithdrawnSource {
    /// So many objects of each kind are named; the others are counted.
    pub const SHOWN: usize = 100;
}
