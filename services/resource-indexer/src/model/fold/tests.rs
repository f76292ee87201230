use events::observation::{Gone, ObservationBatch};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::given::{
    AGENT, Given, OTHER, batch, config, digest, gone, kept, kind, listed, object, pod, seen,
};
use events::observation::ObjectBody;

fn maps() -> ObservedKind {
    kind("", "ConfigMap", "configmaps", "")
}

#[test]
fn an_object_is_seen_changed_and_deleted_with_a_change_for_each() {
    let mut given = Given::agents();
    let (one, other) = (config("shop/a", json!({})), config("shop/a", json!({"data": {"x": "1"}})));
    assert_eq!(Given::whats(&given.says(vec![seen(&one)])), ["first-seen uid-a"]);
    assert!(given.says(vec![seen(&one), kept(&one)]).is_empty(), "it is as it was");
    let changed = given.says(vec![seen(&other)]);
    assert_eq!((changed[0].what, changed[0].number), (What::Changed, 2));
    assert!(changed[0].body.as_ref().is_some_and(|body| body.starts_with(b"{")));
    assert_eq!(Given::whats(&given.says(vec![gone(&other), gone(&other)])), ["deleted uid-a"]);
    assert!(given.there().is_empty());
    assert_eq!(given.fold.index.len(), 1, "its history is kept");
    assert_eq!(Given::whats(&given.says(vec![seen(&other)])), ["first-seen uid-a"], "it is observed again");
}

#[test]
fn an_object_of_a_kind_that_was_listed_before_is_created() {
    let mut given = Given::agents();
    given.says(vec![listed(maps(), 1)]);
    let changes = given.says(vec![seen(&config("shop/a", json!({})))]);
    assert_eq!(Given::whats(&changes), ["created uid-a"]);
}

#[test]
fn doubles_and_earlier_epochs_change_nothing_and_what_is_early_waits() {
    let mut given = Given::agents();
    let [a, b, c] = ["shop/a", "shop/b", "shop/c"].map(|place| config(place, json!({})));
    given.apply(AGENT, batch(AGENT, 2, 3, vec![seen(&c)]));
    assert!(given.there().is_empty(), "something is missing before it");
    given.apply(AGENT, batch(AGENT, 2, 1, vec![seen(&a), seen(&b)]));
    assert_eq!(given.there(), ["a uid-a", "b uid-b", "c uid-c"]);
    for late in [batch(AGENT, 2, 1, vec![seen(&a), gone(&b)]), batch(AGENT, 1, 4, vec![gone(&a)])] {
        assert!(given.apply(AGENT, late).is_empty());
    }
    given.apply(AGENT, batch(AGENT, 2, 3, vec![gone(&c), gone(&b)]));
    assert_eq!(given.there(), ["a uid-a", "c uid-c"], "of a batch that is half known the other half counts");
    let mut foreign = batch(AGENT, 3, 1, vec![gone(&a)]);
    foreign.organization = events::OrganizationId(uuid::Uuid::from_u128(99));
    assert!(given.apply(AGENT, foreign).is_empty(), "another organization's");
}

#[test]
fn too_many_early_batches_give_up_what_is_missing() {
    let mut given = Given::agents();
    for number in 0..300_u64 {
        let object = config(&format!("shop/c{number}"), json!({}));
        given.apply(AGENT, batch(AGENT, 1, 2 + number, vec![seen(&object)]));
    }
    assert_eq!(given.there().len(), 300);
}

