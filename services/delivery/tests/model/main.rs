//! Given these records, when that is asked, then this is decided.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests end a test by panicking"
)]

mod contest;
mod given;
mod golden;
mod hand_over;
mod holds;
mod kept;
mod next;
mod order;
mod statement;
mod status;
mod tally;

use delivery::model::{Command, DeliveryState, Next, Verdict, desired_plan, next_sync};
use events::configuration::OnRemoval;
use events::delivery::{
    ApplierNamed, BundleHeld, DeliveryEvent, HoldReason, SourcePinned, SourceRemoved, SourceResumed,
    SourceSuspended, SourceUnpinned, SyncCounts, SyncFinished, SyncOutcome,
};
use events::desired::FinishedManifest;
use events::digest::Sha256;
use events::object::GroupKind;
use events::observation::{Observation, ObservationBatch, Observed, OwnedObject, Write};
use events::position::Stream;
use events::repository::{BundleRejected, RepositoryEvent};
use events::{
    AgentId, AggregateKind, BlobDigest, CorrelationId, InstanceId, RefusalKind, SourceId, SyncId, Timestamp,
};
use store::Projection;
use uuid::Uuid;

use crate::given::*;

#[test]
fn a_new_bundle_is_delivered_with_the_chain_that_led_to_it() {
    let mut given = Given::agent_with(vec![source("shop")]);
    given.advanced("shop", "aaa", 1, 2);
    let Verdict::Deliver { commit, objects, prune, cause, .. } = given.verdict("shop", &[(1, &["a", "b"])])
    else {
        panic!("is delivered");
    };
    assert_eq!((commit.as_str(), objects, prune.len()), ("aaa", 2, 0));
    assert_eq!(cause.correlation_id, CorrelationId(Uuid::from_u128(77)));
    given.desired("shop", "aaa", 1, 10, 2);
    let id = SourceId::derive(AGENT, "shop");
    let bundles = contents(&[(1, &["a", "b"])]);
    let Next { next, lists } = next_sync(&given.state, id, &bundles, &given.wanted).unwrap();
    let plan = desired_plan(&given.state, AGENT).unwrap();
    assert_eq!((&next.planned, next.pending), (&plan.sources[0], None), "nothing waits");
    assert!(lists.is_none());
    assert_eq!(given.verdict("shop", &[(1, &["a", "b"])]), Verdict::Nothing);
}

#[test]
fn what_left_the_bundle_is_pruned_by_uid() {
    let mut given = Given::agent_with(vec![source("shop")]);
    given.advanced("shop", "aaa", 1, 2);
    given.desired("shop", "aaa", 1, 10, 2);
    given.applied("shop", 10, &["a", "b"], false);
    given.advanced("shop", "bbb", 2, 1);
    let verdict = given.verdict("shop", &[(2, &["a"])]);
    assert_eq!(pruned(&verdict), ["b"]);
    let Verdict::Deliver { prune, .. } = verdict else { unreachable!() };
    assert_eq!(prune[0].uid, "uid-b");
}

#[test]
fn an_adopted_object_is_pruned_only_where_the_policy_says_so() {
    for (allowed, expected) in [(false, Vec::new()), (true, vec!["b".to_owned()])] {
        let mut configured = source("shop");
        configured.policies.prune_adopted = allowed;
        let mut given = Given::agent_with(vec![configured]);
        given.applied("shop", 10, &["b"], true);
        given.advanced("shop", "bbb", 2, 1);
        assert_eq!(pruned(&given.verdict("shop", &[(2, &["a"])])), expected);
    }
}

#[test]
fn prune_switched_off_prunes_nothing() {
    let mut configured = source("shop");
    configured.policies.prune = false;
    let mut given = Given::agent_with(vec![configured]);
    given.applied("shop", 10, &["b"], false);
    given.advanced("shop", "bbb", 2, 1);
    assert!(pruned(&given.verdict("shop", &[(2, &["a"])])).is_empty());
}

#[test]
fn an_object_in_another_current_bundle_of_the_agent_stays() {
    let mut given = Given::agent_with(vec![source("shop"), source("other")]);
    given.applied("shop", 10, &["moved", "gone"], false);
    given.advanced("other", "bbb", 3, 1);
    given.advanced("shop", "bbb", 2, 1);
    let bundles: &[(u8, &[&str])] = &[(2, &["a"]), (3, &["moved"])];
    assert_eq!(pruned(&given.verdict("shop", bundles)), ["gone"]);
}

