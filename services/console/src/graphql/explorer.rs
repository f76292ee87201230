//! A page to try queries: an editor, variables, the result, and the schema's documentation. It needs nothing from elsewhere.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::page::standalone;

/// Where its script is.
pub(super) const SCRIPT: &str = "/api/graphql/explorer.js";
/// Where its style is.
pub(super) const STYLE: &str = "/api/graphql/explorer.css";
/// The page loads its own files only, asks this server only, and stands in no other page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// The page.
pub(super) fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("explorer/explorer.html"))
}

/// Its script.
pub(super) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("explorer/explorer.js"))
}

/// Its style.
pub(super) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("explorer/explorer.css"))
}

fn file(media: &'static str, text: &'static str) -> Response {
    let varies = [(header::VARY, HeaderValue::from_static("accept"))];
    (varies, standalone(media, POLICY, Bytes::from_static(text.as_bytes()))).into_response()
}
