//! Connections beside tunnels.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use events::observation::Observed;
use testkit::eventually;
use tokio::time::timeout;
use tunnel::agent::{DialError, LinkEnd, dial};
use tunnel::handshake::{Hello, Token};
use tunnel::wire::Again;

use super::agent::TestAgent;
use super::clients::{Clients, Second};
use super::harness::{Gateway, LIMIT, args, instance, secret};

const PODS: &str = "/api/v1/namespaces/a/pods";

/// What is cut at once is cut within this time.
const SHORTLY: Duration = Duration::from_millis(700);
/// Looks that find nothing new once everything in between is full.
const STANDS_STILL: u32 = 50;

async fn stage() -> (Gateway, Clients) {
    stage_with(args()).await
}

async fn stage_with(args: tunnel_gateway::Args) -> (Gateway, Clients) {
    let gateway = Gateway::start_with(args).await;
    gateway.register(1).await;
    let clients = Clients::of(&gateway).await;
    clients.let_in(1);
    (gateway, clients)
}

async fn beside(gateway: &Gateway) -> TestAgent {
    TestAgent::connect_bulk(&gateway.world, &gateway.target(), &secret(1), instance(1)).await
}

fn asked(agent: &TestAgent) -> usize {
    agent.state.lock().asked_of_cluster.len()
}

