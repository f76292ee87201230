//! Fields that the API server or a controller of the cluster writes by design, whatever a manifest says of them.
//!
//! Who applies such a field starts a fight: the controller takes it back each time. So they are left out of what is applied, where they say
//! nothing that a person could want: `rules` that an aggregation fills in, a certificate that somebody injects, the volume that a claim
//! will get. A value with a meaning of its own stays: a real certificate, the name of a volume, a number of replicas.
//!
//! The built-in kinds were gone through one by one. Not here are fields that people and controllers share on purpose (`replicas` beside an
//! autoscaler, a node's taints) and objects that are controllers' as a whole (EndpointSlices of a Service with a selector, tokens of nodes).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::order::is_built_in;

/// Annotations that controllers write on objects of any kind.
const ANNOTATIONS_OF_ANY: &[&str] = &["control-plane.alpha.kubernetes.io/leader"];
/// Annotations that ask for a certificate to be injected: whatever else stands there is replaced.
const INJECTED_BY: &[&str] = &[
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
];

/// Takes out what is not the manifest's to say.
pub fn leave_to_controllers(object: &mut Value) {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if !is_built_in(group) {
        return;
    }
    remove(object, "", &["status"]);
    unset_times(object);
    remove(object, "/metadata/annotations", ANNOTATIONS_OF_ANY);
    let injected = INJECTED_BY.iter().any(|annotation| has_annotation(object, annotation));
    match (group, kind.as_str()) {
        ("rbac.authorization.k8s.io", "ClusterRole") if is_stated(object, "/aggregationRule") => {
            remove(object, "", &["rules"]);
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            for webhook in items(object, "/webhooks") {
                leave_certificate(webhook, "/clientConfig", injected);
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            leave_certificate(object, "/spec/conversion/webhook/clientConfig", injected);
        }
        ("apiregistration.k8s.io", "APIService") => leave_certificate(object, "/spec", injected),
        ("", _) => leave_of_core(object, &kind),
        ("apps", _) => remove(
            object,
            "/metadata/annotations",
            &[
                "deployment.kubernetes.io/revision",
                "deployment.kubernetes.io/revision-history",
                "deployment.kubernetes.io/desired-replicas",
                "deployment.kubernetes.io/max-replicas",
                "deprecated.daemonset.template.generation",
            ],
        ),
        // Whoever holds it writes all of it.
        ("coordination.k8s.io", "Lease") => remove(object, "", &["spec"]),
        _ => {}
    }
}

fn leave_of_core(object: &mut Value, kind: &str) {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "PersistentVolumeClaim" => {
            remove_unset(object, "/spec", &["volumeName"]);
            let annotations = &["volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-resizer"];
            remove(object, "/metadata/annotations", annotations);
        }
        "PersistentVolume" => remove_unset(object, "/spec", &["claimRef"]),
        "Service" => {
            remove_unset(object, "/spec", &["clusterIP", "clusterIPs", "healthCheckNodePort"]);
            for port in items(object, "/spec/ports") {
                remove_unset(port, "", &["nodePort"]);
            }
        }
        "Node" => remove_unset(object, "/spec", &["podCIDR", "podCIDRs", "providerID"]),
        "Pod" => remove_unset(object, "/spec", &["nodeName"]),
        "Namespace" => remove(object, "/spec", &["finalizers"]),
        // In every namespace, and so in what is exported from one.
        "ConfigMap" if name == "kube-root-ca.crt" => remove(object, "", &["data"]),
        "Secret" if object.get("type").and_then(Value::as_str) == Some(ACCOUNT_TOKEN) => {
            for data in ["/data", "/stringData"] {
                remove(object, data, &["token", "ca.crt", "namespace"]);
            }
            remove(object, "/metadata/annotations", &["kubernetes.io/service-account.uid"]);
        }
        _ => {}
    }
}

const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Removes a `caBundle` that somebody else fills in: one that is empty or holds no certificate, or any where an annotation asks for that.
fn leave_certificate(object: &mut Value, pointer: &str, injected: bool) {
    let Some(config) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
    let leave = match config.get("caBundle") {
        None => false,
        Some(Value::Null) => true,
        Some(Value::String(bundle)) => injected || is_placeholder(bundle),
        // The API server has the words for it.
        Some(_) => false,
    };
    if leave {
        config.remove("caBundle");
    }
}

/// Whether a text in Base64 holds no certificate. What is no Base64 is for the API server to refuse.
fn is_placeholder(bundle: &str) -> bool {
    let packed: String = bundle.split_ascii_whitespace().collect();
    STANDARD
        .decode(packed)
        .is_ok_and(|bytes| !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----"))
}

fn has_annotation(object: &Value, annotation: &str) -> bool {
    object.pointer("/metadata/annotations").is_some_and(|annotations| annotations.get(annotation).is_some())
}

fn is_stated(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}

fn items<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

fn below<'a>(object: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    object.pointer_mut(pointer).and_then(Value::as_object_mut)
}

fn remove(object: &mut Value, pointer: &str, keys: &[&str]) {
    if let Some(map) = below(object, pointer) {
        for key in keys {
            map.remove(*key);
        }
    }
}

/// Removes keys whose value stands for none.
fn remove_unset(object: &mut Value, pointer: &str, keys: &[&str]) {
    if let Some(map) = below(object, pointer) {
        for key in keys {
            if map.get(*key).is_some_and(is_unset) {
                map.remove(*key);
            }
        }
    }
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_unset),
        Value::Object(map) => map.is_empty(),
    }
}

/// `creationTimestamp: null`, as tools print it in metadata, also of templates.
fn unset_times(object: &mut Value) {
    match object {
        Value::Object(map) => {
            for (key, value) in map {
                if key == "metadata"
                    && let Some(metadata) = value.as_object_mut()
                    && metadata.get("creationTimestamp").is_some_and(Value::is_null)
                {
                    metadata.remove("creationTimestamp");
                }
                unset_times(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(unset_times),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
