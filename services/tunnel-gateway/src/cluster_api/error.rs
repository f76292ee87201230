//! Errors that the gateway answers in place of the API server, in the form that its clients read.

use std::time::Duration;

use bytes::Bytes;
use events::requests::gateway::{ForwardedAnswer, ForwardedTrouble};
use events::{Refusal, RefusalKind};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tunnel::gateway::AskError;

use super::AnswerBody;
use super::limits::{Exceeded, LimitKind, LimitScope};

/// Where a request got stuck on its way to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hop {
    Gateway,
    /// Another gateway, or the way there.
    Replica,
    Tunnel,
    Agent,
}

impl Hop {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Replica => "other gateway",
            Self::Tunnel => "tunnel",
            Self::Agent => "agent",
        }
    }
}

/// A request that got no answer of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxyError {
    code: StatusCode,
    hop: Hop,
    message: String,
    trace: Option<String>,
    is_text: bool,
    retry_after_seconds: Option<u16>,
}

impl ProxyError {
    pub(super) fn new(code: StatusCode, hop: Hop, message: impl Into<String>) -> Self {
        Self { code, hop, message: message.into(), trace: None, is_text: false, retry_after_seconds: None }
    }

    /// No gateway has a tunnel of the agent. Nothing says when to come back: with that, clients of Kubernetes ask ten times before they
    /// say what is wrong, and nobody knows when the agent comes.
    pub(super) fn not_connected() -> Self {
        let message = "the agent is not connected; see `kasbah agent show`";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Tunnel, message)
    }

    /// None came while it was waited for one.
    pub(super) fn not_reconnected(waited: Duration) -> Self {
        let message = format!(
            "the agent is not connected: it disconnected a moment ago and did not reconnect within {waited:?}; see `kasbah agent show`"
        );
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Tunnel, message)
    }

    /// Somebody asks for more than is allowed.
    pub(super) fn over_limit(exceeded: &Exceeded) -> Self {
        let Exceeded { scope, kind, limit, retry_after } = *exceeded;
        let (whose, option) = match scope {
            LimitScope::User => ("you", "user"),
            LimitScope::Agent => ("this agent's users", "agent"),
            LimitScope::Organization => ("your organization's users", "organization"),
        };
        let message = match kind {
            LimitKind::Open => format!(
                "{whose} have {limit} requests open at this gateway, the maximum (--clusters-open-per-{option}): end watches and sessions that are not needed, then retry"
            ),
            LimitKind::OpenShare(held) => format!(
                "{whose} may have {limit} requests open at this gateway (--clusters-open-per-{option}), of which you hold {held}, your share: the rest is for other users; end watches and sessions that are not needed, then retry"
            ),
            LimitKind::Rate => format!(
                "{whose} make more than {limit} requests a second at this gateway, the sustained maximum (--clusters-rate-per-{option}): retry later, and send fewer requests, for example by a watch"
            ),
            LimitKind::RateShare => format!(
                "{whose} may make {limit} sustained requests a second at this gateway (--clusters-rate-per-{option}), of which you use your share: the rest is for other users; retry later, and send fewer requests, for example by a watch"
            ),
        };
        let seconds = u16::try_from(retry_after.as_millis().div_ceil(1000)).unwrap_or(u16::MAX).max(1);
        Self::new(StatusCode::TOO_MANY_REQUESTS, Hop::Gateway, message).retry_after(seconds)
    }

    /// An error that another gateway reported.
    pub(super) fn from_forwarded(forwarded: ForwardedTrouble) -> Self {
        let hops = [Hop::Gateway, Hop::Replica, Hop::Tunnel, Hop::Agent];
        let hop = hops.into_iter().find(|known| known.as_str() == forwarded.hop).unwrap_or(Hop::Replica);
        let code = StatusCode::from_u16(forwarded.code).unwrap_or(StatusCode::BAD_GATEWAY);
        Self { retry_after_seconds: forwarded.retry_after_seconds, ..Self::new(code, hop, forwarded.message) }
    }

    /// In the form in which another gateway gets it.
    pub(super) fn into_forwarded(self) -> ForwardedAnswer {
        ForwardedAnswer::Trouble(ForwardedTrouble {
            code: self.code.as_u16(),
            hop: self.hop.as_str().to_owned(),
            message: self.message,
            retry_after_seconds: self.retry_after_seconds,
        })
    }

    /// Worth another try after a while.
    pub(super) const fn retry_after(mut self, seconds: u16) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// By which it is found in logs and traces.
    pub(super) fn with_trace(mut self, trace: &str) -> Self {
        self.trace = Some(trace.to_owned());
        self
    }

    /// As plain text: client-go reads no `Status` where it looks for groups of kinds, which is what kubectl asks first, and says
    /// "unknown" instead of what was wrong.
    pub(super) const fn in_plain_text(mut self, is_text: bool) -> Self {
        self.is_text = is_text;
        self
    }

    pub(super) const fn code(&self) -> StatusCode {
        self.code
    }

    pub(super) fn describe(&self) -> String {
        format!("{} at the {}: {}", self.code.as_u16(), self.hop.as_str(), self.message)
    }

    /// What authz refused.
    pub(super) fn from_refusal(refusal: Refusal) -> Self {
        let (code, message) = match refusal.kind {
            RefusalKind::Unauthenticated => (StatusCode::UNAUTHORIZED, refusal.message),
            RefusalKind::NotFound => (StatusCode::NOT_FOUND, refusal.message),
            RefusalKind::Denied | RefusalKind::Invalid | RefusalKind::Conflict => {
                (StatusCode::FORBIDDEN, refusal.message)
            }
            RefusalKind::Unavailable | RefusalKind::Internal => {
                tracing::warn!(%refusal, "authz signs no pass");
                let message = "the permissions for the cluster cannot be read now; retry".to_owned();
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Gateway, message).retry_after(1);
            }
        };
        Self::new(code, Hop::Gateway, message)
    }

    /// Everything that leads there is taken.
    pub(super) fn no_capacity() -> Self {
        let message = "too many requests are open in this cluster; retry";
        Self::new(StatusCode::TOO_MANY_REQUESTS, Hop::Tunnel, message).retry_after(1)
    }

    /// What the tunnel could not carry.
    pub(super) fn from_tunnel(error: &AskError) -> Self {
        let (code, hop) = match error {
            AskError::TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, Hop::Agent),
            AskError::Unsendable { .. } => (StatusCode::BAD_REQUEST, Hop::Gateway),
            AskError::Closed { .. } | AskError::Answer(_) => (StatusCode::BAD_GATEWAY, Hop::Tunnel),
        };
        Self::new(code, hop, error.to_string())
    }

    /// A `Status` of Kubernetes (k8s.io/apimachinery, `metav1.Status`).
    pub(super) fn into_response(self) -> Response<AnswerBody> {
        let trace = self.trace.as_ref().map(|trace| format!(" (trace {trace})")).unwrap_or_default();
        let message = format!("Kasbah's {}: {}{trace}", self.hop.as_str(), self.message);
        if self.is_text {
            let code = shown_code(self.code);
            return Self { code, ..self }.response(message, "text/plain; charset=utf-8");
        }
        let mut causes = vec![json!({"reason": "Hop", "message": self.hop.as_str()})];
        causes.extend(self.trace.as_ref().map(|trace| json!({"reason": "TraceId", "message": trace})));
        let mut details = json!({"causes": causes});
        if let (Some(seconds), Some(details)) = (self.retry_after_seconds, details.as_object_mut()) {
            details.insert("retryAfterSeconds".to_owned(), seconds.into());
        }
        let status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason(self.code),
            "details": details,
            "code": self.code.as_u16(),
        });
        self.response(status.to_string(), "application/json")
    }

    fn response(&self, body: String, content_type: &'static str) -> Response<AnswerBody> {
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = self.code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The code under which client-go shows the text of an answer: of these it shows a sentence of its own, which says nothing of what is wrong.
const fn shown_code(code: StatusCode) -> StatusCode {
    match code {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => StatusCode::BAD_GATEWAY,
        code => code,
    }
}

/// Kubernetes' word for a code.
fn reason(code: StatusCode) -> &'static str {
    match code.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_gateway_is_told_is_told_whole() {
        for error in
            [ProxyError::not_connected(), ProxyError::new(StatusCode::GATEWAY_TIMEOUT, Hop::Agent, "late")]
        {
            let ForwardedAnswer::Trouble(told) = error.clone().into_forwarded() else { panic!("{error:?}") };
            assert_eq!(ProxyError::from_forwarded(told), error);
        }
    }

    #[tokio::test]
    async fn what_is_said_in_plain_text_has_a_code_under_which_clients_show_it() {
        for (code, shown) in [(503, 502), (504, 502), (502, 502), (403, 403), (401, 401)] {
            let code = StatusCode::from_u16(code).unwrap();
            let response = ProxyError::new(code, Hop::Tunnel, "away").in_plain_text(true).into_response();
            assert_eq!(response.status().as_u16(), shown);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "Kasbah's tunnel: away");
        }
        let away = ProxyError::not_connected().into_response();
        assert!(!away.headers().contains_key(RETRY_AFTER), "clients would ask ten times before they say so");
    }

    #[tokio::test]
    async fn what_goes_wrong_is_told_as_kubernetes_tells_it() {
        let error = ProxyError::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Tunnel, "not connected");
        let response = error.retry_after(5).with_trace("abc").into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "5");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status["message"], "Kasbah's tunnel: not connected (trace abc)");
        assert_eq!((&status["reason"], &status["code"]), (&json!("ServiceUnavailable"), &json!(503)));
        assert_eq!(status["details"]["causes"][0]["message"], "tunnel");
        assert_eq!(status["details"]["retryAfterSeconds"], 5);
    }
}
