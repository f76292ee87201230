use tunnel::wire::{EventFrame, MAXIMUM_FRAME_BYTES};

use super::*;

const AT: Timestamp = Timestamp(1);
const START: Acknowledged = Acknowledged { epoch: 0, sequence: 0 };

fn kind(plural: &str) -> Arc<ObservedKind> {
    let [group, version, kind, namespace] = ["", "v1", plural, ""].map(str::to_owned);
    Arc::new(ObservedKind { group, version, kind, plural: plural.to_owned(), namespaced: true, namespace })
}

fn head(uid: &str, version: &str) -> Head {
    let [uid, namespace, name, version] = [uid, "shop", uid, version].map(str::to_owned);
    Head { uid, namespace, name, version }
}

fn seen(of: &ObservedKind, uid: &str, version: &str, body: String) -> Observed {
    let Observed::ObjectGone { identity, uid, resource_version, .. } =
        gone(of, head(uid, version), Gone::Deleted)
    else {
        unreachable!()
    };
    let digest = Sha256::of(body.as_bytes());
    let body = if body.len() > LARGEST_BODY {
        ObjectBody::Blob { blob: None, bytes: body.len() as u64 }
    } else {
        ObjectBody::Json(body)
    };
    Observed::ObjectSeen {
        object: Box::new(events::observation::SeenObject {
            identity,
            uid,
            resource_version,
            digest,
            body,
            writers: Vec::new(),
        }),
    }
}

fn begun() -> ObjectQueue {
    let mut queue = ObjectQueue::default();
    queue.begin(3);
    queue
}

fn put(queue: &mut ObjectQueue, of: &Arc<ObservedKind>, uid: &str, version: &str) -> bool {
    let what = seen(of, uid, version, format!("body {version}"));
    queue.put(of, uid, Observation { at: AT, what }).is_ok()
}

fn listed(of: &ObservedKind, since: u64) -> Observation {
    let what = Observed::KindListed { of: of.clone(), resource_version: "9".to_owned(), since, objects: 1 };
    Observation { at: AT, what }
}

/// Each as `kind uid version`.
fn told(batch: Option<Batch>) -> Vec<String> {
    let describe = |one: Observation| match one.what {
        Observed::ObjectSeen { object } => format!("seen {} {}", object.uid, object.resource_version),
        Observed::ObjectKept { uid, .. } => format!("kept {uid}"),
        Observed::ObjectGone { uid, why, .. } => format!("gone {uid} {why:?}"),
        Observed::ObjectsGap { from, to, dropped, .. } => format!("gap {from} {to} {dropped}"),
        Observed::KindBlind { reason, .. } => format!("blind {reason}"),
        Observed::KindDropped { of, .. } => format!("dropped {of}"),
        what => what.kind().to_owned(),
    };
    batch.into_iter().flat_map(|batch| batch.observations).map(describe).collect()
}

#[test]
fn the_newest_state_waits_in_the_place_of_the_former_one_and_the_loss_is_told() {
    let (mut queue, pods) = (begun(), kind("pods"));
    assert!(put(&mut queue, &pods, "a", "1") && put(&mut queue, &pods, "b", "2"));
    queue.mark(&pods, listed(&pods, 1));
    assert!(put(&mut queue, &pods, "a", "5") && put(&mut queue, &pods, "a", "6"));
    let what = gone(&pods, head("b", "7"), Gone::Deleted);
    queue.put(&pods, "b", Observation { at: AT, what }).unwrap();
    let expected = ["gap 1 6 2", "seen a 6", "seen b 2", "kind-listed", "gone b Deleted"];
    assert_eq!(told(queue.next(START)), expected);
    assert!(put(&mut queue, &pods, "a", "8"));
    assert_eq!(told(queue.next(Acknowledged { epoch: 3, sequence: 5 })), ["seen a 8"], "what was sent stays");
}

#[test]
fn the_end_of_an_object_takes_the_place_of_its_state_where_much_waits() {
    let (mut queue, pods) = (begun(), kind("pods"));
    let large = seen(&pods, "large", "1", "x".repeat(300 << 10));
    while queue.bytes() < STATES_KEPT_BYTES {
        let uid = queue.unsent().to_string();
        queue.put(&pods, &uid, Observation { at: AT, what: large.clone() }).unwrap();
    }
    let waiting = queue.unsent();
    assert!(put(&mut queue, &pods, "a", "1"));
    let what = gone(&pods, head("a", "2"), Gone::Deleted);
    queue.put(&pods, "a", Observation { at: AT, what }).unwrap();
    assert_eq!(queue.unsent(), waiting + 2, "the end, and the gap that counts the state");
}

