//! Refusals as HTTP answers.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use events::{Refusal, RefusalKind};

/// Seconds after which a client that was told "not now" may come again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// The status of a kind of refusal.
#[must_use]
pub const fn status(kind: RefusalKind) -> StatusCode {
    match kind {
        RefusalKind::Invalid => StatusCode::BAD_REQUEST,
        RefusalKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        RefusalKind::Denied => StatusCode::FORBIDDEN,
        RefusalKind::NotFound => StatusCode::NOT_FOUND,
        RefusalKind::Conflict => StatusCode::CONFLICT,
        RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        RefusalKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The answer to a refused request.
#[must_use]
pub fn response(refusal: &Refusal) -> Response {
    with_status(status(refusal.kind), refusal)
}

/// The same under another status, such as 405 or 413.
#[must_use]
pub fn with_status(status: StatusCode, refusal: &Refusal) -> Response {
    let mut response = (status, Json(refusal)).into_response();
    if refusal.kind == RefusalKind::Unavailable {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    if refusal.kind == RefusalKind::Unauthenticated {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
