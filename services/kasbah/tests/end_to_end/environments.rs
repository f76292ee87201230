//! Environments: a push that deploys by itself, a job that deploys, and what stays when an environment stops.

use std::process::Output;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Webhook, WebhookStyle, eventually};

use crate::scene::{AGENT, LIMIT, PROJECT, Scene};

/// What a source says that deploys into production.
const PRODUCTION: &str = "    environment: {name: production}\n";

fn environment(scene: &Scene, name: &str) -> Result<Value> {
    scene.kasbah.json(["env", "show", name, "--project", PROJECT])
}

fn history(scene: &Scene, name: &str) -> Result<Vec<Value>> {
    let listed = scene.kasbah.json(["env", "history", name, "--project", PROJECT])?;
    let all = listed.as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().filter(|one| one["what"] == "deployment").collect())
}

/// Waits until an environment answers what `is` looks for.
async fn becomes(scene: &Scene, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    eventually(LIMIT, || async {
        let found = environment(scene, name)?;
        ensure!(is(&found), "{name} is not {what}: {found:#}; {}", scene.why());
        Ok(found)
    })
    .await
}

/// Runs a command as a job of a project.
fn as_job(scene: &Scene, token: &str, arguments: &[&str]) -> Output {
    scene.kasbah.cli_command().unwrap().env("KASBAH_TOKEN", token).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    let [out, error] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{out}{error}");
    out
}

