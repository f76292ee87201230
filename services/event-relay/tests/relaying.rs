//! event-relay with the embedded store and the bus of one process; authz answers from here, and receivers are real and hostile.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test from end to end"
)]

#[path = "relaying/an_hour.rs"]
mod an_hour;
#[path = "relaying/consumers.rs"]
mod consumers;
#[path = "relaying/harness.rs"]
mod harness;
#[path = "relaying/indexed.rs"]
mod indexed;
#[path = "relaying/paused.rs"]
mod paused;
#[path = "relaying/receivers.rs"]
mod receivers;

use std::collections::BTreeSet;
use std::time::Duration;

use events::export::{BEGAN, EventFilter, ExportPosition};
use events::requests::subscriptions::{
    CreateSubscription, DeleteSubscription, EventReader, EventReaders, ListDeadLetters, ListSubscriptions,
    ReplaySubscription, ResendDeadLetters, ResumeSubscription, RotateSubscriptionSecret, SubscriptionState,
};
use events::subscription::WebhookFormat;
use events::{Actor, CloudEvent, OrganizationId, RefusalKind, Timestamp, UserId};
use harness::{Harness, webhook};
use receivers::{Answer, Receiver, verify};
use testkit::eventually;

const DEADLINE: Duration = Duration::from_secs(60);

fn numbers(events: &[CloudEvent]) -> Vec<u64> {
    events.iter().map(|event| event.exportsequence.unwrap()).collect()
}

#[tokio::test]
async fn what_is_decided_and_observed_is_exported_once_with_a_number_and_what_it_is_about() {
    let harness = Harness::start().await;
    let (agent, project) = harness.register("staging").await;
    harness.observe(agent, 1, 3).await;
    let events = harness.exported(4).await;
    assert_eq!(numbers(&events), [1, 2, 3, 4]);
    assert_eq!(events[0].event_type, "kasbah.agent.registered");
    assert_eq!(events[1].event_type, "kasbah.observed.gap");
    assert!(
        events.iter().all(|event| (event.agent, event.project) == (Some(agent), Some(project))),
        "{events:#?}"
    );
    assert!(events.iter().all(|event| event.exportlog == Some(harness.store.log.id())));
    assert!(events.iter().all(|event| event.event_type != BEGAN));
}

#[tokio::test]
async fn a_replica_goes_on_where_another_one_ended_and_two_at_once_do_no_harm() {
    let mut harness = Harness::start().await;
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 20).await;
    harness.exported(21).await;
    // One more joins, and the first one leaves while observations come.
    let second = harness.run();
    for round in 0..10 {
        harness.observe(agent, 21 + round * 10, 10).await;
        if round == 5 {
            harness.stop_first().await;
        }
    }
    let events = harness.exported(121).await;
    assert_eq!(numbers(&events), (1..=121).collect::<Vec<_>>());
    let ids: BTreeSet<_> = events.iter().map(|event| event.id.clone()).collect();
    assert_eq!(ids.len(), events.len(), "none twice");
    let observed: Vec<_> = events.iter().filter(|event| event.event_type.contains("observed")).collect();
    let in_order = observed.windows(2).all(|pair| {
        let sequence = |event: &CloudEvent| event.id.rsplit('/').next().unwrap().parse::<u64>().unwrap();
        sequence(pair[0]) + 1 == sequence(pair[1])
    });
    assert!(in_order, "in the order of their writer");
    drop(second);
}

#[tokio::test]
async fn without_its_checkpoint_a_relay_exports_nothing_twice() {
    let mut harness = Harness::start().await;
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 5).await;
    harness.exported(6).await;
    harness.stop_first().await;
    harness.forget_checkpoints();
    harness.observe(agent, 6, 5).await;
    let _second = harness.run();
    let events = harness.exported(11).await;
    assert_eq!(numbers(&events), (1..=11).collect::<Vec<_>>());
    let ids: BTreeSet<_> = events.iter().map(|event| event.id.clone()).collect();
    assert_eq!(ids.len(), 11);
}

