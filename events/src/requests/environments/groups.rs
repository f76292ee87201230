//! Which objects belong to which environments, and what deployments put there: for the resource indexer.

use serde::{Deserialize, Serialize};

use super::EnvironmentState;
use crate::environment::{Association, Grouping, SyncRun, Tier};
use crate::id::{DeploymentId, EnvironmentId, ProjectId};
use crate::requests::page::{PageCursor, PageLimit, paged};
use crate::time::Timestamp;

/// Lists what groups objects by environment, of all environments of an organization that have an association. Only for services: the
/// resource-indexer, which asks at its start and then follows the aggregates `environment` and `deployment` in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListResourceGroups {
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListResourceGroups => ResourceGroup, by (ProjectId, String), "delivery.list-resource-groups");

/// Which objects belong to one environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroup {
    /// The environment.
    pub environment: EnvironmentId,
    /// Its project.
    pub project: ProjectId,
    /// Its name.
    pub name: String,
    /// Its slug, as labels have it.
    pub slug: String,
    /// Its tier.
    pub tier: Tier,
    /// Whether it runs.
    pub state: EnvironmentState,
    /// The rule.
    pub grouping: Grouping,
    /// Where its objects are, one for each agent and namespace that the last successful deployment there has.
    pub places: Vec<ResourcePlace>,
}

/// One place of a resource group's objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourcePlace {
    /// Agent and namespace.
    pub association: Association,
    /// The last successful deployment there.
    pub deployment: DeploymentId,
    /// The commit that it brought; empty if not known.
    pub commit: String,
    /// The source whose inventory it is, where it was a sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncRun>,
    /// The last deployments there, however they ended, the newest first; [`ResourcePlace::RECENT`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<PlacedDeployment>,
}

impl ResourcePlace {
    /// How many deployments of a place are listed.
    pub const RECENT: usize = 20;
}

/// One deployment of a [`ResourcePlace`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedDeployment {
    /// Its id.
    pub deployment: DeploymentId,
    /// The commit that it brought; empty if not known.
    pub commit: String,
    /// The sync that it is; absent where a job deploys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncRun>,
    /// When it began.
    pub started_at: Timestamp,
    /// When its end was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}
