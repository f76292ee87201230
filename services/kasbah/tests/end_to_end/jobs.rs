//! A CI job that deploys through the tunnel, with the real kubectl.

mod id_tokens;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Tools, eventually};

use crate::scene::{AGENT, LIMIT, Scene};

/// A job on a runner: a folder, a token, and nothing else of ours.
struct Job<'a> {
    scene: &'a Scene,
    folder: tempfile::TempDir,
    /// What the CI system sets for it.
    variables: Vec<(&'static str, String)>,
}

impl<'a> Job<'a> {
    fn of(scene: &'a Scene, project: &str, more: &[&str]) -> Self {
        let arguments = ["ci", "token", "--project", project, "--name", "deploy", "--token-only"];
        let issued = scene.kasbah.cli(arguments.iter().chain(more)).unwrap();
        Self::with(scene, vec![("KASBAH_TOKEN", issued.trim().to_owned())])
    }

    fn with(scene: &'a Scene, variables: Vec<(&'static str, String)>) -> Self {
        Self { scene, folder: tempfile::tempdir().unwrap(), variables }
    }

    fn kasbah(&self, arguments: &[&str]) -> Output {
        let mut command = self.scene.kasbah.cli_command().unwrap();
        command.envs(self.variables.iter().map(|(name, value)| (*name, value.as_str())));
        command.env("KASBAH_CLUSTERS", self.scene.kasbah.clusters());
        command.current_dir(self.folder.path()).args(arguments).output().unwrap()
    }

    /// What the script of a job says, with the variables that it was given.
    fn script(&self, script: &str) -> Result<String> {
        let variables = self.kasbah(&["ci", "kubeconfig"]);
        ensure!(variables.status.success(), "{}", String::from_utf8_lossy(&variables.stderr));
        let tools = Tools::find()?;
        let [kubectl, helm] = [tools.path("kubectl")?, tools.path("helm")?];
        let own = [&kubectl, &helm].map(|tool| tool.parent().unwrap_or(Path::new("/")));
        let places = own.into_iter().chain([Path::new("/usr/bin"), Path::new("/bin")]);
        let script = format!("{}\n{script}", String::from_utf8_lossy(&variables.stdout));
        let output = Command::new("/bin/sh")
            .args(["-euc", &script])
            .env_clear()
            .env("PATH", std::env::join_paths(places)?)
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {said}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

const KUBECTL: &str = r#"kubectl --context="$KUBE_CONTEXT" --namespace="$KUBE_NAMESPACE""#;

/// Lets jobs in that deploy to staging, such as those of `projects` `shop/deploy`; the cluster lets them do everything in one
/// namespace.
async fn let_jobs_in(scene: &Scene, list: &str, path: &str) {
    let namespace = &scene.namespace;
    let grants = format!(
        "ci_access:\n  {list}:\n    - id: {path}\n      access_as: {{ci_job: {{}}}}\n      environments: [staging]\n      default_namespace: {namespace}\n"
    );
    configure(scene, &grants, "let jobs in");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "jobs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "Group", "name": "kasbah:ci_job", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    scene.cluster.create_object(&path, &binding).await.unwrap();
}

fn configure(scene: &Scene, grants: &str, why: &str) {
    let configuration = Scene::configuration(&scene.namespace, grants);
    scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration).unwrap();
    scene.tree.commit_and_push(why).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_deploys_to_its_environment_with_an_unmodified_kubectl_and_is_recorded() {
    let scene = Scene::start().await;
    let_jobs_in(&scene, "projects", "shop/deploy").await;
    let job = Job::of(&scene, "shop/deploy", &["--environment", "staging", "--tier", "staging"]);
    let whoami = format!("{KUBECTL} auth whoami -o json");
    let user: Value = eventually(LIMIT, || async {
        let whoami: Value = serde_json::from_str(&job.script(&whoami)?)?;
        let user = whoami["status"]["userInfo"].clone();
        ensure!(user["username"].as_str().is_some_and(|name| name.starts_with("kasbah:ci_job:")), "{user}");
        Ok(user)
    })
    .await;
    let groups = user["groups"].to_string();
    for group in ["kasbah:ci_job", "kasbah:project:", "kasbah:project_env:", ":staging"] {
        assert!(groups.contains(group), "{group} is not in {groups}");
    }
    assert_eq!(user["extra"]["kasbah.dev/environment"][0], "staging");

    job.script(&format!("{KUBECTL} create configmap released --from-literal=by=job")).unwrap();
    let made = scene.cluster.kubectl(["get", "configmap", "released", "-n", &scene.namespace]).await;
    assert!(made.unwrap().contains("released"));
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/command_lines/files/chart");
    let upgrade = format!(
        r#"helm upgrade --install shop {chart} --kube-context="$KUBE_CONTEXT" --namespace="$KUBE_NAMESPACE" --wait"#
    );
    let deployed = job.script(&upgrade).unwrap();
    assert!(deployed.contains("STATUS: deployed"), "{deployed}");
    let elsewhere = job.script(&format!("{KUBECTL} get secrets -n kube-system")).unwrap_err().to_string();
    assert!(elsewhere.contains("cannot list resource \"secrets\""), "{elsewhere}");
    let file = std::fs::metadata(job.folder.path().join("kasbah.kubeconfig")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777, 0o600);

    eventually(LIMIT, || async {
        let audit = scene.kasbah.cli(["audit", "--agent", AGENT, "--since", "1h"])?;
        let words = format!("{AGENT}  create configmaps {}", scene.namespace);
        let line = audit.lines().find(|line| line.contains(&words));
        ensure!(line.is_some_and(|line| line.contains("  job ")), "no job did {words:?} in\n{audit}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_not_meant_is_told_why_and_one_whose_token_goes_is_out() {
    let scene = Scene::start().await;
    let_jobs_in(&scene, "projects", "shop/deploy").await;
    let job = Job::of(&scene, "shop/deploy", &["--environment", "staging"]);
    eventually(LIMIT, || async { job.script(&format!("{KUBECTL} get configmaps")) }).await;

    let other = Job::of(&scene, "shop/deploy", &["--environment", "production"]);
    let said = other.kasbah(&["ci", "kubeconfig"]);
    let said = (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned());
    assert!(said.0 != Some(0) && said.1.contains("no agent permits this job"), "{said:?}");
    let asked = other.kasbah(&["access", "can-i", "list", "pods", "--agent", AGENT]);
    let why = [asked.stdout, asked.stderr].concat();
    let why = String::from_utf8_lossy(&why).into_owned();
    assert!(why.contains("an environment of staging, and this job has production"), "{why}");

    let listed = scene.kasbah.json(["token", "list", "--project", "shop/deploy"]).unwrap();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    for token in listed.as_array().unwrap() {
        scene.kasbah.cli(["token", "revoke", token["id"].as_str().unwrap()]).unwrap();
    }
    let get = format!(
        "export KUBECONFIG=kasbah.kubeconfig; kubectl get configmaps --namespace {}",
        scene.namespace
    );
    let kubectl: PathBuf = Tools::find().unwrap().path("kubectl").unwrap();
    eventually(LIMIT, || async {
        let output = Command::new("/bin/sh")
            .args(["-c", &get])
            .env("PATH", kubectl.parent().unwrap())
            .current_dir(job.folder.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains("provide credentials"), "{said}");
        Ok(())
    })
    .await;
}
