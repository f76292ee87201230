//! Fields that somebody added to an object of ours: a container, a variable, a key. They are no drift, as Git does not state them.

use events::observation::TakenField;
use objects::fields::{FieldPath, Segment};
use serde_json::Value;

use super::managed::{entries, is_ours, text};
use super::takeover::{added_by, is_unwanted};

/// Fields of one object that are told; of the rest only how many.
pub const TOLD: usize = 20;

/// Kubernetes' own parts, which fill in what they are there for; in k3s and MicroK8s all of them are one program.
const SYSTEM: [&str; 11] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "cloud-controller-manager",
    "cluster-autoscaler",
    "apiserver",
    "clusterrole-aggregation-controller",
    "k3s",
    "kubelite",
];

/// What others have in a live object and we do not, with who has it. Parts of Kubernetes, status, and what binds an object to others
/// (finalizers, owners) are left out.
#[must_use]
pub fn extra_fields(live: &Value) -> Vec<TakenField> {
    let others = || {
        entries(live).iter().filter(|entry| {
            let manager = text(entry, "manager");
            !is_ours(entry) && text(entry, "subresource").is_empty() && !SYSTEM.contains(&manager)
        })
    };
    if others().next().is_none() {
        return Vec::new();
    }
    let empty = Value::Null;
    let ours: Vec<&Value> = entries(live)
        .iter()
        .filter(|entry| is_ours(entry))
        .filter_map(|entry| entry.get("fieldsV1"))
        .collect();
    if ours.is_empty() {
        // Not ours (any more): all of it is somebody's, and none of it was added to something of ours.
        return Vec::new();
    }
    let mut found: Vec<TakenField> = Vec::new();
    for entry in others() {
        let Some(added) = added_by(live, entry) else { continue };
        let mut paths = Vec::new();
        beyond(&added, ours.first().copied().unwrap_or(&empty), &FieldPath::default(), &mut paths);
        let manager = text(entry, "manager");
        for path in paths.iter().filter(|path| is_of_interest(path)).map(ToString::to_string) {
            if !found.iter().any(|known| known.path == path) {
                found.push(TakenField { path, manager: manager.to_owned() });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    found
}

/// Those of them whose managers a source does not want.
pub fn unwanted<'a>(extra: &'a [TakenField], strict: &'a [String]) -> impl Iterator<Item = &'a TakenField> {
    extra.iter().filter(|field| is_unwanted(&field.manager, strict))
}

fn is_of_interest(path: &FieldPath) -> bool {
    let field = |place: usize| match path.0.get(place) {
        Some(Segment::Field(name)) => name.as_str(),
        _ => "",
    };
    match (field(0), field(1)) {
        ("status", _) => false,
        ("metadata", below) => {
            matches!(below, "labels" | "annotations") && !field(2).starts_with("kasbah.dev/")
        }
        _ => true,
    }
}

/// Paths of a set that another one lacks. An item of a list that is lacking stands for all that is in it.
fn beyond(set: &Value, ours: &Value, path: &FieldPath, found: &mut Vec<FieldPath>) {
    for (name, below) in set.as_object().into_iter().flatten() {
        let Some(segment) = segment(name) else { continue };
        let path = path.child(segment);
        match ours.get(name) {
            // Who has a field as a whole has all that is in it.
            Some(known) if known.as_object().is_none_or(serde_json::Map::is_empty) => {}
            Some(known) => beyond(below, known, &path, found),
            None if name.starts_with("f:") && has_parts(below) => beyond(below, &Value::Null, &path, found),
            None => found.push(path),
        }
    }
}

fn has_parts(set: &Value) -> bool {
    set.as_object().is_some_and(|set| set.keys().any(|name| name != "."))
}

fn segment(name: &str) -> Option<Segment> {
    let (form, told) = name.split_at_checked(2)?;
    match form {
        "f:" => Some(Segment::Field(told.to_owned())),
        "k:" => {
            let keys: Value = serde_json::from_str(told).ok()?;
            let pairs = keys.as_object()?.iter().map(|(key, value)| (key.clone(), value.clone()));
            Some(Segment::Key(pairs.collect()))
        }
        "v:" => Some(Segment::Key(vec![(String::new(), serde_json::from_str(told).ok()?)])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(others: Value) -> Value {
        let mut entries = vec![json!({"manager": "kasbah", "operation": "Apply", "apiVersion": "apps/v1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:replicas": {}, "f:atomic": {}, "f:containers":
                {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}}}})];
        entries.extend(others.as_array().cloned().unwrap_or_default());
        json!({"metadata": {"managedFields": entries}})
    }

    fn entry(manager: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": fields})
    }

    fn paths(live: &Value) -> Vec<String> {
        extra_fields(live).into_iter().map(|field| format!("{} by {}", field.path, field.manager)).collect()
    }

    #[test]
    fn a_container_a_variable_and_a_label_are_named_and_their_parts_are_not() {
        let hand = entry(
            "kubectl-edit",
            json!({"f:metadata": {"f:labels": {"f:more": {}}, "f:finalizers": {"v:\"x\"": {}}},
                "f:spec": {"f:replicas": {}, "f:atomic": {"f:part": {}}, "f:containers": {
                    "k:{\"name\":\"web\"}": {"f:env": {".": {}, "k:{\"name\":\"X\"}": {".": {}, "f:name": {}, "f:value": {}}}},
                    "k:{\"name\":\"sidecar\"}": {".": {}, "f:name": {}, "f:image": {}}}},
                "f:status": {"f:ready": {}}}),
        );
        assert_eq!(
            paths(&live(json!([hand]))),
            [
                "metadata.labels.more by kubectl-edit",
                "spec.containers[name=sidecar] by kubectl-edit",
                "spec.containers[name=web].env[name=X] by kubectl-edit"
            ]
        );
    }

    #[test]
    fn what_kubernetes_itself_adds_is_left_out() {
        let fields = json!({"f:metadata": {"f:annotations": {"f:deployment.kubernetes.io/revision": {}}}});
        let mut status = entry("some-operator", json!({"f:spec": {"f:x": {}}}));
        status["subresource"] = json!("status");
        assert!(paths(&live(json!([entry("kube-controller-manager", fields), status]))).is_empty());
        let nobodys =
            json!({"metadata": {"managedFields": [entry("kubectl", json!({"f:data": {"f:x": {}}}))]}});
        assert!(paths(&nobodys).is_empty(), "an object that is not ours");
    }

    #[test]
    fn only_some_managers_are_unwanted() {
        let fields = |name: &str| json!({"f:spec": {format!("f:{name}"): {}}});
        let live = live(json!([
            entry("kubectl-edit", fields("a")),
            entry("rival", fields("b")),
            entry("istio", fields("c"))
        ]));
        let (extra, strict) = (extra_fields(&live), ["rival".to_owned()]);
        let names: Vec<&str> = unwanted(&extra, &strict).map(|field| field.manager.as_str()).collect();
        assert_eq!(names, ["kubectl-edit", "rival"]);
    }
}
