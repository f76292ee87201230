//! The web page: files that are built from `web` and checked in, and nothing else. All that it shows it asks of the API.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use events::{Refusal, RefusalKind};

use crate::app::App;
use crate::clusters::Clusters;
use crate::problem;

/// Every path of this module, beside those that the page makes up ([`view`]).
pub(crate) const PATHS: [&str; 2] = ["/", "/assets/{file}"];
/// The file that every view begins with.
const INDEX: &str = "/index.html";
/// The page loads its own files only, writes no markup, and stands in no other page. [`Page::asking`] adds the other origins that it may ask.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'; connect-src 'self'";
/// Files whose names have a hash of their contents never change.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// One file, as it is and compressed.
struct File {
    path: &'static str,
    media: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    brotli: &'static [u8],
}

/// The files that `npm run build` in `web` made.
const FILES: &[File] = include!("../web/dist/files.rs");

/// Adds the routes.
pub(crate) fn add_to(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router.route("/", get(index)).route("/assets/{file}", get(asset))
}

/// The page's Content-Security-Policy.
pub(crate) struct Page {
    policy: HeaderValue,
}

impl Page {
    /// Lets it ask this server, and clusters' APIs if they have an address.
    pub(crate) fn asking(clusters: Option<&Clusters>) -> Self {
        let origins = clusters.map(Clusters::origins).unwrap_or_default();
        let asked = [vec![POLICY.to_owned()], origins].concat().join(" ");
        let policy = HeaderValue::try_from(asked).unwrap_or_else(|_| HeaderValue::from_static(POLICY));
        Self { policy }
    }

    /// What is no path of the server: a view of the page for a browser, and nothing for a program.
    pub(crate) fn view(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
        is_view(method, uri, headers).then(|| answer(self, INDEX, headers))
    }
}

/// A file of a page that stands beside this one, such as documentation, under that page's own policy.
pub(crate) fn standalone(media: &'static str, policy: &'static str, text: Bytes) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    (headers, text).into_response()
}

fn is_view(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let is_own = ["/api", "/hooks", "/assets"].iter().any(|folder| {
        uri.path().strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let is_browser = [Method::GET, Method::HEAD].contains(method) && accept.contains("text/html");
    is_browser && !is_own
}

async fn index(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    answer(&app.page, INDEX, &headers)
}

async fn asset(State(app): State<Arc<App>>, Path(file): Path<String>, headers: HeaderMap) -> Response {
    answer(&app.page, &format!("/assets/{file}"), &headers)
}

fn answer(page: &Page, path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        return problem::response(&Refusal::new(RefusalKind::NotFound, "no such file"));
    };
    let (encoding, bytes) = encoded(file, headers);
    let caching = if path == INDEX { "no-cache" } else { FOREVER };
    let said = [
        (header::CONTENT_TYPE, file.media),
        (header::CACHE_CONTROL, caching),
        (header::VARY, "accept-encoding"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ];
    let mut response = (StatusCode::OK, bytes).into_response();
    for (name, value) in said {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, page.policy.clone());
    if let Some(encoding) = encoding {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    response
}

/// The form that the client takes, the smallest first.
fn encoded(file: &File, headers: &HeaderMap) -> (Option<&'static str>, &'static [u8]) {
    let accept = headers.get(header::ACCEPT_ENCODING).and_then(|accept| accept.to_str().ok());
    let accept = accept.unwrap_or_default();
    for (name, bytes) in [("br", file.brotli), ("gzip", file.gzip)] {
        if accept.split(',').any(|range| takes(range, name)) {
            return (Some(name), bytes);
        }
    }
    (None, file.plain)
}

/// Whether one entry of `Accept-Encoding` names an encoding, and not with the weight of nothing (RFC 9110, section 12.4.2).
fn takes(range: &str, name: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let is_named = parts.next().is_some_and(|encoding| encoding.eq_ignore_ascii_case(name));
    let weight = parts.find_map(|part| part.strip_prefix("q=")).and_then(|weight| weight.parse::<f32>().ok());
    is_named && weight.is_none_or(|weight| weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_taken_by_name_and_weight() {
        assert!(takes("gzip", "gzip") && takes(" br;q=0.5", "br") && takes("GZIP; q=1.0", "gzip"));
        assert!(!takes("br;q=0", "br") && !takes("brotli", "br") && !takes("*", "br"));
    }

    #[test]
    fn programs_get_no_page_and_paths_of_the_server_are_none_of_its_views() {
        let mut headers = HeaderMap::new();
        let view = |method: Method, path: &str, headers: &HeaderMap| {
            is_view(&method, &path.parse().unwrap(), headers)
        };
        assert!(!view(Method::GET, "/environments", &headers));
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/html,*/*;q=0.8"));
        assert!(view(Method::GET, "/environments", &headers) && view(Method::GET, "/apis", &headers));
        for path in ["/api", "/api/v1/nothing", "/hooks/v1", "/assets/none.js"] {
            assert!(!view(Method::GET, path, &headers), "{path}");
        }
        assert!(!view(Method::POST, "/environments", &headers));
    }
}
