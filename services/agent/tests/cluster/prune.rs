use agent::kubernetes::{Connections, Discovery, Kube, KubeOptions};
use agent::metrics::Counts;
use events::delivery::{PruneEntry, SyncOutcome};
use events::observation::Observed;
use serde_json::json;
use testkit::{Cluster, ControlPlane, ControlPlaneOptions, eventually};
use world::World;

use crate::rig::{DEADLINE, Rig, Source, cluster, config_map, map_path};

fn kept(name: &'static str) -> impl Fn(&Observed) -> Option<Option<String>> {
    move |one| match one {
        Observed::ObjectPruned { identity, kept, .. } if identity.name == name => Some(kept.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn only_what_is_listed_marked_and_of_that_uid_is_deleted() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("prune", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let names = ["goes", "other-uid", "unmarked", "stays", "kept-by-git", "unlisted"];
    let manifests = names.map(|name| {
        let mut map = config_map(name, "v");
        if name == "kept-by-git" {
            map["metadata"]["annotations"] = json!({"kasbah.dev/prune": "disabled"});
        }
        map
    });
    source.with(manifests.clone());
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let mut entries: Vec<PruneEntry> = names.iter().take(5).map(|name| rig.prune_entry(name)).collect();
    entries[1].uid = "00000000-0000-0000-0000-000000000000".into();
    // Nothing is corrected meanwhile, so that the object stays without its mark.
    source.policies.correct_drift = false;
    rig.put(&[&source]).await;
    cluster
        .kubectl(["annotate", "configmap", "unmarked", "-n", &namespace, "kasbah.dev/owner-"])
        .await
        .unwrap();
    source.with([manifests[3].clone()]).pruning(entries);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Succeeded, 1), "{finished:?}");
    for name in names {
        assert_eq!(cluster.exists(&map_path(&namespace, name)).await.unwrap(), name != "goes", "{name}");
    }
    let reason = async |name| rig.process.wait(0, "prune", kept(name)).await.0;
    assert_eq!(reason("goes").await, None);
    assert!(reason("other-uid").await.unwrap().contains("another object"));
    assert!(reason("unmarked").await.unwrap().contains("mark"));
    assert!(reason("stays").await.unwrap().contains("bundle"));
    assert!(reason("kept-by-git").await.unwrap().contains("kasbah.dev/prune"));
}

#[tokio::test]
async fn a_failed_apply_withholds_the_prune() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("withhold", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v"), config_map("b", "v")]);
    rig.sync(&[&source]).await;
    let entry = rig.prune_entry("b");
    source
        .with([json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Not A Name"}})])
        .pruning([entry]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Failed);
    assert!(cluster.exists(&map_path(&namespace, "b")).await.unwrap());
}

#[tokio::test]
async fn a_namespace_goes_only_when_nothing_foreign_is_in_it() {
    let cluster = cluster().await;
    let home = cluster.namespace("spaces", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &home).await;
    let mut source = Source::new(&rig, "shop", &home);
    let (ours, shared) = (format!("{home}-ours"), format!("{home}-shared"));
    let space = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let inside = |space: &str| {
        let mut map = config_map(&format!("in-{space}"), "v");
        map["metadata"]["namespace"] = json!(space);
        map
    };
    source.with([space(&ours), space(&shared), inside(&ours), inside(&shared), config_map("stays", "v")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    let foreign = json!({"metadata": {"name": "theirs"}});
    cluster.create_object(&format!("/api/v1/namespaces/{shared}/configmaps"), &foreign).await.unwrap();
    let names = [ours.clone(), shared.clone(), format!("in-{ours}"), format!("in-{shared}")];
    let entries: Vec<PruneEntry> = names.iter().map(|name| rig.prune_entry(name)).collect();
    source.with([config_map("stays", "v")]).pruning(entries);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Succeeded, 3), "{finished:?}");
    assert!(cluster.exists(&map_path(&shared, "theirs")).await.unwrap());
    assert!(!cluster.exists(&map_path(&shared, &format!("in-{shared}"))).await.unwrap());
    eventually(DEADLINE, || async {
        let exists = cluster.exists(&format!("/api/v1/namespaces/{ours}")).await?;
        anyhow::ensure!(!exists, "still there");
        Ok(())
    })
    .await;
    let reason = rig.process.observed().into_iter().find_map(|one| match one {
        Observed::ObjectPruned { identity, kept: Some(reason), .. } if identity.name == shared => {
            Some(reason)
        }
        _ => None,
    });
    assert!(reason.unwrap().contains("theirs"));
}

/// Registers a group of the API that no server answers for.
pub async fn register_silent_group(cluster: &Cluster, namespace: &str) {
    let silent = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.silent.example.com"},
        "spec": {
            "group": "silent.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"name": "nobody", "namespace": namespace}, "insecureSkipTLSVerify": true,
        },
    });
    cluster.create_object("/apis/apiregistration.k8s.io/v1/apiservices", &silent).await.unwrap();
}

#[tokio::test]
async fn a_namespace_waits_for_an_api_group_that_does_not_answer() {
    let options = ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let home = plane.namespace("silent", false).await.unwrap();
    let mut rig = Rig::start(&plane, &home).await;
    let mut source = Source::new(&rig, "shop", &home);
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "goes"}});
    source.with([space, config_map("stays", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    register_silent_group(&plane, &home).await;
    // The document that the agent reads follows the object a moment later.
    let options = KubeOptions { kubeconfig: Some(plane.kubeconfig().to_owned()), ..KubeOptions::default() };
    let connections = Connections::open(&World::real(), &options).await.unwrap();
    let kube = Kube::new(connections, World::real(), Counts::default());
    eventually(DEADLINE, || async {
        let kinds = Discovery::default().refresh(&kube).await?;
        let silent: Vec<_> = kinds.silent_groups().cloned().collect();
        anyhow::ensure!(silent == ["silent.example.com"], "{silent:?}");
        Ok(())
    })
    .await;
    let entry = rig.prune_entry("goes");
    source.with([config_map("stays", "v")]).pruning([entry]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Failed, 0), "{finished:?}");
    assert!(finished.failures[0].message.contains("silent.example.com"), "{finished:?}");
    assert!(!finished.failures[0].message.contains("the API server"), "it does answer: {finished:?}");
    assert!(plane.get("/api/v1/namespaces/goes").await.unwrap()["metadata"]["deletionTimestamp"].is_null());
    plane.kubectl(["delete", "apiservice", "v1.silent.example.com"]).await.unwrap();
    assert_eq!(rig.process.wait(0, "prune", kept("goes")).await.0, None);
}

#[tokio::test]
async fn a_source_without_a_bundle_touches_nothing_and_a_removed_one_only_its_list() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("removed", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let mut barrier = Source::new(&rig, "barrier", &namespace);
    source.with([config_map("a", "v"), config_map("b", "v")]);
    rig.sync(&[&source]).await;
    let entry = rig.prune_entry("a");
    source.manifests = None;
    barrier.with([config_map("z", "v")]);
    rig.sync(&[&barrier, &source]).await;
    assert!(cluster.exists(&map_path(&namespace, "a")).await.unwrap());
    source.with([config_map("b", "changed")]).pruning([entry]);
    source.removed = true;
    let finished = rig.sync(&[&source, &barrier]).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Succeeded, 1), "{finished:?}");
    assert!(!cluster.exists(&map_path(&namespace, "a")).await.unwrap());
    assert_eq!(cluster.get(&map_path(&namespace, "b")).await.unwrap()["data"]["key"], "v");
}
