use std::sync::Arc;

use bytes::Bytes;
use objects::order::Stage;

use super::super::target::Entry;
use super::*;
use crate::kubernetes::Resource;

fn target(manifest: &'static [u8]) -> Target {
    let identity = ObjectIdentity {
        group: String::new(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: "shop".into(),
        name: "a".into(),
    };
    let resource = Resource {
        group: String::new(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
        plural: "configmaps".into(),
        namespaced: true,
        listable: true,
        watchable: true,
    };
    let manifest = Bytes::from_static(manifest);
    let entry = Entry {
        identity: identity.clone(),
        digest: Sha256::of(&manifest),
        file: "a.yaml".into(),
        line: 1,
        manifest,
    };
    Target {
        key: identity.key(),
        identity,
        resource: Arc::new(resource),
        stage: Stage::Rest,
        entry: Arc::new(entry),
    }
}

/// An object that was not there before.
const CREATED: Before = Before { adopted: false, judged: false };

fn judged(status: HealthStatus) -> Judged {
    Judged { settled: status == HealthStatus::Healthy, status: Some(status), ..Judged::from(None) }
}

fn sight(version: u64, touch: &[u8]) -> Sight {
    Sight {
        uid: "u".into(),
        version,
        touch: Some(Sha256::of(touch)),
        health: Some(judged(HealthStatus::Healthy)),
    }
}

fn applied() -> (Book, Target) {
    let (mut book, target) = (Book::default(), target(b"one"));
    assert_eq!(book.settled(&target, sight(10, b"t"), CREATED, Duration::ZERO), Settled::default());
    (book, target)
}

#[test]
fn what_is_applied_needs_nothing_until_it_changes_drifts_or_all_is_checked() {
    let (mut book, applied) = applied();
    assert!(!book.needs_apply(&applied, false, Duration::ZERO));
    assert!(book.needs_apply(&applied, true, Duration::ZERO));
    assert!(book.needs_apply(&target(b"two"), false, Duration::ZERO));
    book.drifted(&applied.key, Drift { deleted: true, fields: vec![] }, Duration::ZERO);
    assert!(book.needs_apply(&applied, false, Duration::ZERO));
    assert!(Book::default().needs_apply(&applied, false, Duration::ZERO));
}

#[test]
fn own_writes_and_old_news_are_no_drift() {
    let (mut book, target) = applied();
    assert_eq!(book.sighted(&target.key, sight(9, b"old")), Seen::Nothing);
    assert_eq!(book.sighted(&target.key, sight(10, b"t")), Seen::Nothing);
    assert_eq!(book.vanished(&target.key, 9), Seen::Nothing);
    book.write_begins(&target.key);
    assert_eq!(book.sighted(&target.key, sight(11, b"ours")), Seen::Nothing);
    assert_eq!(book.settled(&target, sight(11, b"ours"), CREATED, Duration::ZERO), Settled::default());
    assert_eq!(book.sighted(&target.key, sight(11, b"ours")), Seen::Nothing);
}

#[test]
fn what_watches_show_during_a_write_is_looked_at_after_it() {
    let (mut book, target) = (Book::default(), target(b"one"));
    book.write_begins(&target.key);
    assert_eq!(book.sighted(&target.key, sight(10, b"t")), Seen::Nothing);
    assert!(!book.settled(&target, sight(10, b"t"), CREATED, Duration::ZERO).overheard, "its own echo");
    book.write_begins(&target.key);
    assert_eq!(book.sighted(&target.key, sight(11, b"ours")), Seen::Nothing);
    assert_eq!(book.vanished(&target.key, 12), Seen::Nothing);
    assert!(book.settled(&target, sight(11, b"ours"), CREATED, Duration::ZERO).overheard);
    book.write_begins(&target.key);
    assert!(!book.write_failed(&target.key));
    book.write_begins(&target.key);
    book.sighted(&target.key, sight(13, b"theirs"));
    assert!(book.write_failed(&target.key));
}

#[test]
fn a_touch_and_a_deletion_are_seen() {
    let (mut book, target) = applied();
    assert_eq!(book.sighted(&target.key, sight(11, b"theirs")), Seen::Touched);
    assert_eq!(book.vanished(&target.key, 12), Seen::Deleted);
    let (mut book, target) = applied();
    let recreated = Sight { uid: "other".into(), ..sight(12, b"t") };
    assert_eq!(book.sighted(&target.key, recreated), Seen::Touched);
}

#[test]
fn what_was_looked_at_counts_and_a_touch_is_still_news_to_watches() {
    let (mut book, target) = applied();
    let judged = |status| Judged { status: Some(status), settled: false, ..Judged::from(None) };
    let looks_like =
        |version, touch: &[u8], status| Sight { health: Some(judged(status)), ..sight(version, touch) };
    let told = book.observed(&target.key, looks_like(11, b"theirs", HealthStatus::Degraded));
    assert_eq!(told.and_then(|health| health.status), Some(HealthStatus::Degraded));
    assert_eq!(book.observed(&target.key, looks_like(9, b"t", HealthStatus::Healthy)), None, "older");
    assert_eq!(book.sighted(&target.key, sight(11, b"theirs")), Seen::Touched);
}

#[test]
fn a_fight_is_fought_ever_slower_and_forgotten_after_quiet() {
    let (mut book, target) = applied();
    let drift = Drift { deleted: false, fields: vec![] };
    let mut now = Duration::from_secs(1);
    let mut waits = Vec::new();
    for version in 11..17 {
        assert!(book.drifted(&target.key, drift.clone(), now));
        assert!(!book.drifted(&target.key, drift.clone(), now), "told once");
        let (due, next) = book.corrections(now);
        let wait = next.map_or(Duration::ZERO, |next| next - now);
        assert_eq!(due.is_empty(), !wait.is_zero());
        waits.push(wait.as_secs());
        now += wait;
        assert!(book.settled(&target, sight(version, b"t"), CREATED, now).corrected);
    }
    assert_eq!(waits, [0, 1, 2, 4, 8, 16]);
    now += Duration::from_secs(1000);
    book.drifted(&target.key, drift, now);
    assert_eq!(book.corrections(now).0.len(), 1);
}

#[test]
fn a_fight_goes_on_over_pushes_and_in_another_book() {
    let (mut book, target_one) = applied();
    let drift = Drift { deleted: false, fields: vec![] };
    let mut now = Duration::from_secs(1);
    for version in 11..16 {
        book.drifted(&target_one.key, drift.clone(), now);
        now = book.corrections(now).1.unwrap_or(now);
        book.settled(&target_one, sight(version, b"t"), CREATED, now);
    }
    book.drifted(&target_one.key, drift.clone(), now);
    assert!(!book.needs_apply(&target_one, false, now), "a push that does not change it leaves it alone");
    assert!(book.is_left_alone(&target_one, false, now));
    assert!(book.needs_apply(&target(b"two"), false, now), "one that does, does not");
    assert!(book.needs_apply(&target_one, true, now));
    assert!(book.needs_apply(&target_one, false, now + Duration::from_secs(16)), "its correction is due");
    let past = book.fights(now).map(|(key, fight)| (key.clone(), fight)).collect();
    let mut next = Book::remembering(past);
    assert_eq!(next.fights(now).count(), 1, "also before the object is found");
    next.found(&target_one.identity, sight(20, b"t"), Some(Arc::clone(&target_one.entry)), false);
    next.drifted(&target_one.key, drift, now);
    assert_eq!(next.corrections(now), (vec![], Some(now + Duration::from_secs(16))));
}

#[test]
fn corrections_that_failed_are_due_at_once_when_what_they_waited_for_comes() {
    let (mut book, target) = applied();
    let (now, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
    book.drifted(&target.key, Drift { deleted: true, fields: vec![] }, now);
    assert!(!book.unblock(|_| true, now), "it did not fail yet");
    (0..8).for_each(|_| book.correction_failed(&target.key, now, hour));
    assert_eq!(book.corrections(now).1, Some(now + Duration::from_secs(256)));
    book.correction_failed(&target.key, now, Duration::from_secs(60));
    assert_eq!(book.corrections(now).1, Some(now + Duration::from_secs(60)));
    assert!(!book.unblock(|key| key.namespace == "other", now));
    assert!(book.unblock(|key| key.namespace == "shop", now));
    assert_eq!(book.corrections(now).0, [target.key]);
}

#[test]
fn health_is_news_only_when_it_changes_and_not_while_it_was_never_bad() {
    let (mut book, target) = applied();
    let with = |version, status| Sight { health: Some(judged(status)), ..sight(version, b"t") };
    assert_eq!(
        book.sighted(&target.key, with(11, HealthStatus::Progressing)),
        Seen::Health(judged(HealthStatus::Progressing))
    );
    assert_eq!(book.sighted(&target.key, with(12, HealthStatus::Progressing)), Seen::Nothing);
    assert_eq!(
        book.sighted(&target.key, with(13, HealthStatus::Healthy)),
        Seen::Health(judged(HealthStatus::Healthy))
    );
}

#[test]
fn health_that_an_applier_before_may_have_told_otherwise_is_news_once() {
    let (mut book, target) = (Book::default(), target(b"one"));
    let unseen = Sight { health: None, ..sight(10, b"t") };
    book.found(&target.identity, unseen, Some(Arc::clone(&target.entry)), false);
    let healthy = Seen::Health(judged(HealthStatus::Healthy));
    assert_eq!(book.sighted(&target.key, sight(10, b"t")), healthy);
    assert_eq!(book.sighted(&target.key, sight(11, b"t")), Seen::Nothing);
    // What its metadata tells was never otherwise.
    book.found(&target.identity, sight(12, b"t"), Some(Arc::clone(&target.entry)), false);
    assert_eq!(book.sighted(&target.key, sight(13, b"t")), Seen::Nothing);
}

#[test]
fn health_that_may_have_been_told_before_the_object_left_the_book_is_news_once() {
    let (mut book, target) = applied();
    let progressing = Sight { health: Some(judged(HealthStatus::Progressing)), ..sight(11, b"t") };
    assert_eq!(book.sighted(&target.key, progressing), Seen::Health(judged(HealthStatus::Progressing)));
    book.forget(&target.key);
    let back = Before { judged: true, ..CREATED };
    let settled = book.settled(&target, sight(12, b"t"), back, Duration::ZERO);
    assert_eq!(settled.health, Some(judged(HealthStatus::Healthy)));
    assert_eq!(book.settled(&target, sight(13, b"t"), back, Duration::ZERO).health, None);
}

#[test]
fn what_is_not_well_is_looked_at_soon_and_then_ever_more_rarely() {
    let second = Duration::from_secs;
    let (mut book, target) = applied();
    let open = |version, message: &str, explained| {
        let health = Judged {
            message: message.to_owned(),
            open: true,
            explained,
            ..judged(HealthStatus::Progressing)
        };
        Sight { health: Some(health), ..sight(version, b"t") }
    };
    assert!(book.due_checks(second(0), 0).0.is_empty(), "it is healthy");
    book.sighted(&target.key, open(11, "1 of 2", false));
    assert_eq!(book.due_checks(second(10), 0), (Vec::new(), Some(second(11))));
    let (due, next) = book.due_checks(second(11), 0);
    assert_eq!((due.len(), next), (1, None));
    let told = book.observed(&target.key, open(11, "no such image", true));
    assert_eq!(told.map(|health| health.message).as_deref(), Some("no such image"));
    assert_eq!(book.due_checks(second(11), 0).1, Some(second(13)), "twice as long");
    assert_eq!(
        book.sighted(&target.key, open(12, "2 of 2", false)),
        Seen::Nothing,
        "what was found out holds"
    );
    assert_eq!(book.due_checks(second(11), 0).1, Some(second(12)), "and is looked at again soon");
    assert_ne!(
        book.sighted(&target.key, Sight { health: Some(judged(HealthStatus::Healthy)), ..sight(13, b"t") }),
        Seen::Nothing
    );
    assert_eq!(book.due_checks(second(60), 0), (Vec::new(), None));
}

#[test]
fn what_changes_with_time_alone_is_looked_at_when_its_time_is_up() {
    let (mut book, target) = applied();
    let health = Judged { recheck_at: Some(5_000), ..judged(HealthStatus::Progressing) };
    book.sighted(&target.key, Sight { health: Some(health), ..sight(11, b"t") });
    assert_eq!(book.due_checks(Duration::from_secs(100), 2_000).1, Some(Duration::from_secs(103)));
    assert_eq!(book.due_checks(Duration::from_secs(103), 5_000).0.len(), 1);
}

#[test]
fn what_ran_to_its_end_is_never_made_again_while_its_manifest_stands() {
    let (mut book, applied) = applied();
    assert_eq!(book.finished(&applied.key, "another"), None, "another run's end");
    book.drifted(&applied.key, Drift { deleted: false, fields: vec![] }, Duration::ZERO);
    let ended = Finished { digest: applied.entry.digest, drifted: true };
    assert_eq!(book.finished(&applied.key, "u"), Some(ended));
    assert_eq!(book.finished(&applied.key, "u"), None, "told once");
    assert_eq!(book.vanished(&applied.key, 12), Seen::Nothing);
    assert!(!book.drifted(&applied.key, Drift { deleted: true, fields: vec![] }, Duration::ZERO));
    assert!(!book.needs_apply(&applied, true, Duration::ZERO), "not even where all is checked");
    assert_eq!(
        book.get(&applied.key).and_then(|known| known.health.clone()),
        Some(judged(HealthStatus::Healthy))
    );
    let changed = target(b"two");
    assert!(book.needs_apply(&changed, false, Duration::ZERO));
    book.settled(&changed, sight(13, b"t"), CREATED, Duration::ZERO);
    assert!(!book.is_finished(&changed) && book.vanished(&applied.key, 14) == Seen::Deleted);
}

#[test]
fn what_ran_to_its_end_before_is_recalled_unless_something_newer_was_done() {
    let (mut book, one) = (Book::default(), target(b"one"));
    book.recall_finished(&one, None);
    assert!(book.is_finished(&one) && !book.needs_apply(&one, false, Duration::ZERO));
    assert_eq!(
        book.get(&one.key).and_then(|known| known.health.clone()),
        Some(judged(HealthStatus::Healthy))
    );
    book.keep_finished();
    assert!(book.is_finished(&one));
    let mut failed = Book::default();
    failed.recall_finished(&one, Some("too often"));
    let health = failed.get(&one.key).and_then(|known| known.health.clone()).expect("known");
    assert_eq!(
        (health.status, health.settled, health.message.as_str()),
        (Some(HealthStatus::Degraded), false, "too often")
    );
    // The server does not know yet that another manifest was applied since.
    let two = target(b"two");
    book.settled(&two, sight(13, b"t"), CREATED, Duration::ZERO);
    book.recall_finished(&one, None);
    assert!(book.needs_apply(&one, false, Duration::ZERO));
    // One that is still there, as a new applier finds it.
    let mut found = Book::default();
    found.found(&one.identity, sight(10, b"t"), Some(Arc::clone(&one.entry)), false);
    found.recall_finished(&one, None);
    assert_eq!(found.vanished(&one.key, 12), Seen::Nothing);
}
