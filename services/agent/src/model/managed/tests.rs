use super::*;

fn live(ours: Value, others: Value) -> Value {
    let mut entries = vec![
        json!({"manager": "kasbah", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": ours}),
    ];
    entries.extend(others.as_array().cloned().unwrap_or_default());
    json!({"metadata": {"name": "a", "managedFields": entries}})
}

fn manifest() -> Value {
    json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "namespace": "n", "labels": {"l": "1"}},
        "spec": {"replicas": 2, "ports": [{"containerPort": 80, "name": "web"}], "finalizers": ["f"], "atomic": {"a": 1, "b": 2}}})
}

fn all_ours() -> Value {
    json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:spec": {"f:replicas": {},
        "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:name": {}}},
        "f:finalizers": {"v:\"f\"": {}}, "f:atomic": {}}})
}

#[test]
fn an_untouched_object_is_covered() {
    assert!(covers(&live(all_ours(), json!([])), &manifest()));
    assert!(!covers(&json!({"metadata": {}}), &manifest()));
}

#[test]
fn a_field_that_others_took_is_not_covered_and_named() {
    let mut ours = all_ours();
    ours["f:spec"].as_object_mut().expect("map").remove("f:replicas");
    let others = json!([{"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-02T00:00:00Z",
        "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    let live = live(ours, others);
    assert!(!covers(&live, &manifest()));
    let lost = lost_fields(&live, &manifest());
    assert_eq!(lost, [TakenField { path: "spec.replicas".into(), manager: "kubectl-edit".into() }]);
}

#[test]
fn a_field_of_ours_that_the_manifest_lost_is_not_covered() {
    let mut shorter = manifest();
    shorter["spec"].as_object_mut().expect("map").remove("replicas");
    assert!(!covers(&live(all_ours(), json!([])), &shorter));
    let mut fewer_items = manifest();
    fewer_items["spec"]["ports"] = json!([]);
    assert!(!covers(&live(all_ours(), json!([])), &fewer_items));
}

#[test]
fn a_removed_list_item_is_named_with_who_wrote_last() {
    let mut ours = all_ours();
    ours["f:spec"]["f:ports"] = json!({".": {}});
    let others = json!([{"manager": "helm", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:data": {}}},
        {"manager": "kubelet", "operation": "Update", "subresource": "status", "time": "2027-01-02T00:00:00Z", "fieldsV1": {}}]);
    let lost = lost_fields(&live(ours, others), &manifest());
    assert_eq!(lost, [TakenField { path: "spec.ports[0]".into(), manager: "helm".into() }]);
}

#[test]
fn a_field_that_an_autoscaler_took_is_named_with_it() {
    let mut ours = all_ours();
    ours["f:spec"].as_object_mut().expect("map").remove("f:replicas");
    let others = json!([{"manager": "helm", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:data": {}}},
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    let lost = lost_fields(&live(ours, others), &manifest());
    assert_eq!(
        lost,
        [TakenField { path: "spec.replicas".into(), manager: "kube-controller-manager".into() }]
    );
}

#[test]
fn the_touch_mark_changes_with_fields_and_time_of_our_entry_only() {
    let before = touch_mark(&live(all_ours(), json!([]))).expect("ours");
    let status = json!([{"manager": "kubelet", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}]);
    assert_eq!(touch_mark(&live(all_ours(), status)), Some(before));
    let mut fewer = all_ours();
    fewer["f:spec"].as_object_mut().expect("map").remove("f:replicas");
    assert_ne!(touch_mark(&live(fewer, json!([]))), Some(before));
    let mut later = live(all_ours(), json!([]));
    later["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:01Z");
    assert_ne!(touch_mark(&later), Some(before));
    assert_eq!(touch_mark(&json!({"metadata": {}})), None);
}

#[test]
fn fields_of_an_older_version_are_stated_in_the_one_that_is_applied() {
    let entry = |manager: &str, version: &str, subresource: &str, fields: Value| json!({"manager": manager, "operation": "Update", "apiVersion": version, "subresource": subresource, "fieldsV1": fields});
    let (old, new) = ("harbour.example/v1beta1", "harbour.example/v1beta2");
    let of = |entries: Value| json!({"metadata": {"managedFields": entries}});
    let live = of(json!([
        entry("somebody", old, "", json!({"f:spec": {"f:port": {}}})),
        entry("somebody", new, "", json!({"f:spec": {"f:admits": {}}})),
        entry("controller", old, "status", json!({"f:status": {}})),
        entry("somebody", "other.example/v1", "", json!({"f:x": {}})),
    ]));
    let moved = in_version(&live, new).expect("there are older ones");
    let expected = json!([
        entry("somebody", new, "", json!({"f:spec": {"f:port": {}, "f:admits": {}}})),
        entry("controller", new, "status", json!({"f:status": {}})),
        entry("somebody", "other.example/v1", "", json!({"f:x": {}})),
    ]);
    assert_eq!(moved, expected);
    assert_eq!(in_version(&of(moved), new), None);
}
