//! What the API server says when it refuses.

use std::time::Duration;

use events::observation::MissingRight;
use serde::Deserialize;
use thiserror::Error;

/// The part of a `Status` that decisions need.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct ApiStatus {
    /// `Status`, where the API server itself speaks.
    #[serde(default)]
    pub kind: String,
    /// HTTP status.
    #[serde(default)]
    pub code: u16,
    /// Such as `Invalid`.
    #[serde(default)]
    pub reason: String,
    /// In its own words.
    #[serde(default)]
    pub message: String,
    /// More about it.
    #[serde(default)]
    pub details: Option<Details>,
}

/// More about a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Details {
    /// What it is about: a kind, or its name in paths.
    #[serde(default)]
    pub kind: String,
    /// Its API group.
    #[serde(default)]
    pub group: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// One per field.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// When to come back.
    #[serde(default, rename = "retryAfterSeconds")]
    pub retry_after_seconds: u32,
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Cause {
    /// Such as `FieldValueInvalid`, `FieldManagerConflict`.
    #[serde(default)]
    pub reason: String,
    /// In the API server's words.
    #[serde(default)]
    pub message: String,
    /// Path, such as `spec.selector` or `.data.key`.
    #[serde(default)]
    pub field: String,
}

/// How server-side apply begins when a field has a value of another type (`fieldmanager/structuredmerge.go`).
const WRONG_TYPE: &str = "failed to create typed patch object";
/// What errors of the API server's surroundings say: its storage, webhooks, the network between them.
const TROUBLE: [&str; 20] = [
    "etcdserver:",
    "rpc error:",
    "context deadline exceeded",
    "context canceled",
    "timed out",
    "i/o timeout",
    "Timeout exceeded",
    "connection refused",
    "connection reset",
    "connection error",
    "closed network connection",
    "broken pipe",
    "unexpected EOF",
    ": EOF",
    "no endpoints available",
    "dial tcp",
    "http2:",
    "conversion webhook for",
    "failed calling webhook",
    "failed to call webhook",
];

impl ApiStatus {
    /// Reads a body; what is no `Status` becomes its message.
    #[must_use]
    pub fn read(code: u16, body: &[u8]) -> Self {
        let mut status = serde_json::from_slice::<Self>(body).unwrap_or_default();
        status.code = code;
        if status.message.is_empty() {
            let text = String::from_utf8_lossy(body);
            let text: String = text.trim().chars().take(300).collect();
            status.message = if text.is_empty() { format!("status {code} without a message") } else { text };
        }
        status
    }

