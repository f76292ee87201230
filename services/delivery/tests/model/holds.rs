//! Holds and confirmations belong to a bundle, whichever commit brings it.

use delivery::model::{Command, DeliveryState, Verdict, withdrawal};
use events::delivery::{
    BundleConfirmed, BundleHeld, DeliveryEvent, HoldReason, SyncCounts, SyncFinished, SyncOutcome,
    SyncRequested, SyncStarted,
};
use events::requests::delivery::SourceSync;
use events::{BlobDigest, SourceId, SyncId};
use store::Projection;

use crate::given::*;
use events::requests::status::Condition;

/// A source that owns one object, and an empty bundle 4 of commit `eee` that is held.
fn held() -> Given {
    let mut given = Given::agent_with(vec![source("shop")]);
    given.applied("shop", 10, &["a"], false);
    given.advanced("shop", "eee", 4, 0);
    hold(&mut given, 4);
    given
}

/// Records that the source's bundle is held, as the verdict has it.
fn hold(given: &mut Given, digest: u8) {
    let source = SourceId::derive(AGENT, "shop");
    let Verdict::Hold { commit, bundle, objects, reason, .. } = given.verdict("shop", &[(digest, &[])])
    else {
        panic!("is held")
    };
    given.on_source(
        source,
        DeliveryEvent::BundleHeld(BundleHeld { source, agent: AGENT, commit, bundle, objects, reason }),
    );
}

fn confirm(given: &mut Given, commit: Option<&str>) {
    let source = SourceId::derive(AGENT, "shop");
    let command = Command::Confirm { commit: commit.map(str::to_owned) };
    for event in given.state.decide(source, command).expect("is held") {
        given.on_source(source, event);
    }
}

fn is_held(given: &Given, digest: u8) -> bool {
    matches!(given.verdict("shop", &[(digest, &[])]), Verdict::Hold { .. })
}

#[test]
fn another_bundle_of_a_confirmed_commit_is_held() {
    let mut given = held();
    confirm(&mut given, Some("eee"));
    // The agent's configuration selects other files of the same commit.
    given.advanced("shop", "eee", 5, 0);
    assert!(is_held(&given, 5));
    hold(&mut given, 5);
    assert_eq!(given.verdict("shop", &[(5, &[])]), Verdict::Nothing, "said once");
    confirm(&mut given, None);
    assert_eq!(pruned(&given.verdict("shop", &[(5, &[])])), ["a"]);
}

#[test]
fn a_commit_with_the_same_bundle_is_neither_held_nor_confirmed_again() {
    let mut given = held();
    given.advanced("shop", "fff", 4, 0);
    assert_eq!(given.verdict("shop", &[(4, &[])]), Verdict::Nothing, "its bundle is held already");
    let shown = view(&given.state, SourceId::derive(AGENT, "shop")).unwrap();
    assert_eq!(shown.held.unwrap().commit, "fff");
    let is_said = |condition: &Condition| condition.message.starts_with("commit fff is held");
    assert!(shown.status.conditions.iter().any(is_said), "{:?}", shown.status);
    confirm(&mut given.clone(), Some("fff"));
    confirm(&mut given, Some("eee"));
    given.advanced("shop", "abc", 4, 0);
    assert_eq!(pruned(&given.verdict("shop", &[(4, &[])])), ["a"]);
}

#[test]
fn a_confirmation_ends_with_the_next_bundle() {
    let mut given = held();
    confirm(&mut given, None);
    given.desired("shop", "eee", 4, 10, 0);
    given.applied("shop", 10, &["late"], false);
    given.observed(1, vec![started(SourceId::derive(AGENT, "shop"), 10)]);
    assert!(!is_held(&given, 4), "what was heard of too late goes with the confirmed bundle");
    given.advanced("shop", "bbb", 2, 2);
    given.desired("shop", "bbb", 2, 11, 2);
    // All empty bundles have the same digest.
    given.advanced("shop", "ccc", 4, 0);
    assert!(is_held(&given, 4));
}

#[test]
fn a_confirmation_ends_when_the_bundle_means_something_else() {
    let mut given = held();
    confirm(&mut given, None);
    given.configured(vec![source("shop")]);
    assert!(!is_held(&given, 4), "the same configuration");
    let mut moved = source("shop");
    moved.default_namespace = "elsewhere".to_owned();
    given.configured(vec![moved]);
    assert!(is_held(&given, 4));
}

#[test]
fn an_older_confirmation_stands_for_the_bundle_that_was_held() {
    let mut given = held();
    let source = SourceId::derive(AGENT, "shop");
    let older = BundleConfirmed { source, commit: "eee".to_owned(), bundle: None };
    given.on_source(source, DeliveryEvent::BundleConfirmed(older));
    assert_eq!(pruned(&given.verdict("shop", &[(4, &[])])), ["a"]);
    given.advanced("shop", "eee", 5, 0);
    assert!(is_held(&given, 5));
}

