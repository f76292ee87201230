use std::time::Duration;

use events::delivery::SyncOutcome;
use testkit::{ControlPlane, ControlPlaneOptions, eventually};

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
