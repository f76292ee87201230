//! Observations on their way into the log.

use std::time::Duration;

use bytes::Bytes;
use events::observation::Observed;
use testkit::{Proxy, eventually};
use tunnel::wire::{Acknowledged, EventFrame};

use super::agent::{State, TestAgent};
use super::harness::{Gateway, LIMIT, agent_id, health, instance, objects, observation, secret, source};

async fn applier(gateway: &Gateway, agent: &TestAgent, namings: usize) {
    agent.lease().await;
    eventually(LIMIT, || async {
        let seen = gateway.delivery.lock().namings;
        if seen >= namings { Ok(()) } else { Err(format!("{seen} namings")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn observations_are_durable_before_they_are_acknowledged_and_in_their_order() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = gateway.connect(1, 1).await;
    applier(&gateway, &agent, 1).await;
    for batch in 0..200_u64 {
        let first = batch * 5 + 1;
        agent.report(1, first, (first..first + 5).map(|number| health(1, number)).collect()).await;
    }
    agent.acknowledged(1, 1000).await;
    let expected: Vec<(u64, u64)> = (1..=1000).map(|sequence| (1, sequence)).collect();
    assert_eq!(gateway.sequences(1).await, expected);
    let stored = gateway.batches().await.into_iter().filter(|batch| batch.writer.starts_with("agent-"));
    let stored: Vec<_> = stored.flat_map(|batch| batch.observations).collect();
    let sent: Vec<_> = (1..=1000).map(|number| health(1, number)).collect();
    assert!(stored == sent, "stored as they were sent");
    let acknowledged = agent.state.lock().acknowledged.clone();
    assert!(acknowledged.is_sorted(), "{acknowledged:?}");
    assert!(acknowledged.len() <= 200, "never more words than batches");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reconnect_it_goes_on_where_the_log_ends_without_gap_or_double() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let first = gateway.connect(1, 1).await;
    applier(&gateway, &first, 1).await;
    first.report(1, 1, (1..=10).map(|number| health(1, number)).collect()).await;
    first.acknowledged(1, 10).await;
    first.link.abort();

    let second = gateway.connect(1, 1).await;
    assert_eq!(second.state.lock().opened, [Acknowledged { epoch: 1, sequence: 10 }]);
    second.lease().await;
    // The agent does not know that 8 to 10 are durable.
    second.report(1, 8, (8..=15).map(|number| health(1, number)).collect()).await;
    second.acknowledged(1, 15).await;
    let expected: Vec<(u64, u64)> = (1..=15).map(|sequence| (1, sequence)).collect();
    assert_eq!(gateway.sequences(1).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_refused_and_the_stream_begins_anew() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = gateway.connect(1, 1).await;
    applier(&gateway, &agent, 1).await;
    agent.report(1, 1, vec![health(1, 1)]).await;
    agent.acknowledged(1, 1).await;
    agent.report(1, 3, vec![health(1, 3)]).await;
    agent.until("not opened again", |state| (state.opened.len() == 2).then_some(())).await;
    assert_eq!(agent.state.lock().opened[1], Acknowledged { epoch: 1, sequence: 1 });
    agent.report(1, 2, vec![health(1, 2), health(1, 3)]).await;
    agent.acknowledged(1, 3).await;
    assert_eq!(gateway.sequences(1).await, [(1, 1), (1, 2), (1, 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_named_instance_is_heard_and_a_deposed_one_no_longer() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let (first, second) = (gateway.connect(1, 1).await, gateway.connect(1, 2).await);
    second.report(1, 1, vec![health(1, 1)]).await;
    second.until("not refused", |state| (state.opened.len() == 2).then_some(())).await;
    applier(&gateway, &first, 1).await;
    first.report(1, 1, vec![health(1, 1)]).await;
    first.acknowledged(1, 1).await;

    applier(&gateway, &second, 2).await;
    second
        .report(
            2,
            1,
            vec![observation(
                1,
                Observed::InventoryStated { objects: Vec::new(), last: true, unlisted: Vec::new() },
            )],
        )
        .await;
    second.acknowledged(2, 1).await;
    first.report(1, 2, vec![health(1, 2)]).await;
    first.until("not refused", |state| (state.opened.len() == 2).then_some(())).await;
    assert_eq!(first.state.lock().opened[1], Acknowledged { epoch: 2, sequence: 1 });
    assert_eq!(gateway.sequences(1).await, [(1, 1), (2, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_concerns_another_agents_source_is_left_out_and_marked() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.register(2).await;
    let agent = gateway.connect(1, 1).await;
    applier(&gateway, &agent, 1).await;
    let (source, reason) = (source(2), "mine now".to_owned());
    let blocked = Observed::SourceBlocked { source, reason, missing: Vec::new() };
    agent.report(1, 1, vec![health(1, 1), observation(2, blocked), health(1, 3)]).await;
    agent.acknowledged(1, 3).await;
    let batches = gateway.batches().await;
    let batch = batches.iter().find(|batch| batch.writer.starts_with("agent-")).unwrap();
    assert_eq!(batch.observations[1].what, Observed::Gap { dropped: 0 });
    assert_eq!(batch.observations[2], health(1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_was_configured_a_moment_ago_is_known() {
    let gateway = Gateway::start().await;
    gateway.register(2).await;
    let agent = gateway.connect(2, 1).await;
    applier(&gateway, &agent, 1).await;
    agent.report(1, 1, vec![health(2, 1)]).await;
    agent.acknowledged(1, 1).await;
    let batches = gateway.batches().await;
    let batch = batches.iter().find(|batch| batch.writer.starts_with("agent-")).unwrap();
    assert_eq!(batch.observations, [health(2, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_talks_nonsense_loses_its_stream_and_stops_no_other() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.register(2).await;
    let (odd, good) = (gateway.connect(1, 1).await, gateway.connect(2, 1).await);
    applier(&gateway, &good, 1).await;
    for round in 1..=2_usize {
        let events = odd
            .until("not opened", |state| state.events.clone().filter(|_| state.opened.len() == round))
            .await;
        events.send_raw(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 1, 2, 3])).await.unwrap();
    }
    odd.until("not opened again", |state| (state.opened.len() == 3).then_some(())).await;
    good.report(1, 1, vec![health(2, 1)]).await;
    good.acknowledged(1, 1).await;
    assert!(!odd.link.is_finished(), "only the stream is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_said_again_names_nobody_anew_at_once() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = gateway.connect(1, 1).await;
    applier(&gateway, &agent, 1).await;
    agent.send(EventFrame::Idle).await;
    for _ in 0..10 {
        agent.lease().await;
    }
    let other = gateway.connect(1, 2).await;
    applier(&gateway, &other, 2).await;
    assert!(gateway.delivery.lock().namings <= 3, "{} namings", gateway.delivery.lock().namings);
}

/// A gateway whose agent was named as applier, and is away.
async fn with_an_applier_that_left() -> Gateway {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let first = gateway.connect(1, 1).await;
    gateway.desire(1, 1, &objects(1, "wanted"), &[]).await;
    applier(&gateway, &first, 1).await;
    first.link.abort();
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn who_applies_already_is_not_named_again_when_its_tunnel_opens() {
    let gateway = with_an_applier_that_left().await;
    let again = gateway.connect(1, 1).await;
    again.until("not told", |state| state.desired.as_ref()?.applier).await;
    again.lease().await;
    again.report(1, 1, vec![health(1, 1)]).await;
    again.acknowledged(1, 1).await;
    assert_eq!(gateway.delivery.lock().namings, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_that_it_has_the_lease_before_delivery_answers_is_not_named_again() {
    let gateway = with_an_applier_that_left().await;
    gateway.delivery.lock().held.send_replace(true);
    let again = gateway.connect(1, 1).await;
    again.lease().await;
    again.report(1, 1, vec![health(1, 1)]).await;
    gateway.delivery.lock().held.send_replace(false);
    again.acknowledged(1, 1).await;
    assert_eq!(gateway.delivery.lock().namings, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_holds_the_lease_is_named_again_after_another_ones_late_claim() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let (first, second) = (gateway.connect(1, 1).await, gateway.connect(1, 2).await);
    gateway.desire(1, 1, &objects(1, "wanted"), &[]).await;
    applier(&gateway, &second, 1).await;
    applier(&gateway, &first, 2).await;
    first.send(EventFrame::Lease { held: false }).await;
    let told = |state: &State| state.desired.as_ref()?.applier.filter(|applier| applier.epoch == 2);
    second.until("not told of the late claim", |state| told(state)).await;
    second.send(EventFrame::Idle).await;
    eventually(LIMIT, || async {
        let applier = gateway.delivery.lock().appliers.get(&agent_id(1)).copied();
        match applier {
            Some(applier) if (applier.instance, applier.epoch) == (instance(2), 3) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_cut_again_and_again_loses_and_doubles_nothing() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let proxy = Proxy::start(gateway.address).unwrap();
    let target = gateway.target_through(proxy.address());
    let total = 600_u64;
    let mut durable = 0;
    for round in 0.. {
        assert!(round < 100, "no progress: {durable}");
        let agent = TestAgent::connect(&gateway.world, &target, &secret(1), instance(1)).await;
        let events = agent.events().await;
        let resumed = agent.state.lock().opened[0];
        assert!(resumed.sequence >= durable, "what was acknowledged is not asked for again");
        if resumed.sequence == total {
            break;
        }
        events.send(&EventFrame::Lease { held: true }).await.unwrap();
        let until = (resumed.sequence + 150).min(total);
        for sequence in resumed.sequence + 1..=until {
            let batch =
                tunnel::wire::Batch { epoch: 1, first: sequence, observations: vec![health(1, sequence)] };
            if events.send(&EventFrame::Batch(batch)).await.is_err() {
                break;
            }
        }
        let wanted = resumed.sequence + 60;
        agent
            .until("nothing is acknowledged", |state| {
                state.acknowledged.last().filter(|last| last.sequence >= wanted.min(total)).copied()
            })
            .await;
        proxy.cut();
        durable = agent.state.lock().acknowledged.last().map_or(durable, |last| last.sequence);
        let _ended = tokio::time::timeout(Duration::from_secs(20), agent.link).await;
    }
    let sequences: Vec<u64> = gateway.sequences(1).await.into_iter().map(|(_, sequence)| sequence).collect();
    let mut once = sequences.clone();
    once.dedup();
    assert!(once.iter().copied().eq(1..=total), "in order, each once: {} of {}", once.len(), sequences.len());
}