#[test]
fn a_snapshot_of_the_former_version_is_read() {
    let mut given = held();
    given.desired("shop", "aaa", 1, 10, 1);
    hold(&mut given, 4);
    let source = SourceId::derive(AGENT, "shop");
    let bytes = given.state.snapshot().unwrap();
    let mut value: rmpv::Value = rmpv::decode::read_value(&mut bytes.as_slice()).unwrap();
    let removed = ["confirmed_bundle", "statement_bytes", "wanted"].map(|field| remove(&mut value, field));
    assert_eq!(removed, [1, 1, 1], "one agent with one source");
    let mut former = Vec::new();
    rmpv::encode::write_value(&mut former, &value).unwrap();
    let restored = DeliveryState::restore(6, &former).expect("is read");
    assert!(restored.needs_statement(AGENT), "it kept nothing of how objects stand");
    let held = view(&restored, source).unwrap().held.unwrap();
    assert_eq!(held.reason, HoldReason::Empty);
    assert!(DeliveryState::restore(5, &former).is_none());
    assert_eq!(restored.bundles_needed(source), [BlobDigest([4; 32])]);
}

/// Removes a field wherever it stands; how often.
fn remove(value: &mut rmpv::Value, field: &str) -> usize {
    match value {
        rmpv::Value::Map(fields) => {
            let before = fields.len();
            fields.retain(|(name, _)| name.as_str() != Some(field));
            let removed = before - fields.len();
            removed + fields.iter_mut().map(|(_, value)| remove(value, field)).sum::<usize>()
        }
        rmpv::Value::Array(values) => values.iter_mut().map(|value| remove(value, field)).sum(),
        _ => 0,
    }
}

#[test]
fn a_withdrawn_source_prunes_by_the_rules_of_any_prune_until_it_is_unpinned() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    given.applied("shop", 10, &["a"], false);
    given.applied("shop", 10, &["adopted"], true);
    let found = withdrawal(&given.state, id, &contents(&[(1, &["a", "adopted"])])).unwrap();
    assert_eq!((found.deletes, found.stay), (1, 1), "{found:?}");
    assert_eq!(found.objects[0].name, "a");
    assert!(found.kept[0].reason.contains("adopted"), "{found:?}");
    let withdraw = Command::Withdraw { bundle: BlobDigest([4; 32]) };
    for event in given.state.decide(id, withdraw.clone()).unwrap() {
        given.on_source(id, event);
    }
    assert_eq!(given.state.decide(id, withdraw).unwrap(), [], "once");
    let known: &[(u8, &[&str])] = &[(1, &["a", "adopted"]), (4, &[])];
    assert_eq!(pruned(&given.verdict("shop", known)), ["a"], "it is not held: the person saw what goes");
    given.desired("shop", "none", 4, 11, 0);
    given.advanced("shop", "bbb", 2, 1);
    let known: &[(u8, &[&str])] = &[(2, &["a"]), (4, &[])];
    assert_eq!(given.verdict("shop", known), Verdict::Nothing, "a newer commit changes nothing");
    let shown = view(&given.state, id).unwrap();
    let says = |condition: &Condition| condition.message.starts_with("withdrawn: ");
    assert!(shown.status.conditions.iter().any(says), "{:?}", shown.status);
    for event in given.state.decide(id, Command::Unpin).unwrap() {
        given.on_source(id, event);
    }
    assert!(matches!(given.verdict("shop", known), Verdict::Deliver { commit, .. } if commit == "bbb"));
}

#[test]
fn the_last_syncs_of_a_source_are_kept_with_how_each_ended() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    let sync = |number: u128| SyncId(uuid::Uuid::from_u128(number));
    let started = |sync, run| DeliveryEvent::SyncStarted(SyncStarted { source: id, sync, run, epoch: 1 });
    let finished = |sync, run, outcome| {
        let counts = SyncCounts { changed: run, ..SyncCounts::default() };
        DeliveryEvent::SyncFinished(SyncFinished {
            source: id,
            sync,
            run,
            outcome,
            counts,
            failures: Vec::new(),
        })
    };
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 1, 1);
    given.on_source(id, started(sync(1), 1));
    given.on_source(id, finished(sync(1), 1, SyncOutcome::Failed));
    given.on_source(id, started(sync(1), 2));
    let listed = given.state.syncs_behind(id, None, 10).unwrap();
    assert_eq!(
        (listed[0].runs, listed[0].outcome, listed[0].finished_at),
        (2, None, None),
        "it is tried again"
    );
    given.on_source(id, finished(sync(1), 2, SyncOutcome::Succeeded));
    given.on_source(id, DeliveryEvent::SyncRequested(SyncRequested { source: id, sync: sync(2) }));
    let listed = given.state.syncs_behind(id, None, 10).unwrap();
    let of = |sync: &SourceSync| (sync.id, sync.commit.clone(), sync.outcome, sync.counts.changed);
    let expected =
        [(sync(2), "aaa".to_owned(), None, 0), (sync(1), "aaa".to_owned(), Some(SyncOutcome::Succeeded), 2)];
    assert_eq!(listed.iter().map(of).collect::<Vec<_>>(), expected);
    let first = (listed[0].decided_at, listed[0].id);
    let behind = given.state.syncs_behind(id, Some(first), 10).unwrap();
    assert_eq!(behind, listed[1..], "a page goes on behind the last one");
    for number in 10..60 {
        given.on_source(id, DeliveryEvent::SyncRequested(SyncRequested { source: id, sync: sync(number) }));
    }
    assert_eq!(given.state.syncs_behind(id, None, 100).unwrap().len(), SourceSync::KEPT);
}
