//! Subscriptions with consumers on a real NATS server.

use events::requests::subscriptions::{
    CreateSubscription, DeleteSubscription, ListSubscriptions, PauseSubscription, ReplaySubscription,
    ResendDeadLetters, ResumeSubscription, RotateSubscriptionSecret, SubscriptionState, SubscriptionView,
};
use events::subscription::WebhookFormat;
use events::{ConsumerName, RefusalKind};
use testkit::{NatsServer, eventually};

use crate::DEADLINE;
use crate::harness::{Harness, webhook};

/// A subscription whose events are fetched.
fn fetched(name: &str, types: &[&str]) -> CreateSubscription {
    CreateSubscription { url: None, nats: true, ..webhook(name, "", types) }
}

/// Waits until so many events are pending.
async fn pending(harness: &Harness, name: &str, count: u64) -> SubscriptionView {
    eventually(DEADLINE, || async {
        let view = harness.show(name).await.unwrap();
        let is_so = view.consumer.as_ref().is_some_and(|consumer| consumer.pending == count);
        if is_so { Ok(view) } else { Err(format!("{view:?}")) }
    })
    .await
}

fn fetched_at(view: &SubscriptionView) -> Option<events::Timestamp> {
    view.consumer.as_ref().and_then(|consumer| consumer.fetched_at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_on_nats_has_a_consumer_as_long_as_it_is_there() {
    let server = NatsServer::start().await.unwrap();
    let harness = Harness::start_on_nats(&server).await;
    let consumers = harness.store.consumers.clone().unwrap();
    let new = harness.ask(&fetched("orders", &["kasbah.observed.*", "kasbah.observed.gap"])).await.unwrap();
    let consumer = new.subscription.consumer.expect("the consumer is there once it is created");
    let first = ConsumerName { organization: harness.organization, number: 1 };
    assert_eq!((consumer.name.as_str(), new.secret), (first.to_string().as_str(), None));
    assert!(consumer.stream.starts_with("kasbah-exports-"), "{consumer:?}");
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 10).await;
    let behind = pending(&harness, "orders", 10).await;
    assert!(behind.oldest.is_some() && fetched_at(&behind).is_none(), "{behind:?}");
    // One that somebody else deleted is made again, from where the subscription began.
    consumers.delete(first).await.unwrap();
    pending(&harness, "orders", 10).await;
    // From now on: nothing that was.
    let now = events::Timestamp(harness.world.clock.now_millis()).to_string();
    let replay =
        |from: &str| ReplaySubscription { subscription: "orders".into(), from: Some(from.to_owned()) };
    let replayed = harness.ask(&replay(&now)).await.unwrap();
    assert_eq!(replayed.consumer.unwrap().pending, 0);
    let replayed = harness.ask(&replay("start")).await.unwrap();
    assert_eq!(replayed.consumer.unwrap().pending, 10);
    harness.ask(&DeleteSubscription { subscription: "orders".into() }).await.unwrap();
    assert!(consumers.list().await.unwrap().is_empty());
    // The next one has its name, and nothing of it.
    let next = harness.ask(&fetched("others", &[])).await.unwrap().subscription;
    assert_eq!(next.consumer.unwrap().name, first.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_is_left_by_a_relay_that_ends_and_deleted_by_the_next_one_if_nobody_wants_it() {
    let server = NatsServer::start().await.unwrap();
    let mut harness = Harness::start_on_nats(&server).await;
    let consumers = harness.store.consumers.clone().unwrap();
    harness.ask(&fetched("orders", &[])).await.unwrap();
    harness.stop_first().await;
    let there = consumers.list().await.unwrap();
    assert_eq!(there.len(), 1);
    let stray = ConsumerName { organization: harness.organization, number: 7 };
    let behind = events::Position::start();
    let (types, purpose) = (Vec::new(), "nobody's".to_owned());
    let wanted = store::NewConsumer { name: stray, types, behind, purpose, paused: false };
    consumers.make(&wanted).await.unwrap();
    harness.restart().await;
    eventually(DEADLINE, || async {
        let left: Vec<_> = consumers.list().await.unwrap().into_keys().collect();
        if left == there.keys().copied().collect::<Vec<_>>() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_consumer_cannot_do_is_refused_and_an_organization_has_eight() {
    let server = NatsServer::start().await.unwrap();
    let harness = Harness::start_on_nats(&server).await;
    let refused = async |request: &CreateSubscription| harness.ask(request).await.unwrap_err();
    let one = fetched("one", &[]);
    let filtered = CreateSubscription {
        environment: Some("01890a5d-ac96-774b-bcce-b302099a8057".to_owned()),
        ..one.clone()
    };
    assert_eq!(refused(&filtered).await.kind, RefusalKind::NotFound, "there is no such environment");
    let slack = CreateSubscription { format: Some(WebhookFormat::Slack), ..one.clone() };
    assert_eq!(refused(&slack).await.field.as_deref(), Some("format"));
    for both in [
        CreateSubscription { url: Some("https://a.example/".to_owned()), ..one.clone() },
        CreateSubscription { nats: false, ..one.clone() },
    ] {
        assert_eq!(refused(&both).await.field.as_deref(), Some("url"));
    }
    for number in 1..=8 {
        harness.ask(&fetched(&format!("number-{number}"), &[])).await.unwrap();
    }
    assert!(refused(&fetched("ninth", &[])).await.message.contains("already has 8"));
    let names: Vec<_> = harness.ask(&ListSubscriptions {}).await.unwrap().items;
    let mut names: Vec<String> = names.into_iter().map(|one| one.consumer.unwrap().name).collect();
    names.dedup();
    assert_eq!(names.len(), 8);
    let subscription = "number-1".to_owned();
    let rotate = RotateSubscriptionSecret { subscription: subscription.clone() };
    assert_eq!(harness.ask(&rotate).await.unwrap_err().kind, RefusalKind::Conflict);
    let resend = ResendDeadLetters { subscription, sequences: Vec::new() };
    assert_eq!(harness.ask(&resend).await.unwrap_err().kind, RefusalKind::Conflict);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_subscription_on_nats_gives_nothing_and_keeps_where_it_is() {
    let server = NatsServer::start().await.unwrap();
    let mut harness = Harness::start_on_nats(&server).await;
    let consumers = harness.store.consumers.clone().unwrap();
    harness.ask(&fetched("orders", &["kasbah.observed.*"])).await.unwrap();
    let name = ConsumerName { organization: harness.organization, number: 1 };
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 4).await;
    pending(&harness, "orders", 4).await;
    let is_paused = async || consumers.find(name).await.unwrap().unwrap().paused;
    let paused = harness.ask(&PauseSubscription { subscription: "orders".into() }).await.unwrap();
    assert_eq!((paused.state, paused.behind, is_paused().await), (SubscriptionState::Paused, Some(4), true));
    let labels = format!(
        "organization=\"{}\",subscription=\"orders\",way=\"nats\",state=\"paused\"",
        harness.organization
    );
    crate::metric(&harness, &format!("kasbah_event_relay_subscription_lag_events{{{labels}}} 4")).await;
    crate::metric(&harness, "kasbah_event_relay_subscriptions{way=\"nats\",state=\"paused\"} 1").await;
    // One that somebody else deleted, or let go on, is paused again.
    consumers.delete(name).await.unwrap();
    harness.stop_first().await;
    harness.restart().await;
    pending(&harness, "orders", 4).await;
    assert!(is_paused().await);
    consumers.pause(name, false).await.unwrap();
    assert!(!is_paused().await);
    harness.stop_first().await;
    harness.restart().await;
    pending(&harness, "orders", 4).await;
    assert!(is_paused().await);
    let resumed = harness.ask(&ResumeSubscription { subscription: "orders".into() }).await.unwrap();
    assert_eq!((resumed.state, is_paused().await), (SubscriptionState::Active, false));
    assert_eq!(resumed.consumer.unwrap().pending, 4);
}

#[tokio::test]
async fn without_nats_there_are_no_consumers() {
    let harness = Harness::start().await;
    let refused = harness.ask(&fetched("orders", &[])).await.unwrap_err();
    assert!(refused.message.contains("runs without NATS"), "{refused}");
}
