use std::collections::BTreeSet;

use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, HealthSettings, Mode, ObserveRules,
    SyncPolicies,
};
use events::directory::{
    AgentDeleted, AgentRegistered, CredentialGranted, CredentialRevoked, ProjectCreated, TokenIssued,
    TokenRevoked,
};
use events::repository::{BundleRejected, FetchFailed, FetchRecovered, SourceAdvanced};
use events::{
    Actor, Commit, CommitId, CorrelationId, CredentialId, EventBody, EventId, GroupId, NewEvent, Sha256,
};
use uuid::Uuid;

use super::*;

const NOW: Timestamp = Timestamp(1_000_000);

fn organization() -> OrganizationId {
    OrganizationId(Uuid::from_u128(1))
}

fn project(number: u128) -> ProjectId {
    ProjectId(Uuid::from_u128(number))
}

fn agent(number: u128) -> AgentId {
    AgentId(Uuid::from_u128(number))
}

/// Events as they come out of the log.
struct Given {
    state: State,
    versions: BTreeMap<String, u64>,
}

impl Given {
    fn new() -> Self {
        Self { state: State::start(), versions: BTreeMap::new() }
    }

    fn event(&mut self, aggregate: AggregateRef, event: impl Into<Event>) -> &mut Self {
        self.body_of(organization(), aggregate, event.into().encode().unwrap())
    }

    fn body_of(
        &mut self,
        organization: OrganizationId,
        aggregate: AggregateRef,
        body: EventBody,
    ) -> &mut Self {
        let version = self.versions.entry(aggregate.to_string()).or_default();
        *version += 1;
        let commit = Commit {
            id: CommitId(Uuid::nil()),
            organization,
            aggregate,
            version: *version,
            previous: events::ChainHash::default(),
            actor: Actor::service("test"),
            correlation_id: CorrelationId(Uuid::nil()),
            causation_id: None,
            traceparent: None,
            occurred_at: NOW,
            command: None,
            grounds: None,
            events: vec![NewEvent { id: EventId(Uuid::nil()), body }],
        };
        self.state.fold_commit(&commit);
        self
    }

    fn project(&mut self, number: u128) -> &mut Self {
        let settings = ProjectSettings {
            repository: format!("https://example.com/{number}.git"),
            default_branch: "main".into(),
            credential: Some(CredentialId(Uuid::from_u128(number))),
            external_id: None,
        };
        let created = ProjectCreated {
            project: project(number),
            group: GroupId(Uuid::nil()),
            name: "deploy".into(),
            settings,
        };
        self.event(
            AggregateRef::new(AggregateKind::Project, project(number)),
            DirectoryEvent::ProjectCreated(created),
        )
    }

    fn agent_event(&mut self, number: u128, event: DirectoryEvent) -> &mut Self {
        self.event(AggregateRef::new(AggregateKind::Agent, agent(number)), event)
    }

    fn agent(&mut self, number: u128, of: u128) -> &mut Self {
        let registered = AgentRegistered {
            agent: agent(number),
            name: "staging".into(),
            project: project(of),
            group: None,
            replaces: Vec::new(),
        };
        self.agent_event(number, DirectoryEvent::AgentRegistered(registered))
    }

    fn token(&mut self, number: u128, token: u128, expires_at: Option<Timestamp>) -> &mut Self {
        let issued = TokenIssued {
            token: TokenId(Uuid::from_u128(token)),
            holder: TokenHolder::Agent(agent(number)),
            hash: Sha256::default(),
            name: "t".into(),
            expires_at,
            clusters_only: false,
        };
        self.agent_event(number, DirectoryEvent::TokenIssued(issued))
    }

    fn revoke(&mut self, number: u128, token: u128) -> &mut Self {
        let holder = TokenHolder::Agent(agent(number));
        let revoked = TokenRevoked { token: TokenId(Uuid::from_u128(token)), holder };
        self.agent_event(number, DirectoryEvent::TokenRevoked(revoked))
    }

    fn configure(&mut self, number: u128, sources: &[(&str, u128, GitReference)]) -> &mut Self {
        let sources = sources.iter().map(|(name, of, reference)| SourceConfiguration {
            id: SourceId::derive(agent(number), name),
            name: (*name).to_owned(),
            project: project(*of),
            reference: reference.clone(),
            include: vec!["**".into()],
            exclude: Vec::new(),
            interval_seconds: 60,
            default_namespace: "default".into(),
            service_account: None,
            policies: SyncPolicies::default(),
            environment: None,
            line: 1,
        });
        let configuration = AgentConfiguration {
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: ObserveRules::default(),
            health: HealthSettings::default(),
            relations: Vec::new(),
            actions: Vec::new(),
            sources: sources.collect(),
            lockdown: false,
            implicit_rights: false,
            grants: events::grants::Grants::default(),
        };
        let changed = ConfigurationChanged {
            agent: agent(number),
            commit: "0".into(),
            configuration,
            warnings: Vec::new(),
        };
        let aggregate = AggregateRef::new(AggregateKind::Configuration, agent(number));
        self.event(aggregate, ConfigurationEvent::ConfigurationChanged(changed))
    }

