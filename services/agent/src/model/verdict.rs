//! What a refusal of the API server means for a sync.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use events::ObjectIdentity;
use events::observation::TakenField;
use serde_json::Value;

use super::manifest::is_secret;
use crate::kubernetes::status::Cause;
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

/// Words of a refusal to change what is there, in lower case: all that the API server's own validation has (Kubernetes 1.36), and what people
/// write into rules of their own.
const IMMUTABLE_WORDS: [&str; 27] = [
    "immutable",
    "may not change",
    "may not be changed",
    "may not be updated",
    "may not add",
    "may not remove",
    "may not be removed",
    "may only change",
    "must not change",
    "must not be changed",
    "cannot change",
    "cannot be changed",
    "can't be changed",
    "can not be changed",
    "cannot be modified",
    "can not be modified",
    "cannot be updated",
    "cannot be removed",
    "can not be unset",
    "can only be modified",
    "only additions ",
    "only deletion is allowed",
    "equal to previous value",
    "oldself",
    "updates to ",
    "update to ",
    "update is forbidden",
];

/// The same, where nothing but the text of a webhook or a policy says it: words that tell of a rule, not of a recommendation.
const DENIED_AS_IMMUTABLE: [&str; 8] = [
    "is immutable",
    "are immutable",
    "immutable field",
    "cannot be changed",
    "can't be changed",
    "may not be changed",
    "must not be changed",
    "cannot be modified",
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
    if status.code == 422
        && let Some(fields) = immutable_fields(status)
    {
        return Verdict::Immutable(fields);
    }
    if is_denied_as_immutable(status) {
        return Verdict::Immutable(Vec::new());
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

/// The fields that cannot change, if nothing else is wrong: what would be refused anew is not to be deleted for it.
fn immutable_fields(status: &ApiStatus) -> Option<Vec<String>> {
    let causes = status.causes();
    let is_immutable = |cause: &Cause| {
        let message = cause.message.to_lowercase();
        let says = |word: &str| {
            let needs_more = word.starts_with("update") && word.ends_with(' ');
            message.contains(word) && (!needs_more || message.contains("forbidden"))
        };
        matches!(cause.reason.as_str(), "FieldValueInvalid" | "FieldValueForbidden")
            && IMMUTABLE_WORDS.iter().any(|word| says(word))
    };
    if causes.is_empty() || !causes.iter().all(is_immutable) {
        return None;
    }
    let mut fields: Vec<String> = causes.iter().map(|cause| cause.field.clone()).collect();
    fields.dedup();
    Some(fields)
}

/// A webhook or an admission policy refuses because of a field that cannot change.
fn is_denied_as_immutable(status: &ApiStatus) -> bool {
    let message = status.message.to_lowercase();
    (400..500).contains(&status.code)
        && (message.contains("denied the request") || message.contains("denied request"))
        && DENIED_AS_IMMUTABLE.iter().any(|word| message.contains(word))
}

/// What to say of a change of fields that cannot change: the way out before the API server's words, of which only the first line is told, as
/// it may print both objects after it.
#[must_use]
pub fn immutable_words(fields: &[String], words: &str) -> String {
    let what = match fields {
        [] => "an immutable field".to_owned(),
        fields => format!("immutable field {}", fields.join(", ")),
    };
    let mut lines = words.lines();
    let first = lines.next().unwrap_or_default().trim_end();
    let more = if lines.next().is_some() { " …" } else { "" };
    format!(
        "{what} (the annotation {}: on-immutable lets the agent delete and create it again): {first}{more}",
        objects::ownership::REPLACE_ANNOTATION
    )
}

/// Whether an object was refused because its namespace is not there, or is about to go.
#[must_use]
pub fn is_for_want_of_a_namespace(error: Option<&ApiError>) -> bool {
    let Some(status) = error.and_then(ApiError::status) else { return false };
    let is_terminating = status.causes().iter().any(|cause| cause.reason == "NamespaceTerminating");
    is_terminating || (status.code == 404 && status.message.starts_with("namespaces \""))
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
        "the API server refuses this Secret ({} {reason}); its message is omitted because it may contain a secret value",
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
    fn a_namespace_that_goes_or_is_gone_is_recognized() {
        let cause = ("NamespaceTerminating", "namespace shop is being terminated", "metadata.namespace");
        let rows = [
            (refused(403, "forbidden: unable to create new content in namespace shop", &[cause]), true),
            (refused(404, "namespaces \"shop\" not found", &[]), true),
            (refused(404, "configmaps \"shop\" not found", &[]), false),
            (refused(403, "forbidden", &[]), false),
        ];
        for (error, expected) in rows {
            assert_eq!(is_for_want_of_a_namespace(Some(&error)), expected, "{error}");
        }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of what the API server says")]
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
            (
                (
                    "FieldValueForbidden",
                    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`\n core.PodSpec{}",
                    "spec",
                ),
                true,
            ),
            (
                (
                    "FieldValueForbidden",
                    "Forbidden: pod updates may not add or remove containers",
                    "spec.containers",
                ),
                true,
            ),
            (("FieldValueForbidden", "Forbidden: may not be changed in an update.", "value"), true),
            (("FieldValueInvalid", "Invalid value: \"a\": failed rule: self == oldSelf", "spec.port"), true),
            (
                (
                    "FieldValueForbidden",
                    "Forbidden: field can not be less than previous value",
                    "spec.resources",
                ),
                false,
            ),
        ];
        for (cause, immutable) in rows {
            let verdict = judge(&refused(422, "is invalid", &[cause]));
            let expected =
                if immutable { Verdict::Immutable(vec![cause.2.to_owned()]) } else { Verdict::Refused };
            assert_eq!(verdict, expected, "{cause:?}");
        }
    }

    #[test]
    fn what_is_wrong_besides_is_not_replaced() {
        let immutable = ("FieldValueInvalid", "Invalid value: {}: field is immutable", "spec.selector");
        let wrong = ("FieldValueInvalid", "Invalid value: -1: must be greater than 0", "spec.replicas");
        assert_eq!(judge(&refused(422, "is invalid", &[immutable, wrong])), Verdict::Refused);
        let both = judge(&refused(422, "is invalid", &[immutable, immutable]));
        assert_eq!(both, Verdict::Immutable(vec!["spec.selector".to_owned()]));
    }

    #[test]
    fn a_webhook_that_says_so_is_believed() {
        let denied = |words: &str| {
            judge(&refused(403, &format!("admission webhook \"a.b\" denied the request: {words}"), &[]))
        };
        assert_eq!(denied("spec.class is immutable"), Verdict::Immutable(Vec::new()));
        assert_eq!(denied("use immutable tags of images"), Verdict::Refused);
        assert_eq!(judge(&refused(403, "spec.class is immutable", &[])), Verdict::Refused);
    }

    #[test]
    fn the_way_out_stands_before_a_long_message() {
        let words = "Pod \"a\" is invalid: spec: Forbidden: may not change\n core.PodSpec{\n}";
        let told = immutable_words(&["spec".to_owned()], words);
        let expected = "immutable field spec (the annotation kasbah.dev/replace: on-immutable lets the agent delete and create it again): ";
        assert_eq!(told, format!("{expected}Pod \"a\" is invalid: spec: Forbidden: may not change …"));
        assert!(immutable_words(&[], "no").starts_with("an immutable field ("));
    }
}
