//! Names of agents, and whether they are connected: from decisions and from the words of gateways.

use std::collections::{BTreeMap, BTreeSet};

use events::configuration::{
    AgentConfiguration, ConfigurationEvent, DeclaredAction, DeclaredRelation, HealthSettings,
};
use events::directory::DirectoryEvent;
use events::observation::{ObservationBatch, Observed};
use events::{AgentId, Event, GroupId, InstanceId, OrganizationId, ProjectId, SourceId, Timestamp};
use serde::{Deserialize, Serialize};

use super::former::{self, DecidedAt, Former};

/// Gateways that are remembered without a tunnel: one that restarts is another one.
const GATEWAYS: usize = 1_000;

/// Names in the directory, as far as agents have them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Directory {
    agents: BTreeMap<AgentId, Agent>,
    projects: BTreeMap<ProjectId, Project>,
    /// Names of sources, with their agents.
    sources: BTreeMap<SourceId, (AgentId, String)>,
    groups: BTreeMap<GroupId, String>,
}

/// One project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Project {
    organization: OrganizationId,
    group: GroupId,
    name: String,
    /// Its number elsewhere.
    external: Option<u64>,
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Agent {
    organization: OrganizationId,
    name: String,
    project: ProjectId,
    group: Option<GroupId>,
    deleted: bool,
    /// How its configuration says that health is judged.
    health: HealthSettings,
    /// How its configuration says that objects are related.
    relations: Vec<DeclaredRelation>,
    /// What its configuration says can be done with objects.
    actions: Vec<DeclaredAction>,
    /// What its configurations said of health and relations before, the oldest first.
    former: Vec<Former>,
}

/// What decisions changed that matters to objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decided {
    /// Agents that were deleted.
    pub deleted: Vec<AgentId>,
    /// Agents of whose objects something else is declared from now on.
    pub declared: Vec<AgentId>,
}

impl Directory {
    /// Folds events of an organization that were decided at once; says what they changed.
    pub fn apply(
        &mut self,
        (organization, at): (OrganizationId, DecidedAt),
        events: impl IntoIterator<Item = Event>,
    ) -> Decided {
        let mut decided = Decided::default();
        for event in events {
            let event = match event {
                Event::Directory(event) => event,
                Event::Configuration(ConfigurationEvent::ConfigurationChanged(changed)) => {
                    if self.configured(changed.agent, at, changed.configuration) {
                        decided.declared.push(changed.agent);
                    }
                    continue;
                }
                _ => continue,
            };
            match &event {
                DirectoryEvent::GroupCreated(created) => {
                    self.groups.insert(created.group, created.name.clone());
                }
                DirectoryEvent::ProjectCreated(created) => {
                    let (group, name) = (created.group, created.name.clone());
                    let external = created.settings.external_id;
                    self.projects.insert(created.project, Project { organization, group, name, external });
                }
                DirectoryEvent::ProjectChanged(changed) => {
                    if let Some(project) = self.projects.get_mut(&changed.project) {
                        project.external = changed.settings.external_id;
                    }
                }
                DirectoryEvent::AgentRegistered(registered) => {
                    let (name, project, group) =
                        (registered.name.clone(), registered.project, registered.group);
                    let agent = Agent {
                        organization,
                        name,
                        project,
                        group,
                        deleted: false,
                        health: HealthSettings::default(),
                        relations: Vec::new(),
                        actions: Vec::new(),
                        former: Vec::new(),
                    };
                    self.agents.insert(registered.agent, agent);
                }
                DirectoryEvent::AgentDeleted(gone) => {
                    if let Some(agent) = self.agents.get_mut(&gone.agent) {
                        agent.deleted = true;
                        decided.deleted.push(gone.agent);
                    }
                }
                _ => {}
            }
        }
        decided
    }

    /// Takes an agent's new configuration; says whether it declares something else of its objects.
    fn configured(&mut self, id: AgentId, at: DecidedAt, configuration: AgentConfiguration) -> bool {
        self.sources.retain(|_, (agent, _)| *agent != id);
        let sources = configuration.sources.into_iter();
        self.sources.extend(sources.map(|source| (source.id, (id, source.name))));
        let Some(agent) = self.agents.get_mut(&id) else { return false };
        agent.actions = configuration.actions;
        let new = (configuration.health, configuration.relations);
        if (&agent.health, &agent.relations) == (&new.0, &new.1) {
            return false;
        }
        let health = std::mem::replace(&mut agent.health, new.0);
        let relations = std::mem::replace(&mut agent.relations, new.1);
        former::keep(&mut agent.former, Former { until: at, health, relations });
        true
    }

    /// The agents whose configurations declare something of their objects, or did.
    pub fn with_declarations(&self) -> impl Iterator<Item = AgentId> {
        let declares = |agent: &Agent| {
            !agent.health.is_default() || !agent.relations.is_empty() || !agent.former.is_empty()
        };
        self.agents.iter().filter(move |(_, agent)| declares(agent)).map(|(id, _)| *id)
    }

    /// What an agent's configuration declares of its objects: how they are judged, and how they are related.
    #[must_use]
    pub fn declared_of(&self, agent: AgentId) -> Option<(&HealthSettings, &[DeclaredRelation])> {
        self.agents.get(&agent).map(|agent| (&agent.health, agent.relations.as_slice()))
    }

    /// What an agent's configuration says can be done with objects.
    #[must_use]
    pub fn actions_of(&self, agent: AgentId) -> &[DeclaredAction] {
        self.agents.get(&agent).map_or(&[], |agent| &agent.actions)
    }