#[test]
fn what_a_list_does_not_state_is_gone_in_its_namespace_and_kind_alone() {
    let mut given = Given::agents();
    let [a, b] = ["shop/a", "shop/b"].map(|place| config(place, json!({})));
    let (elsewhere, secret) = (config("other/c", json!({})), object("v1", "Secret", "shop/s", json!({})));
    given.says(vec![seen(&a), seen(&b), seen(&elsewhere), seen(&secret)]);
    let changes = given.says(vec![kept(&a), listed(kind("", "ConfigMap", "configmaps", "shop"), 5)]);
    assert_eq!(Given::whats(&changes), ["vanished uid-b"]);
    let changes = given.apply(AGENT, batch(AGENT, 2, 1, vec![kept(&a), listed(maps(), 1)]));
    assert_eq!(Given::whats(&changes), ["vanished uid-c"], "what an earlier epoch stated does not count");
    assert_eq!(given.there(), ["a uid-a", "s uid-s"]);
}

#[test]
fn a_kind_that_is_dropped_takes_its_objects_with_it() {
    let mut given = Given::agents();
    given.says(vec![seen(&config("shop/a", json!({}))), listed(maps(), 1)]);
    let changes = given.says(vec![Word::KindDropped { of: maps(), why: Gone::KindGone }]);
    assert_eq!(Given::whats(&changes), ["vanished uid-a"]);
    assert!(given.fold.observed[&AGENT].kinds.is_empty());
}

#[test]
fn a_kind_that_is_left_out_says_nothing_of_its_objects_end() {
    let mut given = Given::agents();
    given.says(vec![seen(&config("shop/a", json!({}))), listed(maps(), 1)]);
    let changes = given.says(vec![Word::KindDropped { of: maps(), why: Gone::NotObserved }]);
    assert_eq!((Given::whats(&changes), changes[0].not_before), (vec!["unobserved uid-a".to_owned()], None));
}

/// A batch whose observations were made then.
fn at(seconds: i64, mut batch: ObservationBatch) -> ObservationBatch {
    batch.observations.iter_mut().for_each(|observation| observation.at = Timestamp(seconds * 1_000));
    batch
}

#[test]
fn what_nobody_saw_happen_lies_between_two_lists() {
    let mut given = Given::agents();
    let made = |name: &str, time: &str| {
        config(&format!("shop/{name}"), json!({"metadata": {"creationTimestamp": time}}))
    };
    let (a, b) = (made("a", "1970-01-01T00:00:01Z"), made("b", "1970-01-01T00:00:02Z"));
    let first = given.apply(AGENT, at(300, batch(AGENT, 1, 1, vec![seen(&a), seen(&b), listed(maps(), 1)])));
    assert_eq!(Given::whats(&first), ["first-seen uid-a", "first-seen uid-b"]);
    // The agent was away, and another instance looks at everything anew.
    let (new, old) = (made("new", "1970-01-01T00:05:20Z"), made("old", "1970-01-01T00:04:00Z"));
    let words = vec![kept(&a), seen(&new), seen(&old), listed(maps(), 1)];
    let changes = given.apply(AGENT, at(400, batch(AGENT, 2, 1, words)));
    assert_eq!(Given::whats(&changes), ["created uid-new", "first-seen uid-old", "vanished uid-b"]);
    assert_eq!((changes[2].not_before, changes[2].seen_at), (Some(Timestamp(300_000)), Timestamp(400_000)));
    // A clock that goes ahead counts no further than the log's.
    let words = vec![kept(&a), kept(&new), kept(&old), listed(maps(), 5)];
    given.apply(AGENT, at(9_000_000, batch(AGENT, 2, 5, words)));
    let known = given.now();
    let changes = given.apply(AGENT, batch(AGENT, 2, 9, vec![kept(&a), kept(&new), listed(maps(), 9)]));
    assert_eq!(
        (Given::whats(&changes), changes[0].not_before),
        (vec!["vanished uid-old".to_owned()], Some(known))
    );
}

fn settled(silent: &[&str]) -> Word {
    Word::KindsSettled { silent: silent.iter().map(|group| (*group).to_owned()).collect() }
}

