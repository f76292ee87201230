//! Namespaces and definitions, whose deletion takes along what they hold; and the order in which a prune goes.

use events::delivery::{PruneEntry, SyncOutcome};
use events::observation::Observed;
use events::requests::diff::{DiffChange, DiffReason};
use serde_json::{Value, json};
use testkit::{Cluster, eventually};

use crate::rig::{DEADLINE, Rig, Source, cluster, config_map, map_path};

fn space(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn map_in(namespace: &str, name: &str) -> Value {
    let mut map = config_map(name, "v");
    map["metadata"]["namespace"] = json!(namespace);
    map
}

/// A kind of this test's own: its group, and its definition.
fn definition(namespace: &str) -> (String, Value) {
    let group = format!("{namespace}.example");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("ships.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "ships", "kind": "Ship"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    (group, definition)
}

fn ship(group: &str, name: &str) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Ship", "metadata": {"name": name}})
}

fn definition_path(group: &str) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ships.{group}")
}

async fn is_there(cluster: &Cluster, path: &str) -> bool {
    let found =
        if cluster.exists(path).await.unwrap() { Some(cluster.get(path).await.unwrap()) } else { None };
    found.is_some_and(|live| live["metadata"]["deletionTimestamp"].is_null())
}

fn last_word(rig: &Rig, name: &str) -> Option<Option<String>> {
    rig.process.observed().into_iter().rev().find_map(|one| match one {
        Observed::ObjectPruned { identity, kept, stays_owned, .. } if identity.name == name => {
            assert_eq!(kept.is_some(), stays_owned, "what is kept here stays in the inventory");
            Some(kept)
        }
        _ => None,
    })
}

fn kept_because(rig: &Rig, name: &str) -> String {
    last_word(rig, name).expect("told").expect("kept")
}

#[tokio::test]
async fn a_namespace_with_objects_of_another_source_stays_until_they_are_gone() {
    let cluster = cluster().await;
    let home = cluster.namespace("holder", false).await.unwrap();
    let shared = format!("{home}-shared");
    let mut rig = Rig::start(&cluster, &home).await;
    let (mut base, mut app) = (Source::new(&rig, "base", &home), Source::new(&rig, "app", &home));
    base.with([space(&shared), map_in(&shared, "listed"), config_map("stays", "v")]);
    assert_eq!(rig.sync(&[&base]).await.outcome, SyncOutcome::Succeeded);
    app.with([map_in(&shared, "theirs"), config_map("else", "v")]);
    assert_eq!(rig.sync(&[&app, &base]).await.outcome, SyncOutcome::Succeeded);
    let entries = [rig.prune_entry(&shared), rig.prune_entry("listed")];
    let theirs = rig.prune_entry("theirs");

    // Wanted by the other one.
    base.with([config_map("stays", "v2")]).pruning(entries.clone());
    let finished = rig.sync(&[&base, &app]).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Succeeded, 1), "{finished:?}");
    assert_eq!(cluster.get(&map_path(&home, "stays")).await.unwrap()["data"]["key"], "v2", "the rest syncs");
    assert!(is_there(&cluster, &map_path(&shared, "theirs")).await);
    let reason = kept_because(&rig, &shared);
    assert!(reason.contains("source app still wants") && reason.contains("theirs"), "{reason}");

    // Not wanted any more, and there: such as one that was adopted, or is to be kept.
    app.with([config_map("else", "v2")]);
    assert_eq!(rig.sync(&[&app, &base]).await.outcome, SyncOutcome::Succeeded);
    base.with([config_map("stays", "v3")]).pruning([entries[0].clone()]);
    assert_eq!(rig.sync(&[&base, &app]).await.outcome, SyncOutcome::Succeeded);
    assert!(is_there(&cluster, &map_path(&shared, "theirs")).await);
    assert!(kept_because(&rig, &shared).contains("is in it and stays"));

    // The other one prunes it a moment later: then the namespace goes by itself.
    app.with([config_map("else", "v3")]).pruning([theirs]);
    assert_eq!(rig.sync(&[&app, &base]).await.outcome, SyncOutcome::Succeeded);
    eventually(DEADLINE, || async {
        anyhow::ensure!(last_word(&rig, &shared) == Some(None), "still kept");
        Ok(())
    })
    .await;
    assert!(!is_there(&cluster, &format!("/api/v1/namespaces/{shared}")).await);
}

