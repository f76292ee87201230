//! What was said, and the one status that is made of it.

use std::collections::BTreeSet;

use delivery::model::{StatusContext, agent_status, objects_behind, source_status};
use events::configuration::FileFinding;
use events::delivery::{BundleHeld, ObjectFailure};
use events::observation::TakenField;
use events::requests::status::{Reason, State, Status};
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(3_600_000);

fn around(gateways: &[InstanceId]) -> StatusContext {
    StatusContext { now: NOW, gateways: Some(gateways.iter().copied().collect()) }
}

fn shop() -> SourceId {
    SourceId::derive(AGENT, "shop")
}

fn status(given: &Given) -> Status {
    source_status(&given.state, shop(), &around(&[GATEWAY])).unwrap()
}

fn stands(given: &Given) -> (State, Reason) {
    let status = status(given);
    (status.state, status.reason)
}

/// A source whose sync succeeded, with these objects.
fn synced(names: &[&str]) -> Given {
    let mut given = Given::agent_with(vec![source("shop")]);
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    given.connected(1);
    given.observed(1, vec![started(shop(), 10)]);
    given.applied("shop", 10, names, false);
    given.observed(1, vec![finished(shop(), 10, SyncOutcome::Succeeded)]);
    assert_eq!(stands(&given), (State::InSync, Reason::InSync));
    given
}

fn identity(name: &str) -> events::ObjectIdentity {
    owned(shop(), name, false).identity
}

fn health(name: &str, status: &str, optional: bool) -> Observed {
    let (status, message) = (status.to_owned(), format!("{name} says so"));
    Observed::HealthChanged {
        source: shop(),
        sync: None,
        identity: identity(name),
        status,
        message,
        optional,
    }
}

fn drift(name: &str) -> Observed {
    let fields = vec![TakenField { path: "data.key".to_owned(), manager: "kubectl".to_owned() }];
    Observed::DriftSeen { source: shop(), identity: identity(name), fields, deleted: true }
}

fn failure(name: &str) -> ObjectFailure {
    let message = "exceeded quota".to_owned();
    ObjectFailure { identity: identity(name), file: "a.yaml".to_owned(), line: 3, message }
}

fn correction_failed(name: &str) -> Observed {
    let retry_at = Some(Timestamp(9_000));
    Observed::CorrectionFailed { source: shop(), failure: failure(name), retry_at }
}

#[test]
fn a_correction_that_fails_is_out_of_sync_until_it_is_made() {
    let mut given = synced(&["a", "b"]);
    given.observed(1, vec![drift("a")]);
    assert_eq!(stands(&given), (State::OutOfSync, Reason::Drift));
    given.observed(1, vec![correction_failed("a")]);
    let told = status(&given);
    assert_eq!((told.state, told.reason), (State::OutOfSync, Reason::CorrectionFailed));
    assert_eq!((told.since, told.retry_at), (Some(Timestamp(2_000)), Some(Timestamp(9_000))));
    assert!(told.message.contains("exceeded quota"), "{told:?}");
    assert_eq!((told.objects.owned, told.objects.failed, told.not_well.len()), (2, 1, 1));
    assert!(told.conditions.iter().any(|condition| condition.reason == Reason::Drift), "{told:?}");
    given.applied("shop", 10, &["a"], false);
    assert_eq!(stands(&given), (State::InSync, Reason::InSync));
}

#[test]
fn agents_from_before_corrections_had_a_word_tell_of_them_as_of_a_sync() {
    let mut given = synced(&["a"]);
    let sync = SyncId(Uuid::from_u128(10));
    let failed = Observed::ObjectFailed { sync, source: shop(), failure: failure("a"), retry_at: None };
    given.observed(1, vec![drift("a"), failed]);
    assert_eq!(stands(&given), (State::OutOfSync, Reason::CorrectionFailed));
    given.observed(1, vec![Observed::DriftCorrected { source: shop(), identity: identity("a") }]);
    assert_eq!(stands(&given), (State::InSync, Reason::InSync));
}

