//! The binary over a real tunnel: what it says when something is wrong, and how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod gateway;
mod readiness;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use events::InstanceId;
use events::delivery::SyncOutcome;
use events::observation::Observed;
use gateway::{Driver, Gateway, LIMIT, Pki, TOKEN, WrongClock};
use serde_json::json;
use testkit::{Cluster, Folder, Process, eventually};
use tunnel::gateway::{AgentConnection, Secured};
use tunnel::wire::{Again, Farewell};
use world::World;

async fn cluster() -> Cluster {
    let shared = testkit::shared_control_plane().await.unwrap();
    Cluster::open(shared.kubeconfig()).unwrap()
}

/// Starts the binary against a server.
fn start(
    folder: &Path,
    cluster: &Cluster,
    namespace: &str,
    server: &str,
    authority: &str,
    options: &[&str],
) -> Process {
    start_at(folder, cluster.kubeconfig(), namespace, server, authority, options)
}

/// The same with another kubeconfig.
fn start_at(
    folder: &Path,
    kubeconfig: &Path,
    namespace: &str,
    server: &str,
    authority: &str,
    options: &[&str],
) -> Process {
    fs::write(folder.join("ca.crt"), authority).unwrap();
    fs::write(folder.join("token"), format!("{TOKEN}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kasbah-agent"));
    command.args(["--server", server, "--namespace", namespace]);
    command.arg("--ca-file").arg(folder.join("ca.crt")).arg("--token-file").arg(folder.join("token"));
    command.arg("--kubeconfig").arg(kubeconfig).args(options);
    Process::spawn("kasbah-agent", command, &folder.join("agent.log")).unwrap()
}

