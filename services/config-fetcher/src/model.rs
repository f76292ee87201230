//! Which configuration of each agent is in force, folded from decisions. Pure.

use std::collections::BTreeMap;

use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, ConfigurationRejected, FileFinding, file_of,
};
use events::directory::{DirectoryEvent, TokenHolder};
use events::requests::configuration::{ConfigurationView, RejectedConfiguration};
use events::{
    AgentId, AggregateKind, AggregateRef, Event, OrganizationId, ProjectId, Refusal, Timestamp, TokenId,
};
use serde::{Deserialize, Serialize};
use store::replay::yaml;
use store::{Committed, Decides, Draft, Fact, Projection, ReadFilter, ReadSet};

/// All agents, and what is in force for each.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    agents: BTreeMap<AgentId, AgentState>,
    configurations: BTreeMap<AgentId, InForce>,
    /// Grows with each event that may change which files are to be read.
    revision: u64,
}

/// An agent, as far as its configuration is concerned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentState {
    /// Whose.
    pub organization: OrganizationId,
    /// Its name.
    pub name: String,
    /// Its configuration project.
    pub project: ProjectId,
    /// Tokens that were not revoked, and when they end by themselves.
    tokens: BTreeMap<TokenId, Option<Timestamp>>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct InForce {
    version: u64,
    changed: Option<ConfigurationChanged>,
    since: Option<Timestamp>,
    rejected: Option<RejectedConfiguration>,
}

/// What came of reading an agent's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// A good configuration.
    Good {
        /// At this commit.
        commit: String,
        /// This one.
        configuration: Box<AgentConfiguration>,
        /// What is odd but harmless.
        warnings: Vec<FileFinding>,
    },
    /// Not a good one.
    Bad {
        /// At this commit, if one could be read.
        commit: Option<String>,
        /// Why.
        findings: Vec<FileFinding>,
        /// What is odd but harmless in it.
        #[serde(default)]
        warnings: Vec<FileFinding>,
    },
}

/// What a decision is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// Whose agent.
    pub organization: OrganizationId,
    /// Which.
    pub agent: AgentId,
    /// What came of reading its file.
    pub outcome: Outcome,
    /// Something else that was said on this state may still come to the log.
    #[serde(default)]
    pub unsettled: bool,
    /// What the same file meant before `allow_agent_identity` was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<LegacyReading>,
}

/// A file as it was read before `allow_agent_identity` was known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LegacyReading {
    /// At this commit.
    pub commit: String,
    /// What it said.
    pub configuration: AgentConfiguration,
    /// What is odd, and what in it stands on the former meaning.
    pub warnings: Vec<FileFinding>,
}

impl Given {
    /// What came of reading the file. One that is in force as it was read formerly stays in force as that.
    fn outcome_beside(&self, in_force: Option<&AgentConfiguration>) -> Outcome {
        match &self.former {
            Some(LegacyReading { commit, configuration, warnings }) if in_force == Some(configuration) => {
                let (commit, configuration) = (commit.clone(), Box::new(configuration.clone()));
                Outcome::Good { commit, configuration, warnings: warnings.clone() }
            }
            _ => self.outcome.clone(),
        }
    }
}

/// Says what is new about an agent's configuration, if anything is. What is unsettled has to be said again: then whatever was said before
/// on the same state comes too late, and does not take the place of something newer.
#[must_use]
pub fn decide(state: &State, given: &Given) -> Option<ConfigurationEvent> {
    let Given { agent, unsettled, .. } = *given;
    let known = state.configurations.get(&agent);
    let rejected = known.and_then(|known| known.rejected.as_ref());
    let changed = known.and_then(|known| known.changed.as_ref());
    match given.outcome_beside(changed.map(|changed| &changed.configuration)) {
        Outcome::Good { commit, configuration, warnings } => {
            let same = changed.is_some_and(|changed| {
                changed.configuration == *configuration && changed.warnings == warnings && rejected.is_none()
            });
            (unsettled || !same).then_some(ConfigurationEvent::ConfigurationChanged(ConfigurationChanged {
                agent,
                commit,
                configuration: *configuration,
                warnings,
            }))
        }
        Outcome::Bad { commit, findings, warnings } => {
            let same = rejected
                .is_some_and(|rejected| rejected.findings == findings && rejected.warnings == warnings);
            (unsettled || !same).then_some(ConfigurationEvent::ConfigurationRejected(ConfigurationRejected {
                agent,
                commit,
                findings,
                warnings,
            }))
        }
    }
}

/// The aggregate of an agent's configuration.
#[must_use]
pub fn aggregate(agent: AgentId) -> AggregateRef {
    AggregateRef::new(AggregateKind::Configuration, agent)
}

impl State {
    /// Grows with each event that may change which files are to be read.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Agents with a token that is live now.
    #[must_use]
    pub fn live_agents(&self, now: Timestamp) -> Vec<AgentId> {
        let live = |agent: &AgentState| agent.tokens.values().any(|end| end.is_none_or(|end| end > now));
        self.agents.iter().filter(|(_, agent)| live(agent)).map(|(id, _)| *id).collect()
    }

