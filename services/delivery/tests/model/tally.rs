//! How many stand how, and which fail.

use delivery::model::{StatusContext, Tally, agent_status, desired_plan};
use events::configuration::{ConfigurationEvent, ConfigurationRejected, FileFinding};
use events::observation::{BrokenWatch, MissingRight, Observed};
use events::requests::status::{Reason, State};
use events::{AggregateKind, SourceId, SyncId, Timestamp};
use uuid::Uuid;

use crate::given::*;

fn around() -> StatusContext {
    StatusContext { now: Timestamp(3_600_000), gateways: Some([GATEWAY].into()) }
}

fn shop() -> SourceId {
    SourceId::derive(AGENT, "shop")
}

fn tally(given: &Given) -> Tally {
    let mut tally = Tally::default();
    for agent in given.state.living_agents() {
        given.state.tally(agent, &around(), &mut tally);
    }
    tally
}

/// An agent that applied one of its two sources.
fn one_of_two() -> Given {
    let mut given = Given::agent_with(vec![source("shop"), source("bank")]);
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    given.connected(1);
    given.observed(1, vec![started(shop(), 10)]);
    given.applied("shop", 10, &["a"], false);
    given.observed(1, vec![finished(shop(), 10, events::delivery::SyncOutcome::Succeeded)]);
    given
}

fn rejected(given: &mut Given, line: u32) {
    let finding = FileFinding {
        file: "config.yaml".to_owned(),
        line,
        column: 1,
        field: "mode".to_owned(),
        message: "unknown key".to_owned(),
    };
    let event = ConfigurationRejected {
        agent: AGENT,
        commit: Some("4f1a5b10c0ffee".to_owned()),
        findings: vec![finding.clone(), finding],
        warnings: Vec::new(),
    };
    given.decided(
        AggregateKind::Configuration,
        AGENT.to_string(),
        ConfigurationEvent::ConfigurationRejected(event),
    );
}

#[test]
fn sources_and_agents_are_counted_by_state_and_what_fails_is_named() {
    let mut given = one_of_two();
    let told = tally(&given);
    assert_eq!(told.sources, [(State::InSync, 1), (State::Unknown, 1)].into(), "bank has no commit yet");
    assert_eq!(told.agents, [(State::InSync, 1)].into());
    assert_eq!(told.failing, [], "nobody has to do something about a source that is fetched");

    let object = owned(shop(), "a", false);
    given.observed(
        1,
        vec![Observed::HealthChanged {
            source: shop(),
            sync: Some(SyncId(Uuid::from_u128(10))),
            identity: object.identity,
            status: "degraded".to_owned(),
            message: "no".to_owned(),
            optional: false,
        }],
    );
    let told = tally(&given);
    assert_eq!(told.sources, [(State::Degraded, 1), (State::Unknown, 1)].into());
    let failing = &told.failing[0];
    assert_eq!((failing.agent, failing.agent_name.as_str(), told.failing.len()), (AGENT, "production", 1));
    assert_eq!(failing.source, Some((shop(), "shop".to_owned())));
    assert_eq!((failing.state, failing.reason), (State::Degraded, Reason::ObjectDegraded));
    assert!(failing.since.is_some());

    // With its agent gone it is the agent that fails.
    let closed = Observed::TunnelClosed { agent: AGENT, instance: INSTANCE, reason: "gone".to_owned() };
    given.at_gateway(GATEWAY, closed);
    let told = tally(&given);
    assert_eq!(told.agents, [(State::Stale, 1)].into());
    assert_eq!(told.sources.get(&State::Stale), Some(&1));
    let failing: Vec<_> = told.failing.iter().map(|one| (one.source.clone(), one.reason)).collect();
    assert_eq!(failing, [(None, Reason::AgentGone)]);
    assert!(told.failing[0].since.is_some());
}

#[test]
fn an_agent_that_never_came_fails_not_and_a_deleted_one_counts_not() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let told = tally(&given);
    assert_eq!((told.agents, told.failing), ([(State::Unknown, 1)].into(), vec![]));
    let deleted = events::directory::AgentDeleted { agent: AGENT };
    let deleted = events::directory::DirectoryEvent::AgentDeleted(deleted);
    given.decided(AggregateKind::Agent, AGENT.to_string(), deleted);
    assert_eq!(tally(&given), Tally::default());
}

#[test]
fn a_rejected_configuration_is_the_agents_and_goes_to_it_until_a_good_one_comes() {
    let mut given = one_of_two();
    let revision = desired_plan(&given.state, AGENT).unwrap().revision;
    rejected(&mut given, 3);
    let plan = desired_plan(&given.state, AGENT).unwrap();
    let first = plan.rejected.clone().unwrap();
    assert_eq!(first.reason, "commit 4f1a5b10c0 was rejected: config.yaml:3: unknown key (and 1 more)");
    assert!(plan.revision > revision, "or the agent would not take it");
    let status = agent_status(&given.state, AGENT, &around()).unwrap();
    assert_eq!((status.state, status.conditions[0].reason), (State::Rejected, Reason::ConfigurationRejected));
    assert_eq!(status.sources.get(&State::InSync), Some(&1), "its sources stand as they did");
    let told = tally(&given);
    assert_eq!((told.rejected_configurations, told.failing.len()), (1, 1));

    rejected(&mut given, 9);
    let second = desired_plan(&given.state, AGENT).unwrap().rejected.unwrap();
    assert_eq!(second.since, first.since, "it fails since the first");
    assert!(second.reason.contains(":9:"), "{second:?}");
    given.configured(vec![source("shop"), source("bank")]);
    assert_eq!(desired_plan(&given.state, AGENT).unwrap().rejected, None);
    assert_eq!(tally(&given).rejected_configurations, 0);
}

#[test]
fn missing_rights_are_data_and_other_blocks_are_none() {
    let right = |verb: &str| MissingRight {
        user: "system:serviceaccount:kasbah:agent".to_owned(),
        verb: verb.to_owned(),
        group: "apps".to_owned(),
        resource: "deployments".to_owned(),
        namespace: "shop".to_owned(),
    };
    let mut given = one_of_two();
    let rights = |given: &Given| agent_status(&given.state, AGENT, &around()).unwrap().missing_rights;
    let blocked = |missing| Observed::SourceBlocked { source: shop(), reason: "no".to_owned(), missing };
    given.observed(1, vec![blocked(Vec::new())]);
    assert_eq!(rights(&given), []);
    given.observed(1, vec![blocked(vec![right("patch"), right("create")])]);
    let broken = |missing| BrokenWatch {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "shop".to_owned(),
        reason: "403".to_owned(),
        since: Timestamp(1),
        missing,
    };
    let broken = vec![broken(Some(right("list"))), broken(None)];
    given.observed(1, vec![Observed::WatchesBroken { source: shop(), broken, all: 2 }]);
    assert_eq!(rights(&given), [right("create"), right("list"), right("patch")]);
    given.observed(1, vec![started(shop(), 10)]);
    assert_eq!(rights(&given), [right("list")], "a run that begins tries again");
}
