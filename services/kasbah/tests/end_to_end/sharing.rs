//! Two sources with the same object.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::eventually;

use crate::scene::{AGENT, LIMIT, Scene};

/// Puts a configuration into force whose sources `shop` over `manifests` and `extra` over `other` stand in this order.
fn configure(scene: &Scene, names: [&str; 2]) -> String {
    let mut text = "sources:\n".to_owned();
    for name in names {
        let folder = if name == "shop" { "manifests" } else { "other" };
        text += &format!("  - {{name: {name}, include: [{folder}], namespace: {}}}\n", scene.namespace);
    }
    scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), text).unwrap();
    scene.tree.commit_and_push("configure two sources").unwrap()
}

async fn extra_becomes(scene: &Scene, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    eventually(LIMIT, || async {
        let source = scene.kasbah.json(["source", "show", "production/extra"])?;
        ensure!(is(&source), "the source is not {what}: {source:#}");
        Ok(source)
    })
    .await
}

async fn uid(scene: &Scene, name: &str) -> Value {
    let live = scene.cluster.get(&scene.path(name)).await.context("is there").unwrap();
    live["metadata"]["uid"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_source_holds_an_object_and_hands_it_over_once_it_drops_it() {
    let scene = Scene::start().await;
    scene.write_config_map("shared", "shop");
    let first = scene.tree.commit_and_push("shop alone").unwrap();
    scene.synced(&first).await;
    let before = uid(&scene, "shared").await;

    // The other source stands first in the file; the one that has it keeps it.
    scene.tree.write("other/shared.yaml", Scene::config_map("shared", "extra")).unwrap();
    scene.tree.write("other/own.yaml", Scene::config_map("own", "extra")).unwrap();
    let both = configure(&scene, ["extra", "shop"]);
    let extra = extra_becomes(&scene, "without what shop holds", |source| {
        source["wants"] == 1 && source["sync"]["outcome"] == "failed"
    })
    .await;
    assert_eq!(extra["wanted"][0]["holder_name"], "shop", "{extra:#}");
    assert_eq!(extra["wanted"][0]["object"]["name"], "shared", "{extra:#}");
    assert_eq!(extra["sync"]["counts"]["created"], 1, "the rest is applied: {extra:#}");
    assert_eq!(extra["sync"]["failures"][0]["file"], "other/shared.yaml", "{extra:#}");
    assert!(extra["why"].as_str().unwrap().contains("source shop of this agent holds it"), "{extra:#}");
    scene.value_becomes("own", "extra").await;
    scene.value_becomes("shared", "shop").await;
    scene.synced(&both).await;
    let (code, diff) = scene.diff("production/extra");
    let refused = &diff["objects"][0];
    assert_eq!((code, &refused["change"]), (Some(1), &Value::from("refused")), "{diff:#}");
    assert_eq!(
        (&refused["reason"], &refused["file"]),
        (&"held-by-source".into(), &"other/shared.yaml".into())
    );
    assert_eq!(refused["holder"]["source"]["name"], "shop", "{diff:#}");

    scene.tree.remove("manifests/shared.yaml").unwrap();
    scene.write_config_map("stays", "shop");
    let moved = scene.tree.commit_and_push("shop drops it").unwrap();
    let extra = extra_becomes(&scene, "at the last commit", |source| {
        source["synced_commit"] == moved && source["why"].is_null()
    })
    .await;
    assert_eq!((&extra["wants"], &extra["inventory"]), (&Value::from(0), &Value::from(2)));
    scene.value_becomes("shared", "extra").await;
    assert_eq!(uid(&scene, "shared").await, before, "it was not made anew");

    // A file that moves in one commit is given up and taken in one go.
    scene.tree.remove("other/shared.yaml").unwrap();
    scene.write_config_map("shared", "back");
    let back = scene.tree.commit_and_push("and back").unwrap();
    scene.synced(&back).await;
    scene.value_becomes("shared", "back").await;
    assert_eq!(uid(&scene, "shared").await, before, "it was not made anew");
    let pruned = scene.kasbah.cli(["log", "tail", "-n", "500", "--type", "observed.object-pruned"]).unwrap();
    assert!(!pruned.contains("shared"), "{pruned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_new_sources_the_first_in_the_file_gets_it() {
    let scene = Scene::start().await;
    scene.write_config_map("stays", "shop");
    let first = scene.tree.commit_and_push("one").unwrap();
    scene.synced(&first).await;
    let text = format!(
        "sources:\n  - {{name: web, include: [b], namespace: {0}}}\n  - {{name: extra, include: [a], namespace: {0}}}\n",
        scene.namespace
    );
    scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), text).unwrap();
    scene.tree.write("a/shared.yaml", Scene::config_map("shared", "extra")).unwrap();
    scene.tree.write("b/shared.yaml", Scene::config_map("shared", "web")).unwrap();
    scene.tree.commit_and_push("two").unwrap();
    let extra = extra_becomes(&scene, "without what web holds", |source| source["wants"] == 1).await;
    assert_eq!(extra["wanted"][0]["holder_name"], "web", "{extra:#}");
    scene.value_becomes("shared", "web").await;
}