#[test]
fn that_an_object_is_as_it_was_replaces_nothing() {
    let (mut queue, pods) = (begun(), kind("pods"));
    assert!(put(&mut queue, &pods, "a", "1"));
    let kept = |uid: &str| {
        let Observed::ObjectGone { identity, uid, .. } = gone(&pods, head(uid, "1"), Gone::Deleted) else {
            unreachable!()
        };
        Observation { at: AT, what: Observed::ObjectKept { identity, uid, digest: Sha256::of(b"") } }
    };
    queue.put(&pods, "a", kept("a")).unwrap();
    queue.put(&pods, "b", kept("b")).unwrap();
    assert!(put(&mut queue, &pods, "b", "2"));
    assert_eq!(told(queue.next(START)), ["seen a 1", "seen b 2"], "no state was lost");
}

#[test]
fn the_same_object_as_two_kinds_is_told_twice() {
    let (mut queue, old, new) = (begun(), kind("old"), kind("new"));
    assert!(put(&mut queue, &old, "a", "1") && put(&mut queue, &new, "a", "1"));
    assert!(put(&mut queue, &new, "a", "2"));
    assert_eq!(told(queue.next(START)), ["seen a 1", "gap 1 2 1", "seen a 2"]);
}

#[test]
fn a_reader_who_comes_back_hears_the_same_again_until_it_is_durable() {
    let (mut queue, pods) = (begun(), kind("pods"));
    for number in 0..500 {
        assert!(put(&mut queue, &pods, &number.to_string(), "1"));
    }
    assert_eq!(queue.next_sequence(), 1);
    let first = queue.next(START).unwrap();
    assert_eq!((first.epoch, first.first, first.last()), (3, 1, 200));
    assert_eq!(queue.next_sequence(), 201);
    assert_eq!(queue.next(START), Some(first.clone()));
    let second = queue.next(Acknowledged { epoch: 3, sequence: 200 }).unwrap();
    assert_eq!((second.first, second.last()), (201, 400));
    queue.acknowledge(Acknowledged { epoch: 2, sequence: 400 });
    assert_eq!(queue.next(START), Some(first), "another epoch's cursor");
    queue.acknowledge(Acknowledged { epoch: 3, sequence: 300 });
    assert_eq!(queue.next(START).map(|batch| batch.first), Some(301));
    queue.begin(3);
    assert_eq!(queue.next_sequence(), 501, "the same epoch goes on");
    queue.begin(4);
    assert_eq!((queue.bytes(), queue.next_sequence(), queue.next(START)), (0, 1, None));
}

#[test]
fn what_does_not_fit_is_given_back_and_fits_once_something_is_durable() {
    let (mut queue, pods) = (begun(), kind("pods"));
    let large = |uid: &str| seen(&pods, uid, "1", "x".repeat(300 << 10));
    let mut count = 0;
    while queue
        .put(&pods, &count.to_string(), Observation { at: AT, what: large(&count.to_string()) })
        .is_ok()
    {
        count += 1;
    }
    assert!(queue.bytes() <= MAXIMUM_BYTES && count > 40, "{count}");
    queue.put(&pods, "0", Observation { at: AT, what: large("0") }).expect("in the place of another one");
    let mut cursor = START;
    let mut got = 0;
    while let Some(batch) = queue.next(cursor) {
        got += batch.observations.len();
        cursor = Acknowledged { epoch: batch.epoch, sequence: batch.last() };
        let frame = events::encode(&EventFrame::Batch(batch)).unwrap();
        assert!(frame.len() <= MAXIMUM_FRAME_BYTES, "{}", frame.len());
    }
    assert!(got < count, "not durable: sending waits");
    queue.acknowledge(cursor);
    assert!(queue.put(&pods, "new", Observation { at: AT, what: large("new") }).is_ok());
    assert!(queue.next(cursor).is_some());
}

#[test]
fn of_a_kind_that_goes_the_end_of_each_object_is_told_and_nothing_that_waited() {
    let (mut queue, pods, maps) = (begun(), kind("pods"), kind("maps"));
    assert!(put(&mut queue, &pods, "a", "1") && put(&mut queue, &maps, "b", "1"));
    queue.drop_kind(&pods, Gone::KindGone, [head("a", "1"), head("c", "1")].into_iter(), AT);
    assert!(put(&mut queue, &pods, "a", "2"), "it came back");
    let expected = ["seen b 1", "gone a KindGone", "gone c KindGone", "dropped pods", "seen a 2"];
    assert_eq!(told(queue.next(START)), expected);
}

