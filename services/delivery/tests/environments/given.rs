//! A log in memory: what it holds, and decisions on it.

use std::collections::BTreeMap;

use delivery::environments::{Environments, Given};
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, GitReference, HealthSettings, Mode,
    ObserveRules, ResourceRules, SourceConfiguration, SourceEnvironment, SyncPolicies,
};
use events::delivery::{BundleDesired, DeliveryEvent, SyncCounts, SyncFinished, SyncOutcome, SyncStarted};
use events::directory::{AgentRegistered, DirectoryEvent, GroupCreated, ProjectCreated, ProjectSettings};
use events::position::Stream;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, BlobDigest, ChainHash, Commit, CommitId, CorrelationId,
    EnvironmentId, Event, EventId, GroupId, NewEvent, OrganizationId, ProjectId, Refusal, SourceId, SyncId,
    Timestamp,
};
use store::{Decides as _, Draft, Projection as _, Record};
use uuid::Uuid;

pub const ORGANIZATION: OrganizationId = OrganizationId(Uuid::from_u128(1));
pub const AGENT: AgentId = AgentId(Uuid::from_u128(2));
pub const SHOP: ProjectId = ProjectId(Uuid::from_u128(3));
pub const TOOLS: ProjectId = ProjectId(Uuid::from_u128(4));
const GROUP: GroupId = GroupId(Uuid::from_u128(5));

/// A log in memory that folds as it is written.
pub struct Log {
    pub state: Environments,
    versions: BTreeMap<AggregateRef, u64>,
    sequence: u64,
    /// The clock of what is appended.
    pub now: i64,
}

pub fn of_sync(number: u128) -> SyncId {
    SyncId(Uuid::from_u128(1_000 + number))
}

pub fn source_id() -> SourceId {
    SourceId::derive(AGENT, "shop")
}

pub fn environment(name: &str) -> EnvironmentId {
    EnvironmentId::derive(SHOP, name)
}

/// The source, with the environment that it deploys into.
pub fn source(environment: Option<SourceEnvironment>) -> SourceConfiguration {
    SourceConfiguration {
        id: source_id(),
        name: "shop".to_owned(),
        project: SHOP,
        reference: GitReference::Branch("main".to_owned()),
        include: vec!["**".to_owned()],
        exclude: Vec::new(),
        interval_seconds: 60,
        default_namespace: "shop".to_owned(),
        service_account: None,
        policies: SyncPolicies::default(),
        environment,
        line: 1,
    }
}

pub fn production(project: Option<ProjectId>) -> Option<SourceEnvironment> {
    Some(SourceEnvironment { name: "production".to_owned(), tier: None, project })
}

impl Log {
    /// Two projects of a group, and an agent of the first.
    pub fn start() -> Self {
        let mut log =
            Self { state: Environments::start(), versions: BTreeMap::new(), sequence: 0, now: 1_000 };
        let group = GroupCreated { group: GROUP, name: "shop".to_owned() };
        log.fact(AggregateKind::Group, GROUP.0, DirectoryEvent::GroupCreated(group));
        for (project, name) in [(SHOP, "front"), (TOOLS, "tools")] {
            let settings = ProjectSettings {
                repository: "https://git.example/a.git".to_owned(),
                default_branch: "main".to_owned(),
                credential: None,
                external_id: None,
            };
            let created = ProjectCreated { project, group: GROUP, name: name.to_owned(), settings };
            log.fact(AggregateKind::Project, project.0, DirectoryEvent::ProjectCreated(created));
        }
        let registered = AgentRegistered {
            agent: AGENT,
            name: "edge".to_owned(),
            project: SHOP,
            group: None,
            replaces: Vec::new(),
        };
        log.fact(AggregateKind::Agent, AGENT.0, DirectoryEvent::AgentRegistered(registered));
        log
    }