#[test]
fn nothing_is_said_while_the_contents_of_a_bundle_are_unknown() {
    let mut given = Given::agent_with(vec![source("shop"), source("other")]);
    given.applied("shop", 10, &["moved"], false);
    given.advanced("other", "bbb", 3, 1);
    given.advanced("shop", "bbb", 2, 1);
    assert_eq!(given.verdict("shop", &[(2, &["a"])]), Verdict::Nothing);
}

#[test]
fn an_object_that_another_source_applied_leaves_the_first_inventory() {
    let mut given = Given::agent_with(vec![source("shop"), source("other")]);
    given.applied("shop", 10, &["moved"], false);
    given.applied("other", 11, &["moved"], false);
    given.advanced("shop", "bbb", 2, 1);
    assert!(pruned(&given.verdict("shop", &[(2, &["a"])])).is_empty());
}

#[test]
fn an_empty_bundle_is_held_until_that_very_bundle_is_confirmed() {
    let mut given = Given::agent_with(vec![source("shop")]);
    given.applied("shop", 10, &["a"], false);
    given.advanced("shop", "eee", 4, 0);
    let id = SourceId::derive(AGENT, "shop");
    let Verdict::Hold { reason, commit, bundle, .. } = given.verdict("shop", &[(4, &[])]) else {
        panic!("held")
    };
    assert_eq!(reason, HoldReason::Empty);
    given.on_source(
        id,
        DeliveryEvent::BundleHeld(BundleHeld {
            source: id,
            agent: AGENT,
            commit,
            bundle,
            objects: 0,
            reason,
        }),
    );
    assert_eq!(given.verdict("shop", &[(4, &[])]), Verdict::Nothing, "said once");
    let Next { next, lists } =
        next_sync(&given.state, id, &contents(&[(1, &["a"]), (4, &[])]), &given.wanted).unwrap();
    let (planned, prune) = (next.planned, lists.unwrap().0);
    assert_eq!((planned.head.commit.as_str(), planned.bundle), ("eee", Some(BlobDigest([4; 32]))));
    assert!(next.pending.unwrap().contains("is held"));
    assert_eq!(prune.iter().map(|entry| entry.identity.name.as_str()).collect::<Vec<_>>(), ["a"]);
    let refusal = given.state.decide(id, Command::Confirm { commit: Some("fff".to_owned()) }).unwrap_err();
    assert_eq!((refusal.kind, refusal.field.as_deref()), (RefusalKind::Conflict, Some("commit")));
    let confirmed = given.state.decide(id, Command::Confirm { commit: Some("eee".to_owned()) }).unwrap();
    // Git goes back to what the cluster has: nothing waits for anybody any more.
    let mut back = given.clone();
    assert!(view(&back.state, id).unwrap().held.is_some());
    back.advanced("shop", "aaa", 1, 1);
    assert_eq!(view(&back.state, id).unwrap().held, None);
    let refusal = back.state.decide(id, Command::Confirm { commit: None }).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    given.on_source(id, confirmed.into_iter().next().unwrap());
    assert_eq!(pruned(&given.verdict("shop", &[(4, &[])])), ["a"]);
}

#[test]
fn more_than_half_and_more_than_ten_is_held_and_exactly_half_is_not() {
    for (left, held) in [(11, true), (12, false), (13, false)] {
        let mut given = Given::agent_with(vec![source("shop")]);
        let all = names(24);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        given.applied("shop", 10, &all, false);
        given.advanced("shop", "bbb", 2, u32::try_from(left).unwrap());
        let verdict = given.verdict("shop", &[(2, &all[..left])]);
        assert_eq!(
            matches!(verdict, Verdict::Hold { reason: HoldReason::LargePrune { .. }, .. }),
            held,
            "{left}"
        );
    }
    let mut given = Given::agent_with(vec![source("shop")]);
    let ten = names(10);
    let ten: Vec<&str> = ten.iter().map(String::as_str).collect();
    given.applied("shop", 10, &ten, false);
    given.advanced("shop", "bbb", 2, 1);
    assert_eq!(pruned(&given.verdict("shop", &[(2, &["x"])])).len(), 10, "ten are few");
}