#[test]
fn what_a_new_epoch_says_nothing_of_is_gone_once_it_has_told_of_all_kinds() {
    let mut given = Given::agents();
    let widget = object("example.com/v1", "Widget", "shop/w", json!({}));
    let metric = object("metrics.k8s.io/v1beta1", "PodMetrics", "shop/m", json!({}));
    let (secret, map) = (object("v1", "Secret", "shop/s", json!({})), config("shop/a", json!({})));
    let widgets = kind("example.com", "Widget", "widgets", "");
    given.says(vec![seen(&widget), seen(&metric), seen(&secret), seen(&map), listed(widgets, 1)]);
    assert!(given.says(vec![settled(&[])]).is_empty(), "all was stated in this epoch");
    let missing = None;
    let blind =
        Word::KindBlind { of: kind("", "Secret", "secrets", "shop"), reason: "no".to_owned(), missing };
    let words = vec![kept(&map), listed(maps(), 1), blind, settled(&["metrics.k8s.io"])];
    let changes = given.apply(AGENT, batch(AGENT, 2, 1, words));
    assert_eq!(Given::whats(&changes), ["unobserved uid-w"], "blind and silent kinds keep theirs");
    let kinds: Vec<_> = given.fold.observed[&AGENT].kinds.keys().map(|place| place.kind.clone()).collect();
    assert_eq!(kinds, ["ConfigMap", "Secret"]);
    let changes = given.apply(AGENT, batch(AGENT, 2, 5, vec![settled(&[])]));
    assert_eq!(Given::whats(&changes), ["unobserved uid-m"], "its group speaks again, and not of it");
}

#[test]
fn a_list_of_all_namespaces_takes_the_place_of_what_was_said_of_single_ones() {
    let mut given = Given::agents();
    let in_shop = || kind("", "ConfigMap", "configmaps", "shop");
    let blind = Word::KindBlind { of: in_shop(), reason: "no".to_owned(), missing: None };
    given.says(vec![blind]);
    assert!(given.fold.observed[&AGENT].blind("", "ConfigMap", "shop").is_some());
    given.says(vec![listed(maps(), 1)]);
    assert!(given.fold.observed[&AGENT].blind("", "ConfigMap", "shop").is_none());
    given.says(vec![listed(in_shop(), 1), Word::KindDropped { of: maps(), why: Gone::KindGone }]);
    assert!(given.fold.observed[&AGENT].kinds.is_empty());
}

#[test]
fn a_name_that_was_given_again_is_another_object_whether_the_first_ones_end_was_seen_or_not() {
    let mut given = Given::agents();
    let first = config("shop/a", json!({}));
    let second = config("shop/a", json!({"metadata": {"uid": "uid-again"}}));
    given.says(vec![seen(&first)]);
    assert_eq!(Given::whats(&given.says(vec![seen(&second)])), ["vanished uid-a", "first-seen uid-again"]);
    assert!(given.says(vec![gone(&first)]).is_empty(), "its end comes late and touches nothing");
    assert_eq!(given.there(), ["a uid-again"]);
}

