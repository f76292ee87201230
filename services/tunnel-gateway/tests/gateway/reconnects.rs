//! Requests to agents that are not there: one that was, a moment ago, is waited for.

use std::time::Duration;

use events::observation::Observed;
use http::Method;
use testkit::eventually;
use tokio::time::timeout;

use super::agent::TestAgent;
use super::clients::{Clients, Reply, Second};
use super::harness::{Gateway, LIMIT, agent_id};

const PODS: &str = "/api/v1/namespaces/a/pods";
/// What is answered without waiting is answered within this time.
const AT_ONCE: Duration = Duration::from_secs(3);

async fn stage() -> (Gateway, Clients) {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let clients = Clients::of(&gateway).await;
    clients.let_in(1);
    (gateway, clients)
}

/// Breaks an agent's connection off, and waits until its gateway has heard of it.
async fn breaks_off(gateway: &Gateway, agent: TestAgent) {
    let closed = async || {
        let journal = gateway.journal().await;
        journal.iter().filter(|what| matches!(what, Observed::TunnelClosed { .. })).count()
    };
    let before = closed().await;
    agent.link.abort();
    eventually(LIMIT, || async {
        let now = closed().await;
        if now > before { Ok(()) } else { Err(format!("{now} tunnels were closed")) }
    })
    .await;
}