#[test]
fn a_suspended_source_gets_nothing_and_says_why() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.on_source(
        id,
        DeliveryEvent::SourceSuspended(SourceSuspended { source: id, reason: "freeze".to_owned() }),
    );
    given.advanced("shop", "aaa", 1, 1);
    assert_eq!(given.verdict("shop", &[(1, &["a"])]), Verdict::Nothing);
    let why = "suspended: freeze; resume it to continue";
    assert_eq!(view(&given.state, id).unwrap().why.unwrap(), why);
    let Next { next, .. } = next_sync(&given.state, id, &contents(&[(1, &["a"])]), &given.wanted).unwrap();
    assert_eq!((next.planned.head.commit.as_str(), next.pending.as_deref()), ("aaa", Some(why)));
    given.on_source(id, DeliveryEvent::SourceResumed(SourceResumed { source: id }));
    assert!(matches!(given.verdict("shop", &[(1, &["a"])]), Verdict::Deliver { .. }));
}

#[test]
fn a_pinned_source_stays_while_its_ref_moves_on() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.on_source(
        id,
        DeliveryEvent::SourcePinned(SourcePinned {
            source: id,
            commit: "old".to_owned(),
            bundle: BlobDigest([9; 32]),
            objects: 1,
        }),
    );
    given.advanced("shop", "bbb", 2, 1);
    let Verdict::Deliver { commit, .. } = given.verdict("shop", &[(9, &["a"])]) else { panic!("delivered") };
    assert_eq!(commit, "old");
    given.on_source(id, DeliveryEvent::SourceUnpinned(SourceUnpinned { source: id }));
    let Verdict::Deliver { commit, .. } = given.verdict("shop", &[(2, &["a"])]) else { panic!("delivered") };
    assert_eq!(commit, "bbb");
}

#[test]
fn a_source_that_left_keeps_its_objects_unless_it_said_otherwise() {
    for (on_removal, expected) in [(OnRemoval::Keep, 0), (OnRemoval::Prune, 2)] {
        let mut configured = source("shop");
        configured.policies.on_removal = on_removal;
        let mut given = Given::agent_with(vec![configured]);
        given.applied("shop", 10, &["a", "b"], false);
        given.configured(Vec::new());
        assert_eq!(pruned(&given.verdict("shop", &[])).len(), expected);
    }
}

#[test]
fn what_is_heard_of_after_a_source_left_goes_too() {
    let mut configured = source("shop");
    configured.policies.on_removal = OnRemoval::Prune;
    let mut given = Given::agent_with(vec![configured]);
    let id = SourceId::derive(AGENT, "shop");
    given.applied("shop", 10, &["a"], false);
    given.configured(Vec::new());
    let Verdict::Remove { prune: first } = given.verdict("shop", &[]) else { panic!("left") };
    let (sync, prune) = (SyncId(Uuid::from_u128(11)), BlobDigest([9; 32]));
    let removed = SourceRemoved { source: id, agent: AGENT, sync: Some(sync), prune: Some(prune) };
    given.on_source(id, DeliveryEvent::SourceRemoved(removed));
    assert_eq!(given.state.prune_list_of(id), Some(prune));
    assert_eq!(given.verdict_listed("shop", &[], &first), Verdict::Nothing);
    given.applied("shop", 10, &["late"], false);
    given.observed(1, vec![started(id, 11)]);
    assert_eq!(given.verdict_listed("shop", &[], &first), Verdict::Nothing, "while it is at work");
    given.observed(1, vec![finished(id, 11, SyncOutcome::Succeeded)]);
    assert!(pruned(&given.verdict_listed("shop", &[], &first)).contains(&"late".to_owned()));
}

#[test]
fn what_was_made_anew_under_a_name_is_not_forgotten_with_what_had_it_before() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.applied("shop", 10, &["a", "b"], false);
    let mut anew = owned(id, "a", false);
    let former = std::mem::replace(&mut anew.uid, "made-anew".to_owned());
    let identity = anew.identity.clone();
    let (write, taken_over) = (Write::Created, Vec::new());
    let applied = Observed::ObjectApplied { sync: None, object: anew, write, taken_over };
    // By a list that was made before the new one was heard of.
    let kept = Some("another object has this name now".to_owned());
    let kept =
        Observed::ObjectPruned { sync: None, source: id, identity, uid: former, kept, stays_owned: false };
    given.observed(1, vec![applied, kept]);
    given.advanced("shop", "ccc", 3, 1);
    let Verdict::Deliver { prune, .. } = given.verdict("shop", &[(3, &["b"])]) else { panic!("delivered") };
    let listed: Vec<&str> = prune.iter().map(|entry| entry.uid.as_str()).collect();
    assert_eq!(listed, ["made-anew"]);
}

