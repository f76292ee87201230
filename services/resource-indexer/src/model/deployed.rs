//! Which deployment set an object last.
//!
//! An agent reports the writes of its syncs. The writes of jobs are not reported, so they are inferred: a writer that is no controller wrote an
//! object that belongs to no source, while a deployment of a job into its namespace went on.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::observation::FieldWriter;
use events::requests::environments::ResourceGroup;
use events::requests::index::ObjectDeployment;
use events::{AgentId, DeploymentId, EnvironmentId, SyncId, Timestamp};
use serde::{Deserialize, Serialize};

use super::record::Record;
use super::text::Text;
use super::view::View;

/// So far the clocks of an API server, which counts whole seconds, and of the log may be apart, in milliseconds.
const APART: i64 = 2_000;
/// What the field managers of Kubernetes' own components begin with.
const COMPONENTS: [&str; 2] = ["kube-", "kubelet"];

/// The sync that set an object last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetBy {
    /// Which.
    pub sync: SyncId,
    /// Epoch and sequence of the observation that told of it.
    pub told: (u64, u64),
}

impl SetBy {
    /// The later one.
    pub(crate) fn later(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if one.told >= other.told { one } else { other }),
            (one, other) => one.or(other),
        }
    }
}

/// The last time that a writer other than Kubernetes' own components wrote the object itself, by the API server's clock.
pub(crate) fn hand_of(writers: &[FieldWriter]) -> Option<Timestamp> {
    let is_component =
        |writer: &FieldWriter| COMPONENTS.iter().any(|start| writer.manager.starts_with(start));
    // They come with the newest first.
    writers.iter().find(|writer| writer.subresource.is_empty() && !is_component(writer))?.at
}

/// One deployment, as far as it set objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployed {
    /// Which.
    pub id: DeploymentId,
    /// Into which environment.
    pub environment: EnvironmentId,
    /// In whose cluster.
    pub agent: AgentId,
    commit: String,
    is_sync: bool,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
}

impl Deployed {
    fn went_on_at(&self, at: Timestamp) -> bool {
        let begun = self.started_at.plus_millis(-APART) <= at;
        begun && self.ended_at.is_none_or(|ended| at <= ended.plus_millis(APART))
    }
}

/// The deployments that are kept, by how they are found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllDeployed {
    by_id: BTreeMap<DeploymentId, Arc<Deployed>>,
    by_sync: BTreeMap<SyncId, Arc<Deployed>>,
    /// Those of jobs.
    in_namespace: BTreeMap<AgentId, BTreeMap<Text, Vec<Arc<Deployed>>>>,
}

impl AllDeployed {
    /// Adds those of an environment.
    pub(crate) fn add(&mut self, group: &ResourceGroup) {
        for place in &group.places {
            let (agent, namespace) = (place.association.agent, place.association.namespace.as_str());
            for recent in &place.recent {
                let deployed = Arc::new(Deployed {
                    id: recent.deployment,
                    environment: group.environment,
                    agent,
                    commit: recent.commit.clone(),
                    is_sync: recent.sync.is_some(),
                    started_at: recent.started_at,
                    ended_at: recent.ended_at,
                });
                self.by_id.insert(deployed.id, Arc::clone(&deployed));
                match recent.sync {
                    Some(run) => self.add_run(run.sync, deployed),
                    None => {
                        let of_agent = self.in_namespace.entry(agent).or_default();
                        of_agent.entry(Text::from(namespace)).or_default().push(deployed);
                    }
                }
            }
        }
    }

    /// Of several runs of a sync that are deployments the last one counts.
    fn add_run(&mut self, sync: SyncId, deployed: Arc<Deployed>) {
        let known = self.by_sync.get(&sync).is_some_and(|known| known.started_at > deployed.started_at);
        if !known {
            self.by_sync.insert(sync, deployed);
        }
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, id: DeploymentId) -> Option<&Deployed> {
        self.by_id.get(&id).map(|deployed| &**deployed)
    }

    /// The one that set an object last.
    #[must_use]
    pub fn of(&self, record: &Record) -> Option<&Deployed> {
        if let Some(set) = record.set_by() {
            return self.by_sync.get(&set.sync).map(|deployed| &**deployed);
        }
        let at = record.hand.time().filter(|_| record.source.is_none())?;
        let there = self.in_namespace.get(&record.agent)?.get(&record.namespace)?;
        let then = there.iter().filter(|deployed| deployed.went_on_at(at));
        then.max_by_key(|deployed| deployed.started_at).map(|deployed| &**deployed)
    }
}

impl View<'_> {
    /// The deployment that set an object last, where the asker may see its environment.
    #[must_use]
    pub fn deployed(&self, record: &Record) -> Option<&Deployed> {
        let found = self.now.groups().deployed().of(record)?;
        self.environment(found.environment).map(|_| found)
    }

    pub(crate) fn deployment_of(&self, record: &Record) -> Option<ObjectDeployment> {
        let found = self.deployed(record)?;
        Some(ObjectDeployment { id: found.id, commit: found.commit.clone(), inferred: !found.is_sync })
    }
}

#[cfg(test)]
mod tests;
