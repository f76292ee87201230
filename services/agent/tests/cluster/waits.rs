use events::delivery::SyncOutcome;
use events::observation::Observed;
use serde_json::{Value, json};

use crate::rig::{Rig, Source, cluster, config_map, map_path};

fn deployment(name: &str, replicas: u32, selector: Option<&str>) -> Value {
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
