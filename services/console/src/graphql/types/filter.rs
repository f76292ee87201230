//! Which objects are asked for.

use async_graphql::{Enum, ID, InputObject};
use events::requests::index::{self, ObjectFilter};
use events::{DeploymentId, EnvironmentId};
use uuid::Uuid;

use super::environment::Tier;
use super::resource::HealthState;

/// Which objects; all conditions hold.
#[derive(Debug, Clone, Default, InputObject)]
pub struct ResourceFilter {
    /// Name of an agent, `group/project:name`, its last part where only one agent has it, or id.
    agent: Option<String>,
    /// Kind, resource or short name, with the group where that is needed: `Deployment`, `deployments.apps`, `deploy`.
    kind: Option<String>,
    /// Namespace.
    namespace: Option<String>,
    /// Name.
    name: Option<String>,
    /// Label selector, such as `app=web,tier in (a, b),!canary`.
    labels: Option<String>,
    /// Any of these states of health.
    health: Option<Vec<HealthState>>,
    /// Part of the name, the namespace, the kind, a label or the health's message, in any case.
    text: Option<String>,
    /// Environment that the objects belong to: a name, in which `*` stands for any text, `group/project:name` where several projects have one
    /// of the name, or an id.
    env: Option<String>,
    /// Tier of the environment that the objects belong to.
    tier: Option<Tier>,
    /// Project of the environment that the objects belong to: full path or id.
    project: Option<String>,
    /// Only objects without an owner, or with more than one.
    ownership: Option<Ownership>,
    /// Id of a deployment: only objects that it set last.
    deployment: Option<ID>,
}

/// How many own an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(remote = "index::Ownership")]
pub enum Ownership {
    /// It has no owner, and belongs to no environment that you may see.
    Unowned,
    /// It has more than one owner, or belongs to more than one environment that you may see.
    DoublyOwned,
}

impl ResourceFilter {
    /// The same within one environment.
    #[must_use]
    pub fn within(self, environment: EnvironmentId) -> ObjectFilter {
        ObjectFilter { env: Some(environment.to_string()), ..self.into() }
    }
}

impl From<ResourceFilter> for ObjectFilter {
    fn from(filter: ResourceFilter) -> Self {
        let ResourceFilter {
            agent,
            kind,
            namespace,
            name,
            labels,
            health,
            text,
            env,
            tier,
            project,
            ownership,
            deployment,
        } = filter;
        // An id that is none is of no deployment.
        let deployment = deployment.map(|id| id.parse().unwrap_or(DeploymentId(Uuid::nil())));
        let health = health.into_iter().flatten().map(index::HealthState::from).collect();
        let (tier, ownership) = (tier.map(Into::into), ownership.map(Into::into));
        Self { agent, kind, namespace, name, labels, health, text, env, tier, project, ownership, deployment }
    }
}