#[tokio::test]
async fn a_webhook_gets_what_it_wants_in_order_and_signed() {
    let harness = Harness::start().await;
    let receiver = Receiver::start(Answer::Status(204));
    let new = harness.ask(&webhook("ours", &receiver.url(), &["kasbah.observed.*"])).await.unwrap();
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 10).await;
    let got = receiver.wait_for(10).await;
    let ids: Vec<_> = got.iter().map(|message| message.event().id).collect();
    let expected: Vec<_> = (1..=10).map(|sequence| format!("agent-{agent}/1/{sequence}")).collect();
    assert_eq!(ids, expected);
    assert!(got.iter().all(|message| verify(new.secret.as_ref().unwrap(), message)));
    // Both secrets sign while they are changed.
    let rotated = harness.ask(&RotateSubscriptionSecret { subscription: "ours".into() }).await.unwrap();
    assert_ne!(rotated.secret, new.secret);
    harness.observe(agent, 11, 1).await;
    let last = receiver.wait_for(11).await.pop().unwrap();
    assert!([&rotated, &new].iter().all(|one| verify(one.secret.as_ref().unwrap(), &last)));
    // Everything again, from the start.
    let replay = ReplaySubscription { subscription: "ours".into(), from: Some("start".into()) };
    harness.ask(&replay).await.unwrap();
    let again = receiver.wait_for(22).await;
    assert_eq!(again[11].event().id, expected[0]);
    let deleted = harness.ask(&DeleteSubscription { subscription: "ours".into() }).await.unwrap();
    assert_eq!(deleted.state, SubscriptionState::Active);
    assert_eq!(harness.show("ours").await.unwrap_err().kind, RefusalKind::NotFound);
}

#[tokio::test]
async fn hostile_receivers_disturb_nobody_else() {
    let harness = Harness::start().await;
    let private = Receiver::start(Answer::Status(204));
    let hostile = [
        ("hangs", Answer::Hang),
        ("fails", Answer::Status(500)),
        ("redirects", Answer::Redirect(private.url())),
        ("talks", Answer::Endless(500)),
        ("drips", Answer::EndlessHead),
    ];
    let receivers: Vec<_> = hostile.iter().map(|(_, answer)| Receiver::start(answer.clone())).collect();
    for ((name, _), receiver) in hostile.iter().zip(&receivers) {
        let types = ["kasbah.observed.*", "kasbah.agent.*"];
        harness.ask(&webhook(name, &receiver.url(), &types)).await.unwrap();
    }
    let good = Receiver::start(Answer::Endless(200));
    harness.ask(&webhook("good", &good.url(), &["kasbah.observed.*"])).await.unwrap();
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 30).await;
    assert_eq!(good.wait_for(30).await.len(), 30, "an endless answer to what was taken is not read");
    for (name, _) in hostile {
        eventually(DEADLINE, || async {
            let view = harness.show(name).await.unwrap();
            if view.state == SubscriptionState::Retrying { Ok(()) } else { Err(format!("{name}: {view:?}")) }
        })
        .await;
    }
    let redirected = harness.show("redirects").await.unwrap();
    assert!(redirected.reason.contains("redirects are not followed"), "{}", redirected.reason);
    assert_eq!(private.got().len(), 0, "nobody follows");
    let talked = harness.show("talks").await.unwrap();
    assert!(talked.reason.len() < 500, "{}", talked.reason);
    // Once a receiver works, it gets everything, and nothing was skipped.
    receivers[1].answer(Answer::Status(200));
    let events: Vec<_> = receivers[1].wait_until(|message| message.status == 200, 31).await;
    let ids: BTreeSet<_> = events.iter().map(|message| message.event().id).collect();
    assert_eq!(ids.len(), 31);
}

#[tokio::test]
async fn private_addresses_are_refused_by_name_by_number_and_behind_dns() {
    let harness = Harness::start_with(|args| args.webhooks_allow_private_addresses = false).await;
    for url in
        ["http://127.0.0.1:1/", "http://[::1]:1/", "http://localhost:1/", "http://169.254.169.254/latest"]
    {
        let refused = harness.ask(&webhook("ours", url, &[])).await.unwrap_err();
        assert_eq!(refused.field.as_deref(), Some("url"), "{url}");
    }
    for url in ["ftp://hooks.example/", "http://user:password@hooks.example/", "nonsense", "http:///path"] {
        assert!(harness.ask(&webhook("ours", url, &[])).await.is_err(), "{url}");
    }
    // The name server of this world says 127.0.0.1.
    let receiver = Receiver::start(Answer::Status(204));
    let url = receiver.url().replace("127.0.0.1", "hooks.example");
    harness.ask(&webhook("ours", &url, &[])).await.unwrap();
    harness.register("staging").await;
    let view = eventually(DEADLINE, || async {
        let view = harness.show("ours").await.unwrap();
        if view.state == SubscriptionState::Retrying { Ok(view) } else { Err(format!("{view:?}")) }
    })
    .await;
    assert!(view.reason.contains("hooks.example is private"), "{}", view.reason);
    assert_eq!(receiver.got().len(), 0);
}