#[test]
fn two_kinds_with_one_uid_are_two_objects() {
    let mut given = Given::agents();
    let of = |api_version: &str, kind: &str, state: u8| {
        let rest = json!({"metadata": {"uid": "uid-shared", "annotations": {"n": state}}});
        object(api_version, kind, "shop", rest)
    };
    let (namespace, project) = (of("v1", "Namespace", 1), of("project.openshift.io/v1", "Project", 1));
    let owned =
        crate::model::given::below(config("shop/a", json!({})), "project.openshift.io/v1", "Project", "shop");
    let mut owned = owned;
    owned["metadata"]["ownerReferences"][0]["uid"] = json!("uid-shared");
    given.says(vec![seen(&namespace), seen(&project), seen(&owned)]);
    let kinds = |given: &Given| {
        let filter =
            events::requests::index::ObjectFilter { name: Some("shop".to_owned()), ..Default::default() };
        given.look(|view| {
            let matcher = crate::model::Matcher::read(&filter, view).unwrap();
            let lines = matcher.walk(view, None).map(|record| view.line(record));
            lines.map(|line| format!("{} {}", line.identity.kind, line.uid)).collect::<Vec<_>>()
        })
    };
    assert_eq!(kinds(&given), ["Namespace uid-shared", "Project uid-shared"]);
    assert_eq!(given.says(vec![seen(&namespace), seen(&project), kept(&project)]), [], "nothing changed");
    let project_slot = given.fold.index.by_uid(AGENT, "uid-shared/Project.project.openshift.io").unwrap();
    let child = given.fold.index.by_uid(AGENT, "uid-a").unwrap();
    let record = given.fold.index.get(child).unwrap();
    assert_eq!(crate::model::judge::controller_of(&given.fold.index, record), Some(project_slot));
    let sources = given.fold.index.sources(given.fold.index.get(project_slot).unwrap());
    assert_eq!(sources.len(), 1);
    assert_eq!(given.says(vec![seen(&of("v1", "Namespace", 2))]).len(), 1);
    given.says(vec![gone(&namespace)]);
    assert_eq!(kinds(&given), ["Project uid-shared"]);
    assert_eq!(given.says(vec![seen(&of("project.openshift.io/v1", "Project", 3))])[0].what, What::Changed);
}

#[test]
fn a_digest_without_a_body_is_there_until_the_body_comes() {
    let mut given = Given::agents();
    let (known, newer) = (pod("shop/a", json!({})), pod("shop/a", json!({"status": {"phase": "Running"}})));
    assert!(given.says(vec![kept(&known)]).is_empty());
    assert_eq!(given.there(), ["a uid-a"]);
    let slot = given.fold.index.by_uid(AGENT, "uid-a").unwrap();
    assert_eq!(given.fold.index.get(slot).unwrap().own.state, HealthState::Unknown);
    assert_eq!(Given::whats(&given.says(vec![seen(&known)])), ["first-seen uid-a"]);
    given.says(vec![kept(&newer)]);
    assert!(given.fold.index.get(slot).unwrap().awaits_body, "a newer state is known of");
    assert_eq!(Given::whats(&given.says(vec![seen(&newer)])), ["changed uid-a"]);
    assert!(!given.fold.index.get(slot).unwrap().awaits_body);
    let unseen = pod("shop/b", json!({}));
    given.says(vec![kept(&unseen)]);
    assert!(given.says(vec![gone(&unseen)]).is_empty(), "nothing is kept of it");
    assert_eq!(given.fold.index.len(), 1);
}

#[test]
fn a_body_that_could_not_be_read_is_taken_once_it_can_be() {
    let mut given = Given::agents();
    let body = pod("shop/a", json!({"status": {"phase": "Succeeded"}}));
    let large = || match seen(&body) {
        Word::ObjectSeen { mut object } => {
            object.body = ObjectBody::Blob { blob: None, bytes: 9 };
            Word::ObjectSeen { object }
        }
        other => other,
    };
    assert_eq!(Given::whats(&given.says(vec![large(), large()])), ["first-seen uid-a"], "told once");
    let state = |given: &Given| {
        let slot = given.fold.index.by_uid(AGENT, "uid-a").unwrap();
        given.fold.index.get(slot).unwrap().own.state
    };
    assert_eq!(state(&given), HealthState::Unknown);
    given.says(vec![seen(&body), seen(&body)]);
    assert_eq!((state(&given), given.changes.len()), (HealthState::Healthy, 2));
}

#[test]
fn a_gap_is_marked_in_the_history_of_what_changes_behind_it() {
    let mut given = Given::agents();
    let states: Vec<_> = (0..3).map(|number| config("shop/a", json!({"data": {"n": number}}))).collect();
    given.says(vec![seen(&states[0]), seen(&config("shop/b", json!({})))]);
    let (from, to) = ("1".to_owned(), String::new());
    given.says(vec![Word::ObjectsGap { of: maps(), from, to, dropped: 0 }]);
    assert_eq!(Given::whats(&given.says(vec![seen(&states[1])])), ["gap uid-a", "changed uid-a"]);
    assert_eq!(Given::whats(&given.says(vec![seen(&states[2])])), ["changed uid-a"], "said once");
}

