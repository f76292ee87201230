//! The inputs of other people's reports, where they are at hand: `../shared/cases` beside the repository.

use std::path::Path;

use super::*;

/// What stands in a file of a case; `None`, said on the way, where the cases are not at hand.
fn documents(file: &str) -> Option<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases").join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: there is no {}", path.display());
        return None;
    };
    let manifests =
        crate::manifest::parse_manifests(file, &text, &crate::yaml::Limits::default()).expect("manifests");
    Some(manifests.iter().map(|manifest| serde_json::to_value(&manifest.object).expect("JSON")).collect())
}

fn of_kind(documents: &[Value], kind: &str, name: &str) -> Value {
    let found = documents.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    found.expect("a document").clone()
}

/// `controller-says.sh` of case 17.
fn says(dock: &Value, of_object: i64, status: &str, of_condition: i64) -> Value {
    let mut dock = dock.clone();
    let name = dock["metadata"]["name"].as_str().expect("a name").to_owned();
    let mut ready = json!({"type": "Ready", "status": status, "reason": "Said", "message": format!("of generation {of_condition}")});
    if name == "dry" {
        ready["observedGeneration"] = json!(of_condition);
    }
    dock["metadata"]["generation"] = json!(of_object);
    dock["status"] = json!({"conditions": [ready]});
    if name == "wet" {
        dock["status"]["observedGeneration"] = json!(of_condition);
    }
    dock
}

#[test]
fn case_17_a_ready_condition_of_yesterday_is_not_ready() {
    let Some(docks) = documents("17-stale-ready-condition/commits/2/docks.yaml") else { return };
    let dock = |name: &str| of_kind(&docks, "Dock", name);
    for name in ["dry", "wet", "bare"] {
        assert_eq!(evaluate(&dock(name), NEW_YEAR, &HealthOptions::default()), None, "nobody has spoken");
        assert_eq!(judge(&says(&dock(name), 1, "True", 1)).status, Healthy, "{name}");
        let before = judge(&says(&dock(name), 2, "True", 1));
        let expected = if name == "bare" { Healthy } else { Progressing };
        assert_eq!((before.status, before.is_settled()), (expected, name == "bare"), "{name}: {before:?}");
        assert_eq!(judge(&says(&dock(name), 2, "True", 2)).status, Healthy, "{name}");
    }
    let refused = judge(&says(&dock("dry"), 3, "False", 3));
    assert!(refused.status == Progressing && refused.message.contains("of generation 3"), "{refused:?}");
    let restored = judge(&says(&dock("wet"), 2, "True", 99));
    assert!(restored.message.contains("99") && restored.message.contains("latest is 2"), "{restored:?}");
}

#[test]
fn case_14_a_claim_that_waits_for_its_first_consumer_holds_nothing() {
    let Some(all) = documents("14-pvc-first-consumer/commits/1/archive.yaml") else { return };
    let Some(never) = documents("14-pvc-first-consumer/commits/2/never-bound.yaml") else { return };
    let later = binds_on_first_use(&of_kind(&all, "StorageClass", "case14-later"));
    let now = binds_on_first_use(&of_kind(&never, "StorageClass", "case14-now"));
    assert_eq!((later, now), (true, false));
    let options = HealthOptions {
        first_consumer_classes: BTreeSet::from(["case14-later".to_owned()]),
        ..HealthOptions::default()
    };
    for (documents, name, settled) in [(&all, "archive", true), (&never, "never-bound", false)] {
        let mut claim = of_kind(documents, "PersistentVolumeClaim", name);
        claim["status"] = json!({"phase": "Pending"});
        let health = judge_with(&claim, &options);
        assert_eq!((health.status, health.is_settled()), (Progressing, settled), "{name}: {health:?}");
    }
}

#[test]
fn case_16_a_failed_run_of_a_cron_job_shows_and_holds_nothing() {
    let Some(all) = documents("16-cronjob-last-run-failed/commits/1/all.yaml") else { return };
    let mut job = of_kind(&all, "CronJob", "nightly-report");
    job["status"] =
        json!({"lastScheduleTime": "2025-12-31T23:00:00Z", "lastSuccessfulTime": "2025-12-30T23:00:00Z"});
    let failed = judge(&job);
    assert!(failed.status == Degraded && failed.is_settled(), "{failed:?}");
    job["status"]["lastSuccessfulTime"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(judge(&job).status, Healthy);
    job["status"] = json!({"lastScheduleTime": "2025-12-31T23:00:00Z"});
    assert_eq!(judge(&job).status, Healthy);
}

#[test]
fn case_11_an_autoscaler_without_metrics_is_degraded_and_holds_nothing() {
    let Some(all) = documents("11-hpa-owns-replicas/commits/1/tug.yaml") else { return };
    let mut scaler = of_kind(&all, "HorizontalPodAutoscaler", "tug");
    scaler["status"] = json!({"conditions": [
        condition("AbleToScale", "True", "SucceededGetScale"),
        condition("ScalingActive", "False", "FailedGetResourceMetric"),
    ]});
    let health = judge(&scaler);
    assert!(health.status == Degraded && health.is_settled(), "{health:?}");
    assert!(health.message.contains("FailedGetResourceMetric"), "{health:?}");
}
