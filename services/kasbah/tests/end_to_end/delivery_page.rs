//! The pages about delivery, agents, history and access in a real browser, against the server as it ships: a bad push is found, understood and rolled
//! back; what is held is confirmed after its prunes were seen; the first agent comes; a stranger sees nothing.

use serde_json::json;
use testkit::{GitServer, Installation, InstallationOptions, WorkTree, drive_chromium};

use crate::index::Stage;
use crate::page::{self, HOSTILE, given, seen_enough, token_of};
use crate::scene::{AGENT, PROJECT, Scene};

const SHARED: &str = include_str!("delivery_page/shared.mjs");
const BAD_PUSH: &str = include_str!("delivery_page/bad_push.mjs");
const HELD: &str = include_str!("delivery_page/held.mjs");
const FIRST_RUN: &str = include_str!("delivery_page/first_run.mjs");
const ENVIRONMENT: &str = "    environment:\n      name: production\n";

/// A script with what those of this folder share, and what all scripts of pages do.
fn script(own: &str) -> String {
    page::script(&format!("{SHARED}\n{own}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_push_is_found_understood_and_rolled_back_on_the_page() {
    let stage = Stage::start_with(ENVIRONMENT).await;
    let kasbah = &stage.scene.kasbah;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    stage.health_becomes("deploy/web", "healthy").await;
    let good = stage.scene.source().unwrap()["synced_commit"].as_str().unwrap().to_owned();
    kasbah.cli(["user", "create", "ann", "--role", "viewer"]).unwrap();
    let elsewhere = kasbah.json(["organization", "create", "elsewhere", "--owner", "eve"]).unwrap();
    let source = stage.scene.source().unwrap()["id"].as_str().unwrap().to_owned();
    let agent = stage.scene.agent_id(AGENT);
    let more = json!({
        "good": good,
        "hostile": HOSTILE,
        "viewer": token_of(kasbah, "ann"),
        "stranger": elsewhere["owner_token"]["secret"],
        "source": source,
        "agent": agent,
        "namespace": stage.namespace(),
    });
    let breaks = async {
        seen_enough(kasbah, "push").await;
        let broken = format!("apiVersion: v1\nkind: \"{HOSTILE}\"\nmetadata: {{}}\n");
        stage.scene.tree.write("manifests/broken.yaml", broken).unwrap();
        stage.scene.tree.commit_and_push(HOSTILE).unwrap();
        seen_enough(kasbah, "repair").await;
        stage.scene.tree.remove("manifests/broken.yaml").unwrap();
        let bad = stage.push_deployment(HOSTILE, "nodeSelector: {kubernetes.io/hostname: no-such-node}");
        stage.fail_to_pull(HOSTILE).await;
        bad
    };
    let (driven, given) = (script(BAD_PUSH), given(kasbah, &more));
    let (seen, bad) = tokio::join!(drive_chromium(&driven, &given), breaks);
    let expected = json!({
        "before": "In sync",
        "rejected": true,
        "findings": true,
        "newest": bad[..8],
        "command": format!("kasbah source pin {AGENT}/shop {}", &good[..8]),
        "after": good[..8],
        "deeds": true,
        "pods": true,
        "pinned": 1,
        "canI": "Yes",
        "revoked": true,
        "viewer": { "disabled": true, "says": true },
        "stranger": { "told": [] },
        "images": 0,
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), expected);
    let shown = stage.scene.source().unwrap();
    assert_eq!((&shown["pinned"], &shown["synced_commit"]), (&json!(good), &json!(good)), "{shown:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_is_confirmed_once_its_prunes_were_seen() {
    let stage = Stage::start_with(ENVIRONMENT).await;
    let (scene, kasbah) = (&stage.scene, &stage.scene.kasbah);
    let names: Vec<String> = (0..12).map(|number| format!("map-{number}")).collect();
    names.iter().for_each(|name| scene.write_config_map(name, "1"));
    scene.write_config_map("stays", "1");
    let commit = scene.tree.commit_and_push("twelve maps, and one that stays").unwrap();
    scene.synced(&commit).await;
    names.iter().for_each(|name| scene.tree.remove(&format!("manifests/{name}.yaml")).unwrap());
    let held = scene.tree.commit_and_push("one is enough").unwrap();
    scene.source_becomes("held", |source| source["held"]["commit"] == held.as_str()).await;
    let seen =
        drive_chromium(&script(HELD), &given(kasbah, &json!({ "namespace": stage.namespace() }))).await;
    let expected = json!({
        "status": "Held",
        "waits": true,
        "deletes": "12 objects would be deleted",
        "command": format!("kasbah source confirm {AGENT}/shop --commit {}", &held[..8]),
        "after": "In sync",
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), expected);
    scene.is_gone("map-3").await;
    assert!(scene.cluster.exists(&scene.path("stays")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn from_nothing_to_the_first_delivery_each_step_is_ticked_as_it_happens() {
    let mut kasbah = Installation::start(InstallationOptions::default()).await.unwrap();
    let cluster = testkit::shared_control_plane().await.unwrap();
    let namespace = cluster.namespace("e2e", false).await.unwrap();
    let git = GitServer::start().unwrap();
    let url = git.create("deploy").unwrap();
    let tree = WorkTree::clone(&url).unwrap();
    let given = given(&kasbah, &json!({}));
    let happens = async {
        seen_enough(&kasbah, "register").await;
        kasbah.cli(["project", "create", PROJECT, "--repository", &url]).unwrap();
        kasbah.register_agent(AGENT, PROJECT).unwrap();
        seen_enough(&kasbah, "connect").await;
        kasbah.start_agent("agent", AGENT, cluster.kubeconfig(), &namespace).unwrap();
        seen_enough(&kasbah, "push").await;
        let configuration = Scene::configuration(&namespace, "");
        tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration).unwrap();
        tree.write("manifests/first.yaml", Scene::config_map("first", "1")).unwrap();
        tree.commit_and_push("the first delivery").unwrap();
    };
    let driven = script(FIRST_RUN);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), happens);
    let expected = json!({ "done": [0, 1, 2, 3], "delivers": true, "problems": [], "violations": [] });
    assert_eq!(seen.unwrap(), expected);
}
