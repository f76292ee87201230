//! Each service as two processes of its own: whichever ends, what is asked is done.

use testkit::{InstallationOptions, NatsServer};

use crate::scene::{AGENT, Scene};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_of_each_service_any_may_stop_or_be_killed() {
    let cluster = testkit::shared_control_plane().await.unwrap();
    let nats = NatsServer::start_as_shipped().await.unwrap();
    let options = InstallationOptions {
        each_service: Some((2, vec![nats.shipped_url("{service}")])),
        ..InstallationOptions::default()
    };
    let mut scene = Scene::start_as(options, cluster, "").await;
    scene.push("all run").await;
    let data = scene.kasbah.replicas().unwrap().folder().to_owned();
    let tokens = ["authz-1", "authz-2"].map(|name| data.join(name).join("owner-token").exists());
    assert_ne!(tokens[0], tokens[1], "the owner's token is with one of them: {tokens:?}");
    for name in scene.kasbah.replicas().unwrap().names() {
        let replicas = scene.kasbah.replicas().unwrap();
        // The other one of each service was killed before.
        match name.ends_with("-1") {
            true => replicas.kill(&name).unwrap(),
            false => replicas.stop(&name).unwrap(),
        }
        scene.push(&format!("{name} is away")).await;
        let replicas = scene.kasbah.replicas().unwrap();
        replicas.start_again(&name).await.unwrap();
        replicas.must_run().unwrap();
    }
    assert_eq!(scene.kasbah.json(["log", "verify"]).unwrap()["ok"], true);
    let agents = scene.kasbah.json(["agent", "list"]).unwrap();
    assert_eq!(agents[0]["name"], AGENT, "{agents:#}");
    scene.kasbah.replicas().unwrap().stop_all().unwrap();
    let log = nats.log().unwrap();
    let refused: Vec<&str> = log.lines().filter(|line| line.contains("Violation")).collect();
    assert!(refused.is_empty(), "each service has its own account, which lacks: {refused:#?}");
}

impl Scene {
    /// Pushes a value, and waits until the cluster has it and the API says so.
    async fn push(&self, value: &str) {
        self.write_config_map("one", value);
        let commit = self.tree.commit_and_push(value).unwrap();
        self.value_becomes("one", value).await;
        self.synced(&commit).await;
    }
}
