//! What `kasbah source diff` says of what a sync would be refused, and with which exit code.

use serde_json::Value;

use crate::scene::{AGENT, Scene};

const SOURCE: &str = "production/shop";

fn object<'a>(diff: &'a Value, name: &str) -> &'a Value {
    let mut objects = diff["objects"].as_array().unwrap().iter();
    objects.find(|object| object["identity"]["name"] == name).unwrap_or_else(|| panic!("{name}: {diff:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_head_is_named_by_file_and_line_beside_what_is_compared() {
    let scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let good = scene.tree.commit_and_push("good").unwrap();
    scene.synced(&good).await;
    assert_eq!(scene.diff(SOURCE).0, Some(0));
    let twice = format!("{}  value: \"2\"\n", Scene::config_map("one", "1"));
    scene.tree.write("manifests/one.yaml", twice).unwrap();
    let bad = scene.tree.commit_and_push("a key twice").unwrap();
    scene.source_becomes("rejected", |source| source["rejected"]["commit"] == bad.as_str()).await;
    let (code, diff) = scene.diff(SOURCE);
    assert_eq!((code, &diff["commit"]), (Some(1), &Value::from(good.as_str())), "{diff:#}");
    let finding = &diff["rejected"]["findings"][0];
    assert_eq!((&finding["file"], &finding["line"]), (&"manifests/one.yaml".into(), &7.into()), "{diff:#}");
    let output = scene.kasbah.cli_command().unwrap().args(["source", "diff", SOURCE]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(1), b"".as_slice()), "{text}");
    assert!(text.contains("manifests/one.yaml:7"), "{text}");
    assert!(text.contains(&format!("Compared is the newest good commit, {}", &good[..10])), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_object_says_what_would_happen_to_it_and_why() {
    let mut scene = Scene::start().await;
    let inner = format!("{}-inner", scene.namespace);
    let space = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {inner}\n");
    let inside = |value: &str| {
        Scene::config_map("inside", value)
            .replace("name: inside", &format!("name: inside\n  namespace: {inner}"))
    };
    scene.tree.write("manifests/space.yaml", space).unwrap();
    scene.tree.write("manifests/inside.yaml", inside("1")).unwrap();
    scene.write_config_map("goes", "1");
    let first = scene.tree.commit_and_push("first").unwrap();
    scene.synced(&first).await;
    let theirs = serde_json::json!({"metadata": {"name": "theirs", "labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}});
    let collection = format!("/api/v1/namespaces/{}/configmaps", scene.namespace);
    scene.cluster.create_object(&collection, &theirs).await.unwrap();

    // Git drops the namespace and wants an object in it still; a kind is unknown, an object is another tool's.
    scene.kasbah.cli(["source", "suspend", SOURCE]).unwrap();
    scene.tree.remove("manifests/space.yaml").unwrap();
    scene.tree.remove("manifests/goes.yaml").unwrap();
    scene.tree.write("manifests/inside.yaml", inside("2")).unwrap();
    scene
        .tree
        .write(
            "manifests/late.yaml",
            "# of a controller\napiVersion: ships.example.com/v1\nkind: Ship\nmetadata: {name: late}\n",
        )
        .unwrap();
    let second = scene.tree.commit_and_push("second").unwrap();
    scene.source_becomes("fetched", |source| source["newest_commit"] == second.as_str()).await;
    let (code, diff) = scene.diff(SOURCE);
    assert_eq!((code, &diff["commit"]), (Some(1), &Value::from(second.as_str())), "{diff:#}");
    let late = object(&diff, "late");
    assert_eq!((&late["change"], &late["reason"]), (&"wait".into(), &"kind-awaited".into()), "{diff:#}");
    assert_eq!((&late["file"], &late["line"]), (&"manifests/late.yaml".into(), &2.into()), "{diff:#}");
    let kept = object(&diff, &inner);
    assert_eq!(kept["change"], "keep", "{diff:#}");
    assert!(kept["message"].as_str().unwrap().contains("manifests/inside.yaml:1"), "{diff:#}");
    assert_eq!(object(&diff, "inside")["change"], "change", "{diff:#}");
    assert_eq!(
        (&object(&diff, "goes")["change"], &diff["stopped"]["extent"]),
        (&"keep".into(), &"all-but-prunes".into())
    );

    scene.write_config_map("theirs", "ours");
    scene.tree.remove("manifests/late.yaml").unwrap();
    let third = scene.tree.commit_and_push("third").unwrap();
    scene.source_becomes("fetched", |source| source["newest_commit"] == third.as_str()).await;
    let (code, diff) = scene.diff(SOURCE);
    let refused = object(&diff, "theirs");
    assert_eq!((code, &refused["reason"]), (Some(1), &"adoption-refused".into()), "{diff:#}");
    assert_eq!(refused["holder"]["tool"]["name"], "Flux (Kustomization apps)", "{diff:#}");
    assert!(refused["message"].as_str().unwrap().contains("adopt_all"), "{diff:#}");
    assert_eq!(
        (&refused["file"], &diff["stopped"]["extent"]),
        (&"manifests/theirs.yaml".into(), &"nothing".into())
    );

    // Without an agent there is no comparison, nor for what nobody knows.
    scene.kasbah.stop_agent("agent").unwrap();
    for (source, words) in [(SOURCE, "not connected"), ("production/nothing", "not found")] {
        let output = scene.kasbah.cli_command().unwrap().args(["source", "diff", source]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.contains(words)), (Some(2), true), "{AGENT}: {said}");
    }
}
