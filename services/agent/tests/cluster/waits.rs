use events::delivery::SyncOutcome;
use events::observation::Observed;
use serde_json::{Value, json};

use crate::rig::{Rig, Source, cluster, config_map, map_path};

pub fn deployment(name: &str, replicas: u32, selector: Option<&str>) -> Value {
    let mut spec = json!({"containers": [{"name": "web", "image": "web:1"}]});
    if let Some(node) = selector {
        spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    }
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}})
}

fn waiting(one: &Observed) -> Option<String> {
    match one {
        Observed::SyncWaiting { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn a_sync_waits_for_health_and_tells_what_for() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("health", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([deployment("web", 2, None), config_map("a", "v")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.unhealthy), (SyncOutcome::Succeeded, 0), "{finished:?}");
    let (reason, _) = rig.process.wait(0, "reason", waiting).await;
    assert!(reason.starts_with(&format!("Deployment {namespace}/web: ")), "{reason}");
    let told: Vec<String> = rig.process.observed().iter().filter_map(waiting).collect();
    let mut once = told.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), told.len(), "each reason once: {told:?}");
    let healthy = |one: &Observed| match one {
        Observed::HealthChanged { identity, status, .. } if identity.name == "web" && status == "healthy" => {
            Some(())
        }
        _ => None,
    };
    rig.process.wait(0, "health", healthy).await;
}

#[tokio::test]
async fn a_newer_bundle_ends_a_wait_at_once_and_an_expired_one_still_prunes() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("expire", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([deployment("never", 1, Some("no-such-node")), config_map("goes", "v")]);
    let first = source.clone();
    rig.put(&[&source]).await;
    rig.process.wait(0, "reason", waiting).await;
    source.policies.health_timeout_seconds = 1;
    let entry = rig.prune_entry("goes");
    source.with([deployment("never", 1, Some("no-such-node"))]).pruning([entry]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(rig.finished(0, &first).await.outcome, SyncOutcome::Superseded);
    assert_eq!(
        (finished.outcome, finished.counts.unhealthy, finished.counts.pruned),
        (SyncOutcome::Unhealthy, 1, 1),
        "{finished:?}"
    );
    assert!(finished.failures[0].message.contains("not healthy within 1 s"), "{finished:?}");
    assert!(!cluster.exists(&map_path(&namespace, "goes")).await.unwrap());
}

#[tokio::test]
async fn a_sync_that_a_suspension_cut_off_runs_when_it_is_resumed() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("resume", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("goes", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let entry = rig.prune_entry("goes");
    source.with([deployment("never", 1, Some("no-such-node"))]).pruning([entry]);
    source.policies.health_timeout_seconds = 3;
    let from = rig.process.observed().len();
    rig.put(&[&source]).await;
    let (_, waited) = rig.process.wait(from, "reason", waiting).await;
    source.suspended = true;
    rig.put(&[&source]).await;
    assert_eq!(rig.finished(waited, &source).await.outcome, SyncOutcome::Superseded);
    let cut_off = rig.process.observed().len();
    source.suspended = false;
    rig.put(&[&source]).await;
    let finished = rig.finished(cut_off, &source).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Unhealthy, 1), "{finished:?}");
    assert!(!cluster.exists(&map_path(&namespace, "goes")).await.unwrap());
}

#[tokio::test]
async fn what_becomes_healthy_after_its_sync_makes_it_good() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("late", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = 1;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "late"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Mi"}}}});
    source.with([claim]);
    let from = rig.process.observed().len();
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Unhealthy);
    let ended = rig.process.observed().len().max(from);
    let volume = json!({"metadata": {"name": namespace}, "spec": {"capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "hostPath": {"path": "/tmp"},
        "claimRef": {"namespace": namespace, "name": "late"}}});
    cluster.create_object("/api/v1/persistentvolumes", &volume).await.unwrap();
    let finished = rig.finished(ended, &source).await;
    assert_eq!((finished.outcome, finished.counts.unhealthy), (SyncOutcome::Succeeded, 0), "{finished:?}");
}

#[tokio::test]
async fn a_newer_bundle_ends_the_wait_for_a_kind() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("kinds", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let group = format!("{namespace}.example");
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let thing = |version: &str| json!({"apiVersion": format!("{group}/{version}"), "kind": "Thing", "metadata": {"name": "a"}});
    source.with([definition.clone(), thing("v2")]);
    let never = source.clone();
    rig.put(&[&source]).await;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}");
    testkit::eventually(crate::rig::DEADLINE, || async {
        anyhow::ensure!(cluster.exists(&path).await?, "no definition yet");
        Ok(())
    })
    .await;
    source.with([definition, thing("v1")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(rig.finished(0, &never).await.outcome, SyncOutcome::Superseded);
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    cluster.kubectl(["delete", "customresourcedefinition", &format!("things.{group}")]).await.unwrap();
}