    /// When to come back, where it says so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let told = self.details.as_ref().map(|details| details.retry_after_seconds);
        told.filter(|told| *told > 0).map(|told| Duration::from_secs(u64::from(told)))
    }

    /// Takes over what the answer's `Retry-After` says, in seconds; it counts more than the body.
    pub fn retry_after_is(&mut self, seconds: u32) {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
    }

    /// The causes.
    #[must_use]
    pub fn causes(&self) -> &[Cause] {
        self.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default()
    }

    /// The right that is missing, where the API server's authorizer refused. Admission refuses with the same status, but never says what
    /// a user cannot do; the words are those of `ForbiddenMessage` in the API server, whatever authorizes.
    #[must_use]
    pub fn missing_right(&self) -> Option<MissingRight> {
        if self.code != 403 {
            return None;
        }
        let (_, words) = self.message.split_once("User \"")?;
        let (user, words) = words.split_once("\" cannot ")?;
        let (verb, words) = words.split_once(" resource \"")?;
        let (resource, words) = words.split_once("\" in API group \"")?;
        let (group, words) = words.split_once('"')?;
        let namespace = words.strip_prefix(" in the namespace \"").and_then(|words| words.split('"').next());
        // What the status has as data counts; it leaves out subresources and the namespace.
        let of_status = self.details.as_ref().filter(|details| !details.kind.is_empty());
        let is_subresource = resource.contains('/');
        let (group, resource) = match of_status.filter(|_| !is_subresource) {
            Some(details) => (details.group.as_str(), details.kind.as_str()),
            None => (group, resource),
        };
        let [user, verb, group, resource, namespace] =
            [user, verb, group, resource, namespace.unwrap_or_default()].map(str::to_owned);
        Some(MissingRight { user, verb, group, resource, namespace })
    }

    /// A later attempt may fare better without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.code {
            408 | 429 | 502 | 503 | 504 => !self.is_denial(),
            500 => !self.is_denial() && !self.is_refusal_as_500(),
            _ => false,
        }
    }

    /// A webhook said no, with a code of its own choice.
    fn is_denial(&self) -> bool {
        self.message.starts_with("admission webhook") && self.message.contains("denied the request")
    }

    /// The API server answers 500 without a reason where it had no other code for an error, as for a value of the wrong type or fields that
    /// another version of the API does not have. That is a refusal, unless the error came from its surroundings.
    fn is_refusal_as_500(&self) -> bool {
        let is_plain = self.kind == "Status" && self.reason.is_empty();
        let is_of_schema = self.message.contains("field not declared in schema");
        is_plain && (is_of_schema || !TROUBLE.iter().any(|trouble| self.message.contains(trouble)))
    }

    /// The API server cannot read the object as an older version of its API, which somebody wrote fields in.
    #[must_use]
    pub fn may_be_of_older_version(&self) -> bool {
        self.code == 500 && !self.is_transient() && !self.message.starts_with(WRONG_TYPE)
    }
}

/// A request had no good end.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApiError {
    /// The API server refused.
    #[error("{}", .0.message)]
    Refused(Box<ApiStatus>),
    /// It could not be reached, or did not answer in time, in several attempts.
    #[error("the API server does not answer: {detail}")]
    Unreachable {
        /// What went wrong last.
        detail: String,
    },
    /// It answered something that cannot be read.
    #[error("the API server's answer cannot be read: {detail}")]
    Unreadable {
        /// Why.
        detail: String,
    },
    /// What was asked for takes its time.
    #[error("{detail}")]
    Pending {
        /// What is waited for.
        detail: String,
    },
    /// Not sent: this instance may not write (any more).
    #[error("this instance no longer holds the Lease")]
    NotHolding,
    /// Not sent: the request cannot be made.
    #[error("{detail}")]
    Impossible {
        /// Why.
        detail: String,
    },
}

impl ApiError {
    /// The status, where the API server spoke.
    #[must_use]
    pub fn status(&self) -> Option<&ApiStatus> {
        match self {
            Self::Refused(status) => Some(status),
            _ => None,
        }
    }

    /// The right that is missing, where that is why.
    #[must_use]
    pub fn missing_right(&self) -> Option<MissingRight> {
        self.status().and_then(ApiStatus::missing_right)
    }

    /// The HTTP status, 0 where the API server did not speak.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }

