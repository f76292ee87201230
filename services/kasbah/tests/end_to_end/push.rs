//! The main job: push, change, delete, drift, break.

use serde_json::json;

use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pushed_arrives_changes_and_goes() {
    let scene = Scene::start().await;
    scene.write_config_map("one", "1");
    scene.write_config_map("two", "2");
    scene.tree.commit_and_push("two config maps").unwrap();
    scene.value_becomes("one", "1").await;
    scene.value_becomes("two", "2").await;

    scene.write_config_map("one", "changed");
    let commit = scene.tree.commit_and_push("change one").unwrap();
    scene.value_becomes("one", "changed").await;
    let source = scene.synced(&commit).await;
    assert_eq!(source["inventory"], 2);
    assert_eq!(source["sync"]["counts"]["changed"], 1);
    assert_eq!(source["sync"]["counts"]["unchanged"], 1);

    scene.tree.remove("manifests/two.yaml").unwrap();
    let commit = scene.tree.commit_and_push("remove two").unwrap();
    scene.is_gone("two").await;
    let source = scene.synced(&commit).await;
    assert_eq!(source["inventory"], 1);
    assert_eq!(source["sync"]["counts"]["pruned"], 1);
    scene.value_becomes("one", "changed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_changed_by_hand_is_corrected() {
    let scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let commit = scene.tree.commit_and_push("one").unwrap();
    scene.synced(&commit).await;
    let patch = json!({"data": {"value": "by hand"}});
    let patched = scene
        .cluster
        .send(http::Method::PATCH, &scene.path("one"), Some(("application/merge-patch+json", &patch)))
        .await
        .unwrap();
    assert!(patched.status.is_success(), "{patched:?}");
    scene.value_becomes("one", "1").await;
    let deleted = scene.cluster.send(http::Method::DELETE, &scene.path("one"), None).await.unwrap();
    assert!(deleted.status.is_success());
    scene.value_becomes("one", "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_manifest_is_named_by_file_and_line_and_the_last_good_commit_stays() {
    let scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let good = scene.tree.commit_and_push("good").unwrap();
    scene.synced(&good).await;
    scene.write_config_map("one", "2");
    scene
        .tree
        .write("manifests/bad.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: [\n")
        .unwrap();
    let bad = scene.tree.commit_and_push("bad").unwrap();
    let source =
        scene.source_becomes("rejected", |source| source["rejected"]["commit"] == bad.as_str()).await;
    let finding = &source["rejected"]["findings"][0];
    assert_eq!(finding["file"], "manifests/bad.yaml");
    assert!(finding["line"].as_u64().unwrap() >= 4, "{finding}");
    assert!(source["why"].as_str().unwrap().contains("manifests/bad.yaml"), "{source:#}");
    assert_eq!(source["synced_commit"], good.as_str());
    scene.value_becomes("one", "1").await;
    scene.tree.remove("manifests/bad.yaml").unwrap();
    let mended = scene.tree.commit_and_push("mended").unwrap();
    scene.synced(&mended).await;
    scene.value_becomes("one", "2").await;
}
