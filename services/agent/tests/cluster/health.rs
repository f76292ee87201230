//! What holds a sync and what does not, and why something is not well.

use std::time::Duration;

use events::configuration::{HealthRule, HealthSettings};
use events::delivery::SyncOutcome;
use events::observation::Observed;
use serde_json::{Value, json};
use testkit::{Cluster, eventually};

use crate::rig::{DEADLINE, Rig, Source, cluster, config_map};
use crate::waits::deployment;

/// Long enough that a sync that waits for it fails the test, which waits for [`DEADLINE`].
pub const HELD: u32 = 120;

pub async fn patch_status(cluster: &Cluster, namespace: &str, object: &str, status: &Value) {
    let patch = json!({ "status": status }).to_string();
    let arguments = ["patch", object, "-n", namespace, "--subresource=status", "--type=merge", "-p", &patch];
    eventually(DEADLINE, || async { cluster.kubectl(arguments).await }).await;
}

/// Waits for what an observation says of an object's health.
pub async fn told(rig: &Rig, from: usize, name: &str, status: &str) -> (String, usize) {
    let find = |one: &Observed| match one {
        Observed::HealthChanged { identity, status: is, message, .. }
            if identity.name == name && is == status =>
        {
            Some(message.clone())
        }
        _ => None,
    };
    rig.process.wait(from, &format!("{name} being {status}"), find).await
}

fn class(name: &str, mode: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "example.com/none", "volumeBindingMode": mode})
}

fn claim(name: &str, class: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Mi"}}}})
}

fn definition(group: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("docks.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "docks", "kind": "Dock"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"metres": {"type": "integer"}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
}

fn dock(group: &str, metres: u32) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Dock", "metadata": {"name": "dry"}, "spec": {"metres": metres}})
}