/// Waits until somebody's requests go over this connection.
async fn requests_go_over(agent: &TestAgent, gateway: &Gateway, clients: &Clients) {
    eventually(LIMIT, || async {
        let before = asked(agent);
        let told = clients.get(1, gateway.clusters, 1, PODS).await;
        if told.code == 200 && asked(agent) > before { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
}

/// An answer that has begun, and ends only when its agent hurries.
async fn slow(gateway: &Gateway, clients: &Clients) -> reqwest::Response {
    slow_to(1, gateway, clients).await
}

async fn slow_to(person: u128, gateway: &Gateway, clients: &Clients) -> reqwest::Response {
    let request = clients.request(person, gateway.clusters, 1, &format!("{PODS}?slow"));
    let mut answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "{}\n");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_beside_the_tunnel_as_soon_as_something_is_open_there() {
    let (gateway, clients) = stage().await;
    let tunnel = gateway.connect(1, 1).await;
    assert_eq!(clients.get(1, gateway.clusters, 1, PODS).await.code, 200);
    assert_eq!(asked(&tunnel), 1, "nobody waits for it");
    tunnel
        .until("not asked for a connection beside it", |state| (state.asked_for_bulk > 0).then_some(()))
        .await;
    let bulk = beside(&gateway).await;
    requests_go_over(&bulk, &gateway, &clients).await;
    let over_the_tunnel = asked(&tunnel);
    for _ in 0..10 {
        assert_eq!(clients.get(1, gateway.clusters, 1, PODS).await.code, 200);
    }
    assert_eq!(asked(&tunnel), over_the_tunnel);
    let opened = eventually(LIMIT, || async {
        let journal = gateway.journal().await;
        let opened = journal.iter().filter(|what| matches!(what, Observed::TunnelOpened { .. })).count();
        if opened > 0 { Ok(opened) } else { Err("no tunnel was opened") }
    })
    .await;
    assert_eq!(opened, 1, "what stands beside a tunnel is none");
    bulk.link.abort();
    requests_go_over(&tunnel, &gateway, &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_beside_a_tunnel_ends_with_its_token() {
    let (gateway, clients) = stage().await;
    let _tunnel = gateway.connect(1, 1).await;
    let bulk = beside(&gateway).await;
    requests_go_over(&bulk, &gateway, &clients).await;
    let answer = slow(&gateway, &clients).await;
    gateway.revoke(1).await;
    let end = timeout(LIMIT, bulk.link).await.unwrap().unwrap();
    assert!(matches!(&end, LinkEnd::Farewell(farewell) if farewell.again == Again::Slowly), "{end:?}");
    assert!(answer.text().await.is_err(), "what is open ends with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_a_gateway_stops_comes_to_its_end() {
    let (gateway, clients) = stage().await;
    let tunnel = gateway.connect(1, 1).await;
    let over_the_tunnel = slow(&gateway, &clients).await;
    let mut bulk = beside(&gateway).await;
    requests_go_over(&bulk, &gateway, &clients).await;
    let over_bulk = slow(&gateway, &clients).await;
    gateway.stop.request();
    assert!(timeout(SHORTLY, &mut bulk.link).await.is_err(), "it is cut");
    tunnel.hurry();
    assert_eq!(over_the_tunnel.text().await.unwrap(), "the end");
    bulk.hurry();
    assert_eq!(over_bulk.text().await.unwrap(), "the end");
    for link in [tunnel.link, bulk.link] {
        let end = timeout(LIMIT, link).await.unwrap().unwrap();
        assert!(matches!(&end, LinkEnd::Farewell(farewell) if farewell.again == Again::AtOnce), "{end:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_a_gateway_stops_ends_once_it_is_withdrawn() {
    let (gateway, clients) = stage().await;
    clients.let_in(2);
    let _tunnel = gateway.connect(1, 1).await;
    let withdrawn = slow_to(1, &gateway, &clients).await;
    let mut others = std::pin::pin!(slow_to(2, &gateway, &clients).await.text());
    gateway.stop.request();
    clients.shut_out(1);
    gateway.revoke_of_user(1).await;
    assert!(withdrawn.text().await.is_err());
    assert!(
        futures::poll!(&mut others).is_pending(),
        "the time in which they may come to their end is not over"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_an_agent_stops_comes_to_its_end_and_no_request_is_lost() {
    let (gateway, clients) = stage().await;
    let tunnel = gateway.connect(1, 1).await;
    let bulk = beside(&gateway).await;
    requests_go_over(&bulk, &gateway, &clients).await;
    let answer = slow(&gateway, &clients).await;
    bulk.drain.notify_one();
    eventually(LIMIT, || async {
        let before = asked(&tunnel);
        let told = clients.send(1, gateway.clusters, 1, "whole").await.unwrap();
        assert_eq!((told.code, told.body.as_str()), (200, "whole"));
        if asked(&tunnel) > before { Ok(()) } else { Err("it goes over what is stopping") }
    })
    .await;
    bulk.hurry();
    assert_eq!(answer.text().await.unwrap(), "the end");
    assert_eq!(timeout(LIMIT, bulk.link).await.unwrap().unwrap(), LinkEnd::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stood_beside_a_tunnel_that_another_took_the_place_of_is_used_no_more_and_ends_with_its_token() {
    let one = tunnel_gateway::Args { tunnel_bulk_per_agent: 1, ..args() };
    let (gateway, clients) = stage_with(one).await;
    let _former = gateway.connect(1, 1).await;
    let old = beside(&gateway).await;
    requests_go_over(&old, &gateway, &clients).await;
    let answer = slow(&gateway, &clients).await;
    let tunnel = gateway.connect(1, 1).await;
    requests_go_over(&tunnel, &gateway, &clients).await;
    let over_the_old = asked(&old);
    let new = beside(&gateway).await;
    requests_go_over(&new, &gateway, &clients).await;
    assert_eq!(asked(&old), over_the_old);
    old.hurry();
    assert_eq!(answer.text().await.unwrap(), "the end", "it may be alive");
    gateway.revoke(1).await;
    let end = timeout(LIMIT, old.link).await.unwrap().unwrap();
    assert!(matches!(&end, LinkEnd::Farewell(farewell) if farewell.again == Again::Slowly), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_is_used_first() {
    let (gateway, clients) = stage().await;
    let _tunnel = gateway.connect(1, 1).await;
    let old = beside(&gateway).await;
    requests_go_over(&old, &gateway, &clients).await;
    let new = beside(&gateway).await;
    requests_go_over(&new, &gateway, &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_asked_again_only_when_one_came_in_or_after_a_while() {
    let (gateway, clients) = stage().await;
    let tunnel = gateway.connect(1, 1).await;
    let is_asked = async |times: usize| {
        let what = format!("not asked {times} times");
        tunnel.until(&what, |state| (state.asked_for_bulk == times).then_some(())).await;
    };
    for _ in 0..20 {
        assert_eq!(clients.get(1, gateway.clusters, 1, PODS).await.code, 200);
        is_asked(1).await;
    }
    let bulk = beside(&gateway).await;
    requests_go_over(&bulk, &gateway, &clients).await;
    bulk.link.abort();
    requests_go_over(&tunnel, &gateway, &clients).await;
    is_asked(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_came_in_at_another_gateway_is_used_there() {
    let (first, clients) = stage().await;
    let second = Second::beside(&first).await;
    let tunnel = second.connect(&first, 1, 1).await;
    let bulk = beside(&first).await;
    requests_go_over(&bulk, &first, &clients).await;
    let over_a_hop = asked(&tunnel);
    assert_eq!(clients.get(1, first.clusters, 1, PODS).await.code, 200);
    assert_eq!(asked(&tunnel), over_a_hop);
    bulk.link.abort();
    requests_go_over(&tunnel, &first, &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_of_them_than_allowed() {
    let gateway = Gateway::start_with(tunnel_gateway::Args { tunnel_bulk_per_agent: 1, ..args() }).await;
    gateway.register(1).await;
    let _first = beside(&gateway).await;
    let hello = Hello::bulk(instance(1), "0.1.0");
    // The first one may be told that it is in before the gateway counts it.
    let refused = eventually(LIMIT, || async {
        let another = dial(&gateway.world, &gateway.target(), &Token::new(&secret(1)), &hello).await;
        another.map_or_else(Ok, |_| Err("another was let in"))
    })
    .await;
    let DialError::Refused { status, refusal, .. } = &refused else { panic!("{refused}") };
    assert_eq!(status.as_u16(), 503);
    assert!(refusal.message.contains("1 connections beside its tunnels"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_reads_ends_at_the_cluster_once_it_is_withdrawn() {
    let (gateway, clients) = stage().await;
    let tunnel = gateway.connect(1, 1).await;
    let flood = clients.request(1, gateway.clusters, 1, &format!("{PODS}/a/log?flood"));
    let unread = flood.send().await.unwrap();
    assert_eq!(unread.status(), 200);
    let flooded = Arc::clone(&tunnel.state.lock().flooded);
    let mut before = (0, 0);
    eventually(LIMIT, || {
        let (sent, (last, looks)) = (flooded.load(Ordering::Relaxed), before);
        before = (sent, if sent > last { 0 } else { looks + 1 });
        let is_full = sent > 0 && before.1 >= STANDS_STILL;
        std::future::ready(if is_full { Ok(()) } else { Err(format!("{sent} pieces, and more")) })
    })
    .await;
    assert_eq!(tunnel.answering(), 1, "everything in between is full");
    clients.shut_out(1);
    gateway.revoke_of_user(1).await;
    eventually(LIMIT, || async { if tunnel.answering() == 0 { Ok(()) } else { Err("it goes on") } }).await;
    drop(unread);
}
