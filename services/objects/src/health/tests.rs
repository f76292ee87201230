//! Rule by rule, and every case in which peers disagree.

mod below;
mod cases;
mod declared;
mod gateways;
mod network_and_storage;
mod pods;
mod scaling;
mod workloads;

use super::HealthStatus::{Degraded, Healthy, Progressing, Suspended, Unknown};
use super::*;
use serde_json::json;

/// 2026-01-01T00:00:00Z.
const NEW_YEAR: i64 = 1_767_225_600_000;

fn judge(object: &Value) -> Health {
    judge_with(object, &HealthOptions::default())
}

fn judge_with(object: &Value, options: &HealthOptions) -> Health {
    let health = evaluate(object, NEW_YEAR, options).expect("a health");
    depends_on_no_more_than_is_said(object, options, &health);
    health
}

fn depends_on_no_more_than_is_said(object: &Value, options: &HealthOptions, health: &Health) {
    let view = View::new(object);
    let group = split_api_version(view.text("apiVersion").unwrap_or_default()).unwrap_or_default().0;
    if depends_on_more(group, view.text("kind").unwrap_or_default()) {
        return;
    }
    let classes = ["standard", "local", "fast"].map(str::to_owned).into();
    let options = HealthOptions { first_consumer_classes: classes, ..options.clone() };
    for now in [0, NEW_YEAR, i64::MAX] {
        assert_eq!(evaluate(object, now, &options).as_ref(), Some(health), "{object}");
    }
}

/// Puts `spec` and `status` into an object of a kind, seen in its latest generation.
fn object(api_version: &str, kind: &str, spec: &Value, status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(map) = status.as_object_mut() {
        map.entry("observedGeneration").or_insert(json!(2));
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "generation": 2},
        "spec": spec, "status": status})
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "told"})
}

/// Runs a table of (what, spec, status, expected) for one kind.
fn table(api_version: &str, kind: &str, rows: &[(&str, Value, Value, HealthStatus)]) {
    for (what, spec, status, expected) in rows {
        let health = judge(&object(api_version, kind, spec, status));
        assert_eq!(health.status, *expected, "{kind}, {what}: {health:?}");
        assert_eq!(health.source, RuleSource::BuiltIn, "{kind}, {what}");
        let silent = health.message.is_empty();
        assert!(!silent || health.status == Healthy, "{kind}, {what}: a reason is missing");
    }
}

fn with(base: &Value, path: &str, value: Value) -> Value {
    let mut changed = base.clone();
    let (parent, key) = path.rsplit_once('/').expect("a path");
    let parent = changed.pointer_mut(parent).expect("there");
    parent.as_object_mut().expect("a mapping").insert(key.to_owned(), value);
    changed
}

#[test]
fn other_kinds_go_by_convention() {
    let ready = condition("Ready", "True", "");
    let rows = [
        ("ready", json!({"status": {"conditions": [ready]}}), Healthy),
        (
            "not ready",
            json!({"status": {"conditions": [condition("Ready", "False", "Failed")]}}),
            Progressing,
        ),
        (
            "readiness unknown",
            json!({"status": {"conditions": [condition("Ready", "Unknown", "Working")]}}),
            Progressing,
        ),
        (
            "reconciling",
            json!({"status": {"conditions": [ready, condition("Reconciling", "True", "Working")]}}),
            Progressing,
        ),
        (
            "stalled",
            json!({"status": {"conditions": [ready, condition("Stalled", "True", "Broken")]}}),
            Degraded,
        ),
        (
            "not stalled",
            json!({"status": {"conditions": [condition("Stalled", "False", ""), ready]}}),
            Healthy,
        ),
        (
            "stale",
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": [ready]}}),
            Progressing,
        ),
        (
            "a generation alone",
            json!({"metadata": {"generation": 2}, "status": {"conditions": [ready]}}),
            Healthy,
        ),
        (
            "only a generation",
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2}}),
            Healthy,
        ),
    ];
    for (what, mut object, expected) in rows {
        for (api_version, kind) in
            [("example.com/v1", "Database"), ("v1", "ConfigMap"), ("example.com/v1", "Deployment")]
        {
            object["apiVersion"] = json!(api_version);
            object["kind"] = json!(kind);
            let health = judge(&object);
            assert_eq!((health.status, health.source), (expected, RuleSource::Generic), "{what}: {health:?}");
        }
    }
}

#[test]
fn conditions_of_an_older_generation_do_not_count() {
    let old = |kind: &str| json!({"type": kind, "status": "True", "observedGeneration": 1});
    let ready = json!({"type": "Ready", "status": "True", "observedGeneration": 2});
    for (conditions, expected) in [
        (json!([old("Ready")]), Progressing),
        (json!([ready, old("Stalled")]), Healthy),
        (json!([ready, old("Reconciling")]), Healthy),
    ] {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Database", "metadata": {"generation": 2},
            "status": {"conditions": conditions}});
        assert_eq!(judge(&object).status, expected, "{object}");
    }
}

#[test]
fn what_tells_nothing_of_itself_has_no_health() {
    for status in [
        json!(null),
        json!({}),
        json!({"phase": "Failed"}),
        json!({"conditions": []}),
        json!({"conditions": "none"}),
    ] {
        for (api_version, kind) in [("example.com/v1", "Database"), ("v1", "ConfigMap")] {
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"generation": 3}, "status": status});
            assert_eq!(evaluate(&object, NEW_YEAR, &HealthOptions::default()), None, "{object}");
        }
    }
}

#[test]
fn deletion_comes_before_every_rule() {
    for (api_version, kind) in [("v1", "Pod"), ("apps/v1", "Deployment"), ("example.com/v1", "Database")] {
        let mut object = object(api_version, kind, &json!({}), &json!({"phase": "Failed"}));
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["finalizers"] = json!(["example.com/keep"]);
        let health = judge(&object);
        assert_eq!(
            (health.status, health.terminating, health.source),
            (Progressing, true, RuleSource::Deletion)
        );
        assert!(health.message.contains("example.com/keep"), "{health:?}");
        assert!(!health.is_settled());
    }
}

#[test]
fn what_is_no_object_is_unknown() {
    for object in [
        json!(null),
        json!([]),
        json!({}),
        json!({"apiVersion": 5}),
        json!({"apiVersion": "a/b/c", "kind": "A"}),
    ] {
        assert_eq!(judge(&object).status, Unknown, "{object}");
    }
}

#[test]
fn the_worst_of_several_counts() {
    assert_eq!(worst([]), None);
    assert_eq!(worst([Healthy, Suspended, Healthy]), Some(Suspended));
    assert_eq!(worst([Progressing, HealthStatus::Missing, Suspended]), Some(HealthStatus::Missing));
    assert_eq!(worst([Degraded, HealthStatus::Missing]), Some(Degraded));
    assert_eq!(worst([Unknown, Degraded]), Some(Unknown));
    assert!(!Health::missing().is_settled());
}