#[test]
fn health_counts_and_what_holds_nothing_shows_without_holding() {
    let mut given = synced(&["a", "b"]);
    given.observed(1, vec![health("a", "progressing", false)]);
    assert_eq!(stands(&given), (State::Progressing, Reason::ObjectProgressing));
    given.observed(1, vec![health("a", "degraded", false), health("b", "degraded", true)]);
    let told = status(&given);
    assert_eq!(
        (told.state, told.reason, told.objects.degraded, told.objects.holding),
        (State::Degraded, Reason::ObjectDegraded, 2, 1)
    );
    assert!(told.message.contains("a says so (and 1 more)"), "what holds comes first: {told:?}");
    assert!(!told.is_healthy());
    given.observed(1, vec![health("a", "healthy", false)]);
    let told = status(&given);
    assert_eq!((told.state, told.objects.holding, told.is_healthy()), (State::Degraded, 0, true), "{told:?}");
    given.observed(1, vec![health("b", "progressing", true)]);
    assert_eq!(stands(&given), (State::InSync, Reason::InSync), "what nobody waits for is not on its way");
    given.observed(1, vec![health("b", "none", false), health("a", "suspended", false)]);
    assert_eq!((stands(&given).0, status(&given).objects.suspended), (State::InSync, 1));
}

#[test]
fn without_its_agent_a_source_is_stale() {
    let mut given = synced(&["a"]);
    let closed = Observed::TunnelClosed { agent: AGENT, instance: INSTANCE, reason: "gone".to_owned() };
    given.at_gateway(GATEWAY, closed);
    let told = status(&given);
    assert_eq!(
        (told.state, told.reason, told.since),
        (State::Stale, Reason::AgentGone, Some(Timestamp(2_000)))
    );
    let opened = |instance| Observed::TunnelOpened { agent: AGENT, instance, version: "0.1.0".to_owned() };
    given.at_gateway(GATEWAY, opened(InstanceId(Uuid::from_u128(77))));
    assert_eq!(stands(&given), (State::Stale, Reason::ApplierGone));
    given.at_gateway(GATEWAY, opened(INSTANCE));
    assert_eq!(stands(&given), (State::InSync, Reason::InSync));
}

#[test]
fn a_tunnel_of_a_gateway_that_died_is_none() {
    let given = synced(&["a"]);
    let other = InstanceId(Uuid::from_u128(4));
    let told = source_status(&given.state, shop(), &around(&[other])).unwrap();
    assert_eq!((told.state, told.reason), (State::Stale, Reason::AgentGone));
    assert!(told.since.is_some());
}

#[test]
fn a_tunnel_that_takes_anothers_place_outlives_that_ones_end() {
    let mut given = synced(&["a"]);
    let opened = Observed::TunnelOpened { agent: AGENT, instance: INSTANCE, version: "0.2.0".to_owned() };
    given.at_gateway(GATEWAY, opened);
    let closed = Observed::TunnelClosed { agent: AGENT, instance: INSTANCE, reason: "replaced".to_owned() };
    given.at_gateway(GATEWAY, closed);
    assert_eq!(stands(&given), (State::InSync, Reason::InSync));
    // A batch that is stored twice counts once.
    let twice = given.records.last().unwrap().clone();
    given.state.fold(&twice);
    assert_eq!(stands(&given), (State::InSync, Reason::InSync));
}

#[test]
fn what_the_applier_does_not_see_is_unknown() {
    let mut given = synced(&["a"]);
    given.observed(1, vec![Observed::ApiServerLost { reason: "refused".to_owned() }]);
    assert_eq!(stands(&given), (State::Unknown, Reason::ApiServerUnreachable));
    let agent = agent_status(&given.state, AGENT, &around(&[GATEWAY])).unwrap();
    assert_eq!((agent.state, agent.api_server_reachable), (State::Unknown, Some(false)));
    given.observed(1, vec![Observed::ApiServerReached {}]);
    assert_eq!(stands(&given), (State::InSync, Reason::InSync));
    given.observed(1, vec![Observed::Gap { dropped: 0 }]);
    assert_eq!(stands(&given), (State::InSync, Reason::InSync), "what was not its to say is no loss");
    given.observed(1, vec![Observed::Gap { dropped: 3 }]);
    assert_eq!(stands(&given), (State::Unknown, Reason::ObservationsLost));
    let stated = Observed::InventoryStated {
        objects: vec![owned(shop(), "a", false)],
        last: true,
        unlisted: Vec::new(),
    };
    given.observed(1, vec![stated]);
    assert_eq!(stands(&given), (State::InSync, Reason::InSync));
}

