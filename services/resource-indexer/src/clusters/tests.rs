use uuid::Uuid;

use super::*;

const AGENT: AgentId = AgentId(Uuid::from_u128(1));
const OTHER: AgentId = AgentId(Uuid::from_u128(2));

fn key(agent: AgentId, identity: &[u8]) -> Key {
    Key {
        agent,
        organization: OrganizationId(Uuid::nil()),
        actor: Actor::service("test"),
        identity: Some(Sha256::of(identity)),
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn known() -> ClusterRights {
    ClusterRights::Known(Arc::default())
}

/// Objects of the first agent changed: API group, kind and namespace of each.
fn note(clusters: &Clusters, listed: usize, changed: &[(&str, &str, &str)], now: u64) {
    let changed: Vec<(Kind, Text)> =
        changed.iter().map(|(group, kind, place)| (Kind::new(group, kind), Text::from(*place))).collect();
    clusters.note(AGENT, listed, changed.iter().map(|(kind, place)| (kind, place)), seconds(now));
}

/// Begins to ask, at that time; the sender goes with the task that asks.
fn begin(clusters: &Clusters, key: &Key, now: u64) -> (u64, watch::Sender<Option<ClusterRights>>) {
    match clusters.find(key, seconds(now)) {
        Found::ToAsk(number, sender, _) => (number, sender),
        Found::Known(rights) => panic!("known: {rights:?}"),
        Found::UnderWay(_) => panic!("under way"),
    }
}

fn is_known(clusters: &Clusters, key: &Key, now: u64) -> bool {
    matches!(clusters.find(key, seconds(now)), Found::Known(_))
}

/// Asks and hears at that time.
fn ask(clusters: &Clusters, key: &Key, now: u64, rights: &ClusterRights) {
    let (number, _sender) = begin(clusters, key, now);
    clusters.answered(key, (number, seconds(now)), seconds(now), rights);
}

#[test]
fn an_answer_counts_for_its_time_and_is_asked_for_once_at_a_time() {
    let clusters = Clusters::default();
    let key = key(AGENT, b"a");
    let (number, sender) = begin(&clusters, &key, 0);
    let Found::UnderWay(waiting) = clusters.find(&key, seconds(1)) else { panic!("asked twice") };
    assert_eq!(waiting.until, WAITED_FOR, "as long as the asker");
    clusters.answered(&key, (number, seconds(0)), seconds(2), &known());
    sender.send_replace(Some(known()));
    assert!(waiting.answer.borrow().is_some());
    let last = COUNTS_FOR.as_secs() - 1;
    assert!(is_known(&clusters, &key, 2) && is_known(&clusters, &key, last));
    let (_, _sender) = begin(&clusters, &key, COUNTS_FOR.as_secs());
}

#[test]
fn that_there_was_no_answer_counts_for_a_shorter_time() {
    let clusters = Clusters::default();
    let key = key(AGENT, b"a");
    ask(&clusters, &key, 0, &ClusterRights::Unknown("away".to_owned()));
    assert!(is_known(&clusters, &key, 4));
    let (_, _sender) = begin(&clusters, &key, UNKNOWN_COUNTS_FOR.as_secs());
}

#[test]
fn who_did_not_answer_in_time_is_asked_again_without_a_wait() {
    let clusters = Clusters::default();
    let key = key(AGENT, b"a");
    let unknown = || ClusterRights::Unknown("slow".to_owned());
    let (number, _sender) = begin(&clusters, &key, 0);
    clusters.answered(&key, (number, seconds(0)), seconds(10), &unknown());
    assert!(is_known(&clusters, &key, 14));
    let Found::ToAsk(number, _sender, waiting) = clusters.find(&key, seconds(15)) else { panic!("known") };
    assert_eq!((waiting.until, waiting.otherwise), (seconds(15), unknown()));
    // Who is quick again is waited for again.
    clusters.answered(&key, (number, seconds(15)), seconds(16), &unknown());
    let Found::ToAsk(_, _, waiting) = clusters.find(&key, seconds(30)) else { panic!("known") };
    assert_eq!(waiting.until, seconds(30).saturating_add(WAITED_FOR));
}

#[test]
fn another_identity_is_asked_about_by_itself() {
    let clusters = Clusters::default();
    ask(&clusters, &key(AGENT, b"a"), 0, &known());
    let (_, _sender) = begin(&clusters, &key(AGENT, b"b"), 1);
}

#[test]
fn what_a_cluster_said_before_its_rules_changed_does_not_count() {
    let clusters = Clusters::default();
    let (mine, others) = (key(AGENT, b"a"), key(OTHER, b"a"));
    ask(&clusters, &mine, 0, &known());
    ask(&clusters, &others, 0, &known());
    let late = begin(&clusters, &key(AGENT, b"b"), 5);
    note(&clusters, 1, &[(RULES, "Role", "shop")], 10);
    assert!(is_known(&clusters, &others, 10), "another cluster");
    // Asked before the change and answered after it.
    clusters.answered(&key(AGENT, b"b"), (late.0, seconds(5)), seconds(11), &known());
    let (_, _sender) = begin(&clusters, &key(AGENT, b"b"), 11);
    // Soon after the change an API server may not have heard of it yet.
    ask(&clusters, &mine, 11, &known());
    assert!(is_known(&clusters, &mine, 11));
    ask(&clusters, &mine, 12, &known());
    assert!(is_known(&clusters, &mine, 13) && is_known(&clusters, &mine, 71));
}

#[test]
fn what_a_cluster_has_got_is_asked_about_soon_but_not_each_moment() {
    let clusters = Clusters::default();
    let key = key(AGENT, b"a");
    let pod = |namespace| [("", "Pod", namespace)];
    note(&clusters, 1, &pod("shop"), 0);
    ask(&clusters, &key, 10, &known());
    note(&clusters, 1, &pod("shop"), 11);
    assert!(is_known(&clusters, &key, 60), "nothing that was not there before");
    let (number, _sender) = begin(&clusters, &self::key(AGENT, b"b"), 11);
    note(&clusters, 1, &pod("test"), 12);
    assert!(is_known(&clusters, &key, 14));
    let (_, _sender) = begin(&clusters, &key, 15);
    // The same of what was under way.
    clusters.answered(&self::key(AGENT, b"b"), (number, seconds(11)), seconds(13), &known());
    assert!(is_known(&clusters, &self::key(AGENT, b"b"), 15));
    let (_, _sender) = begin(&clusters, &self::key(AGENT, b"b"), 16);
    for (name, listed, grown) in [(&b"c"[..], 1, ("", "Node", "")), (b"d", 2, ("", "Pod", "shop"))] {
        ask(&clusters, &self::key(AGENT, name), 20, &known());
        note(&clusters, listed, &[grown], 21);
        let (_, _sender) = begin(&clusters, &self::key(AGENT, name), 25);
    }
}

#[test]
fn who_wants_to_know_anew_is_answered_anew_but_not_each_moment() {
    let clusters = Clusters::default();
    let key = key(AGENT, b"a");
    ask(&clusters, &key, 10, &known());
    let forget = |now| clusters.forget(key.organization, &key.actor, now);
    clusters.forget(key.organization, &Actor::service("other"), seconds(20));
    forget(Duration::from_millis(10_900));
    assert!(is_known(&clusters, &key, 11));
    forget(seconds(11));
    let (_, _sender) = begin(&clusters, &key, 11);
}

#[test]
fn a_task_that_broke_off_stands_in_nobodys_way() {
    let clusters = Clusters::default();
    let key = key(AGENT, b"a");
    drop(begin(&clusters, &key, 0));
    let (_, _sender) = begin(&clusters, &key, 1);
}

#[test]
fn what_is_remembered_and_what_is_under_way_is_limited() {
    let clusters = Clusters::default();
    let numbered = |number: usize| key(AGENT, &number.to_be_bytes());
    for number in 0..=ANSWERS {
        ask(&clusters, &numbered(number), 0, &known());
    }
    let remembered = || {
        let state = clusters.state.lock();
        (state.known.len(), state.entries)
    };
    assert_eq!(remembered(), (ANSWERS, ANSWERS));
    // The oldest ones make room.
    ask(&clusters, &numbered(ANSWERS + 1), 1, &known());
    assert!(is_known(&clusters, &numbered(ANSWERS + 1), 2));
    assert_eq!(remembered(), (ANSWERS, ANSWERS));
    clusters.remove(AGENT);
    assert_eq!(remembered(), (0, 0));
    let under_way: Vec<_> = (1..=UNDER_WAY).map(|number| begin(&clusters, &numbered(number), 100)).collect();
    let Found::Known(ClusterRights::Unknown(reason)) = clusters.find(&numbered(0), seconds(200)) else {
        panic!("one more is asked")
    };
    assert!(reason.contains("too many"), "{reason}");
    drop(under_way);
}
