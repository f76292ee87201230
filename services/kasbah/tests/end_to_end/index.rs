//! What the command line says runs in a cluster, beside what its API server says: found, explained, remembered; and the same again after
//! each restart.

mod declared;
mod groups;
mod imported;
mod oracle;
mod stage;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::eventually;
use testkit::graphql::{Arguments, INTROSPECTION, Walk};

use crate::scene::{AGENT, LIMIT, Scene};
pub use declared::{create, definition};
use stage::names;
pub use stage::{ACCESS, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_found_explained_and_remembered() {
    let stage = Stage::start().await;
    // What comes now is seen to be created, and not only found.
    oracle::agree(&stage).await;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    let well = found_and_healthy(&stage).await;
    let broken = explained_down_to_the_pod(&stage).await;
    each_change_says_who_made_it(&stage, &broken);
    compared_with_the_past(&stage, &well, &broken);
    remembered_when_it_is_gone(&stage, &well).await;
    a_stranger_sees_nothing(&stage);
}

/// The Deployment is healthy, with its ReplicaSet and pods below it; gives the moment.
async fn found_and_healthy(stage: &Stage) -> String {
    let web = stage.health_becomes("deploy/web", "healthy").await;
    assert_eq!(web["agent_name"], format!("{}:{AGENT}", crate::scene::PROJECT), "{web:#}");
    let text = stage.cli(&["get", "deploy", "web", "-n", stage.namespace()]).unwrap();
    assert!(text.starts_with("AGENT ") && text.contains(" web ") && text.contains(" healthy "), "{text}");
    let names_only = stage.cli(&["get", "deploy", "-n", stage.namespace(), "-o", "name"]).unwrap();
    assert_eq!(names_only, "deployment.apps/web\n");
    let labelled = stage.get(&["pod", "-n", stage.namespace(), "-l", "app=web"]).unwrap();
    assert_eq!(labelled.len(), 2, "{labelled:#?}");
    assert_eq!(stage.get(&["pod", "-n", stage.namespace(), "-l", "app=api"]).unwrap(), Vec::<Value>::new());
    let ill = stage.get(&["-n", stage.namespace(), "--health", "degraded"]).unwrap();
    assert_eq!(ill, Vec::<Value>::new());

    let tree = stage.json(&["tree", "deploy/web", "-n", stage.namespace()]).unwrap();
    let kinds: Vec<&str> = names(&tree["nodes"], "/object/identity/kind");
    assert_eq!(kinds, ["Deployment", "ReplicaSet", "Pod", "Pod"], "{tree:#}");
    let parents: Vec<Option<u64>> =
        tree["nodes"].as_array().unwrap().iter().map(|node| node["parent"].as_u64()).collect();
    assert_eq!(parents, [None, Some(0), Some(1), Some(1)], "{tree:#}");
    let text = stage.cli(&["tree", "deploy/web", "-n", stage.namespace()]).unwrap();
    assert!(text.contains("\n└── ReplicaSet web-") && text.contains("\n    ├── Pod web-"), "{text}");
    tree["as_of"]["position"].as_str().unwrap().to_owned()
}

/// A new image cannot be pulled: the chain ends at the pod which says so. Gives the moment.
async fn explained_down_to_the_pod(stage: &Stage) -> String {
    let nowhere = "nodeSelector: {kubernetes.io/hostname: no-such-node}";
    stage.push_deployment("no-such:1", nowhere);
    let pod = stage.fail_to_pull("no-such:1").await;
    let why = eventually(LIMIT, || async {
        let why = stage.json(&["why", "deploy/web", "-n", stage.namespace()])?;
        let chain = why["chains"][0].as_array().context("no chain")?.clone();
        let last = chain.last().context("an empty chain")?;
        ensure!(last["identity"]["name"] == pod.as_str(), "not the pod {pod}: {why:#}");
        ensure!(last["health"]["message"].to_string().contains("ErrImagePull"), "no reason: {why:#}");
        Ok(why)
    })
    .await;
    let kinds = names(&why["chains"][0], "/identity/kind");
    assert_eq!(kinds, ["Deployment", "ReplicaSet", "Pod"], "{why:#}");
    assert_eq!(why["chains"][0][2]["health"]["state"], "degraded", "{why:#}");
    assert_ne!(why["chains"][0][0]["health"]["state"], "healthy", "{why:#}");
    let text = stage.cli(&["why", "deploy/web", "-n", stage.namespace()]).unwrap();
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("    └── Pod web-") && last.contains("ErrImagePull"), "{text}");
    let ill =
        stage.get(&["-n", stage.namespace(), "--health", "degraded", "--text", "errimagepull"]).unwrap();
    assert!(ill.iter().any(|object| object["identity"]["name"] == pod.as_str()), "{ill:#?}");
    why["as_of"]["position"].as_str().unwrap().to_owned()
}

