//! What the API server says when it refuses.

use serde::Deserialize;
use thiserror::Error;

/// The part of a `Status` that decisions need.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct ApiStatus {
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

/// How server-side apply begins when a field has a value of another type. The API server says so with 500, as if it were its own
/// fault (`fieldmanager/structuredmerge.go`).
const WRONG_TYPE: &str = "failed to create typed patch object";

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

    /// The causes.
    #[must_use]
    pub fn causes(&self) -> &[Cause] {
        self.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default()
    }

    /// A later attempt may fare better without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.code, 408 | 429 | 500 | 502 | 503 | 504) && !self.message.starts_with(WRONG_TYPE)
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
    /// Not sent: this instance may not write (any more).
    #[error("this instance does not hold the Lease any more")]
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

    /// The HTTP status, 0 where the API server did not speak.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }

    /// A later attempt may fare better without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(status) => status.is_transient(),
            Self::Unreachable { .. } | Self::Unreadable { .. } => true,
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
}