#[test]
fn a_new_applier_is_believed_once_it_has_looked() {
    let mut given = synced(&["a", "b"]);
    given.observed(1, vec![drift("a"), health("b", "degraded", false)]);
    let named = DeliveryEvent::ApplierNamed(ApplierNamed { agent: AGENT, instance: INSTANCE });
    given.decided(AggregateKind::Applier, AGENT.to_string(), named);
    assert_eq!(stands(&given), (State::Unknown, Reason::NotStated));
    let stated = |objects| Observed::InventoryStated { objects, last: true, unlisted: Vec::new() };
    given.observed(2, vec![stated(vec![owned(shop(), "b", false)])]);
    let told = status(&given);
    assert_eq!(
        (told.state, told.reason),
        (State::OutOfSync, Reason::NotBegun),
        "an hour is too long: {told:?}"
    );
    assert_eq!((told.objects.drifted, told.objects.degraded), (0, 1), "{told:?}");
    given.observed(2, vec![started(shop(), 10), finished(shop(), 10, SyncOutcome::Succeeded)]);
    assert_eq!(stands(&given), (State::Degraded, Reason::ObjectDegraded));
    let agent = agent_status(&given.state, AGENT, &around(&[GATEWAY])).unwrap();
    assert_eq!(
        (agent.state, agent.api_server_reachable, agent.sources[&State::Degraded]),
        (State::InSync, Some(true), 1)
    );
    assert_eq!(agent.instances.iter().map(|instance| instance.applier).collect::<Vec<_>>(), [true]);
}

#[test]
fn a_sync_that_fails_says_since_when_and_which_objects() {
    let mut given = synced(&["a"]);
    given.advanced("shop", "bbb", 2, 1);
    given.desired("shop", "bbb", 2, 11, 1);
    given.observed(1, vec![started(shop(), 11)]);
    assert_eq!(stands(&given), (State::Progressing, Reason::Syncing));
    let sync = SyncId(Uuid::from_u128(11));
    let failed = |name| Observed::ObjectFailed {
        sync,
        source: shop(),
        failure: failure(name),
        retry_at: Some(Timestamp(7_000)),
    };
    given.observed(1, vec![failed("a"), failed("b"), finished(shop(), 11, SyncOutcome::Failed)]);
    let told = status(&given);
    assert_eq!(
        (told.state, told.reason, told.retry_at),
        (State::OutOfSync, Reason::SyncFailed, Some(Timestamp(7_000)))
    );
    assert_eq!((told.objects.failed, told.not_well.len()), (2, 2));
    given.observed(1, vec![started(shop(), 11)]);
    assert_eq!(stands(&given), (State::OutOfSync, Reason::SyncFailed), "while it is tried again");
    given.observed(1, vec![failed("b"), finished(shop(), 11, SyncOutcome::Failed)]);
    assert_eq!(status(&given).objects.failed, 1, "what failed before and not now does not fail");
    given.observed(1, vec![started(shop(), 11), finished(shop(), 11, SyncOutcome::Succeeded)]);
    assert_eq!((stands(&given).0, status(&given).objects.failed), (State::InSync, 0));
}

