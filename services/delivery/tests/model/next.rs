//! What a source is to have next, and what is said of it between a command and what follows from it.

use delivery::model::{StatusContext, awaits_decision, source_status};
use events::configuration::FileFinding;
use events::requests::delivery::NextSync;
use events::requests::diff::{DiffChange, DiffReason};
use events::requests::status::{Condition, Reason, State, Status};

use super::*;

fn shop() -> SourceId {
    SourceId::derive(AGENT, "shop")
}

fn status(given: &Given) -> Status {
    source_status(&given.state, shop(), &StatusContext { now: Timestamp(2_500), gateways: None }).unwrap()
}

fn stands(given: &Given) -> (State, Reason, String) {
    let status = status(given);
    (status.state, status.reason, status.message)
}

/// A source in sync with `aaa`, which has the object `a`.
fn synced() -> Given {
    let mut given = Given::agent_with(vec![source("shop")]);
    given.advanced("shop", "aaa", 1, 1);
    given.desired("shop", "aaa", 1, 10, 1);
    given.connected(1);
    given.observed(1, vec![started(shop(), 10)]);
    given.applied("shop", 10, &["a"], false);
    given.observed(1, vec![finished(shop(), 10, SyncOutcome::Succeeded)]);
    assert!(!awaits_decision(&given.state, shop()));
    given
}

fn pin(commit: &str, bundle: u8) -> DeliveryEvent {
    let (commit, bundle) = (commit.to_owned(), BlobDigest([bundle; 32]));
    DeliveryEvent::SourcePinned(SourcePinned { source: shop(), commit, bundle, objects: 1 })
}

#[test]
fn what_was_pinned_is_on_its_way_until_the_agent_is_to_have_it() {
    let mut given = synced();
    given.on_source(shop(), pin("000", 9));
    assert!(awaits_decision(&given.state, shop()));
    let (state, reason, message) = stands(&given);
    assert_eq!((state, reason), (State::Progressing, Reason::Delivering), "{message}");
    assert!(message.starts_with("pinned to it; commit 000 is about"), "{message}");
    given.desired("shop", "000", 9, 11, 1);
    assert!(!awaits_decision(&given.state, shop()));
    assert_eq!(stands(&given).1, Reason::NotBegun);
    given.on_source(shop(), DeliveryEvent::SourceUnpinned(SourceUnpinned { source: shop() }));
    assert!(awaits_decision(&given.state, shop()));
    let is_coming = |condition: &Condition| condition.message == "commit aaa is about to be delivered";
    assert!(status(&given).conditions.iter().any(is_coming), "{:?}", status(&given));
}

#[test]
fn a_hold_and_a_suspension_end_the_wait_and_a_confirmation_begins_it() {
    let mut given = synced();
    given.advanced("shop", "eee", 4, 0);
    assert!(awaits_decision(&given.state, shop()));
    let held = BundleHeld {
        source: shop(),
        agent: AGENT,
        commit: "eee".to_owned(),
        bundle: BlobDigest([4; 32]),
        objects: 0,
        reason: HoldReason::Empty,
    };
    given.on_source(shop(), DeliveryEvent::BundleHeld(held));
    assert!(!awaits_decision(&given.state, shop()));
    assert_eq!(stands(&given).0, State::Held);
    for confirmed in given.state.decide(shop(), Command::Confirm { commit: None }).unwrap() {
        given.on_source(shop(), confirmed);
    }
    assert!(awaits_decision(&given.state, shop()));
    assert_eq!((stands(&given).0, stands(&given).1), (State::Progressing, Reason::Delivering));
    let reason = "freeze".to_owned();
    given.on_source(shop(), DeliveryEvent::SourceSuspended(SourceSuspended { source: shop(), reason }));
    assert!(!awaits_decision(&given.state, shop()), "nobody decides while it is suspended");
    let status = status(&given);
    assert_eq!(status.state, State::Suspended);
    assert!(status.conditions.iter().all(|one| one.reason != Reason::Delivering), "{status:?}");
}

fn next(given: &Given, bundles: &[(u8, &[&str])]) -> NextSync {
    next_sync(&given.state, shop(), &contents(bundles), &given.wanted).unwrap().next
}

#[test]
fn what_left_git_and_is_not_to_be_pruned_is_named_with_the_reason() {
    let mut given = synced();
    given.applied("shop", 10, &["old"], true);
    given.advanced("shop", "bbb", 2, 1);
    let bundles: [(u8, &[&str]); 2] = [(1, &["a", "old"]), (2, &["b"])];
    let kept = |given: &Given| {
        let kept = next(given, &bundles).kept;
        kept.iter()
            .map(|one| (one.identity.name.clone(), one.change, one.reason.unwrap()))
            .collect::<Vec<_>>()
    };
    let adopted = ("old".to_owned(), DiffChange::Keep, DiffReason::AdoptedBefore);
    assert_eq!(kept(&given), [adopted], "what it made itself is pruned");
    let mut without = source("shop");
    without.policies.prune = false;
    given.configured(vec![without]);
    let off = |name: &str| (name.to_owned(), DiffChange::Keep, DiffReason::PruningOff);
    assert_eq!(kept(&given), [off("a"), off("old")]);
    let many = names(NextSync::KEPT + 7);
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    given.applied("shop", 10, &many, false);
    let all = next(&given, &bundles);
    assert_eq!((all.kept.len(), all.more_kept), (NextSync::KEPT, 9), "the first are named, the rest counted");
}

#[test]
fn a_rejected_head_is_told_beside_the_newest_good_commit_unless_another_one_is_pinned() {
    let mut given = synced();
    let finding = FileFinding {
        file: "web.yaml".into(),
        line: 3,
        column: 0,
        field: String::new(),
        message: "no".into(),
    };
    given.decided(
        AggregateKind::Ref,
        "main".to_owned(),
        RepositoryEvent::BundleRejected(BundleRejected {
            source: shop(),
            agent: AGENT,
            commit: "bad".to_owned(),
            findings: vec![finding.clone()],
            more: 0,
            warnings: Vec::new(),
        }),
    );
    let told = next(&given, &[(1, &["a"])]);
    let rejected = told.rejected.unwrap();
    assert_eq!((rejected.commit.as_str(), rejected.findings), ("bad", vec![finding]));
    assert_eq!((told.planned.head.commit.as_str(), told.pending), ("aaa", None));
    given.on_source(shop(), pin("000", 9));
    assert_eq!(next(&given, &[(1, &["a"]), (9, &["a"])]).rejected, None);
}