#[test]
fn a_gap_counts_also_in_one_record_with_the_states_before_and_behind_it() {
    let states: Vec<_> = (0..4).map(|number| config("shop/a", json!({"data": {"n": number}}))).collect();
    let gap = || {
        let (from, to) = ("1".to_owned(), String::new());
        Word::ObjectsGap { of: maps(), from, to, dropped: 1 }
    };
    let mut before = Given::agents();
    let changes = before.says(vec![seen(&states[0]), gap(), seen(&states[1])]);
    assert_eq!(Given::whats(&changes), ["first-seen uid-a", "gap uid-a", "changed uid-a"]);
    let mut behind = Given::agents();
    behind.says(vec![seen(&states[0])]);
    let changes = behind.says(vec![seen(&states[1]), gap(), seen(&states[2]), seen(&states[3])]);
    let whats = ["changed uid-a", "gap uid-a", "changed uid-a", "changed uid-a"];
    assert_eq!(Given::whats(&changes), whats, "an agent that tells of it behind the state");
    let ended = behind.says(vec![gap(), gone(&states[3])]);
    assert_eq!(Given::whats(&ended), ["gap uid-a", "deleted uid-a"]);
}

#[test]
fn a_new_epoch_is_a_gap_and_what_an_earlier_one_listed_does_not_count() {
    let mut given = Given::agents();
    let (one, other) = (config("shop/a", json!({})), config("shop/a", json!({"data": {"x": "1"}})));
    given.says(vec![seen(&one), listed(maps(), 1)]);
    let changes =
        given.apply(AGENT, batch(AGENT, 2, 1, vec![seen(&other), seen(&config("shop/b", json!({})))]));
    assert_eq!(Given::whats(&changes), ["gap uid-a", "changed uid-a", "first-seen uid-b"]);
    let changes = given.apply(
        AGENT,
        batch(AGENT, 2, 3, vec![listed(maps(), 1), seen(&one), seen(&config("shop/c", json!({})))]),
    );
    assert_eq!(Given::whats(&changes), ["changed uid-a", "created uid-c"]);
}

#[test]
fn a_fold_that_begins_behind_the_first_batches_of_an_agent_goes_on_with_what_there_is() {
    let mut given = Given::agents();
    let (one, other) = (config("shop/a", json!({})), config("shop/a", json!({"data": {"x": "1"}})));
    given.apply(AGENT, batch(AGENT, 3, 40, vec![seen(&one)]));
    assert!(given.there().is_empty(), "the log has its beginning, so something is to come before it");
    let mut given = Given::agents();
    given.misses_beginning = true;
    assert_eq!(
        Given::whats(&given.apply(AGENT, batch(AGENT, 3, 40, vec![seen(&one)]))),
        ["first-seen uid-a"]
    );
    assert_eq!(
        (given.there(), given.fold.observed[&AGENT].gap.is_some()),
        (vec!["a uid-a".to_owned()], true)
    );
    assert_eq!(Given::whats(&given.apply(AGENT, batch(AGENT, 3, 41, vec![seen(&other)]))), ["changed uid-a"]);
    given.apply(AGENT, batch(AGENT, 3, 43, vec![seen(&one)]));
    assert_eq!(given.there().len(), 1, "later a hole waits, as ever");
}

#[test]
fn what_is_given_up_is_a_gap_in_every_kind() {
    let mut given = Given::agents();
    let (one, other) = (config("shop/a", json!({})), config("shop/a", json!({"data": {"x": "1"}})));
    given.apply(AGENT, batch(AGENT, 1, 1, vec![seen(&one)]));
    let mut changes = Vec::new();
    for number in 0..300_u64 {
        changes.extend(given.apply(AGENT, batch(AGENT, 1, 3 + number, vec![seen(&other)])));
    }
    assert_eq!(Given::whats(&changes), ["gap uid-a", "changed uid-a"]);
}

