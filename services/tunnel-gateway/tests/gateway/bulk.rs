//! Connections beside tunnels.

use events::observation::Observed;
use testkit::eventually;
use tokio::time::timeout;
use tunnel::agent::{DialError, LinkEnd, dial};
use tunnel::handshake::{Hello, Token};
use tunnel::wire::Again;

use super::agent::TestAgent;
use super::harness::{Gateway, LIMIT, args, instance, secret};
use super::people::{People, Second};

const PODS: &str = "/api/v1/namespaces/a/pods";

async fn stage() -> (Gateway, People) {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let people = People::of(&gateway).await;
    people.let_in(1);
    (gateway, people)
}

async fn beside(gateway: &Gateway) -> TestAgent {
    TestAgent::connect_bulk(&gateway.world, &gateway.target(), &secret(1), instance(1)).await
}

fn asked(agent: &TestAgent) -> usize {
    agent.state.lock().asked_of_cluster.len()
}

/// Waits until somebody's requests go over this connection.
async fn requests_go_over(agent: &TestAgent, gateway: &Gateway, people: &People) {
    eventually(LIMIT, || async {
        let before = asked(agent);
        let told = people.get(1, gateway.clusters, 1, PODS).await;
        if told.code == 200 && asked(agent) > before { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_beside_the_tunnel_as_soon_as_something_is_open_there() {
    let (gateway, people) = stage().await;
    let tunnel = gateway.connect(1, 1).await;
    assert_eq!(people.get(1, gateway.clusters, 1, PODS).await.code, 200);
    assert_eq!(asked(&tunnel), 1, "nobody waits for it");
    tunnel
        .until("not asked for a connection beside it", |state| (state.asked_for_bulk > 0).then_some(()))
        .await;
    let bulk = beside(&gateway).await;
    requests_go_over(&bulk, &gateway, &people).await;
    let over_the_tunnel = asked(&tunnel);
    for _ in 0..10 {
        assert_eq!(people.get(1, gateway.clusters, 1, PODS).await.code, 200);
    }
    assert_eq!(asked(&tunnel), over_the_tunnel);
    let opened = gateway.journal().await;
    let opened = opened.iter().filter(|what| matches!(what, Observed::TunnelOpened { .. })).count();
    assert_eq!(opened, 1, "what stands beside a tunnel is none");
    bulk.link.abort();
    requests_go_over(&tunnel, &gateway, &people).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_beside_a_tunnel_ends_with_its_token() {
    let (gateway, people) = stage().await;
    let _tunnel = gateway.connect(1, 1).await;
    let bulk = beside(&gateway).await;
    requests_go_over(&bulk, &gateway, &people).await;
    gateway.revoke(1).await;
    let end = timeout(LIMIT, bulk.link).await.unwrap().unwrap();
    assert!(matches!(&end, LinkEnd::Farewell(farewell) if farewell.again == Again::Slowly), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_came_in_at_another_gateway_is_used_there() {
    let (first, people) = stage().await;
    let second = Second::beside(&first).await;
    let tunnel = second.connect(&first, 1, 1).await;
    tunnel.events().await;
    let bulk = beside(&first).await;
    requests_go_over(&bulk, &first, &people).await;
    let over_a_hop = asked(&tunnel);
    assert_eq!(people.get(1, first.clusters, 1, PODS).await.code, 200);
    assert_eq!(asked(&tunnel), over_a_hop);
    bulk.link.abort();
    requests_go_over(&tunnel, &first, &people).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_of_them_than_allowed() {
    let gateway = Gateway::start_with(tunnel_gateway::Args { tunnel_bulk_per_agent: 1, ..args() }).await;
    gateway.register(1).await;
    let _first = beside(&gateway).await;
    let hello = Hello::bulk(instance(1), "0.1.0");
    let another = dial(&gateway.world, &gateway.target(), &Token::new(&secret(1)), &hello).await;
    let refused = another.map(|_| ()).unwrap_err();
    let DialError::Refused { status, refusal, .. } = &refused else { panic!("{refused}") };
    assert_eq!(status.as_u16(), 503);
    assert!(refusal.message.contains("1 connections beside its tunnels"), "{refusal}");
}
