//! Objects that run to their end and are then removed by Kubernetes, as their manifests ask: they run once for each manifest.

use serde_json::Value;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// It succeeded.
    Succeeded,
    /// It failed, for this reason.
    Failed(String),
}

impl Run {
    /// Why it failed.
    #[must_use]
    pub fn failure(self) -> Option<String> {
        match self {
            Self::Succeeded => None,
            Self::Failed(reason) => Some(reason),
        }
    }
}

/// How the run of a live object ended, if it ended and the object is one that is removed afterwards without anybody asking again.
///
/// Of the built-in kinds these are Jobs with a TTL and signing requests; Argo's Workflows are like Jobs.
#[must_use]
pub fn finished(live: &Value) -> Option<Run> {
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match (group(text("/apiVersion")), text("/kind")) {
        ("batch", "Job") => {
            live.pointer("/spec/ttlSecondsAfterFinished").filter(|ttl| ttl.is_u64())?;
            condition(live, "Complete").map(|_| Run::Succeeded).or_else(|| {
                condition(live, "Failed").map(|failed| Run::Failed(explain(failed, "the Job failed")))
            })
        }
        // The controller manager removes those that were decided within hours.
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            let refused = || {
                condition(live, "Denied")
                    .or_else(|| condition(live, "Failed"))
                    .map(|refused| Run::Failed(explain(refused, "the request was refused")))
            };
            if text("/status/certificate").is_empty() { refused() } else { Some(Run::Succeeded) }
        }
        ("argoproj.io", "Workflow") => {
            let phase = text("/status/phase");
            let after = |outcome: &str| {
                ["secondsAfterCompletion", outcome].into_iter().any(|key| {
                    live.pointer("/spec/ttlStrategy").and_then(|ttl| ttl.get(key)).is_some_and(Value::is_u64)
                })
            };
            match phase {
                "Succeeded" if after("secondsAfterSuccess") => Some(Run::Succeeded),
                "Failed" | "Error" if after("secondsAfterFailure") => {
                    let told = text("/status/message");
                    let reason = if told.is_empty() {
                        format!("the workflow's phase is {phase}")
                    } else {
                        told.to_owned()
                    };
                    Some(Run::Failed(reason))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The object as it is without its deletion, where it ran to its end: that it is being removed says nothing of how it is.
#[must_use]
pub fn without_its_removal(live: &Value) -> Option<Value> {
    let is_removed = live.pointer("/metadata/deletionTimestamp").is_some();
    (is_removed && finished(live).is_some()).then(|| {
        let mut live = live.clone();
        if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("deletionTimestamp");
            metadata.remove("deletionGracePeriodSeconds");
        }
        live
    })
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn condition<'a>(live: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = live.pointer("/status/conditions")?.as_array()?;
    let text = |condition: &'a Value, key: &str| condition.get(key).and_then(Value::as_str);
    conditions.iter().find(|condition| {
        text(condition, "type") == Some(kind)
            && text(condition, "status").is_none_or(|status| status == "True")
    })
}

fn explain(condition: &Value, otherwise: &str) -> String {
    let text = |key: &str| condition.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    text("message").or_else(|| text("reason")).unwrap_or(otherwise).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(ttl: &Value, condition: &str) -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"ttlSecondsAfterFinished": ttl},
            "status": {"conditions": [{"type": condition, "status": "True", "message": "too often"}]}})
    }

    #[test]
    fn a_job_with_a_ttl_is_finished_once_it_succeeded_or_failed() {
        assert_eq!(finished(&job(&json!(5), "Complete")), Some(Run::Succeeded));
        assert_eq!(finished(&job(&json!(0), "Complete")), Some(Run::Succeeded));
        assert_eq!(finished(&job(&json!(5), "Failed")), Some(Run::Failed("too often".to_owned())));
        for unfinished in ["SuccessCriteriaMet", "FailureTarget", "Suspended"] {
            assert_eq!(finished(&job(&json!(5), unfinished)), None, "{unfinished}");
        }
        assert_eq!(finished(&job(&Value::Null, "Complete")), None, "nobody removes it");
        let mut other = job(&json!(5), "Complete");
        other["apiVersion"] = json!("example.com/v1");
        assert_eq!(finished(&other), None);
    }

    #[test]
    fn signing_requests_and_workflows_are_finished_likewise() {
        let request = |status: Value| {
            finished(
                &json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "status": status}),
            )
        };
        assert_eq!(request(json!({"certificate": "LS0t"})), Some(Run::Succeeded));
        let denied = json!({"conditions": [{"type": "Denied", "reason": "NotYou"}]});
        assert_eq!(request(denied), Some(Run::Failed("NotYou".to_owned())));
        assert_eq!(request(json!({"conditions": [{"type": "Approved"}]})), None, "not issued yet");
        let workflow = |phase: &str, ttl: Value| {
            finished(&json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
                "spec": {"ttlStrategy": ttl}, "status": {"phase": phase}}))
        };
        assert_eq!(workflow("Succeeded", json!({"secondsAfterCompletion": 5})), Some(Run::Succeeded));
        assert!(workflow("Failed", json!({"secondsAfterFailure": 5})).is_some());
        assert_eq!(workflow("Failed", json!({"secondsAfterSuccess": 5})), None, "it stays");
        assert_eq!(workflow("Running", json!({"secondsAfterCompletion": 5})), None);
    }

    #[test]
    fn the_removal_of_what_is_finished_says_nothing_of_its_health() {
        let seen = without_its_removal(&job(&json!(5), "Complete")).expect("finished");
        assert_eq!(seen.pointer("/metadata/deletionTimestamp"), None);
        assert_eq!(without_its_removal(&job(&Value::Null, "Complete")), None);
    }
}
