//! What clients may not do.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use chassis::ShutdownTrigger;
use chassis::server::{Limits, Server};
use hyper_util::service::TowerToHyperService;
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::World;

use crate::serving::{Console, HOME, answer};

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said() {
    let console = Console::start().await;
    let post = |body: &'static str| {
        console.client.post(console.url("/api/v1/groups")).bearer_auth(HOME).body(body).send()
    };
    for (body, field) in [("{", "body"), ("[]", "body"), ("{}", "name"), (r#"{"name":7}"#, "name")] {
        let (status, refusal) = answer(post(body).await.unwrap()).await;
        assert_eq!(
            (status, refusal["field"].as_str()),
            (StatusCode::BAD_REQUEST, Some(field)),
            "{body}: {refusal}"
        );
        assert_eq!(refusal["kind"], "invalid");
    }
    let large = json!({ "name": "x".repeat(console::app::MAXIMUM_BODY) });
    let (status, _) = console.call(HOME, Method::POST, "/api/v1/groups", Some(&large)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let (status, refusal) = console.call(HOME, Method::PUT, "/api/v1/groups", None).await;
    assert_eq!((status, refusal["kind"].as_str()), (StatusCode::METHOD_NOT_ALLOWED, Some("invalid")));
    let (status, refusal) = console.get(HOME, "/api/v1/nothing").await;
    assert_eq!((status, refusal["kind"].as_str()), (StatusCode::NOT_FOUND, Some("not-found")));
    console.stop().await;
}

#[tokio::test]
async fn the_document_is_for_everybody() {
    let console = Console::start().await;
    let response = console.client.get(console.url("/api/v1/openapi.json")).send().await.unwrap();
    let (status, document) = answer(response).await;
    assert_eq!((status, &document["openapi"]), (StatusCode::OK, &json!("3.1.0")));
    console.stop().await;
}

#[tokio::test]
async fn a_client_that_asks_nothing_is_let_go() {
    for said in ["", "P", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nhost: x\r\nx-slow: "] {
        let world = World::real();
        let listener = world.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap();
        let limits = Limits { head: Duration::from_millis(100), connections: 1, ..Limits::default() };
        let server = Server {
            name: "test",
            world: world.clone(),
            listener,
            tls: None,
            plain_on_loopback: false,
            limits,
        };
        let (trigger, shutdown) = ShutdownTrigger::new();
        let router = Router::new().route("/", get(async || "served"));
        let router = TowerToHyperService::new(router);
        let serving = async move { server.serve(router, shutdown).await.unwrap() };
        let task = world.spawner.spawn("server", Box::pin(serving));
        let mut slow = world.network.dial("127.0.0.1", address.port()).await.unwrap();
        slow.write_all(said.as_bytes()).await.unwrap();
        // There is one place only: the next client is served once the slow one was let go.
        let mut next = world.network.dial("127.0.0.1", address.port()).await.unwrap();
        next.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut served = String::new();
        let read = tokio::time::timeout(Duration::from_secs(20), next.read_to_string(&mut served));
        read.await.expect("the next client is served").unwrap();
        assert!(served.contains("served"), "after {said:?}: {served}");
        trigger.request();
        task.join().await.unwrap();
    }
}
