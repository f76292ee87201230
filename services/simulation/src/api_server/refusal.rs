//! What the API server says when it refuses, in the real one's words.

use http::StatusCode;
use serde_json::{Value, json};

use super::fields::Conflict;
use super::kinds::Kind;

/// A refusal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    reason: &'static str,
    message: String,
    details: Value,
}

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: String, details: Value) -> Self {
        Self { code, reason, message, details }
    }

    /// As it is sent.
    pub(super) fn body(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "details": self.details, "code": self.code.as_u16(),
        })
    }

    /// Seconds after which it is to be tried again.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.resource());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message, kind.details(name))
    }

    pub(super) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::new(StatusCode::NOT_FOUND, "NotFound", message, json!({}))
    }

    pub(super) fn exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message, kind.details(name))
    }

    pub(super) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.resource());
        Self::new(StatusCode::CONFLICT, "Conflict", message, kind.details(name))
    }

    pub(super) fn modified(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    pub(super) fn owned_by_others(conflicts: &[Conflict]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|conflict| {
                json!({"reason": "FieldManagerConflict", "message": conflict.message, "field": conflict.field})
            })
            .collect();
        let (count, plural) = (conflicts.len(), if conflicts.len() == 1 { "" } else { "s" });
        let words: Vec<String> =
            conflicts.iter().map(|conflict| format!("{}: {}", conflict.message, conflict.field)).collect();
        let message = format!("Apply failed with {count} conflict{plural}: {}", words.join("\n"));
        Self::new(StatusCode::CONFLICT, "Conflict", message, json!({"causes": causes}))
    }

    /// One field is wrong; `reason` such as `FieldValueForbidden`.
    pub(super) fn invalid(kind: &Kind, name: &str, field: &str, reason: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is invalid: {field}: {why}", kind.kind);
        let details = json!({
            "name": name, "group": kind.group, "kind": kind.kind,
            "causes": [{"reason": reason, "message": why, "field": field}],
        });
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message, details)
    }

    /// A manifest that is not of its kind's form. The real one, too, says so as if it were its own fault.
    pub(super) fn untyped(kind: &Kind, namespace: &str, name: &str, why: &str) -> Self {
        let form = format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind);
        let message = format!("failed to create typed patch object ({namespace}/{name}; {form}): {why}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message, json!({}))
    }

    pub(super) fn bad_request(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message.to_owned(), json!({}))
    }

    pub(super) fn too_old(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(StatusCode::GONE, "Expired", message, json!({}))
    }

    pub(super) fn page_expired() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";
        Self::new(StatusCode::GONE, "Expired", message.to_owned(), json!({}))
    }

    pub(super) fn too_many() -> Self {
        let message = "too many requests, please try again later.".to_owned();
        let details = json!({"retryAfterSeconds": 1});
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message, details)
    }

    pub(super) fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request".to_owned();
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message, json!({}))
    }

    pub(super) fn internal() -> Self {
        let message = "Internal error occurred: etcdserver: leader changed".to_owned();
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message, json!({}))
    }

    /// The simulation does not do what was asked for.
    pub(super) fn not_simulated(what: &str) -> Self {
        let message = format!("not simulated: {what}");
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotSimulated", message, json!({}))
    }

    /// What was asked for and is not simulated.
    pub(super) fn is_not_simulated(&self) -> bool {
        self.code == StatusCode::NOT_IMPLEMENTED
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }
}