#[test]
fn what_another_bundle_kept_alive_goes_with_that_bundle() {
    let (mut leaving, other) = (source("shop"), source("other"));
    leaving.policies.on_removal = OnRemoval::Prune;
    let mut given = Given::agent_with(vec![leaving, other.clone()]);
    let id = SourceId::derive(AGENT, "shop");
    given.applied("shop", 10, &["shared"], false);
    given.advanced("other", "bbb", 3, 1);
    given.configured(vec![other]);
    let kept = given.verdict("shop", &[(3, &["shared"])]);
    assert_eq!(kept, Verdict::Remove { prune: Vec::new() });
    let removed = SourceRemoved { source: id, agent: AGENT, sync: None, prune: None };
    given.on_source(id, DeliveryEvent::SourceRemoved(removed));

    let mut count = given.state.touched_since(0).count;
    let mut is_looked_at = |given: &Given| {
        let touched = given.state.touched_since(count);
        count = touched.count;
        touched.sources.contains(&id)
    };
    given.advanced("other", "ccc", 4, 1);
    assert!(is_looked_at(&given), "the other one has another bundle");
    given.advanced("other", "ddd", 4, 1);
    assert!(!is_looked_at(&given), "another commit with the same bundle");
    assert_eq!(pruned(&given.verdict("shop", &[(4, &["other"])])), ["shared"]);
    given.configured(Vec::new());
    assert!(is_looked_at(&given), "the other one left");
    assert_eq!(pruned(&given.verdict("shop", &[])), ["shared"]);
}

#[test]
fn a_source_is_shown_as_yaml_with_what_it_owns() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.applied("shop", 10, &["a"], false);
    let aggregate = events::AggregateRef::new(AggregateKind::Source, id);
    let shown = store::Decides::describe(&given.state, ORGANIZATION, &aggregate).unwrap();
    for part in ["suspended: null\n", "commit: aaa\n", "inventory:\n", "name: a\n"] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
}

#[test]
fn syncs_are_recorded_once_and_a_second_run_is_another() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    given.observed(1, vec![started(id, 10), finished(id, 10, SyncOutcome::Failed)]);
    let records = given.state.sync_records(id);
    assert_eq!(records.len(), 2);
    for record in records {
        given.on_source(id, record);
    }
    assert!(given.state.sync_records(id).is_empty());
    given.observed(1, vec![started(id, 10), finished(id, 10, SyncOutcome::Succeeded)]);
    let records = given.state.sync_records(id);
    assert!(matches!(&records[0], DeliveryEvent::SyncStarted(started) if started.run == 2), "{records:?}");
    for record in records {
        given.on_source(id, record);
    }
    let shown = view(&given.state, id).unwrap();
    assert_eq!((shown.synced_commit.as_deref(), shown.synced_at), (Some("aaa"), Some(Timestamp(1_000))));
}

#[test]
fn a_sync_that_is_over_is_not_recorded_again_by_who_reads_of_it_late() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    given.advanced("shop", "bbb", 2, 1);
    given.desired("shop", "bbb", 2, 11, 1);
    // Decisions of another replica, which had read on.
    let end = |sync| {
        DeliveryEvent::SyncFinished(SyncFinished {
            source: id,
            sync: SyncId(Uuid::from_u128(sync)),
            run: 1,
            outcome: SyncOutcome::Succeeded,
            counts: SyncCounts::default(),
            failures: Vec::new(),
        })
    };
    given.on_source(id, end(10));
    given.on_source(id, end(11));
    given.observed(1, vec![started(id, 10), finished(id, 10, SyncOutcome::Succeeded)]);
    assert_eq!(given.state.sync_records(id), []);
}

#[test]
fn what_an_older_applier_left_open_is_interrupted() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    given.observed(1, vec![started(id, 10)]);
    given.observed_at(
        2,
        1,
        vec![Observed::InventoryStated { objects: Vec::new(), last: true, unlisted: Vec::new() }],
    );
    let records = given.state.sync_records(id);
    assert!(
        matches!(&records[..], [_, DeliveryEvent::SyncFinished(end)] if end.outcome == SyncOutcome::Interrupted),
        "{records:?}"
    );
}