    /// When to come back, where the API server said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(ApiStatus::retry_after)
    }

    /// A later attempt may fare better without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(status) => status.is_transient(),
            Self::Unreachable { .. } | Self::Unreadable { .. } | Self::Pending { .. } => true,
            Self::NotHolding | Self::Impossible { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_and_other_bodies_are_quoted_in_part() {
        let body = br#"{"kind":"Status","reason":"Invalid","message":"no","code":1,"details":{"causes":[{"reason":"FieldValueInvalid","message":"m","field":"spec.a"}]}}"#;
        let status = ApiStatus::read(422, body);
        assert_eq!((status.code, status.reason.as_str(), status.causes().len()), (422, "Invalid", 1));
        assert_eq!(ApiStatus::read(503, b"upstream gone\n").message, "upstream gone");
        assert_eq!(ApiStatus::read(502, b"").message, "status 502 without a message");
        assert_eq!(ApiStatus::read(502, &[b'x'; 10_000]).message.len(), 300);
        for (code, transient) in
            [(400, false), (409, false), (422, false), (429, true), (500, true), (503, true)]
        {
            assert_eq!(ApiStatus::read(code, b"").is_transient(), transient, "{code}");
        }
        let typed = br#"{"kind":"Status","code":500,"message":"failed to create typed patch object (n/a; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string"}"#;
        assert!(!ApiStatus::read(500, typed).is_transient());
    }

    #[test]
    fn a_missing_right_is_read_and_a_refusal_of_admission_is_none() {
        let read = |group: &str, kind: &str, message: &str| {
            let body = serde_json::json!({"kind": "Status", "reason": "Forbidden", "message": message,
                "details": {"group": group, "kind": kind}});
            ApiStatus::read(403, body.to_string().as_bytes()).missing_right()
        };
        let right = |verb: &str, group: &str, resource: &str, namespace: &str| {
            let [user, verb, group, resource, namespace] =
                ["ann", verb, group, resource, namespace].map(str::to_owned);
            Some(MissingRight { user, verb, group, resource, namespace })
        };
        let list = "deployments.apps is forbidden: User \"ann\" cannot list resource \"deployments\" in API group \"apps\" in the namespace \"shop\"";
        assert_eq!(read("apps", "deployments", list), right("list", "apps", "deployments", "shop"));
        assert_eq!(
            right("list", "apps", "deployments", "shop").unwrap().to_string(),
            "ann may not list deployments.apps in namespace shop"
        );
        let watch = "nodes is forbidden: User \"ann\" cannot watch resource \"nodes\" in API group \"\" at the cluster scope: no role";
        assert_eq!(read("", "nodes", watch), right("watch", "", "nodes", ""));
        assert_eq!(
            right("watch", "", "nodes", "").unwrap().to_string(),
            "ann may not watch nodes in the whole cluster"
        );
        let log = "pods \"a\" is forbidden: User \"ann\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"shop\"";
        assert_eq!(read("", "pods", log), right("get", "", "pods/log", "shop"));
        for admission in [
            "pods \"a\" is forbidden: exceeded quota: none, requested: pods=1",
            "configmaps \"a\" is forbidden: unable to create new content in namespace shop because it is being terminated",
            "admission webhook \"a.b\" denied the request: User \"ann\" is not welcome",
        ] {
            assert_eq!(read("", "pods", admission), None, "{admission}");
        }
        let other = ApiStatus { code: 500, message: list.to_owned(), ..ApiStatus::default() };
        assert_eq!(other.missing_right(), None);
    }

    #[test]
    fn a_refusal_is_no_outage_whatever_its_code() {
        let status = |code: u16, reason: &str, message: &str| {
            let body = serde_json::json!({"kind": "Status", "reason": reason, "message": message});
            ApiStatus::read(code, body.to_string().as_bytes())
        };
        for refusal in [
            ".spec.admits: field not declared in schema",
            ".spec.connection refused: field not declared in schema",
            "request to convert CR to an invalid group/version: harbour.example/v1beta1",
            "failed to create typed live object (shop/a; v1, Kind=A): .spec.a: expected string, got 1",
        ] {
            let status = status(500, "", refusal);
            assert!(!status.is_transient() && status.may_be_of_older_version(), "{refusal}");
        }
        for trouble in [
            "etcdserver: leader changed",
            "conversion webhook for a.example/v1 failed: Post \"https://a.b.svc:443\": dial tcp: connection refused",
            "rpc error: code = Unavailable desc = error reading from server: EOF",
        ] {
            assert!(status(500, "", trouble).is_transient(), "{trouble}");
        }
        assert!(status(500, "InternalError", "Internal error occurred: a").is_transient());
        assert!(ApiStatus::read(500, b"a proxy's page").is_transient(), "not the API server's own words");
        for code in [429, 500, 503] {
            let denial = status(code, "", "admission webhook \"a.b\" denied the request: no");
            assert!(!denial.is_transient(), "{code}");
        }
    }
}