    fn said(&mut self, events: Vec<RepositoryEvent>) -> &mut Self {
        let aggregate = ref_aggregate(project(1), &GitReference::Default);
        for event in events {
            self.event(aggregate.clone(), event);
        }
        self
    }

    fn watched(&self) -> Vec<ProjectId> {
        self.state.interests(&Readers::default(), NOW).into_keys().collect()
    }
}

fn shop() -> SourceId {
    SourceId::derive(agent(1), "shop")
}

fn given() -> Given {
    let mut given = Given::new();
    given.project(1).agent(1, 1).token(1, 1, None).configure(1, &[("shop", 1, GitReference::Default)]);
    given
}

fn good(bundle: u8) -> Vec<(SourceId, AgentId, Decided)> {
    let bundle = BlobDigest([bundle; 32]);
    let (warnings, takes_no_file) = (Vec::new(), false);
    let good = Decided::Bundle { bundle, objects: 1, warnings, takes_no_file, selection: None };
    vec![(shop(), agent(1), good)]
}

fn bad(message: &str) -> Vec<(SourceId, AgentId, Decided)> {
    let finding = FileFinding {
        file: "a.yaml".into(),
        line: 1,
        column: 0,
        field: String::new(),
        message: message.to_owned(),
    };
    vec![(shop(), agent(1), Decided::Rejected { findings: vec![finding], more: 0, warnings: Vec::new() })]
}

fn built(given: &Given, commit: &str, outcomes: &[(SourceId, AgentId, Decided)]) -> Vec<RepositoryEvent> {
    decide_built(&given.state, project(1), &GitReference::Default, commit, outcomes)
}

fn failed(given: &Given, failure: FetchFailure, message: &str) -> Option<RepositoryEvent> {
    decide_failed(&given.state, project(1), &GitReference::Default, failure, message, vec![shop()])
}

#[test]
fn only_what_live_agents_want_is_watched() {
    let mut given = Given::new();
    given.project(1).project(2).project(3).agent(1, 1);
    assert_eq!(given.watched(), []);
    given.token(1, 1, Some(NOW));
    assert_eq!(given.watched(), [], "it ends now");
    given.token(1, 2, Some(NOW.plus_millis(1)));
    assert_eq!(given.watched(), [project(1)]);
    assert_eq!(given.state.next_expiry(NOW), Some(NOW.plus_millis(1)));
    assert!(given.state.interests(&Readers::default(), NOW.plus_millis(1)).is_empty());
    given.configure(1, &[("shop", 2, GitReference::Branch("next".into()))]);
    assert_eq!(given.watched(), [project(1), project(2)]);
    given.token(1, 3, None).revoke(1, 2);
    assert_eq!(given.watched(), [project(1), project(2)]);
    given.revoke(1, 3);
    assert_eq!(given.watched(), []);
    given.token(1, 4, None).agent_event(1, DirectoryEvent::AgentDeleted(AgentDeleted { agent: agent(1) }));
    assert_eq!(given.watched(), []);
}

#[test]
fn one_ref_serves_all_who_want_it() {
    let mut given = given();
    given
        .agent(2, 1)
        .token(2, 2, None)
        .configure(2, &[("a", 1, GitReference::Default), ("b", 1, GitReference::Tag("v1".into()))]);
    let interests = given.state.interests(&Readers::default(), NOW);
    assert_eq!(interests.len(), 1);
    let interest = &interests[&project(1)];
    assert_eq!(interest.agents(), BTreeSet::from([agent(1), agent(2)]));
    let on_default = &interest.refs[&GitReference::Default];
    assert_eq!((on_default.configured.len(), on_default.sources.len()), (2, 2));
    let of_one = on_default.of(&BTreeSet::from([agent(1)]));
    assert_eq!(of_one.sources.keys().collect::<Vec<_>>(), [&shop()]);
}