#[tokio::test]
async fn what_a_receiver_refuses_becomes_a_dead_letter_that_can_be_sent_again() {
    let harness = Harness::start().await;
    let receiver = Receiver::start(Answer::StatusFor("/1/2\"".to_owned(), 422));
    harness.ask(&webhook("ours", &receiver.url(), &["kasbah.observed.*"])).await.unwrap();
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 3).await;
    // The second one is refused again and again; the others arrive.
    let taken = receiver.wait_until(|message| message.status == 204, 2).await;
    let ids: Vec<_> = taken.iter().map(|message| message.event().id).collect();
    assert_eq!(ids, [format!("agent-{agent}/1/1"), format!("agent-{agent}/1/3")]);
    let letters = harness.ask(&ListDeadLetters { subscription: "ours".into() }).await.unwrap();
    assert_eq!(letters.items.len(), 1);
    assert_eq!(letters.items[0].event, format!("agent-{agent}/1/2"));
    assert!(letters.items[0].reason.contains("422"), "{:?}", letters.items[0]);
    receiver.answer(Answer::Status(200));
    let sequences = vec![letters.items[0].sequence];
    harness.ask(&ResendDeadLetters { subscription: "ours".into(), sequences }).await.unwrap();
    eventually(DEADLINE, || async {
        let letters = harness.ask(&ListDeadLetters { subscription: "ours".into() }).await.unwrap();
        if letters.items.is_empty() { Ok(()) } else { Err(format!("{letters:?}")) }
    })
    .await;
    assert_eq!(receiver.got().last().unwrap().event().id, letters.items[0].event);
}

#[tokio::test]
async fn a_cursor_survives_a_restart_and_a_lost_one_repeats() {
    let mut harness = Harness::start().await;
    let receiver = Receiver::start(Answer::Status(204));
    harness.ask(&webhook("ours", &receiver.url(), &["kasbah.observed.*"])).await.unwrap();
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 5).await;
    receiver.wait_for(5).await;
    harness.stop_first().await;
    harness.observe(agent, 6, 5).await;
    harness.restart().await;
    let got = receiver.wait_for(10).await;
    let ids: BTreeSet<_> = got.iter().map(|message| message.event().id).collect();
    assert_eq!(ids.len(), 10, "none twice, none missing");
    harness.stop_first().await;
    harness.forget_checkpoints();
    harness.restart().await;
    let repeated = receiver.wait_for(20).await;
    assert_eq!(repeated[10].event().id, repeated[0].event().id, "from where the subscription began");
}

#[tokio::test]
async fn people_are_told_of_an_environment_that_stays_degraded_and_that_it_recovered() {
    let harness = Harness::start_with(|args| args.alerts_after = Duration::from_millis(500)).await;
    let receiver = Receiver::start(Answer::Status(200));
    let chat =
        CreateSubscription { format: Some(WebhookFormat::Slack), ..webhook("chat", &receiver.url(), &[]) };
    harness.ask(&chat).await.unwrap();
    let (agent, project) = harness.register("staging").await;
    let source = harness.configure(agent, project).await;
    harness.health(agent, source, 1, "degraded").await;
    let first = receiver.wait_for(1).await.pop().unwrap();
    let text = String::from_utf8(first.body).unwrap();
    assert!(
        text.contains("environment production degraded because Deployment shop/web: 0 of 1 available"),
        "{text}"
    );
    harness.health(agent, source, 2, "healthy").await;
    let second = receiver.wait_for(2).await.pop().unwrap();
    assert!(String::from_utf8(second.body).unwrap().contains("environment production recovered"));
    // Trouble that passes by itself causes no message: the next message is about the trouble after it.
    harness.health(agent, source, 3, "degraded").await;
    harness.health(agent, source, 4, "healthy").await;
    harness.health(agent, source, 5, "missing").await;
    let third = receiver.wait_for(3).await.pop().unwrap();
    assert!(String::from_utf8(third.body).unwrap().contains("degraded because"));
}

