//! Messages about environments, by what the index says.

use std::sync::Arc;
use std::time::Duration;

use bus::Serving;
use events::requests::index::{
    AsOf, EnvironmentHealth, ExplainHealth, HealthExplained, ListEnvironmentHealth,
};
use events::requests::page::Page;
use events::requests::subscriptions::CreateSubscription;
use events::subscription::WebhookFormat;
use events::{Actor, Position, Timestamp, UserId};
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{Harness, webhook};
use crate::receivers::{Answer, Receiver};

/// An object of the index.
fn object(kind: &str, name: &str, state: &str, message: &str) -> Value {
    json!({
        "agent": "01890a5d-ac96-774b-bcce-b302099a8057", "agent_name": "shop/deploy:production", "uid": "u",
        "identity": { "version": "v1", "kind": kind, "namespace": "shop", "name": name },
        "health": { "state": state, "message": message, "rule": "built-in" }, "changed_at": "2026-01-01T00:00:00Z",
    })
}

fn health(state: &str) -> EnvironmentHealth {
    let worst = (state != "healthy").then(|| object("Database", "orders", state, "0 of 1 available"));
    let mut health = json!({
        "environment": "01890a5d-ac96-774b-bcce-b302099a8058", "name": "production",
        "project": "01890a5d-ac96-774b-bcce-b302099a8059", "project_path": "shop/deploy", "tier": "production",
        "state": "available", "objects": 3, "health": state, "counts": [{ "state": state, "count": 1 }],
    });
    if let Some(worst) = worst {
        health["worst"] = worst;
    }
    serde_json::from_value(health).unwrap()
}

/// What the index says, until the guards are dropped. Only to the subscription's creator.
async fn index(harness: &Harness, says: &Arc<Mutex<EnvironmentHealth>>) -> [Serving; 2] {
    let creator = Actor::User(UserId(harness.organization.0));
    let (says, asked) = (Arc::clone(says), creator.clone());
    let listing = bus::answer::<ListEnvironmentHealth, _>(&*harness.bus, move |context, _| {
        assert_eq!(context.actor, asked);
        let items = vec![says.lock().clone()];
        async move { Ok(Page { items, next: None }) }.boxed()
    });
    let explaining = bus::answer::<ExplainHealth, _>(&*harness.bus, move |context, request| {
        assert_eq!((&context.actor, request.filter.name.as_deref()), (&creator, Some("orders")));
        let chain = [
            object("Database", "orders", "degraded", "0 of 1 available"),
            object("Pod", "orders-0", "degraded", "the image cannot be pulled"),
        ];
        let chains = vec![chain.map(|one| serde_json::from_value(one).unwrap()).to_vec()];
        let as_of = AsOf { position: Position::start(), judged_at: Timestamp(0), rules: 1, horizon: None };
        async move { Ok(HealthExplained { chains, as_of }) }.boxed()
    });
    [listing.await.unwrap(), explaining.await.unwrap()]
}

#[tokio::test]
async fn messages_follow_the_index_and_an_index_that_is_away_makes_no_recovery() {
    let harness = Harness::start_with(|args| args.alerts_after = Duration::from_millis(200)).await;
    let says = Arc::new(Mutex::new(health("healthy")));
    let serving = index(&harness, &says).await;
    let receiver = Receiver::start(Answer::Status(200));
    let chat =
        CreateSubscription { format: Some(WebhookFormat::Slack), ..webhook("chat", &receiver.url(), &[]) };
    harness.ask(&chat).await.unwrap();
    *says.lock() = health("degraded");
    let text = |message: &crate::receivers::Message| String::from_utf8(message.body.clone()).unwrap();
    let first = text(&receiver.wait_for(1).await[0]);
    assert!(
        first.contains("degraded because Database shop/orders: 0 of 1 available, because Pod shop/orders-0: the image cannot be pulled, since"),
        "{first}"
    );
    // While the index does not answer, events of other environments cause messages, and this environment does not recover.
    drop(serving);
    let (agent, project) = harness.register("staging").await;
    let source = harness.configure(agent, project).await;
    harness.health(agent, source, 1, "degraded").await;
    let second = text(&receiver.wait_for(2).await[1]);
    assert!(second.contains("environment production degraded because Deployment shop/web"), "{second}");
    // It is back, and well.
    *says.lock() = health("healthy");
    let _serving = index(&harness, &says).await;
    let third = text(&receiver.wait_for(3).await[2]);
    assert!(third.contains("recovered at"), "{third}");
}
