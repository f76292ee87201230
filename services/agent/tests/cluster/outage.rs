use std::time::Duration;

use events::delivery::SyncOutcome;
use testkit::{Audit, ControlPlane, ControlPlaneOptions, Proxy, eventually};

use crate::kubeconfig;
use crate::rig::{DEADLINE, Rig, Source, config_map, map_path};

#[tokio::test]
async fn a_killed_api_server_delays_and_loses_nothing() {
    let options = ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() };
    let mut plane = ControlPlane::start(options).await.unwrap();
    let namespace = plane.namespace("outage", false).await.unwrap();
    let mut rig = Rig::start(&plane, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with((0..60).map(|n| config_map(&format!("m{n}"), "one")));
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    source.with((0..60).map(|n| config_map(&format!("m{n}"), "two")));
    let from = rig.process.observed().len();
    plane.kill_api_server();
    rig.put(&[&source]).await;
    plane.start_api_server().await.unwrap();
    // The Lease may have run out meanwhile; the epoch stays, because nobody else was named.
    eventually(Duration::from_secs(120), || async {
        let live = plane.get(&map_path(&namespace, "m59")).await?;
        anyhow::ensure!(live["data"]["key"] == "two", "{}", live["data"]);
        Ok(())
    })
    .await;
    let _ended = rig.finished(from, &source).await;
    // Watches go on where they were: a change by hand is still seen.
    plane.kubectl(["delete", "configmap", "m1", "-n", &namespace]).await.unwrap();
    eventually(DEADLINE, || async {
        anyhow::ensure!(plane.exists(&map_path(&namespace, "m1")).await?, "not recreated");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_history_that_the_api_server_has_forgotten_is_read_anew() {
    let options =
        ControlPlaneOptions { audit: Audit::Requests, workloads: false, ..ControlPlaneOptions::default() };
    let mut plane = ControlPlane::start(options).await.unwrap();
    let namespace = plane.namespace("forgotten", false).await.unwrap();
    let proxy = Proxy::start((std::net::Ipv4Addr::LOCALHOST, plane.port()).into()).unwrap();
    let kubeconfig = plane.folder().join("through-the-proxy.kubeconfig");
    kubeconfig::at(&plane, &format!("https://{}", proxy.address()), &kubeconfig);
    let mut rig = Rig::start_as(&kubeconfig, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with((0..3).map(|n| config_map(&format!("m{n}"), "one")));
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let listed = eventually(DEADLINE, || async {
        let listed = listings(&plane)?;
        anyhow::ensure!(listed > 0, "not listed");
        Ok(listed)
    })
    .await;

    proxy.shut(true);
    proxy.cut();
    plane.kubectl(["delete", "configmap", "m1", "-n", &namespace]).await.unwrap();
    plane.kill_api_server();
    plane.start_api_server().await.unwrap();
    proxy.shut(false);
    eventually(DEADLINE, || async {
        anyhow::ensure!(plane.exists(&map_path(&namespace, "m1")).await?, "not recreated");
        Ok(())
    })
    .await;
    assert!(listings(&plane).unwrap() > listed, "it was told of the deletion: this tested nothing");
}

/// How often the agent listed what it owns of ConfigMaps.
fn listings(plane: &ControlPlane) -> anyhow::Result<usize> {
    let of_agent = |entry: &&serde_json::Value| {
        let path = entry["requestURI"].as_str().unwrap_or_default();
        entry["verb"] == "list" && path.contains("/configmaps?") && path.contains("labelSelector=")
    };
    Ok(plane.audit_log()?.iter().filter(of_agent).count())
}
