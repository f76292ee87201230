//! Objects of an environment: found by each rule, rolled up, shown as a tree; and of those whom they are hidden from.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::eventually;

use super::stage::{Stage, names};
use crate::scene::{AGENT, LIMIT, PROJECT};

/// What the source says that deploys into production.
const PRODUCTION: &str = "    environment: {name: production}\n";

/// The kinds of all objects that some arguments find, in order.
fn kinds(stage: &Stage, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let found = stage.get(arguments)?;
    let mut kinds: Vec<String> =
        found.iter().filter_map(|object| Some(object["identity"]["kind"].as_str()?.to_owned())).collect();
    kinds.sort();
    Ok(kinds)
}

/// Waits until these are the objects of production.
async fn production_is(stage: &Stage, expected: &[&str]) {
    eventually(LIMIT, || async {
        let found = kinds(stage, &["--env", "production"])?;
        ensure!(found == expected, "{found:?} instead of {expected:?}; {}", stage.scene.why());
        Ok(())
    })
    .await;
}

/// Waits until production is doing so, and gives how.
async fn health_becomes(stage: &Stage, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    eventually(LIMIT, || async {
        let shown = stage.json(&["env", "show", "production", "--project", PROJECT])?;
        ensure!(is(&shown["health"]), "not {what}: {shown:#}");
        Ok(shown["health"].clone())
    })
    .await
}

const DEPLOYED: &[&str] = &["ConfigMap", "Deployment", "Pod", "Pod", "ReplicaSet"];

#[tokio::test(flavor = "multi_thread")]
async fn objects_belong_to_their_environment_and_make_its_health() {
    let stage = Stage::start_with(PRODUCTION).await;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    production_is(&stage, DEPLOYED).await;
    found_by_environment_and_tier(&stage);
    let well = rolled_up(&stage).await;
    compared_with_the_past(&stage, &well);
    owned(&stage).await;
    moved_by_rule_and_label(&stage).await;
    hidden_from_others(&stage);
    stale_without_its_agent(stage).await;
}

/// An environment whose agent is gone is never simply as it was.
async fn stale_without_its_agent(mut stage: Stage) {
    stage.scene.kasbah.kill_agent("agent");
    health_becomes(&stage, "stale", |health| health["stale"].to_string().contains("not connected")).await;
    let listed = stage.cli(&["env", "ls"]).unwrap();
    assert!(listed.contains(", stale"), "{listed}");
}

fn found_by_environment_and_tier(stage: &Stage) {
    let web = stage.get(&["deploy/web", "--tier", "production"]).unwrap();
    let environment = &web[0]["environment"];
    assert_eq!((&environment["name"], &environment["project_path"]), (&"production".into(), &PROJECT.into()));
    for other in [["--tier", "staging"], ["--agent", AGENT]] {
        let found = stage.get(&[&["deploy/web"], &other[..]].concat());
        assert_eq!(found.is_ok(), other[0] == "--agent", "{other:?}: {found:?}");
    }
    let named = format!("{PROJECT}:prod*");
    assert_eq!(kinds(stage, &["--env", &named]).unwrap(), DEPLOYED);
    let text = stage.cli(&["get", "deploy", "--project", PROJECT]).unwrap();
    assert!(text.starts_with("ENVIRONMENT ") && text.contains("shop/deploy:production"), "{text}");
    let tree = stage.json(&["tree", "deploy", "--env", "production"]).unwrap();
    assert_eq!(names(&tree["nodes"], "/object/identity/kind"), ["Deployment", "ReplicaSet", "Pod", "Pod"]);
    let history = stage.json(&["history", "--env", "production"]).unwrap();
    assert!(history.as_array().is_some_and(|changes| changes.len() >= DEPLOYED.len()), "{history:#}");
    let missing = stage.cli(&["get", "--env", "staging"]).unwrap_err().to_string();
    assert!(missing.contains("exit status: 3") && missing.contains("not found"), "{missing}");
}