#[test]
fn a_statement_takes_the_place_of_the_inventory_and_old_words_are_dropped() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.applied("shop", 10, &["a", "b"], false);
    let part = |name: &str, last| Observed::InventoryStated {
        objects: vec![owned(id, name, false)],
        last,
        unlisted: Vec::new(),
    };
    given.observed_at(2, 1, vec![part("c", false), part("d", true)]);
    given.observed_at(
        1,
        3,
        vec![Observed::ObjectApplied {
            sync: None,
            object: owned(id, "late", false),
            write: Write::Created,
            taken_over: Vec::new(),
        }],
    );
    given.observed_at(2, 1, vec![part("again", true)]);
    given.advanced("shop", "bbb", 2, 1);
    assert_eq!(pruned(&given.verdict("shop", &[(2, &["a"])])), ["c", "d"]);
}

#[test]
fn what_could_not_be_listed_stays_in_the_inventory() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.applied("shop", 10, &["a", "b"], false);
    let stated = |group: &str, kind: &str| {
        let unlisted = vec![GroupKind { group: group.to_owned(), kind: kind.to_owned() }];
        Observed::InventoryStated { objects: vec![owned(id, "c", false)], last: true, unlisted }
    };
    given.observed_at(2, 1, vec![stated("", "ConfigMap")]);
    given.advanced("shop", "bbb", 2, 1);
    assert_eq!(pruned(&given.verdict("shop", &[(2, &["a"])])), ["b", "c"]);
    given.observed_at(3, 1, vec![stated("", "")]);
    assert_eq!(pruned(&given.verdict("shop", &[(2, &["a"])])), ["b", "c"], "of the whole group");
    given.observed_at(4, 1, vec![stated("apps", ""), stated("", "Secret")]);
    assert_eq!(pruned(&given.verdict("shop", &[(2, &["a"])])), ["c"]);
}

#[test]
fn what_ran_to_its_end_is_told_to_each_new_applier_until_it_is_pruned_or_applied_anew() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 10);
    given.desired("shop", "aaa", 1, 10, 1);
    given.applied("shop", 10, &["a", "b"], false);
    let told = |given: &Given| desired_plan(&given.state, AGENT).unwrap().sources[0].head.finished.clone();
    let end = |uid: &str| {
        let OwnedObject { identity, .. } = owned(id, "a", false);
        let failed = Some("too often".to_owned());
        Observed::ObjectFinished {
            source: id,
            identity,
            uid: uid.to_owned(),
            digest: Sha256([7; 32]),
            failed,
        }
    };
    let revision = |given: &Given| desired_plan(&given.state, AGENT).unwrap().revision;
    let before = revision(&given);
    given.observed(1, vec![end("another")]);
    assert_eq!((told(&given), revision(&given)), (vec![], before), "another object had that name");
    given.observed(1, vec![end(&owned(id, "a", false).uid)]);
    let finished = FinishedManifest { digest: Sha256([7; 32]), failed: Some("too often".to_owned()) };
    assert_eq!(told(&given), std::slice::from_ref(&finished));
    assert!(revision(&given) > before, "it is sent to the agent");
    // A new applier finds one of the two only: the other ran and is gone.
    let stated = |names: &[&str]| Observed::InventoryStated {
        objects: names.iter().map(|name| owned(id, name, false)).collect(),
        last: true,
        unlisted: Vec::new(),
    };
    given.observed_at(2, 1, vec![stated(&["b"])]);
    assert_eq!(told(&given), std::slice::from_ref(&finished));
    given.observed_at(3, 1, vec![stated(&["a", "b"])]);
    assert_eq!(told(&given), [finished], "it is still there");
    given.advanced("shop", "bbb", 2, 1);
    assert_eq!(pruned(&given.verdict("shop", &[(2, &["b"])])), ["a"], "a finished one is pruned as all are");
    let anew = Observed::ObjectApplied {
        sync: None,
        object: owned(id, "a", false),
        write: Write::Created,
        taken_over: Vec::new(),
    };
    given.observed_at(3, 2, vec![anew]);
    assert_eq!(told(&given), [], "another manifest runs");
}

