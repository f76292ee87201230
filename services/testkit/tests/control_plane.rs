//! The control plane itself: starts, forgets nothing over a kill, knows its users, writes its audit log.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use testkit::{Audit, Cluster, ControlPlane, ControlPlaneOptions, FakeNodes, User, eventually};

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"key": "value"}})
}

#[tokio::test]
async fn a_killed_api_server_comes_back_with_its_objects() {
    let mut plane = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let namespace = plane.namespace("kill", true).await.unwrap();
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    plane.create_object(&maps, &config_map("kept")).await.unwrap();
    plane.kill_api_server();
    assert!(plane.get(&maps).await.is_err());
    plane.start_api_server().await.unwrap();
    assert!(plane.exists(&format!("{maps}/kept")).await.unwrap());
    assert!(!plane.exists(&format!("{maps}/other")).await.unwrap());
    let text = plane.kubectl(["get", "configmap", "kept", "-n", &namespace, "-o", "name"]).await.unwrap();
    assert_eq!(text.trim(), "configmap/kept");
}

#[tokio::test]
async fn users_hold_no_right_until_they_get_one_and_the_audit_log_tells_who_did_what() {
    let options = ControlPlaneOptions {
        users: vec![User::new("viewer", &["viewers"])],
        audit: Audit::Requests,
        workloads: false,
        ..ControlPlaneOptions::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let viewer = plane.user("viewer").unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(viewer.send(Method::GET, maps, None).await.unwrap().status, 403);
    let arguments = [
        "create",
        "clusterrolebinding",
        "viewers",
        "--clusterrole=system:aggregate-to-view",
        "--group=viewers",
    ];
    plane.kubectl(arguments).await.unwrap();
    eventually(Duration::from_secs(20), || viewer.get(maps)).await;
    assert!(viewer.create_object(maps, &config_map("no")).await.is_err());

    let created = plane.create_object(maps, &config_map("audited")).await.unwrap();
    let body = json!({"preconditions": {"uid": created["metadata"]["uid"]}});
    let path = format!("{maps}/audited");
    let answer = plane.send(Method::DELETE, &path, Some(("application/json", &body))).await.unwrap();
    assert!(answer.status.is_success());
    let entry = |log: &[Value], verb: &str, user: &str| {
        let matches = |entry: &&Value| entry["verb"] == verb && entry["user"]["username"] == user;
        log.iter().rfind(|entry| matches(entry) && entry["objectRef"]["resource"] == "configmaps").cloned()
    };
    let log = plane.audit_log().unwrap();
    let delete = entry(&log, "delete", "admin").unwrap();
    assert_eq!(delete["requestObject"]["preconditions"], body["preconditions"]);
    assert_eq!(entry(&log, "create", "viewer").unwrap()["responseStatus"]["code"], 403);
    assert_eq!(entry(&log, "create", "admin").unwrap()["requestObject"]["data"]["key"], "value");
}

#[tokio::test]
async fn pods_of_a_deployment_become_ready_on_fake_nodes() {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let _nodes = FakeNodes::start(&plane, 2, &[]).await.unwrap();
    let namespace = plane.namespace("fake", true).await.unwrap();
    plane
        .kubectl(["create", "deployment", "web", "--image=web:1", "--replicas=3", "-n", &namespace])
        .await
        .unwrap();
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/web");
    eventually(Duration::from_secs(60), || async {
        let deployment = plane.get(&path).await?;
        anyhow::ensure!(deployment["status"]["readyReplicas"] == 3, "{}", deployment["status"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_kept_folder_starts_again_as_the_same_cluster() {
    let folder = testkit::Folder::temporary().unwrap();
    let options = ControlPlaneOptions {
        directory: Some(folder.path().join("plane")),
        workloads: false,
        ..ControlPlaneOptions::default()
    };
    let uid = |cluster: Cluster| async move {
        let namespace = cluster.get("/api/v1/namespaces/kube-system").await.unwrap();
        namespace["metadata"]["uid"].clone()
    };
    let plane = ControlPlane::start(options.clone()).await.unwrap();
    let before = uid(Cluster::clone(&plane)).await;
    plane.stop().unwrap();
    let plane = ControlPlane::start(options).await.unwrap();
    assert_eq!(uid(Cluster::clone(&plane)).await, before);
}