    /// An agent.
    #[must_use]
    pub fn agent(&self, agent: AgentId) -> Option<&AgentState> {
        self.agents.get(&agent)
    }

    /// The version of an agent's configuration.
    #[must_use]
    pub fn version(&self, agent: AgentId) -> u64 {
        self.configurations.get(&agent).map_or(0, |known| known.version)
    }

    /// What is in force for an agent.
    #[must_use]
    pub fn view(&self, agent: AgentId) -> Option<ConfigurationView> {
        let file = file_of(&self.agents.get(&agent)?.name);
        let known = self.configurations.get(&agent).cloned().unwrap_or_default();
        let mut view =
            ConfigurationView { file, since: known.since, rejected: known.rejected, ..Default::default() };
        if let Some(changed) = known.changed {
            view.configuration = Some(changed.configuration);
            view.commit = Some(changed.commit);
            view.warnings = changed.warnings;
        }
        Some(view)
    }

    fn apply_commit(&mut self, committed: Committed<'_, Event>) {
        let Committed { commit, events, .. } = committed;
        if commit.aggregate.kind == AggregateKind::Configuration
            && let Ok(agent) = commit.aggregate.id.parse()
        {
            self.configurations.entry(agent).or_default().version = commit.version;
        }
        for (_, event) in events {
            match event {
                Event::Directory(event) => self.apply_directory(commit.organization, event),
                Event::Configuration(event) => self.apply_configuration(event, commit.occurred_at),
                Event::Repository(_)
                | Event::Delivery(_)
                | Event::Environment(_)
                | Event::Subscription(_) => {}
            }
        }
    }

    fn apply_directory(&mut self, organization: OrganizationId, event: DirectoryEvent) {
        match event {
            DirectoryEvent::AgentRegistered(registered) => {
                let (name, project) = (registered.name, registered.project);
                let agent = AgentState { organization, name, project, tokens: BTreeMap::new() };
                self.agents.insert(registered.agent, agent);
            }
            DirectoryEvent::AgentDeleted(deleted) => {
                self.agents.remove(&deleted.agent);
                self.configurations.remove(&deleted.agent);
            }
            DirectoryEvent::TokenIssued(issued) => {
                if let TokenHolder::Agent(agent) = issued.holder
                    && let Some(agent) = self.agents.get_mut(&agent)
                {
                    agent.tokens.insert(issued.token, issued.expires_at);
                }
            }
            DirectoryEvent::TokenRevoked(revoked) => {
                if let TokenHolder::Agent(agent) = revoked.holder
                    && let Some(agent) = self.agents.get_mut(&agent)
                {
                    agent.tokens.remove(&revoked.token);
                }
            }
            _ => return,
        }
        self.revision += 1;
    }

    fn apply_configuration(&mut self, event: ConfigurationEvent, at: Timestamp) {
        match event {
            ConfigurationEvent::ConfigurationChanged(changed) => {
                let known = self.configurations.entry(changed.agent).or_default();
                known.changed = Some(changed);
                known.since = Some(at);
                known.rejected = None;
            }
            ConfigurationEvent::ConfigurationRejected(rejected) => {
                let known = self.configurations.entry(rejected.agent).or_default();
                let ConfigurationRejected { commit, findings, warnings, .. } = rejected;
                known.rejected = Some(RejectedConfiguration { commit, at, findings, warnings });
            }
        }
    }
}

impl Projection for State {
    const NAME: &'static str = "config-fetcher";
    const FOLD_VERSION: u32 = 2;
    const SNAPSHOT_EVERY: u64 = 2000;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[AggregateKind::Agent, AggregateKind::Configuration])
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        if let Fact::Commit(committed) = fact {
            self.apply_commit(committed);
        }
    }
}

impl Decides for State {
    const DECIDES: &'static [AggregateKind] = &[AggregateKind::Configuration];

    type Given = Given;

    fn make(&self, given: &Given) -> Result<Option<Draft>, Refusal> {
        let Some(event) = decide(self, given) else { return Ok(None) };
        let (organization, aggregate) = (given.organization, aggregate(given.agent));
        let expected = self.version(given.agent);
        Ok(Some(Draft { organization, aggregate, expected, events: vec![event.into()] }))
    }

    fn read_set(&self, given: &Given) -> ReadSet {
        ReadSet::decisions_of(given.organization)
    }

    fn relies_on(&self, given: &Given) -> Vec<AggregateRef> {
        vec![AggregateRef::new(AggregateKind::Agent, given.agent)]
    }

    fn version_of(&self, _: OrganizationId, aggregate: &AggregateRef) -> u64 {
        let agent = aggregate.id.parse().ok();
        agent.and_then(|agent| self.configurations.get(&agent)).map_or(0, |known| known.version)
    }

    fn describe(&self, _: OrganizationId, aggregate: &AggregateRef) -> Option<String> {
        let agent = aggregate.id.parse().ok()?;
        match aggregate.kind {
            AggregateKind::Configuration => Some(yaml(self.configurations.get(&agent)?)),
            AggregateKind::Agent => Some(yaml(self.agents.get(&agent)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
