use std::str::FromStr;

use events::configuration::{HealthSettings, Mode, ObserveRules, ResourceRules};
use events::directory::{AgentDeleted, AgentRegistered, TokenIssued, TokenRevoked};
use events::{Actor, ChainHash, Commit, CommitId, CorrelationId, EventBody, EventId, NewEvent, Sha256};

use super::*;

const NOW: Timestamp = Timestamp(1_000);

fn id<T: FromStr>(number: u8) -> T
where
    T::Err: std::fmt::Debug,
{
    format!("00000000-0000-0000-0000-0000000000{number:02}").parse().unwrap()
}

fn agent() -> AgentId {
    id(1)
}

fn apply(state: &mut State, aggregate: AggregateRef, version: u64, body: EventBody) -> Option<String> {
    state.fold_commit(&Commit {
        id: id::<CommitId>(9),
        organization: id(2),
        aggregate,
        version,
        previous: ChainHash::default(),
        actor: Actor::service("test"),
        correlation_id: id::<CorrelationId>(9),
        causation_id: None,
        traceparent: None,
        occurred_at: Timestamp(i64::try_from(version).unwrap()),
        command: None,
        grounds: None,
        events: vec![NewEvent { id: id::<EventId>(9), body }],
    })
}

fn directory(state: &mut State, event: DirectoryEvent) {
    apply(state, AggregateRef::new(AggregateKind::Agent, agent()), 1, event.encode().unwrap());
}

fn registered() -> State {
    let mut state = State::start();
    let event = AgentRegistered {
        agent: agent(),
        name: "staging".into(),
        project: id(3),
        group: None,
        replaces: Vec::new(),
    };
    directory(&mut state, DirectoryEvent::AgentRegistered(event));
    state
}

fn good(commit: &str, lockdown: bool) -> Outcome {
    let configuration = AgentConfiguration {
        mode: Mode::Cluster,
        resources: ResourceRules::default(),
        observe: ObserveRules::default(),
        health: HealthSettings::default(),
        relations: Vec::new(),
        actions: Vec::new(),
        sources: Vec::new(),
        lockdown,
        implicit_rights: false,
        grants: events::grants::Grants::default(),
    };
    Outcome::Good { commit: commit.into(), configuration: Box::new(configuration), warnings: Vec::new() }
}

fn bad(commit: Option<&str>, message: &str) -> Outcome {
    let finding =
        FileFinding { file: "f".into(), line: 1, column: 1, field: String::new(), message: message.into() };
    let commit = commit.map(str::to_owned);
    Outcome::Bad { commit, findings: vec![finding.clone()], warnings: vec![finding] }
}

fn given(outcome: &Outcome) -> Given {
    Given { organization: id(2), agent: agent(), outcome: outcome.clone(), unsettled: false, former: None }
}

/// Decides, and folds what was decided; whether anything was.
fn happen(state: &mut State, outcome: &Outcome) -> bool {
    happens(state, &given(outcome))
}

fn happens(state: &mut State, given: &Given) -> bool {
    let Some(event) = decide(state, given) else { return false };
    let version = state.version(agent()) + 1;
    apply(state, aggregate(agent()), version, event.encode().unwrap());
    true
}

#[test]
fn only_what_is_new_is_decided() {
    let mut state = registered();
    assert!(happen(&mut state, &good("c1", false)));
    assert!(!happen(&mut state, &good("c1", false)));
    assert!(!happen(&mut state, &good("c2", false)), "the same content at another commit");
    assert!(happen(&mut state, &good("c3", true)));
    assert_eq!(state.version(agent()), 2);
    let view = state.view(agent()).unwrap();
    assert_eq!((view.commit.as_deref(), view.since), (Some("c3"), Some(Timestamp(2))));
    assert_eq!(view.file, ".kasbah/agents/staging/config.yaml");
}