#[test]
fn an_object_that_was_heard_of_too_late_is_pruned_after_the_sync() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "bbb", 2, 1);
    given.desired("shop", "bbb", 2, 11, 1);
    given.applied("shop", 10, &["late"], false);
    given.observed(1, vec![started(id, 11)]);
    assert_eq!(given.verdict("shop", &[(2, &["a"])]), Verdict::Nothing, "while the sync runs");
    given.observed(1, vec![finished(id, 11, SyncOutcome::Succeeded)]);
    let verdict = given.verdict("shop", &[(2, &["a"])]);
    assert_eq!(pruned(&verdict), ["late"]);
    let Verdict::Deliver { prune, .. } = verdict else { unreachable!() };
    assert_eq!(given.verdict_listed("shop", &[(2, &["a"])], &prune), Verdict::Nothing, "no endless circle");
}

#[test]
fn a_removal_that_came_too_late_is_over_with_the_next_bundle() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    let removed =
        SourceRemoved { source: id, agent: AGENT, sync: Some(SyncId(Uuid::from_u128(9))), prune: None };
    given.on_source(id, DeliveryEvent::SourceRemoved(removed));
    given.desired("shop", "aaa", 1, 10, 1);
    let plan = desired_plan(&given.state, AGENT).unwrap();
    let states: Vec<_> = plan.sources.iter().map(|one| (one.head.removed, one.bundle.is_some())).collect();
    assert_eq!(states, [(false, true)]);
}

#[test]
fn what_was_stored_late_is_folded_before_what_was_stored_early() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    let applied = |name: &str| Observed::ObjectApplied {
        sync: None,
        object: owned(id, name, false),
        write: Write::Created,
        taken_over: Vec::new(),
    };
    given.observed_at(1, 4, vec![finished(id, 10, SyncOutcome::Succeeded)]);
    given.observed_at(1, 1, vec![started(id, 10)]);
    given.observed_at(1, 2, vec![applied("a"), applied("late")]);
    given.advanced("shop", "bbb", 2, 11);
    given.observed_at(1, 2, vec![applied("a"), applied("late"), finished(id, 10, SyncOutcome::Succeeded)]);
    assert_eq!(pruned(&given.verdict("shop", &[(2, &["a"])])), ["late"]);
}

#[test]
fn what_an_agent_says_of_anothers_source_is_dropped() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    let other = AgentId(Uuid::from_u128(66));
    let batch = ObservationBatch {
        organization: ORGANIZATION,
        writer: ObservationBatch::agent_writer(other),
        epoch: 1,
        first: 1,
        observations: vec![Observation {
            at: Timestamp(1),
            what: Observed::ObjectApplied {
                sync: None,
                object: owned(id, "foreign", false),
                write: Write::Created,
                taken_over: Vec::new(),
            },
        }],
    };
    given.folded(Stream::Observations, events::encode(&batch).unwrap());
    assert!(pruned(&given.verdict("shop", &[(1, &["a"])])).is_empty());
}

#[test]
fn a_snapshot_folds_on_as_the_whole_log_would_and_streams_may_come_in_any_order() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    given.applied("shop", 10, &["a"], false);
    given.observed(1, vec![started(id, 10), finished(id, 10, SyncOutcome::Succeeded)]);
    let mut restored = DeliveryState::restore(DeliveryState::FOLD_VERSION, &given.state.snapshot().unwrap())
        .expect("restores");
    assert_eq!(restored.snapshot(), given.state.snapshot());
    assert_eq!(restored.touched_since(0).sources, [id]);
    given.advanced("shop", "bbb", 2, 1);
    restored.fold(given.records.last().unwrap());
    assert_eq!(restored.snapshot(), given.state.snapshot());

    let (decisions, observations): (Vec<_>, Vec<_>) =
        given.records.iter().partition(|record| record.commit().is_some());
    for records in [[&decisions[..], &observations[..]], [&observations[..], &decisions[..]]] {
        let mut state = DeliveryState::start();
        records.concat().into_iter().for_each(|record| {
            state.fold(record);
        });
        assert_eq!(state.snapshot(), given.state.snapshot());
        let (shown, expected) = (view(&state, id), view(&given.state, id));
        assert_eq!(shown, expected);
        assert_eq!(desired_plan(&state, AGENT), desired_plan(&given.state, AGENT));
    }
}
