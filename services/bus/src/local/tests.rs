use std::collections::BTreeSet;

use events::OrganizationId;
use parking_lot::Mutex;

use super::*;
use crate::contract::is_valid;

crate::conformance_suite!(local, async |world: &World| { (Arc::new(LocalBus::new(world.clone())), ()) });

#[tokio::test]
async fn nothing_is_left_behind_when_guards_are_dropped() {
    let world = World::real();
    let bus = LocalBus::new(world);
    let subject = Subject::request("test.echo");
    let serving = bus.serve(&subject, "test", Arc::new(|_, body| Box::pin(async { body }))).await.unwrap();
    let subscription = bus.subscribe(&subject).await.unwrap();
    drop(serving);
    drop(subscription);
    assert!(bus.requests.choose(subject.as_str(), &*bus.world.random).is_empty());
    assert!(!format!("{:?}", bus.notices.subjects()).contains("test.echo"));
}

#[tokio::test]
async fn members_of_a_group_share_the_work() {
    let world = World::real();
    let bus = LocalBus::new(world.clone());
    let subject = Subject::request("test.who");
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let mut serving = Vec::new();
    for number in 0..3 {
        let seen = Arc::clone(&seen);
        let handler: Handler = Arc::new(move |_, body| {
            seen.lock().insert(number);
            Box::pin(async { body })
        });
        serving.push(bus.serve(&subject, "test", handler).await.unwrap());
    }
    let context = crate::context_for_service(&world, "test", OrganizationId::SYSTEM);
    // The chance that one of three is never chosen in 200 is below 10^-34.
    for _ in 0..200 {
        bus.request(&subject, &context, Bytes::new()).await.unwrap();
    }
    assert_eq!(seen.lock().len(), 3);
}

#[test]
fn subjects_that_nats_would_refuse_are_refused() {
    for name in ["", "a..b", "a b", "a.*", "a.>", "a\n", ".a", "a."] {
        assert!(!is_valid(&Subject::request(name)), "{name:?}");
    }
    assert!(!is_valid(&Subject::request(&"x".repeat(255))));
    assert!(is_valid(&Subject::request("authz.decide")));
}