#[test]
fn a_blind_kind_is_told_until_it_is_listed() {
    let mut given = Given::agents();
    let blind = |reason: &str| Word::KindBlind { of: maps(), reason: reason.to_owned(), missing: None };
    given.says(vec![blind("forbidden"), blind("still forbidden")]);
    let kinds = |given: &Given| given.fold.observed[&AGENT].kinds.values().next().unwrap().clone();
    assert_eq!(kinds(&given).blind.unwrap().reason, "still forbidden");
    given.says(vec![listed(maps(), 1)]);
    assert!(kinds(&given).blind.is_none() && kinds(&given).listed_at.is_some());
}

#[test]
fn what_is_not_known_counts_in_the_sequence() {
    let mut given = Given::agents();
    given.says(vec![Word::Gap { dropped: 1 }]);
    given.says(vec![seen(&config("shop/a", json!({})))]);
    assert_eq!(given.there(), ["a uid-a"]);
}

#[test]
fn ten_thousand_objects_in_one_namespace() {
    let mut given = Given::agents();
    let objects: Vec<_> = (0..10_000).map(|number| config(&format!("shop/c{number}"), json!({}))).collect();
    for chunk in objects.chunks(500) {
        given.says(chunk.iter().map(seen).collect());
    }
    assert_eq!(given.fold.index.count(AGENT), 10_000);
    given.says(vec![listed(maps(), 10_001)]);
    assert_eq!(given.fold.index.count(AGENT), 0, "none was stated since");
}

/// A step of an agent, as a test makes them up.
#[derive(Debug, Clone)]
enum Made {
    Seen(u8, u8),
    Gone(u8),
    Listed(Vec<u8>),
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![
        4 => (0..6_u8, 0..3_u8).prop_map(|(object, state)| Made::Seen(object, state)),
        2 => (0..6_u8).prop_map(Made::Gone),
        1 => prop::collection::vec(0..6_u8, 0..6).prop_map(Made::Listed),
    ]
}

fn body(object: u8, state: u8) -> serde_json::Value {
    config(&format!("shop/o{object}"), json!({"data": {"state": state}}))
}

/// Batches of an agent, and which objects are there in the end.
fn story(agent: AgentId, steps: &[Made]) -> (Vec<ObservationBatch>, BTreeMap<u8, u8>) {
    let (mut there, mut batches, mut first) = (BTreeMap::new(), Vec::new(), 1);
    for step in steps {
        let words = match step {
            Made::Seen(object, state) => {
                there.insert(*object, *state);
                vec![seen(&body(*object, *state))]
            }
            Made::Gone(object) => match there.remove(object) {
                Some(state) => vec![gone(&body(*object, state))],
                None => vec![Word::Gap { dropped: 0 }],
            },
            Made::Listed(objects) => {
                there.retain(|object, _| objects.contains(object));
                let mut words: Vec<_> =
                    there.iter().map(|(object, state)| kept(&body(*object, *state))).collect();
                words.push(listed(maps(), first));
                words
            }
        };
        let count = words.len() as u64;
        batches.push(batch(agent, 1, first, words));
        first += count;
    }
    (batches, there)
}

/// The objects of a fold, without when they were recorded.
fn picture(given: &Given) -> Vec<String> {
    let mut found = Vec::new();
    for agent in given.fold.index.agents() {
        for slot in given.fold.index.kinds(agent).unwrap().values().flat_map(OfKind::slots) {
            let record = given.fold.index.get(slot).unwrap();
            let (uid, is_there, changes) = (&record.uid, record.is_there(), record.changes());
            found.push(format!("{agent} {uid} {:?} {is_there} {changes}", record.digest));
        }
    }
    found
}

