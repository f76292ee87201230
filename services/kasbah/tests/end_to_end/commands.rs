//! What people do to a source: suspend, pin, confirm, look at the difference.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use crate::scene::{AGENT, Scene};

const SOURCE: &str = "production/shop";

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_source_waits_and_goes_on() {
    let scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let first = scene.tree.commit_and_push("first").unwrap();
    scene.synced(&first).await;
    let suspended = scene.kasbah.json(["source", "suspend", SOURCE, "--reason", "release freeze"]).unwrap();
    assert_eq!(suspended["status"]["state"], "suspended", "{suspended:#}");
    assert!(suspended["why"].as_str().unwrap().contains("release freeze"), "{suspended:#}");
    scene.write_config_map("one", "2");
    let second = scene.tree.commit_and_push("second").unwrap();
    let source = scene.source_becomes("fetched", |source| source["newest_commit"] == second.as_str()).await;
    assert_eq!(source["desired_commit"], first.as_str());
    assert!(source["why"].as_str().unwrap().contains("release freeze"), "{source:#}");
    scene.value_becomes("one", "1").await;
    let (code, diff) = scene.diff(SOURCE);
    assert_eq!((code, &diff["commit"]), (Some(1), &Value::from(second.as_str())), "{diff:#}");
    assert_eq!(diff["objects"][0]["fields"][0][2], "\"2\"", "{diff:#}");
    let resumed = scene.kasbah.json(["source", "resume", SOURCE]).unwrap();
    assert_eq!((&resumed["suspended"], &resumed["desired_commit"]), (&Value::Null, &second.as_str().into()));
    scene.synced(&second).await;
    scene.value_becomes("one", "2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_looks_at_the_repository_first() {
    let scene = Scene::start().await;
    let rare = Scene::configuration(&scene.namespace, "").replace("30s", "10h");
    scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), rare).unwrap();
    scene.write_config_map("one", "1");
    let first = scene.tree.commit_and_push("look rarely").unwrap();
    scene.synced(&first).await;
    scene
        .source_becomes("rarely looked at", |source| source["configuration"]["interval_seconds"] == 36_000)
        .await;
    scene.git.remove_webhooks("deploy").unwrap();
    scene.write_config_map("one", "2");
    let second = scene.tree.commit_and_push("nobody tells of this").unwrap();
    let before = scene.source().unwrap()["sync"]["id"].clone();
    let asked = scene.kasbah.json(["source", "sync", SOURCE]).unwrap();
    assert_ne!(asked["sync"]["id"], before, "the answer has the sync that was asked for: {asked:#}");
    // The agent's own project is looked at each minute by itself, because its configuration lies there.
    let synced = tokio::time::timeout(Duration::from_secs(20), scene.synced(&second)).await;
    assert!(synced.is_ok(), "nobody looked: {:?}", scene.source());
    scene.value_becomes("one", "2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_source_goes_back_and_stays_until_it_is_unpinned() {
    let scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let first = scene.tree.commit_and_push("first").unwrap();
    scene.synced(&first).await;
    scene.write_config_map("one", "2");
    let second = scene.tree.commit_and_push("second").unwrap();
    scene.synced(&second).await;
    let pinned = scene.kasbah.json(["source", "pin", SOURCE, &first[..10]]).unwrap();
    for field in ["/pinned", "/desired_commit", "/sync/commit"] {
        assert_eq!(pinned.pointer(field), Some(&Value::from(first.as_str())), "{field}: {pinned:#}");
    }
    let why = format!(
        "pinned to commit {}, while {} is the newest; unpin it to follow its ref",
        &first[..10],
        &second[..10]
    );
    scene.source_becomes("pinned", |source| source["synced_commit"] == first && source["why"] == why).await;
    scene.value_becomes("one", "1").await;
    let refused = scene.kasbah.cli(["source", "pin", SOURCE, "0123456789"]).unwrap_err();
    assert!(refused.to_string().contains("0123456789"), "{refused}");
    let text = scene.kasbah.cli(["source", "unpin", SOURCE]).unwrap();
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("Desired commit").ends_with(&second), "{text}");
    assert_eq!(line("Pinned to"), "", "{text}");
    scene.synced(&second).await;
    scene.value_becomes("one", "2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_prune_is_held_until_a_person_confirms_it() {
    let scene = Scene::start().await;
    let mut all = String::new();
    for number in 0..12 {
        write!(all, "---\n{}", Scene::config_map(&format!("c{number}"), "1")).unwrap();
    }
    scene.tree.write("manifests/all.yaml", all).unwrap();
    scene.tree.write("manifests/stays.yaml", Scene::config_map("stays", "1")).unwrap();
    let first = scene.tree.commit_and_push("thirteen").unwrap();
    scene.synced(&first).await;
    scene.tree.remove("manifests/all.yaml").unwrap();
    let second = scene.tree.commit_and_push("remove twelve").unwrap();
    let source = scene.source_becomes("held", |source| source["held"]["commit"] == second.as_str()).await;
    assert!(source["why"].as_str().unwrap().contains("12 of 13"), "{source:#}");
    scene.value_becomes("c0", "1").await;
    let (code, diff) = scene.diff(SOURCE);
    assert_eq!(code, Some(1));
    let prunes = diff["objects"].as_array().unwrap().iter().filter(|object| object["change"] == "prune");
    assert_eq!((&diff["commit"], prunes.count()), (&Value::from(second.as_str()), 12), "{diff:#}");
    assert!(diff["pending"].as_str().unwrap().contains("12 of 13"), "{diff:#}");
    let confirmed = scene.kasbah.json(["source", "confirm", SOURCE]).unwrap();
    assert_eq!((&confirmed["held"], &confirmed["desired_commit"]), (&Value::Null, &second.as_str().into()));
    assert_ne!(confirmed["status"]["state"], "held", "{confirmed:#}");
    let source = scene.synced(&second).await;
    assert_eq!(
        (&source["inventory"], &source["sync"]["counts"]["pruned"]),
        (&Value::from(1), &Value::from(12))
    );
    scene.is_gone("c11").await;
    scene.value_becomes("stays", "1").await;
    let (code, diff) = scene.diff(SOURCE);
    assert_eq!(diff["objects"], Value::Array(Vec::new()), "what was pruned would be pruned no more");
    assert_eq!(code, Some(0), "{diff:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diff_tells_what_a_sync_would_change_and_changes_nothing() {
    // An agent that is told to suspend may still undo what it saw before.
    let scene = Scene::start_with("    policies: {correct_drift: false}\n").await;
    scene.write_config_map("one", "1");
    let first = scene.tree.commit_and_push("first").unwrap();
    scene.synced(&first).await;
    scene.kasbah.cli(["source", "suspend", SOURCE, "--reason", "look first"]).unwrap();
    let patch = serde_json::json!({"data": {"value": "by hand"}});
    scene
        .cluster
        .send(http::Method::PATCH, &scene.path("one"), Some(("application/merge-patch+json", &patch)))
        .await
        .unwrap();
    let (code, diff) = scene.diff(SOURCE);
    let object = &diff["objects"][0];
    assert_eq!(
        (code, &object["change"], &object["identity"]["name"]),
        (Some(1), &Value::from("change"), &Value::from("one"))
    );
    assert_eq!((&object["file"], &object["line"]), (&Value::from("manifests/one.yaml"), &Value::from(1)));
    assert!(diff["pending"].as_str().unwrap().contains("look first"), "{diff:#}");
    assert!(diff.to_string().contains("by hand"), "{diff:#}");
    scene.value_becomes("one", "by hand").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_is_wrong_is_named_by_line_and_the_last_good_one_stays() {
    let scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let first = scene.tree.commit_and_push("first").unwrap();
    scene.synced(&first).await;
    let file = format!(".kasbah/agents/{AGENT}/config.yaml");
    scene.tree.write(&file, "sources:\n  - name: shop\n    include: 7\n").unwrap();
    scene.tree.commit_and_push("break the configuration").unwrap();
    testkit::eventually(crate::scene::LIMIT, || async {
        let shown = scene.kasbah.cli(["agent", "show", AGENT])?;
        anyhow::ensure!(shown.contains("config.yaml:3:") && shown.contains("include"), "{shown}");
        Ok(())
    })
    .await;
    scene.value_becomes("one", "1").await;
    scene.write_config_map("one", "2");
    scene.tree.commit_and_push("still works").unwrap();
    scene.value_becomes("one", "2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_use_the_clusters_api_is_explained_from_the_configuration() {
    let scene = Scene::start().await;
    let can_i = |more: &[&str]| {
        let asked = ["access", "can-i", "list", "pods", "--agent", AGENT].iter().chain(more);
        scene.kasbah.cli(asked).map_err(|error| format!("{error:#}"))
    };
    let nobody = can_i(&[]).unwrap_err();
    assert!(nobody.contains("permits no user to use the cluster's API; add user_access"), "{nobody}");

    let grants =
        "user_access:\n  access_as: {user: {}}\n  projects:\n    - id: Shop/Deploy\n      namespaces: [a]\n";
    let configuration = Scene::configuration(&scene.namespace, grants);
    scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration).unwrap();
    scene.tree.commit_and_push("let people in").unwrap();
    let shown = testkit::eventually(crate::scene::LIMIT, || async { can_i(&["--namespace", "a"]) }).await;
    assert!(shown.contains("config.yaml:9 user_access.projects shop/deploy as owner"), "{shown}");
    assert!(shown.contains("kasbah:user:") && shown.contains(":owner"), "{shown}");
    let elsewhere = can_i(&["--namespace", "b"]).unwrap_err();
    assert!(elsewhere.contains("limited to namespace a, and this is in namespace b"), "{elsewhere}");

    scene.kasbah.cli(["user", "create", "ann", "--role", "viewer"]).unwrap();
    let ann = can_i(&["--namespace", "a", "--as", "user:ann"]).unwrap_err();
    assert!(ann.contains("none of the roles owner, maintainer, developer"), "{ann}");
    scene.kasbah.cli(["user", "role", "ann", "developer"]).unwrap();
    let ann = testkit::eventually(crate::scene::LIMIT, || async {
        can_i(&["--namespace", "a", "--as", "user:ann"])
    })
    .await;
    assert!(ann.contains("kasbah:user:ann") && ann.contains("as developer"), "{ann}");
}
