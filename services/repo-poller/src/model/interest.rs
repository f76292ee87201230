//! What is to be watched now.

use std::collections::{BTreeMap, BTreeSet};

use events::configuration::{GitReference, ResourceRules, SourceConfiguration};
use events::directory::ProjectSettings;
use events::{AgentId, OrganizationId, ProjectId, SourceId, Timestamp};

use super::{AgentState, State};

/// What is wanted of one project's repository. Any change of it is a reason to look again.
#[derive(Debug, Clone, PartialEq)]
pub struct Interest {
    /// Whose project.
    pub organization: OrganizationId,
    /// Where its repository is.
    pub settings: ProjectSettings,
    /// Grows with each event that may change whether it can be read.
    pub revision: u64,
    /// By ref.
    pub refs: BTreeMap<GitReference, RefInterest>,
}

/// What is wanted of one ref.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RefInterest {
    /// Agents for whom files are read there: their configuration, or what it names.
    pub configured: BTreeSet<AgentId>,
    /// Sources on it.
    pub sources: BTreeMap<SourceId, WantedSource>,
}

/// A source of an agent with a live token.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedSource {
    /// Whose.
    pub agent: AgentId,
    /// Kinds that the agent may manage.
    pub resources: ResourceRules,
    /// The source.
    pub source: SourceConfiguration,
    /// Differs for one that left the configuration and came back, of which nothing is said yet.
    pub since: u64,
}

/// Refs of which files were read for agents lately, and until when these may want more. Nothing of it is kept: who still wants them reads
/// them again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Readers(BTreeMap<(ProjectId, GitReference), BTreeMap<AgentId, Timestamp>>);

impl Readers {
    /// An agent wants a ref until then. Whether that is new.
    pub fn want(
        &mut self,
        (project, reference): (ProjectId, GitReference),
        agent: AgentId,
        until: Timestamp,
    ) -> bool {
        let agents = self.0.entry((project, reference)).or_default();
        let before = agents.get(&agent).copied();
        agents.insert(agent, before.map_or(until, |before| before.max(until)));
        before.is_none()
    }

    /// Forgets what nobody wants any more.
    pub fn keep_wanted(&mut self, now: Timestamp) {
        self.0.retain(|_, agents| {
            agents.retain(|_, until| *until > now);
            !agents.is_empty()
        });
    }

    /// When the next of them is to be forgotten.
    #[must_use]
    pub fn next_end(&self) -> Option<Timestamp> {
        self.0.values().flat_map(BTreeMap::values).min().copied()
    }
}

impl Interest {
    /// All agents that want something of the repository.
    #[must_use]
    pub fn agents(&self) -> BTreeSet<AgentId> {
        self.refs.values().flat_map(RefInterest::agents).collect()
    }
}

impl RefInterest {
    /// All agents that want something of the ref.
    pub fn agents(&self) -> impl Iterator<Item = AgentId> + '_ {
        self.configured.iter().copied().chain(self.sources.values().map(|source| source.agent))
    }

    /// The part that these agents want.
    #[must_use]
    pub fn of(&self, agents: &BTreeSet<AgentId>) -> Self {
        let wanted = self.sources.iter().filter(|(_, source)| agents.contains(&source.agent));
        Self {
            configured: self.configured.intersection(agents).copied().collect(),
            sources: wanted.map(|(id, source)| (*id, source.clone())).collect(),
        }
    }

    /// Whether nobody wants anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.configured.is_empty() && self.sources.is_empty()
    }
}

impl AgentState {
    fn is_live(&self, now: Timestamp) -> bool {
        self.tokens.values().any(|end| end.is_none_or(|end| end > now))
    }
}

impl State {
    /// What is wanted of each project's repository by agents that have a live token now.
    #[must_use]
    pub fn interests(&self, readers: &Readers, now: Timestamp) -> BTreeMap<ProjectId, Interest> {
        let mut interests = BTreeMap::new();
        for (id, agent) in self.agents.iter().filter(|(_, agent)| agent.is_live(now)) {
            if let Some(wanted) = self.ref_of(&mut interests, agent, agent.project, &GitReference::Default) {
                wanted.configured.insert(*id);
            }
            let Some(configuration) = self.configurations.get(id) else { continue };
            for source in &configuration.sources {
                if let Some(wanted) = self.ref_of(&mut interests, agent, source.project, &source.reference) {
                    let (resources, source) = (configuration.resources.clone(), source.clone());
                    let since = self.sources.get(&source.id).map_or(0, |known| known.since);
                    wanted.sources.insert(source.id, WantedSource { agent: *id, resources, source, since });
                }
            }
        }
        for ((project, reference), agents) in &readers.0 {
            for id in agents.keys() {
                if let Some(agent) = self.agents.get(id).filter(|agent| agent.is_live(now))
                    && let Some(wanted) = self.ref_of(&mut interests, agent, *project, reference)
                {
                    wanted.configured.insert(*id);
                }
            }
        }
        interests
    }

    fn ref_of<'a>(
        &self,
        interests: &'a mut BTreeMap<ProjectId, Interest>,
        agent: &AgentState,
        project: ProjectId,
        reference: &GitReference,
    ) -> Option<&'a mut RefInterest> {
        let known = self.projects.get(&project).filter(|known| known.organization == agent.organization)?;
        let interest = interests.entry(project).or_insert_with(|| Interest {
            organization: known.organization,
            settings: known.settings.clone(),
            revision: known.revision,
            refs: BTreeMap::new(),
        });
        Some(interest.refs.entry(reference.clone()).or_default())
    }

    /// When the next token ends by itself.
    #[must_use]
    pub fn next_expiry(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.agents.values().flat_map(|agent| agent.tokens.values().flatten());
        ends.filter(|end| **end > now).min().copied()
    }
}
