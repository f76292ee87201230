//! What an agent says in the place of the API server, and what the API server says of the agent, where a client cannot read it.
//!
//! client-go reads no `Status` where it looks for groups of kinds, which is what kubectl asks first: it says "unknown" instead. There
//! such an answer becomes one of the gateway's own, in plain text.

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_ENCODING;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tunnel::wire::cluster::ANSWERED_BY;

use super::AnswerBody;
use super::error::{Hop, ProxyError};

/// A longer `Status` is not read.
const MAXIMUM_STATUS: usize = 64 * 1024;
/// How the API server says that the agent may not act for somebody.
const MAY_NOT_ACT: &str = "cannot impersonate";

/// An answer as it is, or what is to be said instead of it.
pub(super) async fn readable(answer: Response<AnswerBody>) -> Result<Response<AnswerBody>, ProxyError> {
    let status = answer.status();
    let is_agents = answer.headers().contains_key(ANSWERED_BY);
    let is_encoded = answer.headers().contains_key(CONTENT_ENCODING);
    if !(is_agents || status == StatusCode::FORBIDDEN) || status.is_success() || is_encoded {
        return Ok(answer);
    }
    let (parts, body) = answer.into_parts();
    let whole = whole(body).await?;
    let said: serde_json::Value = serde_json::from_slice(&whole).unwrap_or_default();
    match said.get("message").and_then(serde_json::Value::as_str) {
        Some(message) if is_agents => Err(ProxyError::new(status, Hop::Agent, message)),
        Some(message) if message.contains(MAY_NOT_ACT) => {
            let advice = format!(
                "the cluster does not permit the agent to impersonate you: {message}; `kasbah agent rights` prints the rights that it needs there"
            );
            Err(ProxyError::new(status, Hop::Agent, advice))
        }
        _ => {
            let body = Full::new(whole).map_err(|never| match never {});
            Ok(Response::from_parts(parts, body.boxed_unsync()))
        }
    }
}

async fn whole(mut body: AnswerBody) -> Result<Bytes, ProxyError> {
    let bad = |message: String| ProxyError::new(StatusCode::BAD_GATEWAY, Hop::Agent, message);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| bad(format!("its answer broke off: {error}")))?;
        if let Some(data) = frame.data_ref() {
            whole.extend_from_slice(data);
        }
        if whole.len() > MAXIMUM_STATUS {
            return Err(bad("its answer is too long to show".to_owned()));
        }
    }
    Ok(whole.freeze())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tunnel::wire::cluster::{AGENT, API_SERVER};

    use super::*;

    fn answer(code: u16, by: Option<HeaderValue>, body: &'static str) -> Response<AnswerBody> {
        let body = Full::from(body).map_err(|never| match never {}).boxed_unsync();
        let mut answer = Response::new(body);
        *answer.status_mut() = StatusCode::from_u16(code).unwrap();
        answer.headers_mut().extend(by.map(|by| (ANSWERED_BY, by)));
        answer
    }

    #[tokio::test]
    async fn only_what_no_client_could_read_is_said_otherwise() {
        let status = r#"{"kind":"Status","message":"the agent refuses the request: x"}"#;
        let no_right =
            r#"{"message":"users \"ann\" is forbidden: User \"a\" cannot impersonate resource \"users\""}"#;
        let others = r#"{"message":"forbidden: User \"ann\" cannot get path \"/api\""}"#;
        for (code, by, body, said) in [
            (403, Some(AGENT), status, "403 at the agent: the agent refuses the request: x"),
            (502, Some(API_SERVER), status, "502 at the agent: the agent refuses"),
            (403, None, no_right, "does not permit the agent to impersonate you"),
            (403, None, others, ""),
            (200, None, status, ""),
            (503, None, status, ""),
            (403, None, "text", ""),
            (403, Some(AGENT), "text", ""),
        ] {
            match readable(answer(code, by, body)).await {
                Ok(kept) => {
                    assert!(said.is_empty(), "{code} {body}");
                    assert_eq!(kept.into_body().collect().await.unwrap().to_bytes(), body.as_bytes());
                }
                Err(error) => {
                    let found = error.describe();
                    assert!(!said.is_empty() && found.contains(said), "{found}");
                }
            }
        }
        let long = Box::leak("x".repeat(MAXIMUM_STATUS + 1).into_boxed_str());
        assert!(readable(answer(403, Some(AGENT), long)).await.is_err());
    }
}
