//! What config-fetcher answers.

use serde::{Deserialize, Serialize};

use crate::configuration::{AgentConfiguration, FileFinding};
use crate::id::AgentId;
use crate::request::request;
use crate::time::Timestamp;

/// Which configuration of an agent is in force, and what was wrong with the newest.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowConfiguration {
    /// Whose.
    pub agent: AgentId,
}
request!(ShowConfiguration => ConfigurationView, "config-fetcher.show");

/// The answer to [`ShowConfiguration`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ConfigurationView {
    /// Path of the file in the configuration project.
    pub file: String,
    /// What is in force; `None` while there never was a good one.
    pub configuration: Option<AgentConfiguration>,
    /// The Git commit that is in force.
    pub commit: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// What is odd but harmless in it.
    pub warnings: Vec<FileFinding>,
    /// The newest commit was refused: at which commit (if it could be read), and why.
    pub rejected: Option<RejectedConfiguration>,
}

/// A refused configuration.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedConfiguration {
    /// The Git commit, if one could be read.
    pub commit: Option<String>,
    /// When.
    pub at: Timestamp,
    /// Everything that is wrong.
    pub findings: Vec<FileFinding>,
    /// What is odd but harmless in it.
    #[serde(default)]
    pub warnings: Vec<FileFinding>,
}