#[test]
fn objects_whose_kinds_nothing_serves_are_on_their_way_for_ten_minutes_only() {
    let mut given = synced(&["a"]);
    let waits = |failures: Vec<ObjectFailure>| Observed::SyncFinished {
        source: shop(),
        sync: SyncId(Uuid::from_u128(10)),
        outcome: SyncOutcome::Unhealthy,
        counts: SyncCounts { waiting: 1, unhealthy: 1, ..SyncCounts::default() },
        failures,
    };
    let awaited = ObjectFailure { message: ObjectFailure::awaiting_kind("no kind Widget"), ..failure("w") };
    let failures = vec![failure("a"), awaited];
    let condition = |given: &Given, now: i64| {
        let around = StatusContext { now: Timestamp(now), ..around(&[GATEWAY]) };
        let told = source_status(&given.state, shop(), &around).unwrap();
        let found = told.conditions.iter().find(|condition| condition.reason == Reason::KindAwaited).cloned();
        (told.state, found)
    };
    let run = |failures: &Vec<ObjectFailure>| vec![started(shop(), 10), waits(failures.clone())];
    given.observed_when(Timestamp(100_000), 1, run(&failures));
    let (_, early) = condition(&given, 700_000);
    let early = early.unwrap();
    assert_eq!((early.state, early.since), (State::Progressing, Some(Timestamp(100_000))));
    assert!(early.message.ends_with("/w: no kind Widget"), "another object is not well, too: {early:?}");
    given.observed_when(Timestamp(500_000), 1, run(&failures));
    let (state, late) = condition(&given, 700_001);
    let late = late.unwrap();
    assert_eq!((state, late.state), (State::OutOfSync, State::OutOfSync), "however often it is tried");
    assert!(late.message.contains("install what defines them"), "{late:?}");
    given.observed(1, vec![started(shop(), 10), finished(shop(), 10, SyncOutcome::Succeeded)]);
    assert_eq!(condition(&given, 900_000), (State::InSync, None));
}

#[test]
fn the_order_of_precedence_is_fixed() {
    let mut given = synced(&["a"]);
    let mut expected = vec![State::InSync];
    let mut next = |given: &Given, state| {
        expected.push(state);
        let told = status(given);
        let states: BTreeSet<State> = told.conditions.iter().map(|condition| condition.state).collect();
        assert_eq!(told.state, state, "{told:?}");
        assert!(expected.iter().all(|state| states.contains(state)), "all stand in the conditions: {told:?}");
    };
    given.observed(1, vec![health("a", "progressing", false)]);
    next(&given, State::Progressing);
    given.observed(1, vec![health("b", "degraded", false)]);
    next(&given, State::Degraded);
    given.observed(1, vec![drift("a")]);
    next(&given, State::OutOfSync);
    given.advanced("shop", "bbb", 2, 0);
    let held = BundleHeld {
        source: shop(),
        agent: AGENT,
        commit: "bbb".to_owned(),
        bundle: BlobDigest([2; 32]),
        objects: 0,
        reason: HoldReason::Empty,
    };
    given.on_source(shop(), DeliveryEvent::BundleHeld(held));
    next(&given, State::Held);
    let suspended = SourceSuspended { source: shop(), reason: String::new() };
    given.on_source(shop(), DeliveryEvent::SourceSuspended(suspended));
    next(&given, State::Suspended);
    let finding = FileFinding {
        file: "a.yaml".to_owned(),
        line: 1,
        column: 1,
        field: String::new(),
        message: "no kind".to_owned(),
    };
    let rejected = BundleRejected {
        source: shop(),
        agent: AGENT,
        commit: "ccc".to_owned(),
        findings: vec![finding],
        more: 0,
        warnings: Vec::new(),
    };
    given.decided(AggregateKind::Ref, "main".to_owned(), RepositoryEvent::BundleRejected(rejected));
    next(&given, State::Rejected);
    let lost = Observed::ApiServerLost { reason: "refused".to_owned() };
    let mut gone = given.clone();
    let closed = Observed::TunnelClosed { agent: AGENT, instance: INSTANCE, reason: "gone".to_owned() };
    gone.at_gateway(GATEWAY, closed);
    next(&gone, State::Stale);
    given.observed(1, vec![lost]);
    assert_eq!(stands(&given), (State::Unknown, Reason::ApiServerUnreachable));
}

