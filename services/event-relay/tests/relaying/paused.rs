//! Subscriptions that somebody paused.

use events::export::{ExportPosition, GAP};
use events::requests::subscriptions::{
    PauseSubscription, ReplaySubscription, ResumeSubscription, SubscriptionState, SubscriptionView,
};
use events::{AggregateKind, AggregateRef, RefusalKind, Stream, SubscriptionId};
use testkit::eventually;

use crate::DEADLINE;
use crate::harness::{Harness, webhook};
use crate::receivers::{Answer, Receiver};

fn pause() -> PauseSubscription {
    PauseSubscription { subscription: "ours".into() }
}

fn resume() -> ResumeSubscription {
    ResumeSubscription { subscription: "ours".into() }
}

/// Waits until an event waits that a paused subscription does not send, and it is so many behind, or more: what is decided is exported, too.
async fn waits(harness: &Harness, behind: u64) -> SubscriptionView {
    eventually(DEADLINE, || async {
        let view = harness.show("ours").await.unwrap();
        let is_so = view.oldest.is_some() && view.behind >= Some(behind);
        if is_so { Ok(view) } else { Err(format!("{view:?}")) }
    })
    .await
}

/// What was decided of the subscription so far.
async fn decided(harness: &Harness) -> Vec<String> {
    let id = SubscriptionId::derive(harness.organization, "ours");
    let aggregate = AggregateRef::new(AggregateKind::Subscription, id);
    let history = harness.store.log.history(harness.organization, &aggregate).await.unwrap();
    let events = history.iter().flat_map(store::Record::cloud_events);
    events.map(|event| event.event_type).collect()
}

#[tokio::test]
async fn a_paused_subscription_sends_nothing_and_goes_on_from_where_it_was() {
    let mut harness = Harness::start().await;
    let receiver = Receiver::start(Answer::Status(204));
    harness.ask(&webhook("ours", &receiver.url(), &["kasbah.observed.*"])).await.unwrap();
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 3).await;
    receiver.wait_for(3).await;
    let paused = harness.ask(&pause()).await.unwrap();
    assert_eq!(paused.state, SubscriptionState::Paused);
    assert_eq!(paused.reason, format!("paused by user:{}", harness.organization));
    assert!(paused.since.is_some());
    assert_eq!(harness.ask(&pause()).await.unwrap().since, paused.since, "it is paused already");
    harness.observe(agent, 4, 2).await;
    let before = waits(&harness, 2).await;
    // Also by the next replica, and where somebody wants to go on without resuming.
    harness.stop_first().await;
    harness.restart().await;
    let after = waits(&harness, 2).await;
    assert_eq!((after.state, after.position), (SubscriptionState::Paused, before.position));
    let replay = ReplaySubscription { subscription: "ours".into(), from: None };
    assert_eq!(harness.ask(&replay).await.unwrap_err().kind, RefusalKind::Conflict);
    assert_eq!(receiver.got().len(), 3, "nothing is sent");
    harness.ask(&resume()).await.unwrap();
    let got = receiver.wait_for(5).await;
    let ids: Vec<_> = got.iter().map(|message| message.event().id).collect();
    assert_eq!(ids, (1..=5).map(|number| format!("agent-{agent}/1/{number}")).collect::<Vec<_>>());
    eventually(DEADLINE, || async {
        let view = harness.show("ours").await.unwrap();
        let is_well = (view.state, view.behind, view.oldest) == (SubscriptionState::Active, Some(0), None);
        if is_well { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    let expected = ["created", "paused", "resumed"].map(|what| format!("kasbah.subscription.{what}"));
    assert_eq!(decided(&harness).await, expected);
}

#[tokio::test]
async fn a_paused_subscription_that_is_replayed_stays_paused() {
    let harness = Harness::start().await;
    let receiver = Receiver::start(Answer::Status(204));
    harness.ask(&webhook("ours", &receiver.url(), &["kasbah.observed.*"])).await.unwrap();
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 3).await;
    receiver.wait_for(3).await;
    harness.ask(&pause()).await.unwrap();
    let replay = ReplaySubscription { subscription: "ours".into(), from: Some("start".into()) };
    assert_eq!(harness.ask(&replay).await.unwrap().state, SubscriptionState::Paused);
    waits(&harness, 3).await;
    assert_eq!(receiver.got().len(), 3);
    harness.ask(&resume()).await.unwrap();
    assert_eq!(receiver.wait_for(6).await[3].event().id, format!("agent-{agent}/1/1"));
}

/// What leaves meanwhile may hold the word that another run of exports began.
#[tokio::test]
async fn a_gap_says_what_left_while_a_subscription_was_paused() {
    let mut harness = Harness::start_on_small_segments().await;
    let receiver = Receiver::start(Answer::Status(204));
    harness.ask(&webhook("ours", &receiver.url(), &["kasbah.observed.*"])).await.unwrap();
    harness.ask(&pause()).await.unwrap();
    let (agent, _) = harness.register("staging").await;
    harness.observe(agent, 1, 2).await;
    harness.exported(5).await;
    let paused = waits(&harness, 2).await;
    let has = paused.position.unwrap().parse::<ExportPosition>().unwrap().sequence;
    harness.stop_first().await;
    harness.restart().await;
    // Another run, of which the beginning leaves as well.
    harness.observe(agent, 3, 2).await;
    harness.exported(7).await;
    let end = harness.store.log.position(&[Stream::Exports]).await.unwrap();
    harness.observe(agent, 5, 2).await;
    harness.exported(9).await;
    harness.store.log.forget(&end).await.unwrap();
    let left = harness.exported(1).await;
    assert!(left[0].exportsequence.unwrap() > has + 3, "{left:#?}");
    harness.ask(&resume()).await.unwrap();
    let got = receiver.wait_for(1 + left.len()).await;
    let gap = got[0].event();
    assert_eq!((gap.event_type.as_str(), &gap.data["first"]), (GAP, &serde_json::json!(has + 1)));
    assert_eq!(gap.data["last"], serde_json::json!(left[0].exportsequence.unwrap() - 1));
    let ids: Vec<_> = got[1..].iter().map(|message| message.event().id).collect();
    assert_eq!(ids, left.iter().map(|event| event.id.clone()).collect::<Vec<_>>());
}