fn each_change_says_who_made_it(stage: &Stage, broken: &str) {
    let history = stage.json(&["history", "deploy/web", "-n", stage.namespace()]).unwrap();
    let changes = history.as_array().unwrap();
    let by = |manager: &str, what: &dyn Fn(&Value) -> bool| {
        changes.iter().any(|change| {
            change["writer"]["manager"].as_str().is_some_and(|by| by.contains(manager)) && what(change)
        })
    };
    let fields = |change: &Value, path: &str| change["fields"].to_string().contains(path);
    assert!(by("kasbah", &|change| change["what"] == "created"), "{history:#}");
    assert!(by("kasbah", &|change| fields(change, "image")), "{history:#}");
    assert!(by("kube-controller-manager", &|change| fields(change, "status")), "{history:#}");
    let times = names(&history, "/recorded_at");
    assert!(times.is_sorted_by(|one, next| one >= next), "the newest first: {times:?}");
    assert!(stage.cli(&["get", "deploy/web", "-n", stage.namespace(), "--at", broken]).is_ok());
}

/// The image is the difference between the two moments; between one and itself there is none.
fn compared_with_the_past(stage: &Stage, well: &str, broken: &str) {
    let diff = |from: &str, to: &str| {
        let mut command = stage.scene.kasbah.cli_command().unwrap();
        command.args(["diff", "deploy/web", "-n", stage.namespace(), "--from", from, "--to", to]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = diff(well, broken);
    assert_eq!(code, Some(1), "{text}");
    let has = |sign: char, image: &str| {
        text.lines().any(|line| line.starts_with(sign) && line.contains("image: ") && line.contains(image))
    };
    assert!(has('-', "web:1") && has('+', "no-such:1"), "{text}");
    assert_eq!(diff(broken, broken), (Some(0), "no difference\n".to_owned()));
    let (code, _) = diff("yesterday", broken);
    assert_eq!(code, Some(2));
}

/// It is deleted: history has it still, and so has the past.
async fn remembered_when_it_is_gone(stage: &Stage, well: &str) {
    stage.scene.tree.remove("manifests/web.yaml").unwrap();
    stage.scene.tree.commit_and_push("no web any more").unwrap();
    eventually(LIMIT, || async {
        let all = stage.get(&["-n", stage.namespace(), "--text", "web"])?;
        let kinds: Vec<String> = all.iter().map(|object| object["identity"].to_string()).collect();
        ensure!(!kinds.iter().any(|kind| kind.contains("Deployment") || kind.contains("Pod")), "{kinds:?}");
        Ok(())
    })
    .await;
    let gone = stage.cli(&["get", "deploy/web", "-n", stage.namespace()]).unwrap_err().to_string();
    assert!(gone.contains("exit status: 3"), "{gone}");
    let history = stage.json(&["history", "deploy/web", "-n", stage.namespace()]).unwrap();
    assert_eq!(history[0]["what"], "deleted", "{history:#}");
    let text = stage.cli(&["history", "deploy/web", "-n", stage.namespace(), "--limit", "1"]).unwrap();
    assert!(text.contains(" deleted "), "{text}");
    let then = stage.get(&["deploy/web", "-n", stage.namespace(), "--at", well]).unwrap();
    assert_eq!(then[0]["health"]["state"], "healthy", "{then:#?}");
    let tree = stage.json(&["tree", "deploy/web", "-n", stage.namespace(), "--at", well]).unwrap();
    assert_eq!(names(&tree["nodes"], "/object/identity/kind").len(), 4, "{tree:#}");
    let before = stage.get(&["deploy/web", "-n", stage.namespace(), "--at", "2020-01-01T00:00:00Z"]);
    assert!(before.is_err(), "nothing was known then: {before:?}");
}

/// Neither another organization, nor somebody of this one whom the agent's configuration does not let use the cluster.
fn a_stranger_sees_nothing(stage: &Stage) {
    let kasbah = &stage.scene.kasbah;
    let made = kasbah.json(["organization", "create", "elsewhere", "--owner", "eve"]).unwrap();
    let eve = made["owner_token"]["secret"].as_str().unwrap().to_owned();
    kasbah.cli(["user", "create", "ann", "--role", "viewer"]).unwrap();
    let ann = kasbah.cli(["token", "issue", "--user", "ann", "--name", "t", "--token-only"]).unwrap();
    let objects = stage.get(&[]).unwrap();
    assert!(!objects.is_empty(), "an empty answer says something only where the owner's is not");
    let uids: Vec<&str> = objects.iter().filter_map(|object| object["uid"].as_str()).collect();
    for token in [eve.as_str(), ann.trim()] {
        no_query_tells(&stage.scene, token, None, &uids);
        let asks = |arguments: &[&str]| {
            let mut command = kasbah.cli_command().unwrap();
            let output =
                command.env("KASBAH_TOKEN", token).args(arguments).args(["-o", "json"]).output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        for list in [&["get"][..], &["get", "ns"], &["history"], &["get", "--agent", AGENT]] {
            let (code, said) = asks(list);
            assert!(said.trim() == "[]" || code == Some(3) && said.is_empty(), "{list:?}: {code:?} {said}");
        }
        let namespace = format!("ns/{}", stage.namespace());
        for one in ["tree", "why", "show"] {
            assert_eq!(asks(&[one, &namespace]), (Some(3), String::new()), "{one}");
        }
        let (_, coverage) = asks(&["coverage"]);
        let coverage: Value = serde_json::from_str(&coverage).unwrap();
        assert_eq!(coverage["agents"], Value::Array(Vec::new()), "{coverage:#}");
    }
}

/// The whole GraphQL schema, walked as somebody who may not see the cluster's objects: none of them is answered, and a person who sees them, or else the
/// owner, gets some.
pub fn no_query_tells(scene: &Scene, token: &str, who_sees: Option<&str>, uids: &[&str]) {
    let ask = |token: Option<&str>, query: &str| {
        let mut command = scene.kasbah.cli_command().unwrap();
        command.args(["graphql", query]);
        token.map(|token| command.env("KASBAH_TOKEN", token));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let introspected: Value = serde_json::from_str(&ask(None, INTROSPECTION)).unwrap();
    let namespace = json!({ "namespace": scene.namespace });
    let values = Arguments::from([
        (
            "filter",
            vec![
                json!({}),
                namespace,
                json!({ "agent": AGENT }),
                json!({ "project": crate::scene::PROJECT }),
            ],
        ),
        ("name", vec![json!(AGENT)]),
        ("fullPath", vec![json!(crate::scene::PROJECT)]),
        ("id", vec![json!("00000000-0000-0000-0000-000000000000")]),
        ("from", vec![json!("-1h")]),
    ]);
    let queries = Walk::of(&json!({ "data": introspected })).queries(&values);
    let tells = |answer: &str| uids.iter().any(|uid| answer.contains(uid));
    for query in &queries {
        let answered = ask(Some(token), query);
        assert!(!tells(&answered), "{query}: {answered}");
    }
    let told = queries.iter().filter(|query| tells(&ask(who_sees, query))).count();
    assert!(told > 3, "a person who sees them gets objects by {told} of {queries:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_is_what_the_api_server_lists_after_each_restart_too() {
    let mut stage = Stage::start().await;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    stage.config_map("stays", "1").await;
    stage.config_map("goes", "1").await;
    oracle::agree(&stage).await;

    // What happened while nobody looked is seen by the next list.
    stage.scene.kasbah.kill_agent("agent");
    stage.delete("configmap/goes").await;
    stage.config_map("comes", "1").await;
    stage.config_map("stays", "2").await;
    stage.start_agent();
    oracle::agree(&stage).await;
    let gone = stage.json(&["history", "configmap/goes", "-n", stage.namespace()]).unwrap();
    assert!(["deleted", "vanished"].contains(&gone[0]["what"].as_str().unwrap()), "{gone:#}");
    let comes = stage.json(&["history", "configmap/comes", "-n", stage.namespace()]).unwrap();
    assert_eq!(comes[0]["what"], "created", "it was made while nobody looked: {comes:#}");

    // The index is made again from the log.
    let answers = stage.answers();
    stage.scene.kasbah.stop_server().unwrap();
    stage.lose_the_index();
    stage.scene.kasbah.start_server().await.unwrap();
    oracle::agree(&stage).await;
    // Kinds that the agent has not listed anew yet are stale until then.
    eventually(LIMIT, || async {
        let now = stage.answers();
        ensure!(now == answers, "the log gives another history: {now:#?} instead of {answers:#?}");
        Ok(())
    })
    .await;
}
