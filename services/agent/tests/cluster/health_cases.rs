//! Reports of syncs that waited for what never comes, or did not wait for what does: the cases 14, 16 and 17.

use std::collections::BTreeMap;

use events::delivery::SyncOutcome;
use events::observation::Observed;
use serde_json::{Value, json};
use testkit::{Cluster, eventually};

use crate::cases;
use crate::drift::corrected;
use crate::health::{HELD, patch_status, told};
use crate::rig::{DEADLINE, Rig, Source, cluster, map_path};

const DOCKS: [&str; 3] = ["dry", "wet", "bare"];

/// `controller-says.sh` of case 17.
async fn says(cluster: &Cluster, namespace: &str, name: &str, status: &str, generation: u32) {
    let mut ready = json!({"type": "Ready", "status": status, "reason": "Said",
        "message": format!("of generation {generation}"), "lastTransitionTime": "2026-01-01T00:00:00Z"});
    if name == "dry" {
        ready["observedGeneration"] = json!(generation);
    }
    let mut said = json!({ "conditions": [ready] });
    if name == "wet" {
        said["observedGeneration"] = json!(generation);
    }
    patch_status(cluster, namespace, &format!("docks.yard.{namespace}.example/{name}"), &said).await;
}

/// The health of each object as it was reported last.
fn health(rig: &Rig) -> BTreeMap<String, String> {
    let told = |one| match one {
        Observed::HealthChanged { identity, status, .. } => Some((identity.name, status)),
        _ => None,
    };
    rig.process.observed().into_iter().filter_map(told).collect()
}

/// Each dock is healthy for the agent if it is ready for kubectl; gives those that are.
async fn are_ready_as_for_kubectl(rig: &Rig, cluster: &Cluster, namespace: &str, expected: &[&str]) {
    eventually(DEADLINE, || async {
        let all = health(rig);
        let well = DOCKS.into_iter().filter(|&name| all.get(name).is_some_and(|is| is == "healthy"));
        let well: Vec<&str> = well.collect();
        anyhow::ensure!(well == expected, "healthy: {all:?}");
        Ok(())
    })
    .await;
    for name in DOCKS {
        let dock = format!("docks.yard.{namespace}.example/{name}");
        let wait = ["wait", &dock, "-n", namespace, "--for=condition=Ready", "--timeout=1s"];
        assert_eq!(cluster.kubectl(wait).await.is_ok(), expected.contains(&name), "{name} for kubectl");
    }
}

#[tokio::test]
async fn case_17_waits_for_ready_as_kubectl_does() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("case17", false).await.unwrap();
    let commits = [1, 2, 3].map(|number| cases::commit("17", number, &namespace));
    let [Some(first), Some(second), Some(third)] = commits else { return };
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = HELD;
    source.with(first);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(
        finished.outcome,
        SyncOutcome::Succeeded,
        "an object without conditions has no health: {finished:?}"
    );
    for name in DOCKS {
        says(&cluster, &namespace, name, "True", 1).await;
    }
    are_ready_as_for_kubectl(&rig, &cluster, &namespace, &DOCKS).await;

    let from = rig.process.observed().len();
    source.with(second);
    rig.put(&[&source]).await;
    are_ready_as_for_kubectl(&rig, &cluster, &namespace, &["bare"]).await;
    says(&cluster, &namespace, "dry", "True", 2).await;
    are_ready_as_for_kubectl(&rig, &cluster, &namespace, &["dry", "bare"]).await;
    let ended = |one: &Observed| matches!(one, Observed::SyncFinished { sync, .. } if *sync == source.sync);
    assert!(!rig.process.observed().iter().any(ended), "one has not spoken yet");
    says(&cluster, &namespace, "wet", "True", 2).await;
    assert_eq!(rig.finished(from, &source).await.outcome, SyncOutcome::Succeeded);
    says(&cluster, &namespace, "bare", "True", 2).await;
    are_ready_as_for_kubectl(&rig, &cluster, &namespace, &DOCKS).await;

    let from = rig.process.observed().len();
    source.with(third);
    rig.put(&[&source]).await;
    says(&cluster, &namespace, "dry", "False", 3).await;
    says(&cluster, &namespace, "wet", "True", 3).await;
    let refused = |one: &Observed| match one {
        Observed::SyncWaiting { reason, .. } if reason.contains("of generation 3") => Some(()),
        _ => None,
    };
    rig.process.wait(from, "the condition's own words", refused).await;
    are_ready_as_for_kubectl(&rig, &cluster, &namespace, &["wet", "bare"]).await;
    says(&cluster, &namespace, "dry", "True", 3).await;
    assert_eq!(rig.finished(from, &source).await.outcome, SyncOutcome::Succeeded);
    are_ready_as_for_kubectl(&rig, &cluster, &namespace, &DOCKS).await;

    // An object that was restored from a backup counts its generations anew.
    let from = rig.process.observed().len();
    says(&cluster, &namespace, "wet", "True", 99).await;
    let (message, _) = told(&rig, from, "wet", "progressing").await;
    assert!(message.contains("99") && message.contains("latest is 3"), "{message}");
    let definition = format!("docks.yard.{namespace}.example");
    cluster.kubectl(["delete", "customresourcedefinition", &definition]).await.unwrap();
}

