use std::process::Command;

use events::delivery::SyncOutcome;
use testkit::{Cluster, Folder, Process, Proxy, Tools, eventually, free_port};

use crate::kubeconfig;
use crate::rig::{DEADLINE, Rig, Source, cluster, config_map};

/// More than there is room for at once.
const MANY: usize = 300;

/// An agent that reaches its API server through a proxy.
async fn behind_a_proxy(cluster: &Cluster, namespace: &str) -> (Proxy, Rig) {
    let folder = Folder::temporary().unwrap();
    let upstream = cluster.server().trim_start_matches("https://").parse().unwrap();
    let proxy = Proxy::start(upstream).unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    kubeconfig::at(cluster, &format!("https://{}", proxy.address()), &kubeconfig);
    // It is read once.
    let rig = Rig::start_as(&kubeconfig, namespace).await;
    (proxy, rig)
}

#[tokio::test]
async fn many_requests_at_once_share_few_connections() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("connections", false).await.unwrap();
    let (proxy, mut rig) = behind_a_proxy(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with((0..MANY).map(|n| config_map(&format!("m{n}"), "v")));
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.created), (SyncOutcome::Succeeded, 300));
    // One for the Lease, two for requests, one for watches; and those of before the first answer.
    assert!((4..=8).contains(&proxy.accepted()), "{} connections", proxy.accepted());
}

#[tokio::test]
async fn connections_that_lead_nowhere_any_more_are_found_out() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("nowhere", false).await.unwrap();
    let (proxy, mut rig) = behind_a_proxy(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("before", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    proxy.forget();
    rig.process.lost_lease().await;
    // Nothing but its own asking tells that its connection is dead: others can be had meanwhile.
    rig.process.holds_lease().await;
    source.with([config_map("before", "v"), config_map("after", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
}

#[tokio::test]
async fn where_http_2_is_not_to_be_had_all_goes_as_well() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("http-1", false).await.unwrap();
    let folder = Folder::temporary().unwrap();
    let port = free_port().unwrap();
    let mut command = Command::new(Tools::find().unwrap().path("kubectl").unwrap());
    command.arg("--kubeconfig").arg(cluster.kubeconfig()).args(["proxy", "--port", &port.to_string()]);
    let _kubectl = Process::spawn("kubectl", command, &folder.path().join("kubectl.log")).unwrap();
    eventually(DEADLINE, || async { std::net::TcpStream::connect(("127.0.0.1", port)) }).await;
    let kubeconfig = folder.path().join("kubeconfig");
    kubeconfig::at(&cluster, &format!("http://127.0.0.1:{port}"), &kubeconfig);
    let mut rig = Rig::start_as(&kubeconfig, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with((0..MANY).map(|n| config_map(&format!("m{n}"), "v")));
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.created), (SyncOutcome::Succeeded, 300), "{finished:?}");
}
