//! What is watched and what was said about it, folded from decisions. Pure.

mod decide;
mod interest;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use events::configuration::{
    ConfigurationEvent, FileFinding, GitReference, ResourceRules, SourceConfiguration,
};
use events::directory::{DirectoryEvent, ProjectSettings, TokenHolder};
use events::repository::{FetchFailure, RepositoryEvent, SourceAdvanced};
use events::{
    AgentId, AggregateKind, AggregateRef, BlobDigest, Event, OrganizationId, ProjectId, Sha256, SourceId,
    Timestamp, TokenId,
};
use serde::{Deserialize, Serialize};
use store::{Committed, Fact, Projection, ReadFilter};

pub use events::repository::ref_aggregate;

pub use decide::{Decided, Found, Given, decide_built, decide_failed};
pub use interest::{Interest, Readers, RefInterest, WantedSource};

/// Everything that decides what is watched, and the last that was said about each source.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    agents: BTreeMap<AgentId, AgentState>,
    projects: BTreeMap<ProjectId, ProjectState>,
    configurations: BTreeMap<AgentId, ConfigurationState>,
    refs: BTreeMap<String, RefState>,
    sources: BTreeMap<SourceId, SourceState>,
    /// Grows with each event that may change what is watched.
    revision: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct AgentState {
    organization: OrganizationId,
    project: ProjectId,
    /// Tokens that were not revoked, and when they end by themselves.
    tokens: BTreeMap<TokenId, Option<Timestamp>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ProjectState {
    organization: OrganizationId,
    settings: ProjectSettings,
    /// Grows with each event that may change whether it can be read.
    revision: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ConfigurationState {
    resources: ResourceRules,
    sources: Vec<SourceConfiguration>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct RefState {
    version: u64,
    /// The failure that was told while no source was on it.
    failing: Option<(FetchFailure, String)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SourceState {
    agent: AgentId,
    project: ProjectId,
    reference: GitReference,
    /// The revision in which it came: one that left and came back is another one.
    since: u64,
    latest: Option<Latest>,
    /// The newest bundle of all, which stays while commits are rejected.
    good: Option<BlobDigest>,
    failing: Option<(FetchFailure, String)>,
}

/// The last that was said about a source's commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Latest {
    /// A bundle.
    Advanced {
        /// Of this commit.
        commit: String,
        /// This one.
        bundle: BlobDigest,
        /// The globs take no file.
        takes_no_file: bool,
        /// Made of these files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Sha256>,
    },
    /// No bundle.
    Rejected {
        /// Of this commit.
        commit: String,
        /// Why.
        findings: Vec<FileFinding>,
        /// How many findings were left out.
        more: u32,
    },
}

impl Latest {
    /// Whether the log holds the same already. Older events do not name the files that a bundle was made of.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Advanced { selection: None, .. },
                Self::Advanced { commit, bundle, takes_no_file, .. },
            ) => {
                let (commit, bundle, takes_no_file) = (commit.clone(), *bundle, *takes_no_file);
                *self == Self::Advanced { commit, bundle, takes_no_file, selection: None }
            }
            _ => self == other,
        }
    }

    /// The commit that it is about.
    #[must_use]
    pub fn commit(&self) -> &str {
        match self {
            Self::Advanced { commit, .. } | Self::Rejected { commit, .. } => commit,
        }
    }
}

impl State {
    /// Grows with each event that may change what is watched.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The version of a ref's aggregate.
    #[must_use]
    pub fn ref_version(&self, aggregate: &AggregateRef) -> u64 {
        self.refs.get(&aggregate.id).map_or(0, |known| known.version)
    }

    /// The last that was said about a source.
    #[must_use]
    pub fn latest(&self, source: SourceId) -> Option<&Latest> {
        self.sources.get(&source)?.latest.as_ref()
    }

    /// The newest bundle of a source, which stays while commits are rejected.
    #[must_use]
    pub fn good(&self, source: SourceId) -> Option<BlobDigest> {
        self.sources.get(&source)?.good
    }

    /// Whose source it is, and on which ref of which project.
    #[must_use]
    pub fn place_of(&self, source: SourceId) -> Option<(AgentId, ProjectId, GitReference)> {
        let known = self.sources.get(&source)?;
        Some((known.agent, known.project, known.reference.clone()))
    }

    /// The organization of an agent.
    #[must_use]
    pub fn organization_of(&self, agent: AgentId) -> Option<OrganizationId> {
        self.agents.get(&agent).map(|agent| agent.organization)
    }

    /// The configuration of a source, with its agent and the kinds that the agent may manage.
    #[must_use]
    pub fn wanted(&self, source: SourceId) -> Option<WantedSource> {
        let known = self.sources.get(&source)?;
        let configuration = self.configurations.get(&known.agent)?;
        let found = configuration.sources.iter().find(|found| found.id == source)?;
        let (resources, source) = (configuration.resources.clone(), found.clone());
        Some(WantedSource { agent: known.agent, resources, source, since: known.since })
    }

    fn apply_commit(&mut self, committed: Committed<'_, Event>) {
        let Committed { commit, events, .. } = committed;
        if commit.aggregate.kind == AggregateKind::Ref {
            self.refs.entry(commit.aggregate.id.clone()).or_default().version = commit.version;
        }
        for (_, event) in events {
            match event {
                Event::Directory(event) => self.apply_directory(commit.organization, &event),
                Event::Configuration(event) => self.apply_configuration(event),
                Event::Repository(event) => self.apply_repository(&commit.aggregate, event),
                Event::Delivery(_) | Event::Environment(_) | Event::Subscription(_) => {}
            }
        }
    }