#[test]
fn a_status_holds_a_hundred_objects_and_pages_hold_all() {
    let all = names(1_200);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut given = synced(&all);
    given.observed(1, all.iter().map(|name| health(name, "degraded", false)).collect());
    given.observed(1, vec![correction_failed("zz-not-owned")]);
    let told = status(&given);
    assert_eq!(
        (told.not_well.len(), told.objects.degraded, told.objects.failed),
        (Status::OBJECTS, 1_200, 1)
    );
    assert_eq!(told.not_well[0].identity.name, "zz-not-owned", "the worst first");
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let some = objects_behind(&given.state, shop(), after.as_ref(), 500).unwrap();
        assert!(some.len() <= 500);
        after = some.last().map(|(key, _)| key.clone());
        seen.extend(some.into_iter().map(|(_, object)| (object.identity.name, object.owned)));
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<(String, bool)> = all
        .iter()
        .map(|name| ((*name).to_owned(), true))
        .chain([("zz-not-owned".to_owned(), false)])
        .collect();
    assert!(seen.is_sorted_by_key(|(name, _)| name.clone()), "in the order of their keys");
    assert!(
        seen.iter().cloned().collect::<BTreeSet<_>>() == expected.iter().cloned().collect(),
        "each of them"
    );
    assert_eq!(seen.len(), expected.len(), "and once");
}

#[test]
fn the_last_write_of_an_object_outlives_a_new_applier() {
    let mut given = synced(&["a"]);
    let written = |given: &Given| objects_behind(&given.state, shop(), None, 1).unwrap()[0].1.written;
    let created = Some((Write::Created, Timestamp(2_000)));
    assert_eq!(written(&given), created);
    let stated = |objects| Observed::InventoryStated { objects, last: true, unlisted: Vec::new() };
    given.observed(2, vec![stated(vec![owned(shop(), "a", false)])]);
    assert_eq!(written(&given), created);
    let other = OwnedObject { uid: "another".to_owned(), ..owned(shop(), "a", false) };
    given.observed(3, vec![stated(vec![other])]);
    assert_eq!(written(&given), None, "another object of that name");
}

#[test]
fn a_snapshot_of_the_version_before_says_nothing_until_all_is_stated() {
    let given = synced(&["a"]);
    let restored = DeliveryState::restore(8, &given.state.snapshot().unwrap()).unwrap();
    let told = source_status(&restored, shop(), &around(&[GATEWAY])).unwrap();
    assert_eq!((told.state, told.reason), (State::Unknown, Reason::ObservationsLost));
    assert!(restored.needs_statement(AGENT));
}

#[test]
fn a_source_that_takes_no_file_says_so_although_its_sync_succeeded() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced_without_files("shop", "aaa", 1);
    given.desired("shop", "aaa", 1, 10, 0);
    given.connected(1);
    given.observed(1, vec![started(id, 10), finished(id, 10, SyncOutcome::Succeeded)]);
    let shown = view(&given.state, id).unwrap();
    assert!(shown.takes_no_file);
    assert_eq!(shown.why.unwrap(), "include [**] selects no file of commit aaa, so nothing is applied");
    given.advanced("shop", "bbb", 2, 1);
    assert!(!view(&given.state, id).unwrap().takes_no_file);
}

#[test]
fn a_failure_stays_said_while_it_is_tried_again() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    let why = |given: &Given| view(&given.state, id).unwrap().why;
    given.connected(1);
    given.observed(1, vec![started(id, 10)]);
    assert_eq!(why(&given).unwrap(), "syncing commit aaa");
    given.observed_at(1, 3, vec![finished(id, 10, SyncOutcome::Failed)]);
    assert_eq!(why(&given).unwrap(), "failed");
    given.observed_at(1, 4, vec![started(id, 10)]);
    assert_eq!(why(&given).unwrap(), "failed; retrying now");
    given.observed_at(1, 5, vec![finished(id, 10, SyncOutcome::Interrupted), started(id, 10)]);
    assert_eq!(why(&given).unwrap(), "failed; retrying now");
    given.observed_at(1, 7, vec![finished(id, 10, SyncOutcome::Succeeded)]);
    assert_eq!(why(&given), None);
    given.desired("shop", "bbb", 2, 11, 1);
    given.observed_at(1, 8, vec![started(id, 11)]);
    assert_eq!(why(&given).unwrap(), "syncing commit bbb", "another sync begins anew");
}