#[test]
fn what_files_are_read_of_is_watched_for_a_while() {
    let given = given();
    let mut readers = Readers::default();
    let refs = |readers: &Readers, now: Timestamp| -> Vec<(ProjectId, GitReference)> {
        let interests = given.state.interests(readers, now).into_iter();
        interests.flat_map(|(id, interest)| interest.refs.into_keys().map(move |name| (id, name))).collect()
    };
    let before = refs(&readers, NOW);
    let branch = GitReference::Branch("other".into());
    let (soon, later) = (NOW.plus_millis(10), NOW.plus_millis(20));
    assert!(readers.want((project(1), branch.clone()), agent(1), soon));
    assert!(!readers.want((project(1), branch.clone()), agent(1), later));
    assert!(!readers.want((project(1), branch.clone()), agent(1), soon), "the longer one counts");
    assert_eq!(readers.next_end(), Some(later));
    assert!(refs(&readers, NOW).contains(&(project(1), branch.clone())));
    // One that is not there, of an agent that is not.
    readers.want((project(7), GitReference::Default), agent(1), later);
    readers.want((project(1), GitReference::Tag("v1".into())), agent(7), later);
    assert_eq!(refs(&readers, NOW).len(), before.len() + 1);
    readers.keep_wanted(soon);
    assert!(refs(&readers, soon).contains(&(project(1), branch)));
    readers.keep_wanted(later);
    assert_eq!((refs(&readers, NOW), readers.next_end()), (before, None));
}

#[test]
fn another_organizations_project_is_never_watched() {
    let mut given = given();
    let other = ProjectCreated {
        project: project(9),
        group: GroupId(Uuid::nil()),
        name: "theirs".into(),
        settings: ProjectSettings {
            repository: "https://example.com/9.git".into(),
            default_branch: "main".into(),
            credential: None,
            external_id: None,
        },
    };
    let body = DirectoryEvent::ProjectCreated(other).encode().unwrap();
    let theirs = OrganizationId(Uuid::from_u128(2));
    given.body_of(theirs, AggregateRef::new(AggregateKind::Project, project(9)), body);
    given.configure(1, &[("theirs", 9, GitReference::Default)]);
    assert_eq!(given.watched(), [project(1)]);
}

#[test]
fn a_source_that_left_and_came_back_is_a_reason_to_look() {
    let mut given = given();
    let said = built(&given, "c1", &good(1));
    given.said(said);
    let before = given.state.interests(&Readers::default(), NOW);
    given.configure(1, &[("shop", 1, GitReference::Default)]);
    assert_eq!(before, given.state.interests(&Readers::default(), NOW), "it stayed");
    // Whoever looks now may see both changes at once.
    given.configure(1, &[]).configure(1, &[("shop", 1, GitReference::Default)]);
    assert_ne!(before, given.state.interests(&Readers::default(), NOW));
    assert_eq!(built(&given, "c1", &good(1)).len(), 1, "it is told again");
}

#[test]
fn what_may_change_reading_is_a_reason_to_look() {
    let mut given = given();
    let before = given.state.interests(&Readers::default(), NOW);
    let credential = CredentialId(Uuid::from_u128(1));
    let aggregate = AggregateRef::new(AggregateKind::Credential, credential);
    let granted = CredentialGranted { credential, project: project(1) };
    given.event(aggregate.clone(), DirectoryEvent::CredentialGranted(granted));
    let granted = given.state.interests(&Readers::default(), NOW);
    assert_ne!(before, granted);
    given.event(aggregate, DirectoryEvent::CredentialRevoked(CredentialRevoked { credential }));
    assert_ne!(granted, given.state.interests(&Readers::default(), NOW));
    // What is said about refs is no reason.
    let revision = given.state.revision();
    let said = built(&given, "c1", &good(1));
    given.said(said);
    assert_eq!(given.state.revision(), revision);
}

#[test]
fn what_is_new_is_said_once() {
    let mut given = given();
    let said = built(&given, "c1", &good(1));
    assert!(
        matches!(said.as_slice(), [RepositoryEvent::SourceAdvanced(SourceAdvanced { commit, .. })] if commit == "c1")
    );
    given.said(said);
    assert_eq!(built(&given, "c1", &good(1)), []);
    assert_eq!(built(&given, "c2", &good(1)).len(), 1, "the commit is new");
    assert_eq!(built(&given, "c1", &good(2)).len(), 1, "the bundle is new");
    let said = built(&given, "c2", &bad("x"));
    assert!(matches!(said.as_slice(), [RepositoryEvent::BundleRejected(BundleRejected { .. })]));
    given.said(said);
    assert_eq!(built(&given, "c2", &bad("x")), []);
    assert_eq!(built(&given, "c2", &bad("y")).len(), 1);
    assert_eq!(built(&given, "c1", &good(1)).len(), 1, "back to what was good before");
}

