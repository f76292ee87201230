//! What agents saw leaves the log, and everything goes on from what stands for it.

use anyhow::ensure;
use testkit::{InstallationOptions, NatsServer, eventually};

use crate::scene::{LIMIT, Scene};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_goes_on_from_anchors_when_observations_have_left() {
    let nats = NatsServer::start_as_shipped().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("master.key");
    std::fs::write(&key, [7; 32]).unwrap();
    let (url, key) = (nats.shipped_url("kasbah"), key.display().to_string());
    let server = ["--nats", &url, "--master-key-file", &key, "--keep-observations", "0s"];
    let options =
        InstallationOptions { server: server.map(str::to_owned).to_vec(), ..InstallationOptions::default() };
    let cluster = testkit::shared_control_plane().await.unwrap();
    let mut scene = Scene::start_as(options, cluster, "").await;
    let log = scene.kasbah.server().unwrap().log().to_owned();
    let said = || std::fs::read_to_string(&log).unwrap();
    // Who stops leaves a snapshot. Who starts makes an anchor of it, and a second later puts that to use.
    for value in ["1", "2", "3"] {
        scene.write_config_map("one", value);
        let commit = scene.tree.commit_and_push(value).unwrap();
        scene.synced(&commit).await;
        scene.kasbah.stop_server().unwrap();
        scene.kasbah.start_server().await.unwrap();
        scene.synced(&commit).await;
    }
    eventually(LIMIT, || async {
        ensure!(said().contains("old records were removed from the log"), "none has left: {}", said());
        Ok(())
    })
    .await;
    assert!(!said().contains("no records leave the log"), "{}", said());
    scene.write_config_map("one", "4");
    let commit = scene.tree.commit_and_push("4").unwrap();
    scene.synced(&commit).await;
    scene.value_becomes("one", "4").await;
    assert_eq!(scene.kasbah.json(["log", "verify"]).unwrap()["ok"], true);
}