async fn says(process: &Process, words: &str) {
    eventually(LIMIT, || async {
        let log = process.log_tail(200);
        if log.contains(words) { Ok(()) } else { Err(log) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_applies_over_the_tunnel_and_ends_in_order() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("binary", false).await.unwrap();
    let folder = Folder::temporary().unwrap();
    let pki = Pki::new(|_| {});
    let gateway = Gateway::listen(World::real(), &pki, "127.0.0.1:0").await;
    let server = format!("localhost:{}", gateway.address.port());
    let admin = format!("127.0.0.1:{}", testkit::free_port().unwrap());
    let options = ["--admin-listen", admin.as_str()];
    let mut process = start(folder.path(), &cluster, &namespace, &server, &pki.authority, &options);
    let (connection, instance) = gateway.accept(None).await.unwrap();
    let mut driver = Driver::new(connection, instance, gateway.agent);
    let reading = Driver::read_events(
        driver.connection.clone(),
        Arc::clone(&driver.observed),
        Arc::clone(&driver.holds),
    );
    World::real().spawner.spawn("events", Box::pin(reading));
    driver.holds_lease().await;
    let maps: Vec<_> = (0..20)
        .map(|n| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")}, "data": {"k": "v"}}))
        .collect();
    let sync = driver.put(&namespace, &maps).await;
    let Observed::SyncFinished { outcome, counts, .. } = driver.finished(sync).await else {
        panic!("not an end")
    };
    assert_eq!((outcome, counts.created), (SyncOutcome::Succeeded, 20));

    shows(
        &admin,
        &[
            "api_requests_total{kind=\"write\",outcome=\"ok\"} 20",
            "api_requests_total{kind=\"dry_run\",outcome=\"ok\"} 20",
            "syncs_total{outcome=\"succeeded\"} 1",
            "applied_objects_total{outcome=\"created\"} 20",
            "objects 20",
            "lease_held 1",
            "tunnel_open 1",
        ],
    )
    .await;

    // It comes back, and says what it has.
    assert_eq!(*gateway.brought.lock(), None);
    let farewell = Farewell { reason: "moving".to_owned(), again: Again::AtOnce };
    driver.connection.close(&farewell).await;
    let _tunnel = accept_sometime(&gateway, TOKEN).await;
    assert!(driver.taken.is_some() && *gateway.brought.lock() == driver.taken);

    let held = holder(&cluster, &namespace).await;
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (name, instance) = held.rsplit_once('_').unwrap();
    assert_eq!(name, machine.trim(), "people see where it runs");
    assert!(instance.parse::<uuid::Uuid>().is_ok(), "{held}");
    let status = process.terminate(Duration::from_secs(20)).unwrap();
    assert!(status.success(), "{status}: {}", process.log_tail(20));
    assert_eq!(holder(&cluster, &namespace).await, "", "the Lease is free at once");
    let log = process.log_tail(1000);
    assert!(!log.contains(TOKEN), "the token is not told: {log}");
}

/// Waits until the metrics have these lines.
async fn shows(admin: &str, lines: &[&str]) {
    eventually(LIMIT, || async {
        let metrics = testkit::admin_page(admin, "/metrics").unwrap();
        match lines.iter().find(|line| !metrics.contains(&format!("\nkasbah_agent_{line}\n"))) {
            Some(line) => Err(format!("no {line} in {metrics}")),
            None => Ok(()),
        }
    })
    .await;
}

/// Who holds the only Lease in a namespace; empty if nobody does.
async fn holder(cluster: &Cluster, namespace: &str) -> String {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let leases = cluster.get(&path).await.unwrap();
    assert_eq!(leases["items"].as_array().unwrap().len(), 1);
    leases["items"][0]["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_certificate_trouble_has_its_line() {
    let cluster = cluster().await;
    let other = Pki::new(|_| {});
    let expired = Pki::new(|params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 2);
    });
    let early = Pki::new(|params| {
        params.not_before = rcgen::date_time_ymd(2200, 1, 1);
        params.not_after = rcgen::date_time_ymd(2201, 1, 1);
    });
    let good = Pki::new(|_| {});
    let cases = [
        (
            &good,
            other.authority.as_str(),
            "localhost",
            "authority that is not trusted here; give the server's ca.crt with --ca-file",
        ),
        (&good, good.authority.as_str(), "127.0.0.1", "is not for 127.0.0.1"),
        (&expired, expired.authority.as_str(), "localhost", "expired at 2020-01-02"),
        (&early, early.authority.as_str(), "localhost", "not valid yet: it begins at 2200-01-01"),
    ];
    for (pki, authority, host, words) in cases {
        let folder = Folder::temporary().unwrap();
        let gateway = Gateway::listen(World::real(), pki, "127.0.0.1:0").await;
        let server = format!("{host}:{}", gateway.address.port());
        let process = start(folder.path(), &cluster, "default", &server, authority, &[]);
        assert!(gateway.accept(None).await.is_none());
        says(&process, words).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_late_is_found_and_a_wrong_clock_is_told() {
    let cluster = cluster().await;
    let folder = Folder::temporary().unwrap();
    let pki = Pki::new(|_| {});
    let port = testkit::free_port().unwrap();
    let process =
        start(folder.path(), &cluster, "default", &format!("localhost:{port}"), &pki.authority, &[]);
    says(&process, "cannot reach localhost").await;
    let mut world = World::real();
    world.clock = Arc::new(WrongClock { right: Arc::clone(&world.clock), ahead_millis: 86_400_000 });
    let gateway = Gateway::listen(world, &pki, &format!("127.0.0.1:{port}")).await;
    let (_connection, _) = gateway.accept(None).await.unwrap();
    says(&process, "clock differs from the server's").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_told_and_not_tried_again_and_again() {
    let cluster = cluster().await;
    let folder = Folder::temporary().unwrap();
    let pki = Pki::new(|_| {});
    let gateway = Gateway::listen(World::real(), &pki, "127.0.0.1:0").await;
    let server = format!("localhost:{}", gateway.address.port());
    let mut process = start(folder.path(), &cluster, "default", &server, &pki.authority, &[]);
    assert!(gateway.accept(Some("this token was revoked")).await.is_none());
    says(&process, "this token was revoked").await;
    // Ending takes a moment, in which an eager agent would have come again.
    process.terminate(Duration::from_secs(20)).unwrap();
    assert_eq!(gateway.knocks.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_token_and_authority_are_read_from_their_files() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("rotated", false).await.unwrap();
    let folder = Folder::temporary().unwrap();
    let (before, after) = (Pki::new(|_| {}), Pki::new(|_| {}));
    let gateway = Gateway::listen(World::real(), &before, "127.0.0.1:0").await;
    let address = gateway.address.to_string();
    let server = format!("localhost:{}", gateway.address.port());
    let process = start(folder.path(), &cluster, &namespace, &server, &before.authority, &[]);
    let tunnel = gateway.accept(None).await.unwrap();
    says(&process, "tunnel open").await;

    let (connection, _) = tunnel;
    fs::write(folder.path().join("ca.crt"), &after.authority).unwrap();
    let farewell = Farewell { reason: "the token was revoked".to_owned(), again: Again::Slowly };
    connection.close(&farewell).await;
    fs::write(folder.path().join("token"), "kasbah_a_next").unwrap();
    drop(gateway);
    let gateway = Gateway::listen(World::real(), &after, &address).await;
    let tunnel = accept_sometime(&gateway, "kasbah_a_next").await;
    assert_eq!(*gateway.secured.lock(), Secured::Full, "another authority has to show its certificate");
    // Whoever answers has the ticket.
    let answered = tunnel.0.ask(http::Method::GET, "/v1/info", bytes::Bytes::new(), 1 << 16, LIMIT).await;
    answered.unwrap();
    drop(tunnel);
    let tunnel = accept_sometime(&gateway, "kasbah_a_next").await;
    assert_eq!(*gateway.secured.lock(), Secured::Resumed, "the authority is the same");

    // What cannot be read is no reason to forget what could.
    fs::remove_file(folder.path().join("token")).unwrap();
    fs::write(folder.path().join("ca.crt"), "nothing").unwrap();
    drop(tunnel);
    let _tunnel = accept_sometime(&gateway, "kasbah_a_next").await;
    says(&process, "stay in use").await;
    let log = process.log_tail(1000);
    assert!(!log.contains("kasbah_a_next"), "the token is not told: {log}");
}

/// The next tunnel, after dials that came to nothing.
async fn accept_sometime(gateway: &Gateway, token: &'static str) -> (AgentConnection, InstanceId) {
    let opened = async {
        loop {
            if let Some(opened) = gateway.accept_with(token, None).await {
                return opened;
            }
        }
    };
    tokio::time::timeout(LIMIT, opened).await.expect("a tunnel")
}

#[test]
fn wrong_settings_are_refused_with_their_name() {
    for (arguments, words) in [
        (&["--server", "nowhere"][..], "--server"),
        (&["--server", "a:1"][..], "--token-file"),
        (&["--server", "a:1", "--token-file", "x", "--context", "c"][..], "--kubeconfig"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_kasbah-agent")).args(arguments).env_clear().output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{text}");
        assert!(text.contains(words), "{text}");
    }
}