fn refused_at_once(gateway: &Gateway, told: &Reply, since: Duration) {
    let took = gateway.world.clock.monotonic() - since;
    assert_eq!(told.code, 503, "{told:?}");
    assert!(told.retry_after.is_none() && told.message().contains("not connected"), "{told:?}");
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_an_agent_that_lost_its_tunnel_a_moment_ago_waits_and_is_sent_once() {
    let (gateway, clients) = stage().await;
    let agent = gateway.connect(1, 1).await;
    assert_eq!(clients.get(1, gateway.clusters, 1, PODS).await.code, 200);
    breaks_off(&gateway, agent).await;
    let mut waiting = clients.send(1, gateway.clusters, 1, "whole");
    assert!(timeout(Duration::from_millis(500), &mut waiting).await.is_err(), "it does not wait");
    let agent = gateway.connect(1, 1).await;
    let told = timeout(LIMIT, waiting).await.unwrap().unwrap();
    assert_eq!((told.code, told.body.as_str()), (200, "whole"));
    assert_eq!(agent.state.lock().asked_of_cluster, [format!("POST {PODS}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_reads_is_asked_again_when_the_tunnel_is_lost_before_the_answer_but_not_for_ever() {
    let (gateway, clients) = stage().await;
    let late = format!("{PODS}?late");
    let taken = async |agent: &TestAgent, count: usize| {
        agent
            .until("not all were taken", |state| (state.asked_of_cluster.len() == count).then_some(()))
            .await;
    };
    for loses_the_second in [false, true] {
        let agent = gateway.connect(1, 1).await;
        let reads = clients.begin(Method::GET, gateway.clusters, &late);
        let writes = clients.begin(Method::POST, gateway.clusters, &late);
        taken(&agent, 2).await;
        breaks_off(&gateway, agent).await;
        let told = timeout(LIMIT, writes).await.unwrap().unwrap();
        assert_eq!(told.code, 502, "nobody knows whether it was written: {told:?}");
        let agent = gateway.connect(1, 1).await;
        taken(&agent, 1).await;
        if !loses_the_second {
            agent.hurry();
            assert_eq!(timeout(LIMIT, reads).await.unwrap().unwrap().code, 200);
            breaks_off(&gateway, agent).await;
            continue;
        }
        breaks_off(&gateway, agent).await;
        assert_eq!(timeout(LIMIT, reads).await.unwrap().unwrap().code, 502);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_comes_back_to_another_gateway_is_found_there() {
    let (first, clients) = stage().await;
    let second = Second::beside(&first).await;
    let agent = first.connect(1, 1).await;
    breaks_off(&first, agent).await;
    let mut waiting = clients.send(1, first.clusters, 1, "whole");
    assert!(timeout(Duration::from_millis(500), &mut waiting).await.is_err(), "it does not wait");
    let _agent = second.connect(&first, 1, 1).await;
    let told = timeout(LIMIT, waiting).await.unwrap().unwrap();
    assert_eq!((told.code, told.body.as_str()), (200, "whole"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_reached_an_agent_through_another_waits_for_it_too() {
    let (first, clients) = stage().await;
    let second = Second::beside(&first).await;
    let agent = first.connect(1, 1).await;
    assert_eq!(clients.get(1, second.clusters, 1, PODS).await.code, 200);
    breaks_off(&first, agent).await;
    let mut waiting = clients.send(1, second.clusters, 1, "again");
    assert!(timeout(Duration::from_millis(500), &mut waiting).await.is_err(), "it does not wait");
    let _agent = second.connect(&first, 1, 1).await;
    let told = timeout(LIMIT, waiting).await.unwrap().unwrap();
    assert_eq!((told.code, told.body.as_str()), (200, "again"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_never_here_or_does_not_come_back_is_not_waited_for() {
    let (gateway, clients) = stage().await;
    let since = gateway.world.clock.monotonic();
    refused_at_once(&gateway, &clients.get(1, gateway.clusters, 1, PODS).await, since);

    let agent = gateway.connect(1, 1).await;
    gateway.revoke(1).await;
    timeout(LIMIT, agent.link).await.unwrap().unwrap();
    eventually(LIMIT, || async {
        let journal = gateway.journal().await;
        let is_closed = journal.iter().any(|what| matches!(what, Observed::TunnelClosed { .. }));
        is_closed.then_some(()).ok_or("the tunnel is open")
    })
    .await;
    let since = gateway.world.clock.monotonic();
    refused_at_once(&gateway, &clients.get(1, gateway.clusters, 1, PODS).await, since);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stays_away_is_waited_for_only_so_long() {
    let (gateway, clients) = stage().await;
    let agent = gateway.connect(1, 1).await;
    breaks_off(&gateway, agent).await;
    let since = gateway.world.clock.monotonic();
    let told = timeout(LIMIT, clients.get(1, gateway.clusters, 1, PODS)).await.unwrap();
    assert_eq!((told.code, told.retry_after), (503, None), "{told:?}");
    assert!(told.message().contains("did not reconnect within 5s"), "{told:?}");
    let took = gateway.world.clock.monotonic() - since;
    assert!(took > AT_ONCE, "{took:?}");
    let since = gateway.world.clock.monotonic();
    refused_at_once(&gateway, &clients.get(1, gateway.clusters, 1, PODS).await, since);
    let agent = gateway.connect(1, 1).await;
    breaks_off(&gateway, agent).await;
    let mut waiting = clients.send(1, gateway.clusters, 1, "whole");
    assert!(
        timeout(Duration::from_millis(500), &mut waiting).await.is_err(),
        "one that came back is waited for again"
    );
    let _agent = gateway.connect(1, 1).await;
    assert_eq!(timeout(LIMIT, waiting).await.unwrap().unwrap().code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_refused_over_http2_has_its_answer() {
    let (gateway, clients) = stage().await;
    let builder = reqwest::Client::builder().no_proxy().http2_prior_knowledge();
    let client = builder.tls_backend_preconfigured(testkit::tls_trusting(b"").unwrap()).build().unwrap();
    for (token, code) in [("1", 503), ("nobody", 401)] {
        let url = format!("http://{}/agents/{}{PODS}", gateway.clusters, agent_id(1));
        let answer = client.head(url).bearer_auth(token).send().await.unwrap();
        assert_eq!((answer.version(), answer.status().as_u16()), (http::Version::HTTP_2, code));
        assert!(answer.bytes().await.unwrap().is_empty());
    }
    drop(clients);
}