#[test]
fn a_body_that_is_too_large_is_known_by_its_digest_until_it_is_durable() {
    let (mut queue, pods) = (begun(), kind("pods"));
    let body = "x".repeat(LARGEST_BODY + 1);
    let digest = Sha256::of(body.as_bytes());
    queue.put(&pods, "a", Observation { at: AT, what: seen(&pods, "a", "1", body) }).unwrap();
    assert!(put(&mut queue, &pods, "b", "1"));
    assert_eq!(queue.large(&digest).map(|identity| identity.name.as_str()), Some("a"));
    assert_eq!(queue.large(&Sha256::of(b"body 1")), None, "that one is in the frame");
    let batch = queue.next(START).unwrap();
    assert!(queue.large(&digest).is_some());
    queue.acknowledge(Acknowledged { epoch: 3, sequence: batch.last() });
    assert_eq!(queue.large(&digest), None);
}

#[test]
fn nothing_is_told_before_the_first_epoch() {
    let (mut queue, pods) = (ObjectQueue::default(), kind("pods"));
    assert!(put(&mut queue, &pods, "a", "1"));
    queue.mark(&pods, listed(&pods, 1));
    queue.gap(&pods, "1", "2", 1, AT);
    assert_eq!((queue.bytes(), queue.unsent(), queue.next(START)), (0, 0, None));
}

fn blind(of: &ObservedKind, reason: &str) -> Observation {
    let what = Observed::KindBlind { of: of.clone(), reason: reason.to_owned(), missing: None };
    Observation { at: AT, what }
}

fn all_kinds() -> Observation {
    Observation { at: AT, what: Observed::KindsSettled { silent: Vec::new() } }
}

#[test]
fn a_gap_moves_before_the_first_state_that_follows_a_loss() {
    let (mut queue, pods, maps) = (begun(), kind("pods"), kind("maps"));
    assert!(put(&mut queue, &maps, "z", "1") && put(&mut queue, &pods, "a", "4"));
    assert!(put(&mut queue, &pods, "b", "3"));
    queue.gap(&pods, "6", "", 0, AT);
    assert!(put(&mut queue, &pods, "c", "9"));
    assert_eq!(queue.unsent(), 5);
    assert!(put(&mut queue, &pods, "b", "12"));
    queue.gap(&pods, "10", "11", 2, AT);
    let expected = ["seen z 1", "seen a 4", "gap 3 12 0", "seen b 12", "seen c 9"];
    assert_eq!(told(queue.next(START)), expected);
    queue.gap(&pods, "12", "14", 1, AT);
    let next = Acknowledged { epoch: 3, sequence: 5 };
    assert_eq!(told(queue.next(next)), ["gap 12 14 1"], "what was sent stays");
}

#[test]
fn of_a_kind_that_is_forgotten_no_word_waits() {
    let (mut queue, pods, maps) = (begun(), kind("pods"), kind("maps"));
    queue.mark(&pods, listed(&pods, 1));
    queue.mark(&maps, blind(&maps, "a"));
    queue.mark(&pods, blind(&pods, "b"));
    queue.settle(all_kinds());
    assert!(queue.is_settled());
    queue.forget_kind(&pods);
    assert!(!queue.is_settled(), "pods are not told of any more");
    assert_eq!(told(queue.next(START)), ["blind a"]);
    queue.settle(all_kinds());
    queue.mark(&pods, blind(&pods, "c"));
    queue.forget_kind(&maps);
    queue.drop_kind(&pods, Gone::KindGone, std::iter::empty(), AT);
    queue.settle(all_kinds());
    let next = Acknowledged { epoch: 3, sequence: 1 };
    assert_eq!(told(queue.next(next)), ["dropped pods", "kinds-settled"]);
    queue.forget_kind(&maps);
    assert!(queue.is_settled(), "it was sent");
}

#[test]
fn words_of_a_kind_that_follow_each_other_do_not_pile_up() {
    let (mut queue, pods, maps) = (begun(), kind("pods"), kind("maps"));
    for number in 0..100 {
        queue.mark(&pods, blind(&pods, &format!("reason {number}")));
        queue.mark(&maps, blind(&maps, "m"));
        queue.mark(&maps, listed(&maps, 1));
    }
    queue.settle(all_kinds());
    let bytes = queue.bytes();
    for _ in 0..100 {
        queue.mark(&maps, blind(&maps, "n"));
        queue.mark(&maps, listed(&maps, 2));
        queue.mark(&pods, listed(&pods, 2));
    }
    assert!(queue.bytes() <= bytes + 3 * ENVELOPE_BYTES);
    let expected = ["blind reason 99", "kind-listed", "kinds-settled", "kind-listed", "kind-listed"];
    assert_eq!(told(queue.next(START)), expected);
    queue.acknowledge(Acknowledged { epoch: 3, sequence: 5 });
    assert_eq!(queue.bytes(), 0);
}