#[test]
fn a_file_that_is_in_force_as_it_was_read_formerly_stays_in_force_as_that_with_what_stands_on_it() {
    let mut state = registered();
    let read = |outcome: Outcome| match outcome {
        Outcome::Good { commit, configuration, .. } => (commit, *configuration),
        Outcome::Bad { .. } => panic!("not good"),
    };
    let (commit, configuration) = read(good("c1", false));
    let configuration = AgentConfiguration { implicit_rights: true, ..configuration };
    let put_into_force =
        Outcome::Good { commit, configuration: Box::new(configuration.clone()), warnings: Vec::new() };
    assert!(happen(&mut state, &put_into_force), "by the former version");
    let Outcome::Bad { findings: warnings, .. } = bad(None, "stands on that") else { panic!() };
    let looked = |outcome: &Outcome, configuration: &AgentConfiguration| {
        let former = LegacyReading {
            commit: "c2".to_owned(),
            configuration: configuration.clone(),
            warnings: warnings.clone(),
        };
        Given { former: Some(former), ..given(outcome) }
    };
    for outcome in [good("c2", false), bad(Some("c2"), "needs allow_agent_identity")] {
        let mut state = state.clone();
        let looked = looked(&outcome, &configuration);
        assert!(happens(&mut state, &looked), "said once");
        assert!(!happens(&mut state, &looked));
        let view = state.view(agent()).unwrap();
        assert!(view.configuration.unwrap().implicit_rights && view.rejected.is_none());
        assert_eq!(view.warnings, warnings);
    }
    let another = AgentConfiguration { lockdown: true, ..configuration.clone() };
    assert!(happens(&mut state, &looked(&good("c3", true), &another)));
    assert!(!state.view(agent()).unwrap().configuration.unwrap().implicit_rights, "a file that changed");
    assert!(happens(&mut state, &looked(&bad(Some("c4"), "no"), &configuration)));
    assert!(state.view(agent()).unwrap().rejected.is_some(), "what was given up is not taken up again");
}

#[test]
fn what_is_unsettled_is_said_although_it_is_not_new() {
    let mut state = registered();
    happen(&mut state, &good("c1", false));
    let unsettled = |outcome: Outcome| Given { unsettled: true, ..given(&outcome) };
    let said = decide(&state, &unsettled(good("c2", false)));
    assert!(
        matches!(said, Some(ConfigurationEvent::ConfigurationChanged(changed)) if changed.commit == "c2")
    );
    happen(&mut state, &bad(Some("c3"), "wrong"));
    let said = decide(&state, &unsettled(bad(Some("c3"), "wrong")));
    assert!(matches!(said, Some(ConfigurationEvent::ConfigurationRejected(_))));
}

#[test]
fn the_last_good_one_stays_in_force_and_its_return_is_said() {
    let mut state = registered();
    happen(&mut state, &good("c1", true));
    assert!(happen(&mut state, &bad(Some("c2"), "wrong")));
    assert!(!happen(&mut state, &bad(Some("c2"), "wrong")));
    assert!(!happen(&mut state, &bad(Some("c3"), "wrong")), "the same findings at another commit");
    assert!(happen(&mut state, &bad(None, "cannot be read")));
    let view = state.view(agent()).unwrap();
    assert!(view.configuration.unwrap().lockdown);
    assert_eq!(view.commit.as_deref(), Some("c1"));
    let rejected = view.rejected.unwrap();
    assert_eq!((rejected.commit, rejected.findings[0].message.as_str()), (None, "cannot be read"));
    assert_eq!(rejected.warnings, rejected.findings, "warnings of a rejected file are kept");
    assert!(happen(&mut state, &good("c4", true)), "what is in force is good again");
    assert_eq!(state.view(agent()).unwrap().rejected, None);
}

#[test]
fn agents_come_and_go_with_their_tokens() {
    let mut state = registered();
    assert_eq!(state.live_agents(NOW), []);
    let holder = TokenHolder::Agent(agent());
    let issued = TokenIssued {
        token: id(4),
        holder,
        hash: Sha256::default(),
        name: "t".into(),
        expires_at: Some(NOW.plus_millis(1)),
        clusters_only: false,
    };
    directory(&mut state, DirectoryEvent::TokenIssued(issued));
    assert_eq!(state.live_agents(NOW), [agent()]);
    assert_eq!(state.live_agents(NOW.plus_millis(1)), []);
    directory(&mut state, DirectoryEvent::TokenRevoked(TokenRevoked { token: id(4), holder }));
    assert_eq!(state.live_agents(NOW), []);
    directory(&mut state, DirectoryEvent::AgentDeleted(AgentDeleted { agent: agent() }));
    assert_eq!(state.view(agent()), None);
}

#[test]
fn a_newer_writers_aggregate_is_left_alone() {
    let mut state = registered();
    happen(&mut state, &good("c1", false));
    let body =
        EventBody { event_type: "kasbah.configuration.foretold".into(), schema_version: 1, data: Vec::new() };
    let unreadable = apply(&mut state, aggregate(agent()), 2, body);
    assert!(unreadable.is_some_and(|detail| detail.contains("foretold")));
    assert_eq!(state.version(agent()), 2, "what cannot be read is counted");
}

#[test]
fn a_snapshot_is_the_state() {
    let mut state = registered();
    happen(&mut state, &good("c1", false));
    happen(&mut state, &bad(None, "x"));
    assert_eq!(State::restore(State::FOLD_VERSION, &state.snapshot().unwrap()), Some(state));
}
