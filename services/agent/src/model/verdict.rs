//! What a refusal of the API server means for a sync.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use events::ObjectIdentity;
use events::observation::TakenField;
use serde_json::Value;

use super::manifest::is_secret;
use crate::kubernetes::{ApiError, ApiStatus};

/// What a refusal means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Another manager owns fields, and the request did not force.
    Conflict(Vec<TakenField>),
    /// Fields cannot be changed once set.
    Immutable(Vec<String>),
    /// A webhook does not take part in dry runs.
    DryRunUnsupported,
    /// It may be better later without anybody changing anything.
    Transient,
    /// This instance may not write any more.
    NotHolding,
    /// No.
    Refused,
}

/// Words that the API server uses for fields that cannot change, besides "immutable".
const IMMUTABLE_WORDS: [&str; 6] = [
    "immutable",
    "may not change once set",
    "may not be changed in an update",
    "cannot change rolebinding",
    "cannot change roleref",
    "are forbidden",
];

/// Judges by status and causes, never by the status code alone.
#[must_use]
pub fn judge(error: &ApiError) -> Verdict {
    match error {
        ApiError::NotHolding => Verdict::NotHolding,
        ApiError::Refused(status) => judge_status(status),
        other if other.is_transient() => Verdict::Transient,
        _ => Verdict::Refused,
    }
}

fn judge_status(status: &ApiStatus) -> Verdict {
    if status.code == 409 {
        let taken = conflicts(status);
        if !taken.is_empty() {
            return Verdict::Conflict(taken);
        }
    }
    if status.code == 400 && status.message.contains("does not support dry run") {
        return Verdict::DryRunUnsupported;
    }
    if status.code == 422 {
        let fields = immutable_fields(status);
        if !fields.is_empty() {
            return Verdict::Immutable(fields);
        }
    }
    if status.is_transient() { Verdict::Transient } else { Verdict::Refused }
}

fn conflicts(status: &ApiStatus) -> Vec<TakenField> {
    status
        .causes()
        .iter()
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| TakenField {
            path: cause.field.trim_start_matches('.').to_owned(),
            manager: cause.message.split('"').nth(1).unwrap_or(&cause.message).to_owned(),
        })
        .collect()
}

fn immutable_fields(status: &ApiStatus) -> Vec<String> {
    let is_immutable = |message: &str| {
        let message = message.to_lowercase();
        IMMUTABLE_WORDS.iter().any(|word| match *word {
            "are forbidden" => message.contains("updates to") && message.contains(word),
            word => message.contains(word),
        })
    };
    let mut fields: Vec<String> = status
        .causes()
        .iter()
        .filter(|cause| cause.reason == "FieldValueInvalid" || cause.reason == "FieldValueForbidden")
        .filter(|cause| is_immutable(&cause.message))
        .map(|cause| cause.field.clone())
        .collect();
    fields.dedup();
    fields
}

/// Whether a failure may be due to something that this very set is about to create: the API server's words name it.
#[must_use]
pub fn may_be_caused_by(error: &ApiError, of: &ObjectIdentity, created: &ObjectIdentity) -> bool {
    let Some(status) = error.status() else { return false };
    let in_reach = created.namespace.is_empty() || created.namespace == of.namespace;
    in_reach
        && matches!(status.code, 400 | 403 | 404 | 422)
        && [format!("\"{}\"", created.name), format!("/{}:", created.name), format!("/{}\"", created.name)]
            .iter()
            .any(|quoted| status.message.contains(quoted))
        && objects::order::apply_key(created) < objects::order::apply_key(of)
}

/// The refusal for people, in the API server's words; for a Secret only if they quote none of its values.
#[must_use]
pub fn explain(error: &ApiError, identity: &ObjectIdentity, manifest: &[u8]) -> String {
    let words = error.to_string();
    if !is_secret(identity) || !quotes_a_value(&words, manifest) {
        return words;
    }
    let reason = error.status().map(|status| status.reason.as_str()).unwrap_or_default();
    format!(
        "the API server refuses this Secret ({} {reason}); its words are left out because they may quote a value",
        error.code()
    )
}

fn quotes_a_value(words: &str, manifest: &[u8]) -> bool {
    let Ok(manifest) = serde_json::from_slice::<Value>(manifest) else { return true };
    let of = |field: &str| manifest.get(field).map(scalars).unwrap_or_default();
    let texts = of("stringData");
    let data = of("data");
    // Texts are sent as data, and data may be quoted as what it stands for.
    let encoded: Vec<String> = texts.iter().map(|text| STANDARD.encode(text)).collect();
    let decoded = data.iter().filter_map(|value| String::from_utf8(STANDARD.decode(value).ok()?).ok());
    let decoded: Vec<String> = decoded.collect();
    [texts, encoded, data, decoded].iter().flatten().any(|value| !value.is_empty() && words.contains(value))
}