    /// What an agent's configurations declared before, the oldest first.
    #[must_use]
    pub fn formerly_declared_of(&self, agent: AgentId) -> &[Former] {
        self.agents.get(&agent).map_or(&[], |agent| &agent.former)
    }

    /// Whether the agent was deleted.
    #[must_use]
    pub fn is_deleted(&self, agent: AgentId) -> bool {
        self.agents.get(&agent).is_some_and(|agent| agent.deleted)
    }

    /// `group/project:name` or `group:name`; the id where the agent is not known here.
    #[must_use]
    pub fn name_of(&self, agent: AgentId) -> String {
        let named = || {
            let Agent { name, project, group, .. } = self.agents.get(&agent)?;
            let path = match group {
                Some(group) => self.groups.get(group)?.clone(),
                None => self.path_of(*project)?,
            };
            Some(format!("{path}:{name}"))
        };
        named().unwrap_or_else(|| agent.to_string())
    }

    /// `group/name` of a project.
    #[must_use]
    pub fn path_of(&self, project: ProjectId) -> Option<String> {
        let Project { group, name, .. } = self.projects.get(&project)?;
        Some(format!("{}/{name}", self.groups.get(group)?))
    }

    /// `agent/name` of a source; its id where it is not known here.
    #[must_use]
    pub fn source_name(&self, source: SourceId) -> String {
        let named = || {
            let (agent, name) = self.sources.get(&source)?;
            Some(format!("{}/{name}", self.short_name_of(*agent)?))
        };
        named().unwrap_or_else(|| source.to_string())
    }

    /// A project's number elsewhere.
    #[must_use]
    pub fn external_id_of(&self, project: ProjectId) -> Option<u64> {
        self.projects.get(&project)?.external
    }

    /// The organizations that have projects.
    #[must_use]
    pub fn organizations(&self) -> BTreeSet<OrganizationId> {
        self.projects.values().map(|project| project.organization).collect()
    }

    /// The last part of an agent's name.
    #[must_use]
    pub fn short_name_of(&self, agent: AgentId) -> Option<&str> {
        self.agents.get(&agent).map(|agent| agent.name.as_str())
    }
}

/// Which agents are connected, as gateways tell. Their words are folded in any order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tunnels {
    /// Up to where each gateway's own observations were folded.
    gateways: BTreeMap<InstanceId, u64>,
    agents: BTreeMap<AgentId, AgentTunnels>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct AgentTunnels {
    /// How many tunnels are open, by gateway and instance of the agent.
    open: BTreeMap<InstanceId, BTreeMap<InstanceId, u32>>,
    closed_at: Option<Timestamp>,
}

/// How an agent is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// A tunnel is open at a gateway that lives.
    Open,
    /// It was, once.
    Closed {
        /// Since when, where somebody said so.
        since: Option<Timestamp>,
    },
    /// No gateway told of it in what the log still has.
    Unknown,
}

impl Tunnels {
    /// Folds a gateway's batch. Each of its words counts once: a batch that was stored twice is counted where it came first.
    pub fn apply(&mut self, gateway: InstanceId, batch: &ObservationBatch) {
        let newest = self.gateways.entry(gateway).or_insert(0);
        let before = *newest;
        let count = u64::try_from(batch.observations.len()).unwrap_or(u64::MAX);
        *newest = before.max(batch.first.saturating_add(count).saturating_sub(1));
        for (sequence, observation) in (batch.first..).zip(&batch.observations) {
            if sequence > before {
                self.apply_one(gateway, observation.at, &observation.what);
            }
        }
        self.forget_old_gateways();
    }

    fn apply_one(&mut self, gateway: InstanceId, at: Timestamp, what: &Observed) {
        match what {
            Observed::TunnelOpened { agent, instance, .. } => {
                let open = &mut self.agents.entry(*agent).or_default().open;
                let count = open.entry(gateway).or_default().entry(*instance).or_insert(0);
                *count = count.saturating_add(1);
            }
            Observed::TunnelClosed { agent, instance, .. } => {
                let tunnels = self.agents.entry(*agent).or_default();
                tunnels.closed_at = tunnels.closed_at.max(Some(at));
                if let Some(at_gateway) = tunnels.open.get_mut(&gateway) {
                    at_gateway.entry(*instance).and_modify(|count| *count = count.saturating_sub(1));
                    at_gateway.retain(|_, count| *count > 0);
                }
                tunnels.open.retain(|_, instances| !instances.is_empty());
            }
            _ => {}
        }
    }

    /// Keeps the newest gateways, by their identifiers, which are made in order of time, and those that have a tunnel.
    fn forget_old_gateways(&mut self) {
        let surplus = self.gateways.len().saturating_sub(GATEWAYS);
        if surplus == 0 {
            return;
        }
        let open: BTreeSet<InstanceId> =
            self.agents.values().flat_map(|agent| agent.open.keys().copied()).collect();
        let oldest: BTreeSet<InstanceId> = self.gateways.keys().take(surplus).copied().collect();
        self.gateways.retain(|known, _| !oldest.contains(known) || open.contains(known));
    }

    /// Forgets an agent that was deleted.
    pub fn forget(&mut self, agent: AgentId) {
        self.agents.remove(&agent);
    }

    /// How an agent is connected, given which gateways live.
    #[must_use]
    pub fn of(&self, agent: AgentId, lives: impl Fn(InstanceId) -> bool) -> Connection {
        let Some(tunnels) = self.agents.get(&agent) else { return Connection::Unknown };
        if tunnels.open.keys().any(|gateway| lives(*gateway)) {
            return Connection::Open;
        }
        // Of a gateway that died nobody said when.
        let since = tunnels.closed_at.filter(|_| tunnels.open.is_empty());
        Connection::Closed { since }
    }
}