#[tokio::test]
async fn a_claim_that_waits_for_its_first_consumer_holds_no_sync_and_one_that_nobody_serves_does() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("claims", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = HELD;
    let (later, now) = (format!("{namespace}-later"), format!("{namespace}-now"));
    source.with([class(&later, "WaitForFirstConsumer"), claim("archive", &later), config_map("a", "v")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    source.policies.health_timeout_seconds = 3;
    source.with([
        class(&later, "WaitForFirstConsumer"),
        claim("archive", &later),
        class(&now, "Immediate"),
        claim("never", &now),
    ]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.unhealthy), (SyncOutcome::Unhealthy, 1), "{finished:?}");
    assert_eq!(finished.failures[0].identity.name, "never");
    for class in [later, now] {
        cluster.kubectl(["delete", "storageclass", &class]).await.unwrap();
    }
}

#[tokio::test]
async fn a_failed_run_of_a_cron_job_and_an_autoscaler_without_metrics_show_and_hold_nothing() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("night", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = HELD;
    let nightly = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 1 1 *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "a", "image": "a:1"}]}}}}}});
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "tug"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "tug"}, "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]}});
    let mut tug = deployment("tug", 1, None);
    tug["spec"].as_object_mut().unwrap().remove("replicas");
    source.with([nightly.clone(), tug.clone(), scaler.clone(), config_map("a", "v")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    let failed =
        json!({"lastScheduleTime": "2026-01-02T00:00:00Z", "lastSuccessfulTime": "2026-01-01T00:00:00Z"});
    patch_status(&cluster, &namespace, "cronjob/nightly", &failed).await;
    let (message, _) = told(&rig, 0, "nightly", "degraded").await;
    assert!(message.contains("last run"), "{message}");
    source.with([nightly, tug, scaler, config_map("a", "w")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.changed), (SyncOutcome::Succeeded, 1), "{finished:?}");
}

#[tokio::test]
async fn a_ready_condition_of_the_generation_before_does_not_end_a_wait() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("stale", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = HELD;
    let group = format!("{namespace}.example");
    source.with([definition(&group), dock(&group, 1)]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "who says nothing has no health: {finished:?}");
    let ready = |generation: u32| {
        json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Said",
        "message": "", "observedGeneration": generation}]})
    };
    let name = format!("docks.{group}/dry");
    patch_status(&cluster, &namespace, &name, &ready(1)).await;
    source.with([definition(&group), dock(&group, 2)]);
    let from = rig.process.observed().len();
    rig.put(&[&source]).await;
    let waits = |one: &Observed| match one {
        Observed::SyncWaiting { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    let (reason, waited) = rig.process.wait(from, "a wait", waits).await;
    assert!(reason.contains("of generation 1, the latest is 2"), "{reason}");
    patch_status(&cluster, &namespace, &name, &ready(2)).await;
    assert_eq!(rig.finished(waited, &source).await.outcome, SyncOutcome::Succeeded);
    cluster.kubectl(["delete", "customresourcedefinition", &format!("docks.{group}")]).await.unwrap();
}

#[tokio::test]
async fn a_declared_rule_holds_a_sync_and_ends_it_and_a_changed_one_judges_what_does_not_change() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("declared", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = HELD;
    let group = format!("{namespace}.example");
    let rule = |healthy: &str, degraded: &str| HealthSettings {
        rules: vec![HealthRule {
            group: group.clone(),
            kind: "Dock".to_owned(),
            healthy: healthy.to_owned(),
            progressing: None,
            degraded: Some(degraded.to_owned()),
            suspended: None,
            message: Some("'the level is ' + status.?level.orValue('not known')".to_owned()),
        }],
        ..HealthSettings::default()
    };
    rig.health =
        rule("has(status.level) && status.level == 'low'", "has(status.level) && status.level == 'flood'");
    let name = format!("docks.{group}/dry");
    source.with([definition(&group), dock(&group, 1)]);
    let from = rig.process.observed().len();
    rig.put(&[&source]).await;
    let waits = |one: &Observed| match one {
        Observed::SyncWaiting { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    let (reason, waited) = rig.process.wait(from, "a wait for what says nothing", waits).await;
    assert!(reason.contains("the level is not known"), "{reason}");
    patch_status(&cluster, &namespace, &name, &json!({"level": "flood"})).await;
    let (message, _) = told(&rig, waited, "dry", "degraded").await;
    assert_eq!(message, "the level is flood");
    patch_status(&cluster, &namespace, &name, &json!({"level": "low"})).await;
    assert_eq!(rig.finished(waited, &source).await.outcome, SyncOutcome::Succeeded);
    let from = rig.process.observed().len();
    rig.health = rule("status.level == 'high'", "status.level == 'low'");
    rig.put(&[&source]).await;
    told(&rig, from, "dry", "degraded").await;
    cluster.kubectl(["delete", "customresourcedefinition", &format!("docks.{group}")]).await.unwrap();
}

#[tokio::test]
async fn why_a_deployment_is_not_well_comes_from_its_pods() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("reason", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = 1;
    source.with([deployment("web", 1, Some("no-such-node"))]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Unhealthy);
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = eventually(DEADLINE, || async {
        let list = cluster.get(&pods).await?;
        let name = list["items"][0]["metadata"]["name"].as_str().map(str::to_owned);
        name.ok_or_else(|| anyhow::anyhow!("no pod yet"))
    })
    .await;
    let waiting = json!({"containerStatuses": [{"name": "web", "image": "web:1", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]});
    let from = rig.process.observed().len();
    patch_status(&cluster, &namespace, &format!("pod/{pod}"), &waiting).await;
    let (message, _) = told(&rig, from, "web", "degraded").await;
    assert!(message.contains(&pod) && message.contains("ErrImagePull: no such image"), "{message}");
}

#[tokio::test]
async fn what_a_quota_forbids_is_the_reason_of_what_cannot_be_made() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("quota", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    cluster.create_object(&format!("/api/v1/namespaces/{namespace}/resourcequotas"), &quota).await.unwrap();
    eventually(Duration::from_secs(30), || async {
        let quota = cluster.get(&format!("/api/v1/namespaces/{namespace}/resourcequotas/none")).await?;
        anyhow::ensure!(quota["status"]["hard"]["pods"] == "0", "the quota is not in force yet");
        Ok(())
    })
    .await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = 1;
    let mut set = deployment("db", 1, None);
    set["kind"] = json!("StatefulSet");
    set["spec"]["serviceName"] = json!("db");
    source.with([set]);
    rig.put(&[&source]).await;
    let (message, _) = told(&rig, 0, "db", "degraded").await;
    assert!(message.contains("FailedCreate") && message.contains("quota"), "{message}");
}
