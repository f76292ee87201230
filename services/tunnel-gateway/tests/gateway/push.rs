//! Desired state on its way to agents.

use std::time::Duration;

use bytes::Bytes;
use events::bundle::MAXIMUM_CONTENT_BYTES;
use events::delivery::PruneEntry;
use events::desired::{DesiredPlan, DesiredSource, DesiredState};
use events::{BlobDigest, Sha256};
use tokio::time::timeout;

use super::agent::{State, TestAgent};
use super::harness::{Gateway, agent_id, identity, instance, objects, organization, secret, source};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_gets_its_objects_and_later_only_what_changed() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let mut wanted = objects(300, "first");
    let prune = [PruneEntry { identity: identity("old"), uid: "u-1".to_owned() }];
    gateway.desire(1, 1, &wanted, &prune).await;
    let agent = gateway.connect(1, 1).await;
    let desired = agent.revision(1).await;
    assert_eq!(desired.sources[0].prune, prune);
    assert!(wanted.iter().all(|object| agent.state.lock().objects.contains_key(&Sha256::of(object))));
    let (puts, rounds) = {
        let state = agent.state.lock();
        (state.objects_put, state.desired_puts)
    };
    assert_eq!((puts, rounds), (300 + 16, 3), "pages, then objects, then taken");

    wanted[17] = objects(18, "second")[17].clone();
    gateway.desire(1, 2, &wanted, &[]).await;
    agent.revision(2).await;
    let state = agent.state.lock();
    assert_eq!(
        (state.objects_put - puts, state.desired_puts - rounds),
        (2, 1),
        "one page, one object, one round"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_took_an_empty_state_is_sent_the_first_bundle_without_being_asked() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.desire(1, 1, &[], &[]).await;
    let agent = gateway.connect(1, 1).await;
    agent.revision(1).await;
    let (puts, rounds) = {
        let state = agent.state.lock();
        (state.objects_put, state.desired_puts)
    };
    gateway.desire(1, 2, &objects(300, "first"), &[]).await;
    agent.revision(2).await;
    let state = agent.state.lock();
    assert_eq!((state.objects_put - puts, state.desired_puts - rounds), (300 + 16, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_small_travels_with_the_state_that_needs_it() {
    let gateway = Gateway::start().await;
    for (number, old, requests) in [(1, false, 1), (2, true, 2)] {
        gateway.register(number).await;
        gateway.desire(number, 1, &objects(3, "first"), &[]).await;
        let agent = gateway.connect(number, 1).await;
        agent.revision(1).await;
        let before = {
            let mut state = agent.state.lock();
            state.old = old;
            state.requests
        };
        gateway.desire(number, 2, &objects(3, "second"), &[]).await;
        agent.revision(2).await;
        let large: Vec<_> = (0..3_u8).map(|number| Bytes::from(vec![number; 100 * 1024])).collect();
        assert_eq!(agent.state.lock().requests - before, requests, "an agent that is old: {old}");
        gateway.desire(number, 3, &large, &[]).await;
        agent.revision(3).await;
        assert_eq!(
            agent.state.lock().requests - before,
            requests + 3,
            "two requests full of objects, then the state"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_none_is_not_sent() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.desire(1, 1, &objects(3, "a"), &[]).await;
    let agent = gateway.connect(1, 1).await;
    agent.revision(1).await;
    let puts = agent.state.lock().desired_puts;
    gateway.notify(1).await;
    gateway.notify(1).await;
    gateway.desire(1, 2, &objects(3, "b"), &[]).await;
    agent.revision(2).await;
    assert_eq!(agent.state.lock().desired_puts, puts + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_announced_arrives_although_another_replica_of_delivery_answers_first() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.desire(1, 1, &objects(3, "a"), &[]).await;
    let agent = gateway.connect(1, 1).await;
    agent.revision(1).await;
    let asked = gateway.asked_for_desired();
    gateway.announce(1, 2).await;
    gateway.is_asked_for_desired_after(asked).await;
    gateway.desire_silently(1, 2, &objects(3, "b"), &[]).await;
    agent.revision(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_delivery_answers_of_a_part_only_is_asked_again_of_the_rest() {
    let gateway = Gateway::start().await;
    gateway.delivery.lock().answers_at_most = Some(2);
    gateway.delivery.lock().held.send_replace(true);
    let mut agents = Vec::new();
    for number in 1..=30 {
        gateway.register(number).await;
        gateway.desire_silently(number, 1, &objects(1, &number.to_string()), &[]).await;
        agents.push(gateway.connect(number, 1).await);
    }
    gateway.delivery.lock().held.send_replace(false);
    for (number, agent) in (1..).zip(&agents) {
        assert_eq!(agent.revision(1).await.agent, agent_id(number));
    }
    let asked_at_once = gateway.delivery.lock().asked_at_once;
    assert!(asked_at_once > 2, "asked about {asked_at_once} at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_changes_the_last_arrives() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = gateway.connect(1, 1).await;
    for revision in 1..=40 {
        gateway.desire(1, revision, &objects(20, &revision.to_string()), &[]).await;
    }
    let desired = agent.revision(40).await;
    assert_eq!(desired.sources[0].pages.as_ref().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_has_everything_after_a_reconnect_is_sent_nothing_again() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.desire(1, 1, &objects(100, "a"), &[]).await;
    let first = gateway.connect(1, 1).await;
    first.revision(1).await;
    let state = std::mem::take(&mut *first.state.lock());
    let kept = State { objects: state.objects, ..State::default() };
    let second =
        TestAgent::connect_with(&gateway.world, &gateway.target(), &secret(1), instance(1), kept).await;
    second.revision(1).await;
    assert_eq!(second.state.lock().objects_put, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_comes_back_with_what_it_is_to_have_is_told_nothing_until_that_changes() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let mut wanted = objects(300, "first");
    gateway.desire(1, 1, &wanted, &[]).await;
    let first = gateway.connect(1, 1).await;
    first.revision(1).await;
    let State { objects: held, digest, .. } = std::mem::take(&mut *first.state.lock());
    let back = async |digest| {
        let state = State { objects: held.clone(), digest, ..State::default() };
        let asked = gateway.asked_for_desired();
        let (world, target) = (&gateway.world, gateway.target());
        let agent = TestAgent::connect_with(world, &target, &secret(1), instance(1), state).await;
        agent.events().await;
        gateway.is_asked_for_desired_after(asked).await;
        agent
    };
    let second = back(digest).await;
    wanted[17] = objects(18, "second")[17].clone();
    gateway.desire(1, 2, &wanted, &[]).await;
    second.revision(2).await;
    let seen = {
        let state = second.state.lock();
        (state.desired_puts, state.objects_put)
    };
    assert_eq!(seen, (1, 2), "revision 2, and what it adds");
    // Whoever comes back with something else is told all the same.
    let third = back(digest).await;
    assert_eq!(third.revision(2).await.revision, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_answers_nothing_stops_no_other() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.register(2).await;
    let mute = State { mute: true, ..State::default() };
    let mute =
        TestAgent::connect_with(&gateway.world, &gateway.target(), &secret(1), instance(1), mute).await;
    let good = gateway.connect(2, 1).await;
    for revision in 1..=3 {
        gateway.desire(1, revision, &objects(2, "x"), &[]).await;
        gateway.desire(2, revision, &objects(2, &revision.to_string()), &[]).await;
        good.revision(revision).await;
    }
    assert!(mute.state.lock().desired.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_gets_nothing_that_is_not_its_own_whatever_it_asks_for() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.register(2).await;
    let others = objects(1, "a secret of agent 2");
    gateway.desire(2, 1, &others, &[]).await;
    gateway.desire(1, 1, &objects(2, "own"), &[]).await;
    let greedy = State { greedy: Some(Sha256::of(&others[0])), ..State::default() };
    let greedy =
        TestAgent::connect_with(&gateway.world, &gateway.target(), &secret(1), instance(1), greedy).await;
    greedy.until("never asked twice", |state| (state.desired_puts >= 2).then_some(())).await;
    assert!(greedy.state.lock().objects.is_empty());
    greedy.state.lock().greedy = None;
    greedy.revision(1).await;
    assert!(!greedy.state.lock().objects.contains_key(&Sha256::of(&others[0])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_whose_bundle_cannot_be_read_stops_no_other() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let mut plan = gateway.plan(1, 1, &objects(3, "good"), &[]).await;
    let mut broken = plan.sources[0].clone();
    broken.bundle = Some(BlobDigest([7; 32]));
    plan.sources.insert(0, broken);
    gateway.delivery.lock().plans.insert(agent_id(1), plan);
    let agent = gateway.connect(1, 1).await;
    let desired = agent.revision(1).await;
    assert_eq!(desired.sources[0].pages, None, "nothing of it is applied and nothing pruned");
    let reason = desired.sources[0].refused.as_deref().unwrap();
    assert!(reason.starts_with("its bundle cannot be read by the server"), "{reason}");
    assert!(desired.sources[1].pages.is_some());
    gateway.desire(1, 2, &objects(3, "good"), &[]).await;
    assert!(agent.revision(2).await.sources[0].pages.is_some());
}

/// The plan of agent 1 with these sources, numbered from 1.
async fn plan_of(gateway: &Gateway, revision: u64, sources: &[(&[Bytes], &[PruneEntry])]) -> DesiredPlan {
    let mut whole = gateway.plan(1, revision, &[], &[]).await;
    whole.sources.clear();
    for (number, (objects, prune)) in (1..).zip(sources) {
        let mut planned = gateway.plan(1, revision, objects, prune).await.sources.remove(0);
        planned.head.source = source(number);
        whole.sources.push(planned);
    }
    whole
}

/// Of each source of a state: whether it has a bundle, and why not.
fn bundles(desired: &DesiredState) -> Vec<(bool, String)> {
    let of = |source: &DesiredSource| (source.pages.is_some(), source.refused.clone().unwrap_or_default());
    desired.sources.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_sent_stops_its_source_only() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let large = [Bytes::from(vec![b'x'; MAXIMUM_CONTENT_BYTES + 1])];
    let largest = [Bytes::from(vec![b'y'; MAXIMUM_CONTENT_BYTES])];
    let push = async |revision, sources: &[(&[Bytes], &[PruneEntry])]| {
        let plan = plan_of(&gateway, revision, sources).await;
        gateway.delivery.lock().plans.insert(agent_id(1), plan);
        gateway.notify(1).await;
    };
    // To an agent of which nothing is known, and to one that took a state before.
    push(1, &[(&large, &[]), (&objects(3, "good"), &[]), (&largest, &[])]).await;
    let agent = gateway.connect(1, 1).await;
    for revision in 1..=2 {
        if revision > 1 {
            push(revision, &[(&large, &[]), (&objects(3, "better"), &[]), (&largest, &[])]).await;
        }
        let [first, second, third] = bundles(&agent.revision(revision).await).try_into().unwrap();
        assert!(!first.0 && first.1.contains("4194305 bytes, more than the maximum of 4194304"), "{first:?}");
        assert_eq!((second, third), ((true, String::new()), (true, String::new())));
    }
    // Once it can be sent, it is.
    push(3, &[(&objects(1, "mended"), &[]), (&objects(3, "better"), &[]), (&largest, &[])]).await;
    assert!(bundles(&agent.revision(3).await).iter().all(|(has, _)| *has));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_cannot_be_sent_stops_its_source_only() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let entry = |number: usize| PruneEntry {
        identity: identity("a"),
        uid: format!("{number}{}", "x".repeat(1 << 20)),
    };
    let endless: Vec<PruneEntry> = (0..20).map(entry).collect();
    let plan =
        plan_of(&gateway, 1, &[(&objects(3, "good"), &endless[..13]), (&objects(1, "x"), &endless)]).await;
    gateway.delivery.lock().plans.insert(agent_id(1), plan);
    let agent = gateway.connect(1, 1).await;
    let desired = agent.revision(1).await;
    let [first, second] = bundles(&desired).try_into().unwrap();
    assert_eq!(first, (true, String::new()));
    assert_eq!(desired.sources[0].prune.len(), 13);
    assert!(!second.0 && second.1.contains("more than the maximum of 33554432"), "{second:?}");
    assert!(desired.sources[1].prune.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_instance_of_an_agent_gets_the_state_and_the_news_of_a_new_applier() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.desire(1, 1, &objects(3, "a"), &[]).await;
    let (first, second) = (gateway.connect(1, 1).await, gateway.connect(1, 2).await);
    for agent in [&first, &second] {
        agent.revision(1).await;
    }
    for (holder, number) in [(&first, 1), (&second, 2)] {
        holder.lease().await;
        for agent in [&first, &second] {
            agent
                .until("no news of the applier", |state| {
                    let applier = state.desired.as_ref()?.applier?;
                    (applier.instance == instance(number) && applier.epoch == u64::try_from(number).unwrap())
                        .then_some(())
                })
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_push_is_quick() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let mut wanted = objects(1000, "first");
    gateway.desire(1, 1, &wanted, &[]).await;
    let agent = gateway.connect(1, 1).await;
    agent.revision(1).await;
    for revision in 2..=4 {
        wanted[5] = objects(6, &revision.to_string())[5].clone();
        gateway.desire(1, revision, &wanted, &[]).await;
        // No assertion on time, but a push that waited for an interval or a back-off would not be through by then.
        timeout(Duration::from_secs(20), agent.revision(revision)).await.unwrap();
    }
    assert_eq!(organization(), agent.revision(4).await.organization);
}
