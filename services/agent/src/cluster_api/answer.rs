//! What the agent answers by itself: a `Status` of Kubernetes, which every client understands.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use objects::attributes::PathError;
use objects::pass::{InOwnNamespace, PassDenied};
use serde_json::json;
use tunnel::wire::cluster::{AGENT, ANSWERED_BY, API_SERVER};

use super::forward::MAXIMUM_ANSWER_HEADERS;
use super::headers::NotNameable;
use super::pass::PassFault;
use crate::link::AnswerBody;
use crate::model::list_rights::TooMuch;

/// Why a request got no answer of the API server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the agent refuses the request: {0}")]
    Pass(#[from] PassFault),
    #[error("the agent refuses the request: {0}")]
    Path(#[from] PathError),
    #[error("the agent refuses the request: its path and query are too long")]
    LongTarget,
    #[error("the agent refuses the request: CONNECT is not supported")]
    Connect,
    #[error("no grant permits this: {0}")]
    PassDenied(#[from] PassDenied),
    #[error("the agent refuses the request: {0}")]
    InOwnNamespace(#[from] InOwnNamespace),
    #[error("the agent refuses the request: {0}")]
    NotNameable(#[from] NotNameable),
    #[error("the agent cannot impersonate: its kubeconfig already impersonates another user (`as`)")]
    ImpersonatesAlready,
    #[error("the agent refuses the request: {0}")]
    TooMuch(#[from] TooMuch),
    #[error(
        "the agent refuses the request: the pass names nobody to impersonate, so there is nothing to ask the cluster"
    )]
    ReviewOfAgent,
    #[error("the cluster does not answer the agent what the user may list: {message}")]
    ReviewRefused { message: String },
    #[error("the agent has no connection to the API server")]
    NoApiServer,
    #[error("the agent cannot reach the API server: {detail}")]
    Unreachable { detail: String },
    #[error(
        "the answer's headers take {length} bytes and {MAXIMUM_ANSWER_HEADERS} are the maximum for the tunnel; reduce the headers of that answer"
    )]
    LongHead { length: usize },
    #[error("the API server did not answer the agent within {0:?}")]
    Late(Duration),
}

impl Failure {
    /// HTTP status.
    pub(crate) const fn code(&self) -> StatusCode {
        match self {
            Self::Path(_) | Self::LongTarget | Self::Connect | Self::TooMuch(_) => StatusCode::BAD_REQUEST,
            Self::Pass(_)
            | Self::PassDenied(_)
            | Self::InOwnNamespace(_)
            | Self::NotNameable(_)
            | Self::ImpersonatesAlready
            | Self::ReviewOfAgent
            | Self::ReviewRefused { .. } => StatusCode::FORBIDDEN,
            Self::NoApiServer => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable { .. } | Self::LongHead { .. } => StatusCode::BAD_GATEWAY,
            Self::Late(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// As `metav1.StatusReason` has it.
    const fn reason(&self) -> &'static str {
        match self.code() {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::GATEWAY_TIMEOUT => "Timeout",
            _ => "ServiceUnavailable",
        }
    }

    const fn answered_by(&self) -> HeaderValue {
        match self {
            Self::Unreachable { .. } | Self::LongHead { .. } | Self::Late(_) => API_SERVER,
            _ => AGENT,
        }
    }

    /// As metrics have it.
    pub(super) const fn outcome(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } | Self::LongHead { .. } | Self::NoApiServer => "unreachable",
            Self::Late(_) => "late",
            _ => "refused",
        }
    }
}

/// The answer.
pub(super) fn status(failure: &Failure) -> Response<AnswerBody> {
    let code = failure.code();
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": failure.to_string(),
        "reason": failure.reason(),
        "code": code.as_u16(),
    });
    let body = Full::from(body.to_string()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(ANSWERED_BY, failure.answered_by());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_says_whose_it_is() {
        let unreachable = || Failure::Unreachable { detail: "x".to_owned() };
        let late = Failure::Late(Duration::from_secs(90));
        for (failure, code, reason, by) in [
            (Failure::Pass(PassFault::NoRootKey), 403, "Forbidden", "agent"),
            (Failure::Path(PathError::Dots), 400, "BadRequest", "agent"),
            (unreachable(), 502, "ServiceUnavailable", "api-server"),
            (late, 504, "Timeout", "api-server"),
        ] {
            let answer = status(&failure);
            assert_eq!(
                (answer.status().as_u16(), answer.headers()[ANSWERED_BY].to_str().unwrap()),
                (code, by)
            );
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((body["code"].as_u64(), body["reason"].as_str()), (Some(code.into()), Some(reason)));
            assert_eq!(body["message"], failure.to_string());
        }
    }
}
