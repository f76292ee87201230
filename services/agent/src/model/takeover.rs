//! Taking objects over from the tools that wrote them from manifests before: their fields become ours, so that what Git lacks
//! disappears and what Git drops later disappears then. What somebody set by hand, or the API server by default, stays.

use serde_json::{Value, json};

use super::managed::{entries, is_ours, text};
use super::sets::{self, is_empty, minus, split, union};
use crate::FIELD_MANAGER;

/// Where client-side `kubectl apply`, and Argo CD like it, keep the manifest that they applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The same of kapp.
const KAPP_ORIGINAL: &str = "kapp.k14s.io/original";

/// What of a manager's fields came from a manifest.
enum Stated {
    /// All.
    All,
    /// Those of the manifest in this annotation; of its absence the flag says whether all or none did.
    In(&'static str, bool),
}

/// Managers that write manifests: kubectl's commands that are given one, Helm, Argo CD, Flux and kapp. Other commands of kubectl, such
/// as `rollout restart`, `set`, `scale` and `edit`, are somebody's own hand.
fn stated(manager: &str, operation: &str) -> Option<Stated> {
    Some(match manager {
        "kubectl" if operation == "Apply" => Stated::All,
        "kubectl-client-side-apply" | "argocd-application-controller" => Stated::In(LAST_APPLIED, true),
        "argocd-controller" if operation == "Apply" => Stated::All,
        "argocd-controller" => Stated::In(LAST_APPLIED, true),
        // All that there was when managers began to be noted, by whatever hand.
        "before-first-apply" => Stated::In(LAST_APPLIED, false),
        "kapp" => Stated::In(KAPP_ORIGINAL, true),
        "kubectl-create"
        | "kubectl-replace"
        | "kubectl-last-applied"
        | "helm"
        | "Helm"
        | "kustomize-controller"
        | "helm-controller"
        | "flux-client-side-apply"
        | "kapp-server-side-apply" => Stated::All,
        _ => return None,
    })
}

/// Managers whose fields are not wanted at all where a source is strict: kubectl's, and those that it names.
#[must_use]
pub fn is_unwanted(manager: &str, strict: &[String]) -> bool {
    manager == "kubectl"
        || manager.starts_with("kubectl-")
        || manager == "before-first-apply"
        || strict.iter().any(|strict| strict == manager)
}

/// Whose fields become ours.
#[derive(Debug, Clone, Copy)]
pub enum Whose<'a> {
    /// Those of tools that wrote a manifest.
    Tools,
    /// Those, and all of kubectl and of these managers.
    Strict(&'a [String]),
}

/// What one entry hands over, and what its manager keeps.
fn handed_over(live: &Value, entry: &Value, api_version: &str, whose: Whose<'_>) -> Option<(Value, Value)> {
    let manager = text(entry, "manager");
    if !text(entry, "subresource").is_empty() || text(entry, "apiVersion") != api_version {
        return None;
    }
    let fields = entry.get("fieldsV1")?;
    if let Whose::Strict(managers) = whose
        && is_unwanted(manager, managers)
    {
        return Some((fields.clone(), json!({})));
    }
    let (over, kept) = match stated(manager, text(entry, "operation"))? {
        Stated::All => (fields.clone(), json!({})),
        Stated::In(name, otherwise) => match manifest_in(live, name) {
            Some(manifest) => {
                let (mut over, kept) = split(fields, &manifest);
                let (mark, kept) = split(&kept, &json!({"metadata": {"annotations": {name: ""}}}));
                union(&mut over, &mark);
                (over, kept)
            }
            None if otherwise => (fields.clone(), json!({})),
            None => return None,
        },
    };
    (!is_empty(&over)).then_some((over, kept))
}

/// What a manager that is not ours set on purpose: of client-side apply not what the API server put there by default.
#[must_use]
pub fn added_by(live: &Value, entry: &Value) -> Option<Value> {
    let api_version = text(entry, "apiVersion");
    match handed_over(live, entry, api_version, Whose::Tools) {
        Some((over, _)) => Some(over),
        None if matches!(stated(text(entry, "manager"), text(entry, "operation")), Some(Stated::In(..))) => {
            None
        }
        None => entry.get("fieldsV1").cloned(),
    }
}

fn manifest_in(live: &Value, name: &str) -> Option<Value> {
    let text = live.pointer("/metadata/annotations")?.get(name)?.as_str()?;
    serde_json::from_str(text).ok().filter(Value::is_object)
}

/// The version in which fields are taken over. Fields of several versions cannot be joined, but an applier's own may be of any: where neither we
/// nor a tool has fields of the manifest's version, the first tool's version is taken, and the API server converts when it applies.
fn version_of<'a>(live: &'a Value, api_version: &'a str, whose: Whose<'_>) -> &'a str {
    let found = entries(live).iter().map(|entry| (entry, text(entry, "apiVersion")));
    let found =
        found.filter(|(entry, version)| is_ours(entry) || handed_over(live, entry, version, whose).is_some());
    let versions: Vec<&str> = found.map(|(_, version)| version).collect();
    if versions.contains(&api_version) {
        return api_version;
    }
    versions.first().copied().unwrap_or(api_version)
}

