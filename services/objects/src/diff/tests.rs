use super::*;
use serde_json::json;

fn lines(changes: &[FieldChange]) -> Vec<String> {
    let shown = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
    changes
        .iter()
        .map(|change| format!("{}: {} -> {}", change.path, shown(&change.before), shown(&change.after)))
        .collect()
}

#[test]
fn fields_are_compared_one_by_one() {
    let rows = [
        (json!({"a": 1}), json!({"a": 1}), vec![]),
        (json!({"a": 1}), json!({"a": 1.0}), vec![]),
        (json!({"a": 1}), json!({"a": "1"}), vec!["a: 1 -> \"1\""]),
        (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"c": 3}}), vec!["a.b: 1 -> -", "a.c: 2 -> 3"]),
        (json!({}), json!({"a": {"b": 1}}), vec!["a: - -> {\"b\":1}"]),
        (
            json!({"l": ["x", "y"]}),
            json!({"l": ["x", "z", "w"]}),
            vec!["l[1]: \"y\" -> \"z\"", "l[2]: - -> \"w\""],
        ),
        (json!({"m": {"a.b/c": "x"}}), json!({"m": {"a.b/c": "y"}}), vec!["m[\"a.b/c\"]: \"x\" -> \"y\""]),
        (json!({"l": [{"name": "a"}]}), json!({"l": []}), vec!["l[0]: {\"name\":\"a\"} -> -"]),
    ];
    for (before, after, expected) in rows {
        assert_eq!(lines(&diff(&before, &after, Status::Ignored)), expected, "{before} {after}");
    }
}

#[test]
fn items_are_told_apart_by_their_keys() {
    let before = json!({"containers": [{"name": "web", "image": "a"}, {"name": "side", "image": "b"}]});
    let after = json!({"containers": [{"name": "side", "image": "c"}, {"name": "web", "image": "a"}]});
    assert_eq!(
        lines(&diff(&before, &after, Status::Ignored)),
        ["containers[name=side].image: \"b\" -> \"c\""]
    );
    let before = json!({"ports": [{"containerPort": 80, "protocol": "TCP"}]});
    let after = json!({"ports": [{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80, "protocol": "TCP"}]});
    assert_eq!(
        lines(&diff(&before, &after, Status::Ignored)),
        ["ports[containerPort=80,protocol=UDP]: - -> {\"containerPort\":80,\"protocol\":\"UDP\"}"]
    );
    // Two items with the same name: only their places tell them apart.
    let before = json!({"l": [{"name": "a", "x": 1}, {"name": "a", "x": 2}]});
    let after = json!({"l": [{"name": "a", "x": 1}, {"name": "a", "x": 3}]});
    assert_eq!(lines(&diff(&before, &after, Status::Ignored)), ["l[1].x: 2 -> 3"]);
}

#[test]
fn bookkeeping_does_not_differ() {
    let live = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "5", "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [], "labels": {"x": "y"}},
        "status": {"ready": true}});
    let desired = json!({"metadata": {"name": "a"}});
    assert_eq!(lines(&diff(&live, &desired, Status::Ignored)), ["metadata.labels: {\"x\":\"y\"} -> -"]);
    assert_eq!(diff(&live, &desired, Status::Covered).len(), 2);
}

#[test]
fn a_take_over_names_the_former_manager() {
    let live = json!({
        "metadata": {"name": "web", "managedFields": [
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-02T00:00:00Z",
             "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "kasbah", "operation": "Apply", "time": "2026-01-01T00:00:00Z",
             "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers":
                {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}}}}}},
            {"manager": "controller", "operation": "Update", "subresource": "status", "time": "2026-01-03T00:00:00Z",
             "fieldsV1": {"f:status": {}}},
        ]},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "web", "image": "a"}]}}},
        "status": {"replicas": 3},
    });
    let desired = json!({"metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "image": "b"}]}}}});
    let taken = taken_over(&live, &desired, "kasbah");
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].path.to_string(), "spec.replicas");
    assert_eq!(taken[0].former.name, "kubectl-edit");
    assert_eq!((&taken[0].before, &taken[0].after), (&json!(3), &json!(2)));
}
