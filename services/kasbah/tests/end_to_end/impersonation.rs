//! The rights that `kasbah agent rights` prints are enough for the agent, and for nothing else.

use serde_json::{Value, json};
use testkit::eventually;

use crate::cluster_api::{Person, let_in};
use crate::scene::{AGENT, LIMIT, Scene};

const ACCOUNT: &str = "kasbah-agent-production";

/// The cluster's kubeconfig with the agent's service account as its user.
async fn as_the_agent(scene: &Scene) -> std::path::PathBuf {
    let namespace = &scene.namespace;
    scene.cluster.kubectl(["create", "serviceaccount", ACCOUNT, "-n", namespace]).await.unwrap();
    let token = scene.cluster.kubectl(["create", "token", ACCOUNT, "-n", namespace]).await.unwrap();
    let text = std::fs::read_to_string(scene.cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    let path = scene.tree.path().join("../agents-own-kubeconfig");
    testkit::write_private(&path, &config.to_string()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_impersonates_whom_its_configuration_names_and_nobody_else() {
    let mut scene = Scene::start().await;
    let namespace = scene.namespace.clone();
    let kubeconfig = as_the_agent(&scene).await;
    let_in(&scene, "").await;
    scene.kasbah.stop_agent("agent").unwrap();
    scene.kasbah.start_agent("agent", AGENT, &kubeconfig, &namespace).unwrap();
    let owner = Person::owner(&scene.kasbah, AGENT);
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let lists = ["get", "--raw", &maps];
    let said = eventually(LIMIT, || async {
        let output = owner.output(&lists).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("cannot impersonate") { Ok(said) } else { Err(said) }
    })
    .await;
    assert!(said.contains(ACCOUNT), "{said}");

    let rights = scene.kasbah.cli(["agent", "rights", AGENT, "--namespace", &namespace, "--user", "owner"]);
    let rights = rights.unwrap();
    scene.cluster.kubectl_with_input(["apply", "-f", "-"], &rights).await.unwrap();
    eventually(LIMIT, || owner.kubectl(&lists)).await;

    // What a program with the agent's token can be.
    let path = kubeconfig.display().to_string();
    let is_let = async |impersonated: &[&str]| {
        let mut arguments = vec!["--kubeconfig", &path, "get", "--raw", "/version"];
        arguments.extend(impersonated);
        scene.cluster.kubectl(&arguments).await.map_err(|error| format!("{error:#}"))
    };
    is_let(&["--as", "kasbah:user:owner", "--as-group", "kasbah:user"]).await.unwrap();
    for (forbidden, why) in [
        (&["--as", "kasbah:user:somebody"][..], "another person"),
        (&["--as", "system:admin"], "an administrator"),
        (&["--as", "kasbah:user:owner", "--as-group", "system:masters"], "the masters"),
        (&["--as", "kasbah:user:owner", "--as-group", "system:nodes"], "nodes"),
        (&["--as", "kasbah:user:owner", "--as-group", "kasbah:ci_job"], "jobs, of which none is let in"),
        (&["--as", "system:serviceaccount:kube-system:default"], "a service account"),
        (&["--as", "kasbah:user:owner", "--as-user-extra", "kasbah.dev/agent=x"], "a further field"),
    ] {
        let said = is_let(forbidden).await.unwrap_err();
        assert!(said.contains("cannot impersonate"), "{why}: {said}");
    }
}