proptest! {
    #[test]
    fn the_index_is_what_the_cluster_has_and_the_order_between_agents_does_not_matter(
        one in prop::collection::vec(made(), 0..30),
        other in prop::collection::vec(made(), 0..30),
        swaps in prop::collection::vec(any::<bool>(), 60),
        doubled in 0..30_usize,
    ) {
        let ((first, there), (second, _)) = (story(AGENT, &one), story(OTHER, &other));
        let mut in_turn = Given::agents();
        for batch in first.iter().cloned() {
            in_turn.apply(AGENT, batch);
        }
        for batch in second.iter().cloned() {
            in_turn.apply(OTHER, batch);
        }
        let mut mixed = Given::agents();
        let (mut left, mut right) = (first.iter().cloned(), second.iter().cloned());
        for swap in swaps {
            let (agent, batch) = if swap { (AGENT, left.next()) } else { (OTHER, right.next()) };
            if let Some(batch) = batch {
                mixed.apply(agent, batch);
            }
        }
        left.for_each(|batch| { mixed.apply(AGENT, batch); });
        right.for_each(|batch| { mixed.apply(OTHER, batch); });
        if let Some(again) = first.get(doubled) {
            mixed.apply(AGENT, again.clone());
        }
        prop_assert_eq!(picture(&in_turn), picture(&mixed));
        prop_assert_eq!(in_turn.fold.index.count(AGENT), there.len() as u64);
        for (object, state) in there {
            let slot = in_turn.fold.index.by_uid(AGENT, &format!("uid-o{object}")).unwrap();
            let record = in_turn.fold.index.get(slot).unwrap();
            prop_assert_eq!(record.digest, Some(digest(&body(object, state))));
        }
    }
}

/// An object whose body lies beside its record.
fn large(place: &str, blob: u128, bytes: u64) -> Word {
    let Word::ObjectSeen { mut object } = seen(&config(place, json!({}))) else { panic!("it is seen") };
    object.body = ObjectBody::Blob { blob: Some(address(blob)), bytes };
    Word::ObjectSeen { object }
}

fn address(number: u128) -> events::BlobDigest {
    events::BlobDigest(Sha256::of(&number.to_be_bytes()).0)
}

#[test]
fn many_objects_that_name_one_large_body_share_it_and_are_limited_together() {
    let bytes = crate::model::LONGEST_BODY;
    let body = Bytes::from(format!("{{\"data\":\"{}\"}}", "x".repeat(bytes as usize - 20)));
    let words: Vec<Word> = (0..100).map(|number| large(&format!("shop/c{number}"), 1, bytes)).collect();
    let mut given = Given::agents();
    let batch = batch(AGENT, 1, 1, words);
    assert_eq!(given.fold.wanted(AGENT, &batch).blobs, [address(1)], "it is fetched once");
    given.bodies = Bodies::of(BTreeMap::from([(address(1), Some(body.clone()))]));
    let changes = given.apply(AGENT, batch.clone());
    let known: Vec<&Bytes> = changes.iter().filter_map(|change| change.body.as_ref()).collect();
    assert_eq!((changes.len(), known.len()), (100, 16), "64 MiB, and no more");
    assert!(known.iter().all(|known| known.as_ptr() == body.as_ptr()), "none is a copy");
    let slot = given.fold.index.by_uid(AGENT, "uid-c99").unwrap();
    let record = given.fold.index.get(slot).unwrap();
    assert!(record.awaits_body && record.own.message.contains("too many large bodies"), "{record:?}");
    let again = given.fold.wanted(AGENT, &batch);
    assert_eq!(again.blobs, [address(1)], "the others are still to come");
}