/// Healthy, and then not; gives a moment at which it was healthy.
async fn rolled_up(stage: &Stage) -> String {
    let well = health_becomes(stage, "healthy", |health| health["health"] == "healthy").await;
    assert_eq!((&well["objects"], &well["worst"]), (&5.into(), &Value::Null), "{well:#}");
    let listed = stage.cli(&["env", "ls", "--tier", "production"]).unwrap();
    assert!(listed.contains(" healthy "), "{listed}");
    let moment = stage.json(&["env", "tree", "production"]).unwrap()["as_of"]["position"].clone();
    stage.push_deployment("no-such:1", "nodeSelector: {kubernetes.io/hostname: no-such-node}");
    stage.fail_to_pull("no-such:1").await;
    let ill = health_becomes(stage, "ill", |health| {
        health["worst"]["health"]["message"].to_string().contains("ErrImagePull")
    })
    .await;
    assert_eq!(ill["worst"]["identity"]["name"], "web", "{ill:#}");
    let tree = stage.json(&["env", "tree", "production"]).unwrap();
    assert_eq!(tree["nodes"][0]["object"]["identity"]["name"], "web", "the worst first: {tree:#}");
    assert_eq!(tree["left_out"], 0);
    let text = stage.cli(&["env", "tree", "production"]).unwrap();
    assert!(
        text.contains("Worst") && text.contains("\n└── ReplicaSet web-")
            || text.contains("├── ReplicaSet web-"),
        "{text}"
    );
    let query = r#"{ tiers { tier environmentCount worst { state worst { name } } environments(first: 2) { nodes { name health { state objects }
        tree { leftOut nodes { resource { kind environment { name projectPath } } } }
        resources(first: 9, filter: { kind: "cm" }) { nodes { name } } } } } }"#;
    let told: Value = serde_json::from_str(&stage.cli(&["graphql", query]).unwrap()).unwrap();
    let [tier] = told["tiers"].as_array().unwrap().as_slice() else { panic!("{told:#}") };
    assert_eq!((&tier["tier"], &tier["environmentCount"]), (&"PRODUCTION".into(), &1.into()), "{told:#}");
    let environment = &tier["environments"]["nodes"][0];
    assert_eq!(environment["resources"]["nodes"][0]["name"], "settings", "{told:#}");
    assert_eq!(
        environment["tree"]["nodes"][0]["resource"]["environment"]["projectPath"], PROJECT,
        "{told:#}"
    );
    moment.as_str().unwrap().to_owned()
}

/// The image changed, and with it came a ReplicaSet and a pod; between a moment and itself nothing differs.
fn compared_with_the_past(stage: &Stage, well: &str) {
    let diff = |more: &[&str]| {
        let mut command = stage.scene.kasbah.cli_command().unwrap();
        command.args(["env", "diff", "production", "--from", well]).args(more);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, told) = diff(&["-o", "json"]);
    assert_eq!(code, Some(1), "{told}");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(names(&told["came"], "/identity/kind").contains(&"ReplicaSet"), "{told:#}");
    let changed = told["changed"].as_array().unwrap();
    let web = changed.iter().find(|one| one["object"]["identity"]["name"] == "web").unwrap();
    assert!(web["fields"].to_string().contains("no-such:1"), "{told:#}");
    let (_, text) = diff(&[]);
    assert!(text.contains("~ Deployment ") && text.contains("image: "), "{text}");
    assert_eq!(diff(&["--to", well]), (Some(0), "no difference\n".to_owned()));
    let (code, _) = diff(&["--to", "yesterday"]);
    assert_eq!(code, Some(2));
}

/// What a source put there is its own, with what that has caused; what somebody made by hand is nobody's.
async fn owned(stage: &Stage) {
    let source = format!("source {AGENT}/shop");
    let shown = stage.cli(&["show", "deploy/web"]).unwrap();
    assert!(shown.contains(&source) && shown.contains("shop/deploy:production"), "{shown}");
    let pods = stage.get(&["pod", "--env", "production"]).unwrap();
    let owner = &pods[0]["owners"][0];
    assert_eq!((&owner["kind"], &owner["through"]["name"]), (&"source".into(), &"web".into()), "{pods:#?}");
    stage.config_map("nobodys", "1").await;
    eventually(LIMIT, || async {
        let found = stage.cli(&["get", "cm", "-n", stage.namespace(), "--unowned"])?;
        ensure!(found.contains("nobodys") && !found.contains("settings"), "{found}");
        Ok(())
    })
    .await;
    stage
        .cluster()
        .kubectl(["annotate", "cm/settings", "-n", stage.namespace(), "meta.helm.sh/release-name=web"])
        .await
        .unwrap();
    eventually(LIMIT, || async {
        let found = stage.cli(&["get", "cm", "-n", stage.namespace(), "--doubly-owned"])?;
        ensure!(found.contains("settings") && !found.contains("nobodys"), "{found}");
        Ok(())
    })
    .await;
}