#[tokio::test]
async fn a_namespace_stays_for_what_its_own_source_keeps_or_wants_in_it() {
    let cluster = cluster().await;
    let home = cluster.namespace("kept", false).await.unwrap();
    let (wanted, kept) = (format!("{home}-wanted"), format!("{home}-kept"));
    let mut rig = Rig::start(&cluster, &home).await;
    let mut source = Source::new(&rig, "shop", &home);
    let mut for_good = map_in(&kept, "for-good");
    for_good["metadata"]["annotations"] = json!({"kasbah.dev/prune": "disabled"});
    source.with([space(&wanted), space(&kept), map_in(&wanted, "inside"), for_good]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let entries: Vec<PruneEntry> =
        [wanted.as_str(), &kept, "for-good"].iter().map(|name| rig.prune_entry(name)).collect();
    let mut changed = map_in(&wanted, "inside");
    changed["data"]["key"] = json!("new");
    source.with([changed]).pruning(entries.clone());
    let differences = rig.diff(&source).await.objects;
    for (entry, reason) in
        entries.iter().zip(["source shop still wants", "for-good is in it", "kasbah.dev/prune is disabled"])
    {
        let one = differences.iter().find(|one| one.identity == entry.identity).unwrap();
        assert_eq!((one.change, one.reason), (DiffChange::Keep, Some(DiffReason::Kept)), "{one:?}");
        assert!(one.message.as_ref().unwrap().contains(reason), "{one:?}");
    }
    let wants = differences.iter().find(|one| one.identity.name == wanted).unwrap();
    assert!(wants.message.as_ref().unwrap().contains("(0.yaml:7)"), "with the place in Git: {wants:?}");
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Succeeded, 0), "{finished:?}");
    assert_eq!(cluster.get(&map_path(&wanted, "inside")).await.unwrap()["data"]["key"], "new");
    assert!(is_there(&cluster, &map_path(&kept, "for-good")).await);
    assert!(kept_because(&rig, &wanted).contains("source shop still wants"));
    assert!(kept_because(&rig, &kept).contains("for-good"));
}

#[tokio::test]
async fn a_definition_with_others_objects_stays() {
    let cluster = cluster().await;
    let home = cluster.namespace("definition", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &home).await;
    let (group, definition) = definition(&home);
    let (mut base, mut app) = (Source::new(&rig, "base", &home), Source::new(&rig, "app", &home));
    base.with([definition, ship(&group, "ours")]);
    assert_eq!(rig.sync(&[&base]).await.outcome, SyncOutcome::Succeeded);
    app.with([ship(&group, "theirs"), config_map("else", "v")]);
    assert_eq!(rig.sync(&[&app, &base]).await.outcome, SyncOutcome::Succeeded);
    let name = format!("ships.{group}");
    let entries = [rig.prune_entry(&name), rig.prune_entry("ours")];
    for (manifests, reason) in [
        (vec![ship(&group, "theirs"), config_map("else", "v2")], "source app still wants"),
        (vec![config_map("else", "v3")], "is in it and stays"),
    ] {
        app.with(manifests);
        assert_eq!(rig.sync(&[&app, &base]).await.outcome, SyncOutcome::Succeeded);
        base.with([config_map("stays", "v")]).pruning(entries.clone());
        let finished = rig.sync(&[&base, &app]).await;
        assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
        assert!(is_there(&cluster, &definition_path(&group)).await);
        assert!(kept_because(&rig, &name).contains(reason), "{}", kept_because(&rig, &name));
    }
    let ships = format!("/apis/{group}/v1/namespaces/{home}/ships");
    assert!(is_there(&cluster, &format!("{ships}/theirs")).await);
    assert!(!cluster.exists(&format!("{ships}/ours")).await.unwrap());
}