    fn apply_directory(&mut self, organization: OrganizationId, event: &DirectoryEvent) {
        match event {
            DirectoryEvent::ProjectCreated(created) => {
                let project = ProjectState { organization, settings: created.settings.clone(), revision: 0 };
                self.projects.insert(created.project, project);
            }
            DirectoryEvent::ProjectChanged(changed) => {
                if let Some(project) = self.projects.get_mut(&changed.project) {
                    project.settings = changed.settings.clone();
                    project.revision += 1;
                }
            }
            DirectoryEvent::ProjectDeleted(deleted) => {
                self.projects.remove(&deleted.project);
            }
            DirectoryEvent::CredentialGranted(granted) => {
                if let Some(project) = self.projects.get_mut(&granted.project) {
                    project.revision += 1;
                }
            }
            DirectoryEvent::CredentialRevoked(revoked) => {
                for project in self.projects.values_mut() {
                    if project.settings.credential == Some(revoked.credential) {
                        project.revision += 1;
                    }
                }
            }
            DirectoryEvent::AgentRegistered(registered) => {
                let agent = AgentState { organization, project: registered.project, tokens: BTreeMap::new() };
                self.agents.insert(registered.agent, agent);
            }
            DirectoryEvent::AgentDeleted(deleted) => {
                self.agents.remove(&deleted.agent);
                self.configurations.remove(&deleted.agent);
                self.sources.retain(|_, source| source.agent != deleted.agent);
            }
            DirectoryEvent::TokenIssued(issued) => {
                if let Some(tokens) = self.tokens_of(&issued.holder) {
                    tokens.insert(issued.token, issued.expires_at);
                }
            }
            DirectoryEvent::TokenRevoked(revoked) => {
                if let Some(tokens) = self.tokens_of(&revoked.holder) {
                    tokens.remove(&revoked.token);
                }
            }
            _ => return,
        }
        self.revision += 1;
    }

    fn tokens_of(&mut self, holder: &TokenHolder) -> Option<&mut BTreeMap<TokenId, Option<Timestamp>>> {
        match holder {
            TokenHolder::Agent(agent) => self.agents.get_mut(agent).map(|agent| &mut agent.tokens),
            TokenHolder::User(_) | TokenHolder::Job(_) => None,
        }
    }

    /// A source that left, or moved to another ref, is forgotten, so that it is told anew when it comes back.
    fn apply_configuration(&mut self, event: ConfigurationEvent) {
        let ConfigurationEvent::ConfigurationChanged(changed) = event else { return };
        let agent = changed.agent;
        let wanted = changed.configuration.sources;
        let stays = |id: &SourceId, known: &SourceState| {
            wanted.iter().any(|source| {
                source.id == *id && source.project == known.project && source.reference == known.reference
            })
        };
        let before = self.configurations.get(&agent).into_iter().flat_map(|before| &before.sources);
        for source in before {
            if let Entry::Occupied(known) = self.sources.entry(source.id)
                && known.get().agent == agent
                && !stays(&source.id, known.get())
            {
                known.remove();
            }
        }
        self.revision += 1;
        for source in &wanted {
            self.sources.entry(source.id).or_insert_with(|| SourceState {
                agent,
                project: source.project,
                reference: source.reference.clone(),
                since: self.revision,
                latest: None,
                good: None,
                failing: None,
            });
        }
        let resources = changed.configuration.resources;
        self.configurations.insert(agent, ConfigurationState { resources, sources: wanted });
    }

    fn apply_repository(&mut self, aggregate: &AggregateRef, event: RepositoryEvent) {
        match event {
            RepositoryEvent::SourceAdvanced(advanced) => {
                if let Some(source) = self.sources.get_mut(&advanced.source) {
                    let SourceAdvanced { commit, bundle, takes_no_file, selection, .. } = advanced;
                    source.latest = Some(Latest::Advanced { commit, bundle, takes_no_file, selection });
                    source.good = Some(bundle);
                }
            }
            RepositoryEvent::BundleRejected(rejected) => {
                if let Some(source) = self.sources.get_mut(&rejected.source) {
                    source.latest = Some(Latest::Rejected {
                        commit: rejected.commit,
                        findings: rejected.findings,
                        more: rejected.more,
                    });
                }
            }
            RepositoryEvent::FetchFailed(failed) => {
                self.set_failing(aggregate, &failed.sources, &Some((failed.failure, failed.message)));
            }
            RepositoryEvent::FetchRecovered(recovered) => {
                self.set_failing(aggregate, &recovered.sources, &None)
            }
        }
    }

    fn set_failing(
        &mut self,
        aggregate: &AggregateRef,
        sources: &[SourceId],
        failing: &Option<(FetchFailure, String)>,
    ) {
        if sources.is_empty() {
            self.refs.entry(aggregate.id.clone()).or_default().failing.clone_from(failing);
        }
        for id in sources {
            if let Some(source) = self.sources.get_mut(id) {
                source.failing.clone_from(failing);
            }
        }
    }
}

impl Projection for State {
    const NAME: &'static str = "repo-poller";
    const FOLD_VERSION: u32 = 3;
    const SNAPSHOT_EVERY: u64 = 2000;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[
            AggregateKind::Agent,
            AggregateKind::Project,
            AggregateKind::Credential,
            AggregateKind::Configuration,
            AggregateKind::Ref,
        ])
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

#[cfg(test)]
mod tests;
