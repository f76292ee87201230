//! The rights that `kasbah agent rights` prints are enough for the agent, and for nothing else.

use anyhow::ensure;
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
    // Goes with the work tree, and is never pushed.
    let path = scene.tree.path().join(".git/agents-own-kubeconfig");
    testkit::write_private(&path, &config.to_string()).unwrap();
    path
}

/// What a program with the agent's token is told when it comes as somebody else.
struct Taken<'a> {
    scene: &'a Scene,
    kubeconfig: String,
}

impl Taken<'_> {
    async fn is_let(&self, impersonated: &[&str]) -> Result<String, String> {
        let mut arguments = vec!["--kubeconfig", &self.kubeconfig, "get", "--raw", "/version"];
        arguments.extend(impersonated);
        self.scene.cluster.kubectl(&arguments).await.map_err(|error| format!("{error:#}"))
    }

    async fn is_refused(&self, impersonated: &[&str], why: &str) {
        let said = self.is_let(impersonated).await.expect_err(why);
        assert!(said.contains("cannot impersonate"), "{why}: {said}");
    }
}

/// Applies what `kasbah agent rights` prints.
async fn allow(scene: &Scene, more: &[&str]) {
    let arguments = ["agent", "rights", AGENT, "--namespace", &scene.namespace];
    let rights = scene.kasbah.cli(arguments.iter().chain(more)).unwrap();
    scene.cluster.kubectl_with_input(["apply", "-f", "-"], &rights).await.unwrap();
}

/// The entries for jobs: those of one project come as themselves, all others of the group as a service account.
fn of_jobs(namespace: &str) -> String {
    format!(
        "ci_access:\n  projects:\n    - id: shop/deploy\n      access_as: {{ci_job: {{}}}}\n  groups:\n    - id: shop\n      access_as: {{impersonate: {{username: \"system:serviceaccount:{namespace}:default\"}}}}\n"
    )
}

/// Waits until the index says this of what is unknown of the owner's rights.
async fn rights_become(scene: &Scene, is: impl Fn(Option<&str>) -> bool) {
    eventually(LIMIT, || async {
        let coverage = scene.kasbah.json(["coverage", "--fresh"])?;
        let of_agent = &coverage["agents"][0];
        ensure!(!of_agent.is_null() && is(of_agent["rights_unknown"].as_str()), "{coverage:#}");
        Ok(())
    })
    .await;
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
    rights_become(&scene, |unknown| unknown.is_some_and(|unknown| unknown.contains("cannot impersonate")))
        .await;

    allow(&scene, &[]).await;
    eventually(LIMIT, || owner.kubectl(&lists)).await;
    // What the owner may list is asked with these rights, too.
    rights_become(&scene, |unknown| unknown.is_none()).await;
    let taken = Taken { scene: &scene, kubeconfig: kubeconfig.display().to_string() };
    taken.is_let(&["--as", "kasbah:user:owner", "--as-group", "kasbah:user"]).await.unwrap();
    for (forbidden, why) in [
        (&["--as", "kasbah:user:somebody"][..], "another person"),
        (&["--as", "system:admin"], "an administrator"),
        (&["--as", "system:kube-controller-manager"], "a controller of the cluster's own"),
        (&["--as", "kasbah:user:owner", "--as-group", "system:masters"], "the masters"),
        (&["--as", "kasbah:user:owner", "--as-group", "system:nodes"], "nodes"),
        (&["--as", "kasbah:user:owner", "--as-group", "kasbah:ci_job"], "jobs, of which none is let in"),
        (&["--as", "system:serviceaccount:kube-system:default"], "a service account"),
        (&["--as", "kasbah:user:owner", "--as-user-extra", "kasbah.dev/agent=x"], "a further field"),
    ] {
        taken.is_refused(forbidden, why).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_configuration_names_jobs_impersonates_no_controller_of_the_cluster() {
    let scene = Scene::start().await;
    let namespace = scene.namespace.clone();
    let kubeconfig = as_the_agent(&scene).await;
    let_in(&scene, &of_jobs(&namespace)).await;
    allow(&scene, &[]).await;
    let taken = Taken { scene: &scene, kubeconfig: kubeconfig.display().to_string() };
    let account = format!("system:serviceaccount:{namespace}:default");
    let account = ["--as", account.as_str()];
    eventually(LIMIT, || taken.is_let(&account)).await;
    let person = ["--as", "kasbah:user:owner", "--as-group", "kasbah:user"];
    eventually(LIMIT, || taken.is_let(&person)).await;
    let job = ["--as", "kasbah:ci_job:1", "--as-group", "kasbah:ci_job"];
    for (forbidden, why) in [
        (&["--as", "system:kube-controller-manager"][..], "a controller of the cluster's own"),
        (&["--as", "system:serviceaccount:kube-system:default"], "an account of the same name elsewhere"),
        (&["--as", "kasbah:user:somebody"], "another person"),
        (&job, "a job, whose name cannot be listed"),
    ] {
        taken.is_refused(forbidden, why).await;
    }
    allow(&scene, &["--any-user"]).await;
    eventually(LIMIT, || taken.is_let(&job)).await;
}
