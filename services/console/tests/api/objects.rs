//! Requests to the index: what a query says becomes what the bus says, and positions leave sealed.

use events::requests::index::{HealthState, Moment, ObjectFilter, Ownership, ShowTree};
use events::{Position, Stream, Timestamp};
use reqwest::StatusCode;

use crate::behind::as_of;
use crate::serving::{Console, HOME, STRANGER};

#[tokio::test]
async fn a_query_becomes_a_filter() {
    let console = Console::start().await;
    let query = "kind=deploy&name=web&namespace=shop&labels=app%3Dweb&health=degraded,progressing&agent=edge&text=err&env=review%2F*&tier=production&project=shop%2Ffront&ownership=doubly-owned&deployment=0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55&at=1970-01-01T00:00:01Z";
    let (status, tree) = console.get(HOME, &format!("/api/v1/objects/tree?{query}")).await;
    assert_eq!(status, StatusCode::OK, "{tree}");
    let text = |text: &str| Some(text.to_owned());
    let filter = ObjectFilter {
        agent: text("edge"),
        kind: text("deploy"),
        namespace: text("shop"),
        name: text("web"),
        labels: text("app=web"),
        health: vec![HealthState::Degraded, HealthState::Progressing],
        text: text("err"),
        env: text("review/*"),
        tier: Some(events::environment::Tier::Production),
        project: text("shop/front"),
        ownership: Some(Ownership::DoublyOwned),
        deployment: "0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55".parse().ok(),
    };
    assert_eq!(
        console.behind.tree(),
        ShowTree { filter, at: Some(Moment::Time(Timestamp(1_000))), todays_rules: false }
    );
    for (field, query) in [
        ("health", "health=ill"),
        ("at", "at=yesterday"),
        ("at", "at=d0-1"),
        ("kid", "kid=deploy"),
        ("name", "name=a&name=b"),
    ] {
        let (status, refusal) = console.get(HOME, &format!("/api/v1/objects/tree?{query}")).await;
        assert_eq!((status, refusal["field"].as_str()), (StatusCode::BAD_REQUEST, Some(field)), "{refusal}");
    }
    console.stop().await;
}

#[tokio::test]
async fn a_position_leaves_sealed_and_comes_back_as_a_moment() {
    let console = Console::start().await;
    let (_, tree) = console.get(HOME, "/api/v1/objects/tree?kind=deploy&at=-15m").await;
    let earliest = console.world.clock.now_millis() - 16 * 60_000;
    let latest = earliest + 2 * 60_000;
    let asked = console.behind.tree().at;
    assert!(
        matches!(asked, Some(Moment::Time(Timestamp(at))) if (earliest..latest).contains(&at)),
        "{asked:?}"
    );
    let position = tree["as_of"]["position"].as_str().unwrap().to_owned();
    assert!(position.starts_with("p_") && !tree.to_string().contains("123456"), "{tree}");
    let (status, _) = console.get(HOME, &format!("/api/v1/objects/tree?at={position}")).await;
    assert_eq!(status, StatusCode::OK);
    let expected = Position::of(Stream::Objects, 3, 123_456);
    assert_eq!(as_of().position, expected);
    assert_eq!(console.behind.tree().at, Some(Moment::Position(expected)));
    let (status, refusal) = console.get(STRANGER, &format!("/api/v1/objects/tree?at={position}")).await;
    assert_eq!(
        (status, refusal["field"].as_str()),
        (StatusCode::BAD_REQUEST, Some("at")),
        "of another's log"
    );
    console.stop().await;
}