fn news(one: &Observed) -> bool {
    matches!(
        one,
        Observed::ObjectApplied { .. } | Observed::DriftSeen { .. } | Observed::CorrectionFailed { .. }
    )
}

#[tokio::test]
async fn case_14_ends_without_a_consumer_and_names_the_claim_that_nobody_serves() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("case14", true).await.unwrap();
    let commits = [1, 2].map(|number| cases::commit("14", number, &namespace));
    let [Some(first), Some(second)] = commits else { return };
    let is_new = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap();
        name == "never-bound" || name.ends_with("-now")
    };
    let archive: Vec<Value> = second.iter().filter(|object| !is_new(object)).cloned().collect();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = HELD;
    source.with(first);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.unhealthy), (SyncOutcome::Succeeded, 0), "{finished:?}");

    let entry = rig.prune_entry("leaves-with-commit-2");
    source.with(archive).pruning([entry]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.pruned), (SyncOutcome::Succeeded, 1), "{finished:?}");
    assert!(!cluster.exists(&map_path(&namespace, "leaves-with-commit-2")).await.unwrap());

    rig.restart().await;
    source.prune.clear();
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    assert!(!rig.process.observed().iter().any(news), "{:?}", rig.process.observed());

    let resume = r#"{"spec":{"suspend":false}}"#;
    cluster.kubectl(["patch", "cronjob", "archive", "-n", &namespace, "-p", resume]).await.unwrap();
    rig.process.wait(0, "correction", corrected).await;
    let path = format!("/apis/batch/v1/namespaces/{namespace}/cronjobs/archive");
    assert_eq!(cluster.get(&path).await.unwrap()["spec"]["suspend"], true);

    source.policies.health_timeout_seconds = 3;
    source.with(second);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.unhealthy), (SyncOutcome::Unhealthy, 1), "{finished:?}");
    assert_eq!(finished.failures[0].identity.name, "never-bound");
    for class in ["later", "now"] {
        cluster.kubectl(["delete", "storageclass", &format!("{namespace}-{class}")]).await.unwrap();
    }
}

#[tokio::test]
async fn case_16_shows_the_failed_run_and_holds_neither_sync_nor_prune() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("case16", true).await.unwrap();
    let commits = [1, 2, 3].map(|number| cases::commit("16", number, &namespace));
    let [Some(first), Some(second), Some(third)] = commits else { return };
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = HELD;
    source.with(first);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let failed =
        json!({"lastScheduleTime": "2026-01-02T00:00:00Z", "lastSuccessfulTime": "2026-01-01T00:00:00Z"});
    let nightly = "cronjob/nightly-report";
    patch_status(&cluster, &namespace, nightly, &failed).await;
    let (message, next) = told(&rig, 0, "nightly-report", "degraded").await;
    assert!(message.contains("last run"), "{message}");
    // Nobody recorded how that run ended, which is no failure.
    patch_status(&cluster, &namespace, nightly, &json!({"lastSuccessfulTime": null})).await;
    let (_, next) = told(&rig, next, "nightly-report", "healthy").await;
    patch_status(&cluster, &namespace, nightly, &failed).await;
    let (_, next) = told(&rig, next, "nightly-report", "degraded").await;

    let entry = rig.prune_entry("old-page");
    source.with(second).pruning([entry]);
    let finished = rig.sync(&[&source]).await;
    let counts = finished.counts;
    assert_eq!(
        (finished.outcome, counts.changed, counts.pruned),
        (SyncOutcome::Succeeded, 1, 1),
        "{counts:?}"
    );
    assert!(!cluster.exists(&map_path(&namespace, "old-page")).await.unwrap());
    source.with(third);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.changed), (SyncOutcome::Succeeded, 1), "{finished:?}");
    assert_eq!(health(&rig)["nightly-report"], "degraded", "still the run before");
    patch_status(&cluster, &namespace, nightly, &json!({"lastSuccessfulTime": "2026-01-03T00:00:00Z"})).await;
    told(&rig, next, "nightly-report", "healthy").await;
}