#[tokio::test]
async fn a_receiver_that_is_gone_parks_its_subscription_until_somebody_resumes_it() {
    let harness = Harness::start().await;
    let receiver = Receiver::start(Answer::Status(410));
    harness.ask(&webhook("ours", &receiver.url(), &[])).await.unwrap();
    harness.register("staging").await;
    eventually(DEADLINE, || async {
        let view = harness.show("ours").await.unwrap();
        if view.state == SubscriptionState::Parked { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    receiver.answer(Answer::Status(200));
    let parked = harness.show("ours").await.unwrap();
    assert!(parked.oldest.is_some(), "the event that the receiver did not take waits: {parked:?}");
    let resumed = harness.ask(&ResumeSubscription { subscription: "ours".into() }).await.unwrap();
    assert_eq!(resumed.position, parked.position);
    receiver.wait_until(|message| message.status == 200, 1).await;
}

#[tokio::test]
async fn a_subscription_says_how_far_behind_it_is_and_so_do_metrics() {
    let harness = Harness::start().await;
    let receiver = Receiver::start(Answer::Status(204));
    let new = harness.ask(&webhook("ours", &receiver.url(), &["kasbah.observed.*"])).await.unwrap();
    assert_eq!((new.subscription.behind, new.subscription.oldest), (None, None), "it has met no event");
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 2).await;
    receiver.wait_for(2).await;
    let behind_by = async |expected: u64| {
        eventually(DEADLINE, || async {
            let view = harness.show("ours").await.unwrap();
            let is_so = view.behind == Some(expected) && view.oldest.is_some() == (expected > 0);
            if is_so { Ok(view) } else { Err(format!("{view:?}")) }
        })
        .await
    };
    behind_by(0).await;
    receiver.answer(Answer::Status(500));
    harness.observe(agent, 3, 5).await;
    let behind = behind_by(5).await;
    let events = harness.exported(9).await;
    let waits = events.iter().find(|event| event.id == format!("agent-{agent}/1/3")).unwrap();
    assert_eq!(behind.oldest, Some(waits.recordedat), "of the first one that waits");
    let organization = harness.organization;
    let labels =
        format!("organization=\"{organization}\",subscription=\"ours\",way=\"webhook\",state=\"retrying\"");
    for line in [
        "kasbah_event_relay_subscriptions{way=\"webhook\",state=\"retrying\"} 1".to_owned(),
        "kasbah_event_relay_subscriptions{way=\"nats\",state=\"active\"} 0".to_owned(),
        format!("kasbah_event_relay_subscription_lag_events{{{labels}}} 5"),
        format!("kasbah_event_relay_subscription_lag_seconds{{{labels}}} "),
    ] {
        metric(&harness, &line).await;
    }
}

/// Waits until the relay shows a metric.
async fn metric(harness: &Harness, line: &str) {
    eventually(DEADLINE, || async {
        let all = harness.metrics.encode();
        if all.contains(line) { Ok(()) } else { Err(format!("{line}: {all}")) }
    })
    .await;
}

#[tokio::test]
async fn who_reads_over_http_is_listed_with_how_far_they_are() {
    let harness = Harness::start().await;
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 9).await;
    let events = harness.exported(10).await;
    let reader = |organization: OrganizationId, last: &CloudEvent, oldest: Option<Timestamp>| EventReader {
        id: harness.world.new_uuid(),
        organization,
        actor: Actor::User(UserId(organization.0)),
        since: Timestamp(1),
        filter: EventFilter::default(),
        position: ExportPosition::of(last),
        oldest,
    };
    let waits = Timestamp(events[4].recordedat.0 - 60_000);
    let other = OrganizationId(harness.world.new_uuid());
    let readers =
        vec![reader(harness.organization, &events[3], Some(waits)), reader(other, &events[0], None)];
    let notice = EventReaders { readers };
    let list = eventually(DEADLINE, || async {
        bus::announce(&*harness.bus, &notice).await.unwrap();
        let list = harness.ask(&ListSubscriptions {}).await.unwrap();
        if list.readers.is_empty() { Err("nobody reads".to_owned()) } else { Ok(list) }
    })
    .await;
    assert_eq!(list.readers.len(), 1, "others see nothing of them: {list:?}");
    let found = &list.readers[0];
    assert_eq!((found.behind, found.oldest), (Some(6), Some(waits)));
    assert_eq!(found.position, ExportPosition::of(&events[3]).map(|position| position.to_string()));
    metric(&harness, "kasbah_event_relay_subscriptions{way=\"sse\",state=\"active\"} 2").await;
}