    pub fn configured(&mut self, sources: Vec<SourceConfiguration>) {
        let configuration = AgentConfiguration {
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: ObserveRules::default(),
            health: HealthSettings::default(),
            relations: Vec::new(),
            actions: Vec::new(),
            sources,
            lockdown: false,
            implicit_rights: false,
            grants: events::grants::Grants::default(),
        };
        let changed = ConfigurationChanged {
            agent: AGENT,
            commit: "c0".to_owned(),
            configuration,
            warnings: Vec::new(),
        };
        self.fact(AggregateKind::Configuration, AGENT.0, ConfigurationEvent::ConfigurationChanged(changed));
    }

    pub fn desired(&mut self, sync: u128, commit: &str, bundle: u8) {
        let desired = BundleDesired {
            source: source_id(),
            agent: AGENT,
            sync: of_sync(sync),
            commit: commit.to_owned(),
            bundle: BlobDigest([bundle; 32]),
            objects: 1,
            prune: None,
            prunes: 0,
            wanted: None,
            withheld: 0,
            selection: None,
        };
        self.fact(AggregateKind::Source, source_id().0, DeliveryEvent::BundleDesired(desired));
    }

    pub fn began(&mut self, sync: u128, run: u32) {
        let began = SyncStarted { source: source_id(), sync: of_sync(sync), run, epoch: 1 };
        self.fact(AggregateKind::Source, source_id().0, DeliveryEvent::SyncStarted(began));
    }

    pub fn ended(&mut self, sync: u128, run: u32, outcome: SyncOutcome) {
        let ended = SyncFinished {
            source: source_id(),
            sync: of_sync(sync),
            run,
            outcome,
            counts: SyncCounts::default(),
            failures: Vec::new(),
        };
        self.fact(AggregateKind::Source, source_id().0, DeliveryEvent::SyncFinished(ended));
    }

    pub fn fact(&mut self, kind: AggregateKind, id: Uuid, event: impl Into<Event>) {
        self.append(AggregateRef::new(kind, id.hyphenated()), event.into());
    }

    fn append(&mut self, aggregate: AggregateRef, event: Event) {
        let version = self.versions.entry(aggregate.clone()).or_insert(0);
        *version += 1;
        self.sequence += 1;
        let commit = Commit {
            id: CommitId(Uuid::from_u128(99)),
            organization: ORGANIZATION,
            aggregate,
            version: *version,
            previous: ChainHash::default(),
            actor: Actor::service("test"),
            correlation_id: CorrelationId(Uuid::from_u128(77)),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(self.now),
            command: None,
            grounds: None,
            events: vec![NewEvent { id: EventId(Uuid::from_u128(55)), body: event.encode().unwrap() }],
        };
        let bytes = events::encode(&commit).unwrap();
        let place = (Stream::Decisions, 0);
        let record = Record::new(place, self.sequence, Timestamp(self.now), ORGANIZATION, bytes.into());
        self.state.fold(&record);
    }

    /// Decides, and appends what was decided.
    pub fn decide(&mut self, given: &Given) -> Result<Vec<Event>, Refusal> {
        let Some(Draft { aggregate, expected, events, .. }) = self.state.make(given)? else {
            return Ok(Vec::new());
        };
        assert_eq!(expected, self.versions.get(&aggregate).copied().unwrap_or(0), "{aggregate}");
        for event in &events {
            self.append(aggregate.clone(), event.clone());
        }
        Ok(events)
    }

    /// Does all that is to be done about syncs; the types of the events.
    pub fn follow(&mut self) -> Vec<&'static str> {
        let mut types = Vec::new();
        loop {
            let undone = self.state.undone().next();
            let Some(source) = undone else { break };
            let at = Timestamp(self.now);
            let events = self.decide(&Given::FollowSync { source, at }).unwrap();
            assert!(!events.is_empty(), "something was to be done");
            types.extend(events.iter().map(Event::event_type));
        }
        types
    }
}