fn scalars(value: &Value) -> Vec<String> {
    match value {
        Value::Object(map) => map.values().flat_map(scalars).collect(),
        Value::Array(items) => items.iter().flat_map(scalars).collect(),
        Value::String(text) => vec![text.clone()],
        Value::Null => Vec::new(),
        other => vec![other.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str, causes: &[(&str, &str, &str)]) -> ApiError {
        let causes: Vec<_> = causes
            .iter()
            .map(|(reason, message, field)| serde_json::json!({"reason": reason, "message": message, "field": field}))
            .collect();
        let body = serde_json::json!({"message": message, "details": {"causes": causes}}).to_string();
        ApiError::Refused(Box::new(ApiStatus::read(code, body.as_bytes())))
    }

    #[test]
    fn a_refusal_that_quotes_a_secrets_value_is_not_told() {
        let identity = |kind: &str| ObjectIdentity {
            group: String::new(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: "shop".into(),
            name: "s".into(),
        };
        let manifest = br#"{"stringData":{"password":12345}}"#;
        let quoting = refused(422, "expected string, got {Value:12345}", &[]);
        let told = explain(&quoting, &identity("Secret"), manifest);
        assert!(!told.contains("12345") && told.contains("422"), "{told}");
        assert!(explain(&quoting, &identity("ConfigMap"), manifest).contains("12345"));
        assert_eq!(explain(&refused(403, "forbidden", &[]), &identity("Secret"), manifest), "forbidden");
        for manifest in [
            br#"{"stringData":{"code":"first-value"}}"#.as_slice(),
            br#"{"data":{"code":"Zmlyc3QtdmFsdWU="}}"#,
        ] {
            for quoted in ["first-value", "Zmlyc3QtdmFsdWU="] {
                let told = explain(&refused(422, quoted, &[]), &identity("Secret"), manifest);
                assert!(!told.contains(quoted), "{told}");
            }
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let conflict = refused(
            409,
            "m",
            &[("FieldManagerConflict", "conflict with \"kubectl-edit\" using v1", ".data.key")],
        );
        assert_eq!(
            judge(&conflict),
            Verdict::Conflict(vec![TakenField { path: "data.key".into(), manager: "kubectl-edit".into() }])
        );
        assert_eq!(judge(&refused(409, "the object has been modified", &[])), Verdict::Refused);
        let webhook = "admission webhook \"a.b\" does not support dry run";
        assert_eq!(judge(&refused(400, webhook, &[])), Verdict::DryRunUnsupported);
        assert_eq!(judge(&refused(503, "", &[])), Verdict::Transient);
        assert_eq!(judge(&refused(403, "forbidden", &[])), Verdict::Refused);
        assert_eq!(judge(&ApiError::NotHolding), Verdict::NotHolding);
        assert_eq!(judge(&ApiError::Unreachable { detail: String::new() }), Verdict::Transient);
    }

    #[test]
    fn immutable_is_told_by_the_cause_of_a_field() {
        let rows = [
            (("FieldValueInvalid", "Invalid value: {}: field is immutable", "spec.selector"), true),
            (
                (
                    "FieldValueForbidden",
                    "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
                    "spec",
                ),
                true,
            ),
            (
                (
                    "FieldValueInvalid",
                    "Invalid value: \"1.2.3.4\": may not change once set",
                    "spec.clusterIPs[0]",
                ),
                true,
            ),
            (("FieldValueInvalid", "Invalid value: {}: cannot change roleRef", "roleRef"), true),
            (
                ("FieldValueForbidden", "Forbidden: updates to provisioner are forbidden.", "provisioner"),
                true,
            ),
            (
                (
                    "FieldValueInvalid",
                    "Invalid value: -1: must be greater than or equal to 0",
                    "spec.replicas",
                ),
                false,
            ),
            (("FieldValueForbidden", "Forbidden: privileged containers are forbidden", "spec"), false),
        ];
        for (cause, immutable) in rows {
            let verdict = judge(&refused(422, "is invalid", &[cause]));
            let expected =
                if immutable { Verdict::Immutable(vec![cause.2.to_owned()]) } else { Verdict::Refused };
            assert_eq!(verdict, expected, "{cause:?}");
        }
    }

    #[test]
    fn a_failure_is_put_down_to_what_is_created_before() {
        let id = |group: &str, kind: &str, namespace: &str, name: &str| ObjectIdentity {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let pod = id("", "Pod", "shop", "web");
        let error = refused(
            403,
            "pods \"web\" is forbidden: error looking up service account shop/runner: serviceaccount \"runner\" not found",
            &[],
        );
        assert!(may_be_caused_by(&error, &pod, &id("", "ServiceAccount", "shop", "runner")));
        assert!(!may_be_caused_by(&error, &pod, &id("", "ServiceAccount", "other", "runner")));
        assert!(!may_be_caused_by(&error, &pod, &id("", "ServiceAccount", "shop", "run")));
        assert!(
            !may_be_caused_by(&error, &pod, &id("networking.k8s.io", "Ingress", "shop", "runner")),
            "applied later"
        );
        let error = refused(403, "no PriorityClass with name \"high\" was found", &[]);
        assert!(may_be_caused_by(&error, &pod, &id("scheduling.k8s.io", "PriorityClass", "", "high")));
        assert!(!may_be_caused_by(
            &refused(500, "\"high\"", &[]),
            &pod,
            &id("scheduling.k8s.io", "PriorityClass", "", "high")
        ));
    }
}