/// `managedFields` in which those fields are ours, so that the next apply removes those that the manifest lacks; `None` when there are
/// none.
#[must_use]
pub fn migrated(live: &Value, api_version: &str, whose: Whose<'_>) -> Option<Value> {
    let api_version = version_of(live, api_version, whose);
    let mut fields = json!({});
    let mut kept = Vec::new();
    let mut any = false;
    for entry in entries(live) {
        if is_ours(entry) && text(entry, "apiVersion") == api_version {
            union(&mut fields, entry.get("fieldsV1").unwrap_or(&Value::Null));
            continue;
        }
        let Some((over, rest)) = handed_over(live, entry, api_version, whose) else {
            kept.push(entry.clone());
            continue;
        };
        any = true;
        union(&mut fields, &over);
        if !is_empty(&rest) {
            let mut entry = entry.clone();
            if let Some(entry) = entry.as_object_mut() {
                entry.insert("fieldsV1".to_owned(), rest);
            }
            kept.push(entry);
        }
    }
    let time = entries(live).iter().map(|entry| text(entry, "time")).max().unwrap_or_default();
    kept.push(json!({
        "manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": api_version, "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }));
    any.then_some(Value::Array(kept))
}

/// Fields that an object loses when it is taken over and this manifest is applied: handed over, not in the manifest, and nobody else's.
#[must_use]
pub fn given_up(live: &Value, api_version: &str, manifest: &Value, whose: Whose<'_>) -> Value {
    let api_version = version_of(live, api_version, whose);
    let (mut over, mut others) = (json!({}), json!({}));
    for entry in entries(live) {
        match handed_over(live, entry, api_version, whose) {
            Some((handed, rest)) => {
                union(&mut over, &handed);
                union(&mut others, &rest);
            }
            None if is_ours(entry) => {}
            None => union(&mut others, entry.get("fieldsV1").unwrap_or(&Value::Null)),
        }
    }
    minus(&split(&over, manifest).1, &others)
}

/// The object without these fields, as it would be sent.
#[must_use]
pub fn without(object: &Value, given_up: &Value) -> Value {
    let mut object = object.clone();
    sets::remove(&mut object, given_up);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn live(annotations: Value, entries: Value) -> Value {
        json!({"metadata": {"name": "a", "annotations": annotations, "managedFields": entries}})
    }

    fn managers(fields: &Value) -> Vec<&str> {
        fields.as_array().expect("list").iter().map(|entry| text(entry, "manager")).collect()
    }

    fn ours(fields: &Value) -> &Value {
        &fields.as_array().expect("list").iter().find(|entry| is_ours(entry)).expect("ours")["fieldsV1"]
    }

    #[test]
    fn tools_hand_their_fields_over_and_hands_keep_theirs() {
        let own = json!({"f:data": {"f:x": {}}});
        for (tool, operation) in [
            ("kubectl", "Apply"),
            ("kubectl-create", "Update"),
            ("helm", "Update"),
            ("argocd-controller", "Apply"),
            ("kustomize-controller", "Apply"),
            ("helm-controller", "Update"),
            ("kapp", "Update"),
            ("kapp-server-side-apply", "Apply"),
        ] {
            let live = live(json!({}), json!([entry(tool, operation, own.clone())]));
            let fields = migrated(&live, "v1", Whose::Tools).unwrap_or_else(|| panic!("{tool}"));
            assert_eq!((managers(&fields), ours(&fields)), (vec!["kasbah"], &own), "{tool}");
        }
        for hand in [
            "kubectl-rollout",
            "kubectl-edit",
            "kubectl-set",
            "kubectl-scale",
            "kubectl-patch",
            "some-operator",
        ] {
            let live = live(json!({}), json!([entry(hand, "Update", own.clone())]));
            assert_eq!(migrated(&live, "v1", Whose::Tools), None, "{hand}");
        }
        let scaled = json!({"manager": "helm", "operation": "Update", "apiVersion": "v1", "subresource": "scale", "fieldsV1": own});
        assert_eq!(migrated(&live(json!({}), json!([scaled])), "v1", Whose::Tools), None);
    }

    #[test]
    fn fields_of_another_version_are_handed_over_where_there_are_none_of_the_manifests() {
        let own = json!({"f:data": {"f:x": {}}});
        let newer = json!({"manager": "helm", "operation": "Update", "apiVersion": "v2", "fieldsV1": own});
        let alone = live(json!({}), json!([newer]));
        let fields = migrated(&alone, "v1", Whose::Tools).expect("handed over");
        assert_eq!((managers(&fields), text(&fields[0], "apiVersion")), (vec!["kasbah"], "v2"));
        assert_eq!(given_up(&alone, "v1", &json!({}), Whose::Tools), own);
        // Ours cannot be joined with them.
        let ours = entry("kasbah", "Apply", json!({"f:data": {"f:y": {}}}));
        assert_eq!(migrated(&live(json!({}), json!([newer, ours])), "v1", Whose::Tools), None);
    }

    #[test]
    fn of_what_kubectl_applied_only_its_manifest_is_handed_over() {
        let applied = json!({"spec": {"replicas": 2, "paused": false}}).to_string();
        let fields = json!({"f:metadata": {"f:annotations": {".": {}, format!("f:{LAST_APPLIED}"): {}}},
            "f:spec": {"f:replicas": {}, "f:paused": {}, "f:progressDeadlineSeconds": {}}});
        let entries = json!([entry("kubectl-client-side-apply", "Update", fields)]);
        let object = live(json!({LAST_APPLIED: applied}), entries);
        let fields = migrated(&object, "v1", Whose::Tools).expect("handed over");
        assert_eq!(managers(&fields), ["kubectl-client-side-apply", "kasbah"]);
        assert_eq!(
            fields[0]["fieldsV1"]["f:spec"],
            json!({"f:progressDeadlineSeconds": {}}),
            "a default stays"
        );
        assert_eq!(ours(&fields)["f:spec"], json!({"f:replicas": {}, "f:paused": {}}));
        assert!(ours(&fields)["f:metadata"]["f:annotations"].get(format!("f:{LAST_APPLIED}")).is_some());
        let manifest = json!({"spec": {"replicas": 2}});
        let lost = given_up(&object, "v1", &manifest, Whose::Tools);
        assert_eq!(lost["f:spec"], json!({"f:paused": {}}));
        // What was there before managers were noted is nobody's manifest without its word.
        let before = live(json!({}), json!([entry("before-first-apply", "Update", json!({"f:x": {}}))]));
        assert_eq!(migrated(&before, "v1", Whose::Tools), None);
    }

    #[test]
    fn what_another_manager_has_too_is_not_given_up() {
        let both = json!({"f:data": {"f:x": {}, "f:y": {}}});
        let theirs = json!({"f:data": {"f:x": {}}});
        let live =
            live(json!({}), json!([entry("helm", "Update", both), entry("kubectl-edit", "Update", theirs)]));
        let lost = given_up(&live, "v1", &json!({}), Whose::Tools);
        assert_eq!(lost, json!({"f:data": {"f:y": {}}}));
        let object = json!({"metadata": {"managedFields": []}, "data": {"x": "1", "y": "2"}});
        assert_eq!(without(&object, &lost), json!({"metadata": {}, "data": {"x": "1"}}));
    }

    #[test]
    fn strict_takes_what_hands_added_too() {
        let added = json!({"f:data": {"f:x": {}}});
        let strict = ["rival".to_owned()];
        for (manager, taken) in
            [("kubectl-edit", true), ("kubectl", true), ("rival", true), ("operator", false)]
        {
            let live = live(json!({}), json!([entry(manager, "Update", added.clone())]));
            assert_eq!(migrated(&live, "v1", Whose::Strict(&strict)).is_some(), taken, "{manager}");
        }
    }
}