async fn moved_by_rule_and_label(stage: &Stage) {
    stage.config_map("by-hand", "1").await;
    assert!(!stage.cli(&["get", "cm", "--env", "production"]).unwrap().contains("by-hand"));
    stage.cli(&["env", "set", "production", "--group-by", "namespace"]).unwrap();
    eventually(LIMIT, || async {
        let found = stage.cli(&["get", "cm", "--env", "production"])?;
        ensure!(found.contains("by-hand"), "{found}");
        Ok(())
    })
    .await;
    stage.cli(&["env", "set", "production", "--group-by", "labels"]).unwrap();
    production_is(stage, &[]).await;
    let empty = stage.cli(&["env", "tree", "production"]).unwrap();
    assert!(empty.contains("empty"), "{empty}");
    let project = stage.json(&["env", "show", "production"]).unwrap()["project"].as_str().unwrap().to_owned();
    let label = |labels: [String; 2]| {
        let namespace = stage.namespace().to_owned();
        async move {
            let [project, environment] = labels;
            let arguments = ["label", "--overwrite", "cm/by-hand", "-n", &namespace, &project, &environment];
            stage.cluster().kubectl(arguments).await.unwrap();
        }
    };
    let (project_label, slug_label) = ("app.gitlab.com/project_id", "app.gitlab.com/environment_slug");
    label([format!("{project_label}={project}"), format!("{slug_label}=production")]).await;
    production_is(stage, &["ConfigMap"]).await;
    label([format!("{project_label}-"), format!("{slug_label}-")]).await;
    production_is(stage, &[]).await;
    stage.cli(&["env", "set", "production", "--group-by", "inventory"]).unwrap();
    eventually(LIMIT, || async {
        let found = kinds(stage, &["--env", "production"])?;
        ensure!(found.contains(&"Deployment".to_owned()), "{found:?}");
        Ok(())
    })
    .await;
}

/// Who may see the environment and not use its cluster learns that objects are hidden; another organization learns nothing.
fn hidden_from_others(stage: &Stage) {
    let kasbah = &stage.scene.kasbah;
    let made = kasbah.json(["organization", "create", "elsewhere", "--owner", "eve"]).unwrap();
    let eve = made["owner_token"]["secret"].as_str().unwrap().to_owned();
    kasbah.cli(["user", "create", "ann", "--role", "viewer"]).unwrap();
    let ann = kasbah.cli(["token", "issue", "--user", "ann", "--name", "t", "--token-only"]).unwrap();
    let asks = |token: &str, arguments: &[&str]| {
        let mut command = kasbah.cli_command().unwrap();
        let output =
            command.env("KASBAH_TOKEN", token).args(arguments).args(["-o", "json"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let id = stage.json(&["env", "show", "production"]).unwrap()["id"].as_str().unwrap().to_owned();
    let uid = stage.get(&["deploy/web"]).unwrap()[0]["uid"].as_str().unwrap().to_owned();
    let (code, shown) = asks(ann.trim(), &["env", "tree", &id]);
    let shown: Value = serde_json::from_str(&shown).context(code.unwrap_or(-1)).unwrap();
    assert_eq!((&shown["health"]["objects"], &shown["nodes"]), (&0.into(), &Value::Array(Vec::new())));
    assert!(shown["health"]["hidden"].to_string().contains("user_access"), "{shown:#}");
    for arguments in [
        &["env", "tree", &id][..],
        &["get", "--env", &id],
        &["get", "--env", "production"],
        &["get", "--project", PROJECT],
        &["history", "--env", &id],
        &["tree", "deploy", "--env", &id],
        &["why", "deploy", "--env", &id],
    ] {
        let (code, said) = asks(&eve, arguments);
        assert_eq!((code, said.as_str()), (Some(3), ""), "{arguments:?}");
        let (_, said) = asks(ann.trim(), arguments);
        assert!(!said.contains(&uid), "{arguments:?}: {said}");
    }
    let (_, listed) = asks(&eve, &["get", "--tier", "production"]);
    assert_eq!(listed.trim(), "[]");
}