#[test]
fn a_body_that_is_not_there_is_unknown_with_the_reason_and_one_that_is_known_is_not_fetched_again() {
    let mut given = Given::agents();
    given.bodies = Bodies::of(BTreeMap::from([
        (address(1), None),
        (address(2), Some(Bytes::from(r#"{"apiVersion":"v1","kind":"ConfigMap"}"#))),
    ]));
    given.says(vec![large("shop/a", 1, 9), large("shop/b", 2, 9), large("shop/c", 3, u64::MAX)]);
    let message = |uid: &str| {
        let slot = given.fold.index.by_uid(AGENT, uid).unwrap();
        given.fold.index.get(slot).unwrap().own.message.to_string()
    };
    assert_eq!(message("uid-a"), "its body is not in the store");
    assert_eq!(message("uid-b"), "");
    assert!(message("uid-c").contains("longer than 4 MiB"));
    let again = batch(AGENT, 1, 4, vec![large("shop/a", 1, 9), large("shop/b", 2, 9)]);
    assert_eq!(given.fold.wanted(AGENT, &again).blobs, [address(1)]);
}

#[test]
fn what_waits_is_fetched_once_it_is_folded() {
    let mut given = Given::agents();
    given.says(vec![seen(&config("shop/first", json!({})))]);
    let early = batch(AGENT, 1, 3, vec![large("shop/a", 1, 9)]);
    assert!(given.fold.wanted(AGENT, &early).blobs.is_empty(), "it waits");
    given.apply(AGENT, early);
    let missing = batch(AGENT, 1, 2, vec![seen(&config("shop/b", json!({})))]);
    assert_eq!(given.fold.wanted(AGENT, &missing).blobs, [address(1)]);
    given.bodies = Bodies::of(BTreeMap::from([(address(1), Some(Bytes::from("{}")))]));
    let changes = given.apply(AGENT, missing);
    assert_eq!(Given::whats(&changes), ["first-seen uid-b", "first-seen uid-a"]);
    assert!(changes[1].body.is_some());
}

#[test]
fn nothing_is_kept_of_an_event_that_is_gone() {
    let mut given = Given::agents();
    let event = |name: &str| object("v1", "Event", &format!("shop/{name}"), json!({"reason": "Pulled"}));
    assert_eq!(given.says(vec![seen(&event("a")), seen(&event("b"))]).len(), 2);
    assert!(given.says(vec![gone(&event("a")), seen(&event("c")), gone(&event("c"))]).is_empty());
    assert_eq!(given.there(), ["b uid-b"]);
    assert_eq!(given.fold.index.len(), 1);
}

#[test]
fn objects_beyond_the_limit_are_not_kept_while_those_that_are_go_on() {
    let mut given = Given::agents();
    given.fold = Fold::with_limit(2);
    let [a, b, c] = ["shop/a", "shop/b", "shop/c"].map(|place| config(place, json!({})));
    given.says(vec![seen(&a), seen(&b)]);
    assert!(!given.fold.observed[&AGENT].is_full, "two fit");
    assert!(given.says(vec![seen(&c), kept(&config("shop/d", json!({})))]).is_empty());
    assert_eq!(given.there(), ["a uid-a", "b uid-b"]);
    assert!(given.fold.observed[&AGENT].is_full, "that is told");
    let changed = given.says(vec![seen(&config("shop/a", json!({"data": {"x": "1"}})))]);
    assert_eq!(Given::whats(&changed), ["changed uid-a"], "what is kept goes on");
    assert_eq!(Given::whats(&given.says(vec![gone(&b)])), ["deleted uid-b"]);
    assert!(given.says(vec![seen(&c)]).is_empty(), "the history of what is gone takes room until it leaves");
    given.apply(OTHER, batch(OTHER, 1, 1, vec![seen(&c)]));
    assert!(!given.fold.observed[&OTHER].is_full, "another agent has room of its own");
    // An agent's next list makes up for what was left out, once there is room.
    let slot = given.fold.index.by_uid(AGENT, "uid-b").unwrap();
    given.fold.index.remove(slot);
    given.apply(AGENT, batch(AGENT, 2, 1, vec![seen(&a), seen(&c), listed(maps(), 1)]));
    assert_eq!(given.fold.index.kept(AGENT), 2);
    assert!(!given.fold.observed[&AGENT].is_full);
}
