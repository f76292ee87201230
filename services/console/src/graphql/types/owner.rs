//! Whose an object is: its environment, and who put it there.

use async_graphql::{ID, SimpleObject};
use events::requests::index::{ObjectEnvironment, ObjectOwner};

use super::environment::Tier;

/// An environment that an object belongs to.
#[derive(Debug, Clone, SimpleObject)]
pub struct ResourceEnvironment {
    /// Its id.
    id: ID,
    /// Its name.
    name: String,
    /// `group/name` of its project.
    project_path: String,
    /// Its tier.
    tier: Tier,
}

impl From<ObjectEnvironment> for ResourceEnvironment {
    fn from(environment: ObjectEnvironment) -> Self {
        Self {
            id: environment.id.to_string().into(),
            name: environment.name,
            project_path: environment.project_path,
            tier: environment.tier.into(),
        }
    }
}

/// Who owns an object: who put it there, or what has caused it.
#[derive(Debug, Clone, SimpleObject)]
pub struct ResourceOwner {
    /// How that is known: `source`, `helm`, `flux`, `argo-cd`, or, where there is no such mark, `managed-by` or `field-manager`.
    kind: String,
    /// `agent/source`, the release, Kustomization or application, or the name of the operator or tool.
    name: String,
    /// The object that says so, such as `Deployment.apps shop/web`, where it has caused this one.
    through: Option<String>,
}

impl From<ObjectOwner> for ResourceOwner {
    fn from(owner: ObjectOwner) -> Self {
        let ObjectOwner { kind, name, through } = owner;
        Self { kind, name, through: through.map(|key| key.to_string()) }
    }
}