/// Takes the finalizer off, as the controller does.
async fn finalize(cluster: &Cluster, kind: &str, namespace: &str, name: &str) {
    let patch = json!({"metadata": {"finalizers": null}}).to_string();
    cluster.kubectl(["patch", kind, name, "-n", namespace, "--type=merge", "-p", &patch]).await.unwrap();
}

#[tokio::test]
async fn custom_resources_are_gone_before_what_their_finalizers_need() {
    let cluster = cluster().await;
    let home = cluster.namespace("order", false).await.unwrap();
    let port = format!("{home}-port");
    let mut rig = Rig::start(&cluster, &home).await;
    let mut source = Source::new(&rig, "shop", &home);
    let (group, definition) = definition(&home);
    let mut held = ship(&group, "held");
    held["metadata"]["namespace"] = json!(port);
    held["metadata"]["finalizers"] = json!([format!("{group}/hold")]);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "controller", "namespace": port}});
    source.with([definition, space(&port), held, account, map_in(&port, "controller-settings")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let name = format!("ships.{group}");
    let entries: Vec<PruneEntry> = [name.as_str(), &port, "held", "controller", "controller-settings"]
        .iter()
        .map(|name| rig.prune_entry(name))
        .collect();
    source.with([config_map("stays", "v")]).pruning(entries);
    let from = rig.process.observed().len();
    rig.put(&[&source]).await;
    let waits = |one: &Observed| match one {
        Observed::SyncWaiting { reason, .. } if reason.contains("held") => Some(reason.clone()),
        _ => None,
    };
    let (reason, _) = rig.process.wait(from, "word of what is waited for", waits).await;
    assert!(reason.contains(&format!("{group}/hold")), "{reason}");
    for path in [
        map_path(&port, "controller-settings"),
        format!("/api/v1/namespaces/{port}/serviceaccounts/controller"),
        format!("/api/v1/namespaces/{port}"),
        definition_path(&group),
    ] {
        assert!(is_there(&cluster, &path).await, "{path}");
    }
    assert_eq!(last_word(&rig, "held"), None, "it is not gone yet");
    finalize(&cluster, &name, &port, "held").await;
    let finished = rig.finished(from, &source).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Succeeded, 5), "{finished:?}");
    eventually(DEADLINE, || async {
        for path in [definition_path(&group), format!("/api/v1/namespaces/{port}")] {
            anyhow::ensure!(!cluster.exists(&path).await?, "{path} is there");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_namespace_waits_for_the_end_of_what_was_deleted_in_it() {
    let cluster = cluster().await;
    let home = cluster.namespace("ending", false).await.unwrap();
    let port = format!("{home}-port");
    let mut rig = Rig::start(&cluster, &home).await;
    let mut source = Source::new(&rig, "shop", &home);
    let mut held = map_in(&port, "held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    source.with([space(&port), held]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let entries = [rig.prune_entry(&port), rig.prune_entry("held")];
    source.with([config_map("stays", "v")]).pruning(entries);
    let from = rig.process.observed().len();
    rig.put(&[&source]).await;
    let waits = |one: &Observed| match one {
        Observed::SyncWaiting { reason, .. } if reason.contains("example.com/hold") => Some(()),
        _ => None,
    };
    rig.process.wait(from, "word of what is waited for", waits).await;
    assert!(is_there(&cluster, &format!("/api/v1/namespaces/{port}")).await);
    finalize(&cluster, "configmap", &port, "held").await;
    let finished = rig.finished(from, &source).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Succeeded, 2), "{finished:?}");
}