#[test]
fn a_rejected_commit_changes_nothing_but_what_people_read() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    given.connected(1);
    given.decided(
        AggregateKind::Ref,
        "main".to_owned(),
        RepositoryEvent::BundleRejected(BundleRejected {
            source: id,
            agent: AGENT,
            commit: "0123456789abcdef".to_owned(),
            findings: vec![FileFinding {
                file: "web.yaml".to_owned(),
                line: 3,
                column: 1,
                field: String::new(),
                message: "no kind".to_owned(),
            }],
            more: 1,
            warnings: Vec::new(),
        }),
    );
    assert_eq!(given.verdict("shop", &[(1, &["a"])]), Verdict::Nothing);
    assert_eq!(desired_plan(&given.state, AGENT).unwrap().sources[0].bundle, Some(BlobDigest([1; 32])));
    assert_eq!(
        view(&given.state, id).unwrap().why.unwrap(),
        "commit 0123456789 was rejected: web.yaml:3: no kind (and 1 more)"
    );
}

/// One thing that may be said.
#[derive(Debug, Clone)]
enum Said {
    Health(usize, &'static str),
    Drift(usize),
    CorrectionFailed(usize),
    Applied(usize),
    Lost,
    Reached,
    Closed,
    Opened,
}

fn said() -> impl Strategy<Value = Said> {
    let object = 0..3_usize;
    prop_oneof![
        (object.clone(), prop_oneof![Just("healthy"), Just("degraded"), Just("progressing")])
            .prop_map(|(object, status)| Said::Health(object, status)),
        object.clone().prop_map(Said::Drift),
        object.clone().prop_map(Said::CorrectionFailed),
        object.prop_map(Said::Applied),
        Just(Said::Lost),
        Just(Said::Reached),
        Just(Said::Closed),
        Just(Said::Opened),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In sync is said when, and only when, nothing of what was said stands against it.
    #[test]
    fn in_sync_is_said_when_nothing_stands_against_it(all in proptest::collection::vec(said(), 0..30)) {
        let names = ["a", "b", "c"];
        let mut given = synced(&names);
        let (mut ill, mut drifted, mut lost, mut open) = (BTreeSet::new(), BTreeSet::new(), false, 1_u32);
        for one in all {
            match one {
                Said::Health(object, status) => {
                    if status == "healthy" { ill.remove(&object); } else { ill.insert(object); }
                    given.observed(1, vec![health(names[object], status, false)]);
                }
                Said::Drift(object) => {
                    drifted.insert(object);
                    given.observed(1, vec![drift(names[object])]);
                }
                Said::CorrectionFailed(object) => {
                    drifted.insert(object);
                    given.observed(1, vec![correction_failed(names[object])]);
                }
                Said::Applied(object) => {
                    drifted.remove(&object);
                    given.applied("shop", 10, &[names[object]], false);
                }
                Said::Lost => {
                    lost = true;
                    given.observed(1, vec![Observed::ApiServerLost { reason: "refused".to_owned() }]);
                }
                Said::Reached => {
                    lost = false;
                    given.observed(1, vec![Observed::ApiServerReached {}]);
                }
                Said::Closed => {
                    open = open.saturating_sub(1);
                    let reason = "gone".to_owned();
                    given.at_gateway(GATEWAY, Observed::TunnelClosed { agent: AGENT, instance: INSTANCE, reason });
                }
                Said::Opened => {
                    open += 1;
                    let version = "0.1.0".to_owned();
                    given.at_gateway(GATEWAY, Observed::TunnelOpened { agent: AGENT, instance: INSTANCE, version });
                }
            }
        }
        let told = status(&given);
        let all_well = ill.is_empty() && drifted.is_empty() && !lost && open > 0;
        prop_assert_eq!(told.state == State::InSync, all_well, "{:?}", told);
        prop_assert_eq!(told.is_healthy(), all_well);
        let restored = DeliveryState::restore(DeliveryState::FOLD_VERSION, &given.state.snapshot().unwrap()).unwrap();
        prop_assert_eq!(source_status(&restored, shop(), &around(&[GATEWAY])).unwrap(), told);
    }
}