#[test]
fn of_which_files_a_bundle_was_made_is_said_when_these_change() {
    let mut given = given();
    let of_files = |files: Option<u8>| {
        let mut good = good(1);
        if let Decided::Bundle { selection, .. } = &mut good[0].2 {
            *selection = files.map(|files| events::Sha256([files; 32]));
        }
        good
    };
    let said = built(&given, "c1", &of_files(None));
    given.said(said);
    assert_eq!(built(&given, "c1", &of_files(Some(1))), [], "it was not always said, and is not made up for");
    let said = built(&given, "c2", &of_files(Some(1)));
    given.said(said);
    assert_eq!(built(&given, "c2", &of_files(Some(1))), []);
    assert_eq!(built(&given, "c2", &of_files(Some(2))).len(), 1, "the same bundle of other files");
}

#[test]
fn a_failure_is_said_once_for_each_reason_and_so_is_the_recovery() {
    let mut given = given();
    let said = failed(&given, FetchFailure::Unreachable, "503").unwrap();
    assert!(
        matches!(&said, RepositoryEvent::FetchFailed(FetchFailed { sources, .. }) if sources == &[shop()])
    );
    given.said(vec![said]);
    assert_eq!(failed(&given, FetchFailure::Unreachable, "503"), None);
    assert!(failed(&given, FetchFailure::Unreachable, "502").is_some());
    assert!(failed(&given, FetchFailure::NotFound, "503").is_some());
    let said = built(&given, "c1", &good(1));
    assert!(
        matches!(&said[0], RepositoryEvent::FetchRecovered(FetchRecovered { sources, .. }) if sources == &[shop()])
    );
    assert_eq!(said.len(), 2);
    given.said(said);
    assert_eq!(built(&given, "c1", &good(1)), []);
    assert!(failed(&given, FetchFailure::Unreachable, "503").is_some());
}

#[test]
fn a_ref_without_sources_fails_and_recovers_too() {
    let mut given = Given::new();
    given.project(1).agent(1, 1).token(1, 1, None);
    let fail = |given: &Given| {
        decide_failed(
            &given.state,
            project(1),
            &GitReference::Default,
            FetchFailure::Refused,
            "no",
            Vec::new(),
        )
    };
    let said = fail(&given).unwrap();
    given.said(vec![said]);
    assert_eq!(fail(&given), None);
    let said = built(&given, "c1", &[]);
    assert!(matches!(said.as_slice(), [RepositoryEvent::FetchRecovered(_)]));
    given.said(said);
    assert_eq!(built(&given, "c1", &[]), []);
}

#[test]
fn a_source_that_left_or_moved_is_told_anew() {
    let mut given = given();
    let said = built(&given, "c1", &good(1));
    given.said(said);
    given.configure(1, &[("shop", 1, GitReference::Default), ("other", 1, GitReference::Default)]);
    assert_eq!(built(&given, "c1", &good(1)), [], "it stayed");
    given.configure(1, &[("shop", 1, GitReference::Branch("next".into()))]);
    assert_eq!(given.state.latest(shop()), None);
    given.configure(1, &[]);
    assert_eq!(given.state.place_of(shop()), None);
    given.configure(1, &[("shop", 1, GitReference::Default)]);
    assert_eq!(built(&given, "c1", &good(1)).len(), 1);
}

#[test]
fn what_cannot_be_read_is_counted() {
    let mut given = given();
    let aggregate = ref_aggregate(project(1), &GitReference::Default);
    assert_eq!(given.state.ref_version(&aggregate), 0);
    let said = built(&given, "c1", &good(1));
    given.said(said);
    let body = EventBody { event_type: "kasbah.source.foretold".into(), schema_version: 1, data: Vec::new() };
    given.body_of(organization(), aggregate.clone(), body);
    assert_eq!(given.state.ref_version(&aggregate), 2);
}

#[test]
fn a_snapshot_is_the_state() {
    let mut given = given();
    given.agent(2, 1).token(2, 2, Some(NOW)).configure(2, &[("tag", 1, GitReference::Tag("v1".into()))]);
    let said = built(&given, "c1", &bad("x"));
    given.said(said);
    let said = failed(&given, FetchFailure::Unreachable, "503");
    given.said(said.into_iter().collect());
    let bytes = given.state.snapshot().unwrap();
    assert_eq!(State::restore(State::FOLD_VERSION, &bytes), Some(given.state));
    assert_eq!(State::restore(State::FOLD_VERSION, b"nonsense"), None);
}