fn job_token(scene: &Scene, project: &str) -> String {
    let arguments = ["ci", "token", "--project", project, "--name", "deploy", "--token-only"];
    scene.kasbah.cli(arguments).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_a_source_that_names_an_environment_is_a_deployment_and_a_restart_keeps_it() {
    let mut scene = Scene::start_with(PRODUCTION).await;
    scene.write_config_map("web", "1");
    let first = scene.tree.commit_and_push("first").unwrap();
    scene.synced(&first).await;
    let is_deployed = |commit: &str| {
        let commit = commit.to_owned();
        move |found: &Value| {
            let last = &found["last_successful"];
            last["commit"] == commit.as_str() && last["status"] == "success"
        }
    };
    let found = becomes(&scene, "production", "deployed", is_deployed(&first)).await;
    assert_eq!((&found["tier"], &found["slug"]), (&"production".into(), &"production".into()));
    let association = &found["last_successful"]["association"];
    assert_eq!(association["namespace"], scene.namespace.as_str());
    assert_eq!(association["agent"], scene.agent_id(AGENT).as_str());
    assert_eq!(found["grouping"], "inventory");

    scene.write_config_map("web", "2");
    let second = scene.tree.commit_and_push("second").unwrap();
    becomes(&scene, "production", "deployed again", is_deployed(&second)).await;
    // The same commit once more is no deployment.
    scene.kasbah.cli(["source", "sync", &format!("{AGENT}/shop"), "--wait"]).unwrap();
    let commits = |history: Vec<Value>| -> Vec<String> {
        history.iter().filter_map(|one| Some(one["commit"].as_str()?.to_owned())).collect()
    };
    let before = commits(history(&scene, "production").unwrap());
    assert!(before.starts_with(&[second.clone(), first.clone()]), "{before:?}");
    gitlab_query_is_answered(&scene, &found);

    let shown = scene.kasbah.cli(["env", "show", "production"]).unwrap();
    assert!(shown.contains("inventory of the source") && shown.contains(&second[..10]), "{shown}");
    scene.kasbah.stop_server().unwrap();
    scene.kasbah.start_server().await.unwrap();
    becomes(&scene, "production", "kept", is_deployed(&second)).await;
    assert_eq!(commits(history(&scene, "production").unwrap()), before);
    let listed = scene.kasbah.json(["env", "ls", "--group", "shop", "--tier", "production"]).unwrap();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed:#}");
    let none = scene.kasbah.json(["env", "ls", "--name", "stag*"]).unwrap();
    assert_eq!(none.as_array().map(Vec::len), Some(0), "{none:#}");
}

/// GitLab's own query for what runs where, but for the path and the name of the test's project.
fn gitlab_query_is_answered(scene: &Scene, found: &Value) {
    let query = format!(
        r#"query {{ project(fullPath: "{PROJECT}") {{ id environment(name: "production") {{ slug lastDeployment(status: SUCCESS) {{ agent {{ id kubernetesNamespace }} }} }} }} }}"#
    );
    let answered: Value = serde_json::from_str(&scene.kasbah.cli(["graphql", &query]).unwrap()).unwrap();
    let agent = json!({ "id": scene.agent_id(AGENT), "kubernetesNamespace": scene.namespace });
    let environment = json!({ "slug": "production", "lastDeployment": { "agent": agent } });
    assert_eq!(answered["project"], json!({ "id": found["project"], "environment": environment }));
    let query = format!(
        r#"{{ project(fullPath: "{PROJECT}") {{ none: environment(name: "staging") {{ id }} environments(tier: PRODUCTION) {{ nodes {{ name deployments(first: 1) {{ nodes {{ sha status }} }} }} }} }} }}"#
    );
    let answered: Value = serde_json::from_str(&scene.kasbah.cli(["graphql", &query]).unwrap()).unwrap();
    assert_eq!(answered["project"]["none"], Value::Null, "{answered:#}");
    let [one] = answered["project"]["environments"]["nodes"].as_array().unwrap().as_slice() else {
        panic!("{answered:#}")
    };
    assert_eq!(one["deployments"]["nodes"].as_array().map(Vec::len), Some(1), "{answered:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_deploys_where_it_is_granted_and_what_it_may_not_do_is_explained() {
    let scene = Scene::start().await;
    let grants = format!(
        "ci_access:\n  projects:\n    - id: {PROJECT}\n      access_as: {{ci_job: {{}}}}\n      namespaces: [{}]\n",
        scene.namespace
    );
    let configuration = Scene::configuration(&scene.namespace, &grants);
    scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration).unwrap();
    scene.tree.commit_and_push("let jobs in").unwrap();
    let token = job_token(&scene, PROJECT);
    let agent = format!("{PROJECT}:{AGENT}");
    let namespace = scene.namespace.as_str();
    let can = ["access", "can-deploy", "--env", "staging", "--agent", &agent, "--namespace", namespace];
    eventually(LIMIT, || async {
        let output = as_job(&scene, &token, &can);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(text.contains("ci_access.projects"), "{text}{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    })
    .await;

    let start = |namespace: &str, more: &[&str]| {
        let base = ["deployment", "start", "--env", "staging", "--agent", &agent, "--namespace", namespace];
        let rest =
            ["--ref", "main", "--sha", "4f1a5b10c0", "--job-url", "https://ci.example/1", "-o", "json"];
        let all = [&base[..], &rest, more].concat();
        serde_json::from_str::<Value>(&said(&as_job(&scene, &token, &all))).unwrap()
    };
    let started = start(namespace, &[]);
    assert_eq!(started["association"]["namespace"], namespace, "{started:#}");
    assert_eq!(started["status"], "running");
    said(&as_job(&scene, &token, &["deployment", "finish", "--env", "staging", "--project", PROJECT]));
    a_job_of_another_environment_is_refused(&scene, started["id"].as_str().unwrap());
    // A namespace that is not granted is not kept.
    let elsewhere = start("kube-system", &[]);
    assert!(elsewhere["association"].is_null(), "{elsewhere:#}");
    assert!(elsewhere["without_association"]["not-granted"].as_str().unwrap().contains("kube-system"));
    let id = elsewhere["id"].as_str().unwrap();
    said(&as_job(&scene, &token, &["deployment", "fail", id, "--reason", "no image"]));
    let again = as_job(&scene, &token, &["deployment", "finish", id]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("already ended"), "{again:?}");
    // Nobody ends this one.
    let lost = start(namespace, &["--deadline", "1s"]);
    let id = lost["id"].as_str().unwrap();
    eventually(LIMIT, || async {
        let shown = scene.kasbah.json(["deployment", "show", id])?;
        ensure!(shown["status"] == "unknown", "{shown:#}");
        Ok(())
    })
    .await;
    let statuses: Vec<String> = history(&scene, "staging")
        .unwrap()
        .iter()
        .filter_map(|one| Some(one["status"].as_str()?.to_owned()))
        .collect();
    assert_eq!(statuses, ["unknown", "failed", "success"]);
    let found = environment(&scene, "staging").unwrap();
    assert_eq!((&found["tier"], &found["running"]), (&"staging".into(), &0.into()));
    assert_eq!(found["last_successful"]["commit"], "4f1a5b10c0");
}

/// A job whose token is for one environment does nothing to others.
fn a_job_of_another_environment_is_refused(scene: &Scene, deployment: &str) {
    let token = ["ci", "token", "--project", PROJECT, "--name", "review", "--environment", "review/login"];
    let token = scene.kasbah.cli([&token[..], &["--token-only"]].concat()).unwrap();
    for words in [
        vec!["deployment", "start", "--env", "staging"],
        vec!["deployment", "finish", deployment],
        vec!["env", "stop", "staging"],
        vec!["access", "can-deploy", "--env", "staging"],
    ] {
        let refused = as_job(scene, token.trim(), &words);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && text.contains("is for review/login"), "{words:?}: {text}");
    }
    said(&as_job(scene, token.trim(), &["deployment", "start", "--env", "review/login"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_project_deploys_only_where_it_is_named_and_a_stranger_sees_nothing() {
    let scene = Scene::start().await;
    let url = scene.git.create("tools").unwrap();
    scene.kasbah.cli(["project", "create", "tools/deployer", "--repository", &url]).unwrap();
    let token = job_token(&scene, "tools/deployer");
    let start = ["deployment", "start", "--env", "production", "--project", PROJECT, "--sha", "abc"];
    let refused = as_job(&scene, &token, &start);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("not found, or not visible"), "{text}");

    scene.kasbah.cli(["env", "create", "production", "--project", PROJECT]).unwrap();
    let refused = as_job(&scene, &token, &start);
    assert_eq!(String::from_utf8_lossy(&refused.stderr), text, "whether it is there is not told");
    let deployer = ["--deployer", "tools/deployer"];
    scene.kasbah.cli([&["env", "set", "production"], &deployer[..]].concat()).unwrap();
    let started = said(&as_job(&scene, &token, &[&start[..], &["--id-only"]].concat()));
    said(&as_job(&scene, &token, &["deployment", "finish", started.trim()]));
    let found = environment(&scene, "production").unwrap();
    assert_eq!(found["last_successful"]["commit"], "abc", "{found:#}");

    // A job of the deployer deploys, and still sees nothing of the project that it deploys into.
    let listed = said(&as_job(&scene, &token, &["env", "ls", "-o", "json"]));
    assert_eq!(serde_json::from_str::<Value>(&listed).unwrap(), Value::Array(Vec::new()));
    let id = found["id"].as_str().unwrap();
    for words in [["env", "show", id], ["env", "stop", id], ["env", "history", id], ["env", "delete", id]] {
        let refused = as_job(&scene, &token, &words);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && text.contains("not found"), "{words:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_app_stops_by_itself_and_keeps_its_history() {
    let scene = Scene::start().await;
    let project = ["--project", PROJECT];
    let create = ["env", "create", "review/login", "--auto-stop-in", "60s"];
    scene.kasbah.cli([&create[..], &project].concat()).unwrap();
    let started = scene.kasbah.cli(
        [&["deployment", "start", "--env", "review/login", "--sha", "abc", "--id-only"], &project[..]]
            .concat(),
    );
    scene.kasbah.cli(["deployment", "finish", started.unwrap().trim()]).unwrap();
    let found = environment(&scene, "review/login").unwrap();
    assert_eq!(found["tier"], "development");
    assert!(found["auto_stop_at"].is_string(), "{found:#}");

    scene.kasbah.cli(["env", "stop", "review/login", "--reason", "merged"]).unwrap();
    let stopped = environment(&scene, "review/login").unwrap();
    assert_eq!(
        (&stopped["state"], &stopped["stopped"]["reason"]["requested"]),
        (&"stopped".into(), &"merged".into())
    );
    assert_eq!(history(&scene, "review/login").unwrap().len(), 1, "its history stays");

    let again = scene.kasbah.cli(
        [&["deployment", "start", "--env", "review/login", "--sha", "def", "--id-only"], &project[..]]
            .concat(),
    );
    scene.kasbah.cli(["deployment", "finish", again.unwrap().trim()]).unwrap();
    assert_eq!(environment(&scene, "review/login").unwrap()["state"], "available", "a deployment reopens it");
    let stopped = eventually(std::time::Duration::from_secs(120), || async {
        let found = environment(&scene, "review/login")?;
        ensure!(found["state"] == "stopped", "{found:#}");
        Ok(found)
    })
    .await;
    assert_eq!(stopped["stopped"]["reason"], "auto-stop");
    assert_eq!(stopped["stopped"]["by"], "service:delivery");
    assert_eq!(history(&scene, "review/login").unwrap().len(), 2);
    scene.kasbah.cli(["env", "set", "review/login", "--tier", "testing"]).unwrap();
    let told = scene.kasbah.cli(["env", "history", "review/login"]).unwrap();
    let whats: Vec<&str> = told.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    let expected = ["settings", "stopped", "success", "available", "stopped", "success", "created"];
    assert_eq!(whats, expected, "{told}");
    assert!(told.contains("tier: development → testing") && told.contains("merged"), "{told}");

    let id = stopped["id"].as_str().unwrap();
    scene.kasbah.cli(["env", "delete", "review/login"]).unwrap();
    assert!(environment(&scene, "review/login").is_err());
    let log = scene.kasbah.cli(["log", "show", &format!("environment/{id}")]).unwrap();
    for event in ["environment.created", "environment.stopped", "environment.deleted"] {
        assert!(log.contains(event), "no {event} in {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jobs_kubeconfig_starts_its_deployment_in_the_environments_namespace() {
    let scene = Scene::start().await;
    let grants = format!(
        "ci_access:\n  projects:\n    - id: {PROJECT}\n      access_as: {{ci_job: {{}}}}\n      default_namespace: other\n"
    );
    let configuration = Scene::configuration(&scene.namespace, &grants);
    scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration).unwrap();
    scene.tree.commit_and_push("let jobs in").unwrap();
    let token = job_token(&scene, PROJECT);
    let create = ["env", "create", "production", "--project", PROJECT, "--namespace", &scene.namespace];
    scene.kasbah.cli(create).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], more: &[(&str, &str)]| {
        let mut command = scene.kasbah.cli_command().unwrap();
        command.env("KASBAH_TOKEN", &token).env("KASBAH_CLUSTERS", scene.kasbah.clusters());
        command.envs(more.iter().copied()).current_dir(folder.path()).args(arguments).output().unwrap()
    };
    let kubeconfig = ["ci", "kubeconfig", "--env", "production", "-o", "json"];
    let variables: Value = eventually(LIMIT, || async {
        let output = run(&kubeconfig, &[("CI_COMMIT_SHA", "4f1a5b10c0")]);
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    })
    .await;
    assert_eq!(variables["KUBE_NAMESPACE"], scene.namespace.as_str(), "before the entry's default_namespace");
    let deployment = variables["KASBAH_DEPLOYMENT"].as_str().unwrap();
    said(&run(&["deployment", "finish"], &[("KASBAH_DEPLOYMENT", deployment)]));
    let found = environment(&scene, "production").unwrap();
    let last = &found["last_successful"];
    assert_eq!((&last["id"], &last["commit"]), (&deployment.into(), &"4f1a5b10c0".into()), "{found:#}");
    assert_eq!(last["association"]["namespace"], scene.namespace.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_stops_with_its_objects_deletes_what_it_names_and_comes_back_by_unpin() {
    let scene = Scene::start_with(PRODUCTION).await;
    scene.write_config_map("web", "1");
    let commit = scene.tree.commit_and_push("first").unwrap();
    scene.synced(&commit).await;
    becomes(&scene, "production", "deployed", |found| found["last_successful"]["status"] == "success").await;

    let mut unasked = scene.kasbah.cli_command().unwrap();
    let unasked = unasked.args(["env", "stop", "production", "--delete-objects"]).output().unwrap();
    let text = String::from_utf8_lossy(&unasked.stderr).into_owned();
    for words in ["1 object to delete", &format!("ConfigMap {}/web", scene.namespace), "--yes"] {
        assert!(!unasked.status.success() && text.contains(words), "{words}: {text}");
    }
    assert_eq!(environment(&scene, "production").unwrap()["state"], "available", "nothing was stopped");

    scene.kasbah.cli(["env", "stop", "production", "--delete-objects", "--yes"]).unwrap();
    scene.is_gone("web").await;
    let stopped = environment(&scene, "production").unwrap();
    assert_eq!(stopped["state"], "stopped", "the sync that deletes is no deployment: {stopped:#}");
    let shown = scene.kasbah.cli(["source", "show", &format!("{AGENT}/shop")]).unwrap();
    assert!(shown.contains("withdrawn"), "{shown}");
    scene.kasbah.cli(["env", "stop", "production", "--delete-objects", "--yes"]).unwrap();

    scene.kasbah.cli(["source", "unpin", &format!("{AGENT}/shop")]).unwrap();
    scene.value_becomes("web", "1").await;
    becomes(&scene, "production", "available again", |found| found["state"] == "available").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_of_a_ci_system_ends_the_deployments_of_its_jobs() {
    let scene = Scene::start().await;
    let webhook = Webhook { style: WebhookStyle::GitLab, ..scene.kasbah.webhook(PROJECT).unwrap() };
    let start = |job: u32| {
        let page = format!("https://git.example/shop/deploy/-/jobs/{job}");
        let start = ["deployment", "start", "--env", "staging", "--project", PROJECT, "--job-url", &page];
        scene.kasbah.cli([&start[..], &["--id-only"]].concat()).unwrap().trim().to_owned()
    };
    let status = |id: &str| scene.kasbah.json(["deployment", "show", id]).unwrap()["status"].clone();
    let (failing, running, named) = (start(7), start(8), start(9));
    let job = json!({
        "object_kind": "build", "build_id": 7, "build_status": "failed", "build_failure_reason": "script_failure",
        "repository": {"homepage": "https://git.example/shop/deploy"},
    });
    assert_eq!(webhook.send(&job, Vec::new()).await.unwrap(), 202);
    let shown = scene.kasbah.json(["deployment", "show", &failing]).unwrap();
    assert_eq!(
        (&shown["status"], &shown["reason"]),
        (&json!("failed"), &json!("the job failed: script_failure"))
    );
    assert_eq!(status(&running), "running", "another job's");
    assert_eq!(webhook.send(&job, Vec::new()).await.unwrap(), 202, "a repeated message changes nothing");
    let own = Webhook { style: WebhookStyle::Plain, ..webhook };
    let ends = json!({"deployment": named, "status": "success"});
    assert_eq!(own.send(&ends, Vec::new()).await.unwrap(), 202);
    assert_eq!(status(&named), "success");
    let wrong = Webhook { secret: "guess".to_owned(), ..own };
    let ends = json!({"deployment": running, "status": "success"});
    assert_eq!(wrong.send(&ends, Vec::new()).await.unwrap(), 401);
    assert_eq!(status(&running), "running");
}
