//! A receiver that fails for an hour, on a clock that stands still while anything happens.

use std::time::Duration;

use events::Timestamp;
use events::requests::subscriptions::{SubscriptionState, SubscriptionView};
use testkit::eventually;

use crate::DEADLINE;
use crate::harness::{Harness, StillClock, webhook};
use crate::receivers::{Answer, Message, Receiver};

const HOUR_MILLIS: i64 = 3_600_000;
/// As docs/events.md has it: the shortest pause, and the longest.
const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(3_600);

/// When a message was sent, in seconds.
fn sent_at(message: &Message) -> i64 {
    message.header("webhook-timestamp").parse().unwrap()
}

/// How the subscription stands once the attempt of this moment has failed.
async fn failed(harness: &Harness, now: Timestamp) -> SubscriptionView {
    eventually(DEADLINE, || async {
        let view = harness.show("failing").await.unwrap();
        let is_over =
            view.state == SubscriptionState::Retrying && view.retry_at.is_some_and(|next| next > now);
        if is_over { Ok(view) } else { Err(format!("{view:?}")) }
    })
    .await
}

#[tokio::test]
async fn a_receiver_that_fails_for_an_hour_delays_nobody_else_and_then_gets_everything_in_order() {
    let clock = StillClock::start();
    let harness = Harness::start_by(clock.clone()).await;
    let (failing, other) = (Receiver::start(Answer::Status(500)), Receiver::start(Answer::Status(204)));
    for (name, receiver) in [("failing", &failing), ("other", &other)] {
        harness.ask(&webhook(name, &receiver.url(), &["kasbah.observed.*"])).await.unwrap();
    }
    let (agent, _) = harness.register("staging").await;
    let began = clock.now();
    let mut attempts = 0_u32;
    let mut bound = SHORTEST;
    while clock.now().millis_since(began) < HOUR_MILLIS {
        attempts += 1;
        let count = usize::try_from(attempts).unwrap();
        harness.observe(agent, u64::from(attempts), 1).await;
        // Time stands still until the other one has its event, and the failing one was asked once more.
        let got = other.wait_for(count).await;
        assert_eq!(sent_at(&got[count - 1]), clock.now().0 / 1000, "without delay");
        failing.wait_for(count).await;
        let view = failed(&harness, clock.now()).await;
        let asked = failing.got();
        assert_eq!(asked.len(), count, "one attempt after each pause");
        assert_eq!(sent_at(&asked[count - 1]), clock.now().0 / 1000);
        assert!(asked.iter().all(|message| message.event().id.ends_with("/1/1")), "later events wait");
        assert!(view.reason.contains("500"), "{}", view.reason);
        let pause = view.retry_at.unwrap().millis_since(clock.now());
        let pause = Duration::from_millis(u64::try_from(pause).unwrap());
        assert!(SHORTEST <= pause && pause <= bound, "attempt {attempts}: {pause:?} of at most {bound:?}");
        bound = (bound * 2).min(LONGEST);
        clock.put_forward_to(view.retry_at.unwrap());
    }
    assert!((10..200).contains(&attempts), "an hour has {attempts} attempts");

    // It works again: the next attempt is due now.
    failing.answer(Answer::Status(200));
    let all = usize::try_from(attempts).unwrap();
    let delivered = failing.wait_until(|message| message.status == 200, all).await;
    let ids: Vec<_> = delivered.iter().map(|message| message.event().id).collect();
    let expected: Vec<_> = (1..=attempts).map(|number| format!("agent-{agent}/1/{number}")).collect();
    assert_eq!(ids, expected);
    let ids: Vec<_> = other.got().iter().map(|message| message.event().id).collect();
    assert_eq!(ids, expected, "the other one got each once");
    let view = eventually(DEADLINE, || async {
        let view = harness.show("failing").await.unwrap();
        if view.behind == Some(0) { Ok(view) } else { Err(format!("{view:?}")) }
    })
    .await;
    assert_eq!((view.state, view.dead_letters, view.oldest), (SubscriptionState::Active, 0, None));
}
