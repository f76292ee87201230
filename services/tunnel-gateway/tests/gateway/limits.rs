//! What one user, one agent and one organization may use of clusters' APIs.

use std::time::Duration;

use tokio::time::timeout;
use tunnel_gateway::{Args, ClusterLimits};

use super::agent::TestAgent;
use super::clients::{Clients, Reply};
use super::harness::{Gateway, LIMIT, args};

const PODS: &str = "/api/v1/namespaces/a/pods";
const WATCH: &str = "/api/v1/namespaces/a/pods?watch=true";

async fn stage(cluster_limits: ClusterLimits) -> (Gateway, Clients, TestAgent) {
    let gateway = Gateway::start_with(Args { cluster_limits, ..args() }).await;
    gateway.register(1).await;
    let clients = Clients::of(&gateway).await;
    clients.let_in(1);
    clients.let_in(2);
    let agent = gateway.connect(1, 1).await;
    (gateway, clients, agent)
}

fn refused(told: &Reply, words: &str) {
    let status = told.status();
    assert_eq!((told.code, status["reason"].as_str()), (429, Some("TooManyRequests")), "{told:?}");
    assert_eq!(status["details"]["retryAfterSeconds"].as_u64(), told.retry_after, "{told:?}");
    assert!(told.retry_after.is_some_and(|seconds| seconds > 0), "{told:?}");
    assert!(told.message().contains(words), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_takes_a_place_until_it_ends_and_each_user_has_their_own() {
    let limits = ClusterLimits { clusters_open_per_user: 2, ..ClusterLimits::default() };
    let (gateway, clients, agent) = stage(limits).await;
    let mut watches = Vec::new();
    for _ in 0..2 {
        let watch = clients.request(1, gateway.clusters, 1, WATCH).send().await.unwrap();
        assert_eq!(watch.status().as_u16(), 200);
        watches.push(watch);
    }
    let told = clients.get(1, gateway.clusters, 1, PODS).await;
    refused(&told, "you have 2 requests open at this gateway, the maximum (--clusters-open-per-user)");
    assert_eq!(agent.state.lock().asked_of_cluster.len(), 2, "nothing of it reached the agent");
    assert_eq!(clients.get(2, gateway.clusters, 1, PODS).await.code, 200);
    drop(watches);
    let again = async { while clients.get(1, gateway.clusters, 1, PODS).await.code != 200 {} };
    timeout(LIMIT, again).await.expect("the places are free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_takes_all_places_of_an_agent() {
    let limits = ClusterLimits { clusters_open_per_agent: 4, ..ClusterLimits::default() };
    let (gateway, clients, _agent) = stage(limits).await;
    let mut watches = Vec::new();
    for _ in 0..2 {
        watches.push(clients.request(1, gateway.clusters, 1, WATCH).send().await.unwrap());
    }
    let told = clients.get(1, gateway.clusters, 1, WATCH).await;
    refused(
        &told,
        "4 requests open at this gateway (--clusters-open-per-agent), of which you hold 2, your share",
    );
    watches.push(clients.request(2, gateway.clusters, 1, WATCH).send().await.unwrap());
    assert!(watches.iter().all(|watch| watch.status().as_u16() == 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_too_often_is_told_when_to_ask_again() {
    let limits = ClusterLimits { clusters_rate_per_user: 1, ..ClusterLimits::default() };
    let (gateway, clients, _agent) = stage(limits).await;
    let mut codes = Vec::new();
    let told = loop {
        let told = clients.get(1, gateway.clusters, 1, PODS).await;
        codes.push(told.code);
        if told.code != 200 || codes.len() > 100 {
            break told;
        }
    };
    refused(&told, "you make more than 1 requests a second at this gateway");
    assert!(codes.len() > 5, "a burst goes through: {codes:?}");
    assert_eq!(clients.get(2, gateway.clusters, 1, PODS).await.code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_over_what_a_user_may_move_come_later_and_whole() {
    let limits = ClusterLimits { clusters_bytes_per_user: 400_000, ..ClusterLimits::default() };
    let (gateway, clients, _agent) = stage(limits).await;
    let large = "x".repeat(700_000);
    let before = gateway.world.clock.monotonic();
    let told = timeout(LIMIT, clients.send(1, gateway.clusters, 1, &large)).await.unwrap().unwrap();
    let took = gateway.world.clock.monotonic() - before;
    assert_eq!((told.code, told.body.len()), (200, large.len()));
    assert!(took > Duration::from_millis(500), "{took:?} for 1.4 MB, of which 0.8 MB may come at once");
}
