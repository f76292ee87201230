//! Directories for tests, made by decisions that are folded at once.

use events::catalogue::EventBody;
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, HealthSettings, Mode, ObserveRules,
    ResourceRules,
};
use events::directory::{
    AgentRegistered, PersonalData, ProjectSettings, Role, Scope, TokenHolder, TokenIssued,
};
use events::grants::Grants;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, ChainHash, Commit, CommitId, CorrelationId, CredentialId,
    EventId, GroupId, NewEvent, OrganizationId, ProjectId, Refusal, Sha256, Timestamp, TokenId, UserId,
};
use store::Projection as _;
use uuid::Uuid;

use super::claims::{NameId, Named};
use super::projects::NewProject;
use super::{Asker, Decided, Directory, Draft, aggregate};

/// Now, in all tests of the model.
pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A directory and a source of ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    pub(crate) directory: Directory,
    pub(crate) commits: Vec<Commit>,
    ids: u128,
    /// Who had it recorded; the test if nobody.
    pub(crate) by: Option<Actor>,
    /// What has passed since [`NOW`].
    pub(crate) passed_millis: i64,
}

impl Given {
    pub(crate) fn id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids)
    }

    pub(crate) fn key(&mut self) -> CommitId {
        CommitId(self.id())
    }

    /// Folds what was decided.
    pub(crate) fn then<T>(&mut self, key: CommitId, decided: Result<Decided<T>, Refusal>) -> T {
        let decided = decided.unwrap();
        if let Some(draft) = decided.draft {
            self.fold(key, draft);
        }
        decided.outcome
    }

    pub(crate) fn fold(&mut self, id: CommitId, draft: Draft) {
        let actual = self.directory.version(draft.organization, &draft.aggregate);
        assert_eq!(draft.expected, actual, "conflict on {}", draft.aggregate);
        let bodies = draft.events.iter().map(|event| event.encode().unwrap()).collect();
        self.record(id, draft.organization, draft.aggregate, draft.expected + 1, bodies);
    }

    /// config-fetcher put a configuration with these grants into force.
    pub(crate) fn configured(&mut self, organization: OrganizationId, agent: AgentId, grants: Grants) {
        self.configured_with(organization, agent, grants, false);
    }

    /// As [`Self::configured`], maybe when jobs of the agent's own project needed no entry.
    pub(crate) fn configured_with(
        &mut self,
        organization: OrganizationId,
        agent: AgentId,
        grants: Grants,
        implicit_rights: bool,
    ) {
        let configuration = AgentConfiguration {
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: ObserveRules::default(),
            health: HealthSettings::default(),
            relations: Vec::new(),
            actions: Vec::new(),
            sources: Vec::new(),
            lockdown: false,
            implicit_rights,
            grants,
        };
        let changed =
            ConfigurationChanged { agent, commit: "0".to_owned(), configuration, warnings: Vec::new() };
        let body = ConfigurationEvent::ConfigurationChanged(changed).encode().unwrap();
        self.configured_by(organization, agent, body);
    }

    /// As [`Self::configured`], in a way that this version cannot read.
    pub(crate) fn configured_by_a_newer_version(&mut self, organization: OrganizationId, agent: AgentId) {
        let event_type = "kasbah.configuration.changed".to_owned();
        let body = EventBody { event_type, schema_version: 99, data: Vec::new() };
        self.configured_by(organization, agent, body);
    }

    pub(crate) fn configured_by(&mut self, organization: OrganizationId, agent: AgentId, body: EventBody) {
        let (id, aggregate) = (self.key(), aggregate(AggregateKind::Configuration, agent));
        self.record(id, organization, aggregate, 1, vec![body]);
    }

    fn record(
        &mut self,
        id: CommitId,
        organization: OrganizationId,
        aggregate: AggregateRef,
        version: u64,
        bodies: Vec<EventBody>,
    ) {
        let commit = Commit {
            id,
            organization,
            aggregate,
            version,
            previous: ChainHash::default(),
            actor: self.by.clone().unwrap_or_else(|| Actor::service("test")),
            correlation_id: CorrelationId(Uuid::nil()),
            causation_id: None,
            traceparent: None,
            occurred_at: NOW.plus_millis(self.passed_millis),
            command: None,
            grounds: None,
            events: bodies.into_iter().map(|body| NewEvent { id: EventId(Uuid::nil()), body }).collect(),
        };
        self.directory.fold_commit(&commit);
        self.commits.push(commit);
    }

    pub(crate) fn claimed(&mut self, name: NameId, key: CommitId) -> Uuid {
        let fresh = self.id();
        let claim = self.directory.claim(name, fresh, key);
        let step = self.key();
        self.then(step, claim)
    }

    pub(crate) fn organization(&mut self, name: &str) -> OrganizationId {
        let key = self.key();
        let id = OrganizationId(self.claimed(NameId::organization(name), key));
        let decided = self.directory.create_organization(id, name, key);
        self.then(key, decided);
        id
    }

    pub(crate) fn user(&mut self, organization: OrganizationId, roles: &[(Role, Scope)]) -> Asker {
        let (id, key) = (UserId(self.id()), self.key());
        let decided = self.directory.new_user(organization, id, PersonalData(vec![1]), roles, key);
        self.then(key, decided);
        Asker { actor: Actor::User(id), organization }
    }

    pub(crate) fn owner(&mut self, organization: OrganizationId) -> Asker {
        self.user(organization, &[(Role::Owner, Scope::Organization(organization))])
    }

    pub(crate) fn group(&mut self, owner: &Asker, name: &str) -> GroupId {
        let key = self.key();
        let organization = owner.organization;
        let id = GroupId(self.claimed(NameId::of(Named::Group, organization, organization.0, name), key));
        let decided = self.directory.create_group(owner, id, name, key);
        self.then(key, decided);
        id
    }

    pub(crate) fn project(&mut self, owner: &Asker, group: GroupId, name: &str) -> ProjectId {
        self.project_with(owner, group, name, settings("https://git.example/repository.git"))
    }

    pub(crate) fn project_with(
        &mut self,
        owner: &Asker,
        group: GroupId,
        name: &str,
        settings: ProjectSettings,
    ) -> ProjectId {
        let key = self.key();
        let id = ProjectId(self.claimed(NameId::of(Named::Project, owner.organization, group.0, name), key));
        if let Some(credential) = settings.credential {
            let (step, decided) = (self.key(), self.directory.grant_credential(owner, credential, id));
            self.then(step, decided);
        }
        let project = NewProject { group, name: name.to_owned(), settings };
        let decided = self.directory.create_project(owner, id, &project, key);
        self.then(key, decided);
        id
    }

    pub(crate) fn credential(&mut self, owner: &Asker, name: &str, host: &str) -> CredentialId {
        let key = self.key();
        let organization = owner.organization;
        let id = CredentialId(
            self.claimed(NameId::of(Named::Credential, organization, organization.0, name), key),
        );
        let decided = self.directory.create_credential(owner, id, name, host, key);
        self.then(key, decided);
        id
    }

    /// An agent; its token's hash is that of its name.
    pub(crate) fn agent(&mut self, owner: &Asker, project: ProjectId, name: &str) -> AgentId {
        self.agent_of(owner, (project, None), name)
    }

    /// An agent, maybe of a group.
    pub(crate) fn agent_of(
        &mut self,
        owner: &Asker,
        (project, group): (ProjectId, Option<GroupId>),
        name: &str,
    ) -> AgentId {
        let key = self.key();
        let agent = AgentId(self.claimed(NameId::of(Named::Agent, owner.organization, project.0, name), key));
        let token = self.token(TokenHolder::Agent(agent), name, None);
        let replaces = self.directory.former_agents(owner.organization, (project, group), name);
        let registered = AgentRegistered { agent, name: name.to_owned(), project, group, replaces };
        let decided = self.directory.register_agent(owner, registered, token, key);
        self.then(key, decided);
        agent
    }

    pub(crate) fn token(
        &mut self,
        holder: TokenHolder,
        name: &str,
        expires_at: Option<Timestamp>,
    ) -> TokenIssued {
        let hash = Sha256::of(name.as_bytes());
        TokenIssued {
            token: TokenId(self.id()),
            holder,
            hash,
            name: name.to_owned(),
            expires_at,
            clusters_only: false,
        }
    }
}

pub(crate) fn settings(repository: &str) -> ProjectSettings {
    let (repository, default_branch) = (repository.to_owned(), "main".to_owned());
    ProjectSettings { repository, default_branch, credential: None, external_id: None }
}
