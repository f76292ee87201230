//! Custom resources on a real API server: those that go by their conditions, and those that the agent's configuration has a rule for and
//! relates to others.

use serde_json::{Value, json};
use testkit::eventually;

use super::stage::{Stage, names};
use crate::scene::LIMIT;

/// What the agent's configuration declares.
const DECLARED: &str = "health:
  rules:
    - group: harbour.example
      kind: Dock
      healthy: status.level == 'low'
      degraded: has(status.level) && status.level == 'flood'
      suspended: spec.?closed.orValue(false)
      message: status.?note.orValue('')
relations:
  - name: leads-to
    from: {group: harbour.example, kind: Pier}
    to: {group: harbour.example, kind: Dock}
    names: spec.docks
";

/// Kind, name, specification, status; the state, the rule that judged, and part of the message.
fn table() -> Vec<(&'static str, &'static str, Value, Value, [&'static str; 3])> {
    let condition = |kind: &str, status: &str, observed: u32| json!({"conditions": [{"type": kind, "status": status, "reason": "Said", "message": "as told", "observedGeneration": observed}]});
    let spec = || json!({"metres": 3});
    vec![
        ("Pier", "silent", spec(), json!({}), ["none", "none", ""]),
        ("Pier", "ready", spec(), condition("Ready", "True", 1), ["healthy", "generic", ""]),
        ("Pier", "waiting", spec(), condition("Ready", "False", 1), ["progressing", "generic", "as told"]),
        ("Pier", "stalled", spec(), condition("Stalled", "True", 1), ["degraded", "generic", "as told"]),
        (
            "Pier",
            "older",
            spec(),
            condition("Ready", "True", 0),
            ["progressing", "generic", "of generation 0"],
        ),
        ("Dock", "silent", spec(), json!({}), ["unknown", "declared", "there is no field 'level'"]),
        ("Dock", "low", spec(), json!({"level": "low"}), ["healthy", "declared", ""]),
        (
            "Dock",
            "flood",
            spec(),
            json!({"level": "flood", "note": "up to the knees"}),
            ["degraded", "declared", "up to the knees"],
        ),
        ("Dock", "between", spec(), json!({"level": "mid"}), ["progressing", "declared", ""]),
        ("Dock", "closed", json!({"closed": true}), json!({"level": "mid"}), ["suspended", "declared", ""]),
        (
            "Dock",
            "stale",
            spec(),
            json!({"level": "low", "observedGeneration": 7}),
            ["progressing", "declared", "latest is 1"],
        ),
        (
            "Dock",
            "contrary",
            spec(),
            json!({"level": "low", "conditions": [{"type": "Ready", "status": "False"}]}),
            ["healthy", "declared", ""],
        ),
    ]
}

pub fn definition(kind: &str) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.harbour.example")},
        "spec": {"group": "harbour.example", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
    .to_string()
}

pub async fn create(stage: &Stage, kind: &str, name: &str, spec: &Value, status: &Value) {
    let object = json!({"apiVersion": "harbour.example/v1", "kind": kind,
        "metadata": {"name": name, "namespace": stage.namespace()}, "spec": spec})
    .to_string();
    // The API server serves a new kind a moment after its definition.
    eventually(LIMIT, || stage.cluster().kubectl_with_input(["apply", "-f", "-"], &object)).await;
    let (plural, patch) = (format!("{kind}s").to_lowercase(), json!({ "status": status }).to_string());
    let of = [
        "patch",
        &plural,
        name,
        "-n",
        stage.namespace(),
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    stage.cluster().kubectl(of).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_are_judged_and_related_as_declared() {
    let stage = Stage::start_with(DECLARED).await;
    for kind in ["Pier", "Dock"] {
        stage.cluster().kubectl_with_input(["create", "-f", "-"], &definition(kind)).await.unwrap();
    }
    for (kind, name, spec, status, _) in &table() {
        create(&stage, kind, name, spec, status).await;
    }
    for (kind, name, _, _, [state, rule, part]) in table() {
        let object = format!("{}/{name}", kind.to_lowercase());
        let health = stage.health_becomes(&object, state).await["health"].clone();
        assert_eq!(health["rule"], rule, "{object}: {health}");
        assert!(health["message"].as_str().unwrap_or_default().contains(part), "{object}: {health}");
        assert_eq!(health["rule_set"].is_string(), rule == "declared", "{object}: {health}");
    }
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    create(&stage, "Pier", "long", &json!({"docks": ["low", "flood"]}), &ready).await;
    stage.health_becomes("pier/long", "healthy").await;
    let tree = stage.json(&["tree", "pier/long", "-n", stage.namespace()]).unwrap();
    assert_eq!(names(&tree["nodes"], "/object/identity/name"), ["long", "flood", "low"], "{tree:#}");
    assert_eq!(tree["nodes"][1]["relation"], "leads-to", "{tree:#}");
    let why = stage.json(&["why", "pier/long", "-n", stage.namespace()]).unwrap();
    assert_eq!(names(&why["chains"][0], "/identity/name"), ["long", "flood"], "{why:#}");
    let shown = stage.cli(&["show", "dock/flood", "-n", stage.namespace()]).unwrap();
    assert!(shown.contains("Judged by") && shown.contains("declared, rules "), "{shown}");
}
