//! Reading answers of the API server: what they show of an object.

use events::ObjectIdentity;
use objects::health::{HealthOptions, evaluate};
use serde_json::Value;

use crate::model::book::{Judged, Sight};
use crate::model::managed::touch_mark;
use crate::model::manifest::version_of;

/// Kinds that have no health of their own: being there is all that can be asked of them. Their metadata is enough, so that the values
/// of Secrets and large contents are never fetched.
pub(super) fn tells_health(identity: &ObjectIdentity) -> bool {
    kind_tells_health(&identity.group, &identity.kind)
}

/// The same by group and kind.
pub(super) fn kind_tells_health(group: &str, kind: &str) -> bool {
    !matches!(
        (group, kind),
        (
            "",
            "ConfigMap"
                | "Secret"
                | "ServiceAccount"
                | "LimitRange"
                | "ResourceQuota"
                | "Endpoints"
                | "PodTemplate"
        ) | (
            "rbac.authorization.k8s.io"
                | "scheduling.k8s.io"
                | "node.k8s.io"
                | "admissionregistration.k8s.io"
                | "storage.k8s.io",
            _
        ) | ("networking.k8s.io", "NetworkPolicy" | "IngressClass")
            | ("discovery.k8s.io", _)
    )
}

/// What a live object shows. `live` states its kind, or is metadata only where the kind tells no health.
pub(super) fn sight(live: &Value, identity: &ObjectIdentity, now_millis: i64) -> Sight {
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    Sight {
        uid,
        version: version_of(live),
        touch: touch_mark(live),
        health: Some(judge(live, identity, now_millis)),
    }
}

fn judge(live: &Value, identity: &ObjectIdentity, now_millis: i64) -> Judged {
    let options = HealthOptions::default();
    if tells_health(identity) {
        return Judged::from(evaluate(live, now_millis, &options));
    }
    // Only the deletion counts, which metadata tells.
    let mut bare = serde_json::json!({"apiVersion": identity.api_version(), "kind": identity.kind});
    if let (Some(bare), Some(metadata)) = (bare.as_object_mut(), live.get("metadata")) {
        let mut told = serde_json::Map::new();
        for key in ["deletionTimestamp", "finalizers"] {
            if let Some(value) = metadata.get(key) {
                told.insert(key.to_owned(), value.clone());
            }
        }
        bare.insert("metadata".to_owned(), Value::Object(told));
    }
    Judged::from(evaluate(&bare, now_millis, &options))
}

/// The health as the log has it.
pub(super) fn status_word(judged: &Judged) -> String {
    judged.status.as_str().to_lowercase()
}
