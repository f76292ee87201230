//! Which pages may read the answers (Fetch standard, CORS protocol).

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use tunnel::wire::cluster::remove;

use super::super::AnswerBody;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
/// What of an answer's headers a page may read beside those that each may.
const READABLE: HeaderValue = HeaderValue::from_static("Audit-Id, Retry-After, Warning");
/// Seconds for which a browser need not ask again.
const ASKED_FOR: HeaderValue = HeaderValue::from_static("600");
const YES: HeaderValue = HeaderValue::from_static("true");
const VARIES: HeaderValue = HeaderValue::from_static("Origin");

/// The origin of pages, as browsers write it (RFC 6454, section 6.2): `https://console.example`, or with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(HeaderValue);

/// A text is no origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an origin: {problem}; write it as browsers do, such as https://console.example or http://localhost:3000"
)]
pub struct InvalidOrigin {
    text: String,
    problem: &'static str,
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let not = |problem| InvalidOrigin { text: text.to_owned(), problem };
        if text.contains('*') {
            return Err(not("patterns are not supported, name each origin"));
        }
        let uri: Uri = text.parse().map_err(|_| not("it is not a URL"))?;
        let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme));
        let scheme = scheme.ok_or_else(|| not("it begins with neither https:// nor http://"))?;
        let authority = uri.authority().ok_or_else(|| not("it names no host"))?;
        let default_port = if scheme == "https" { 443 } else { 80 };
        if authority.port_u16() == Some(default_port) {
            return Err(not("browsers omit this port"));
        }
        let written = format!("{scheme}://{}", authority.as_str().to_ascii_lowercase());
        if written != text || authority.as_str().contains('@') {
            return Err(not("it has more than a scheme, a host in lower case and a port"));
        }
        HeaderValue::from_str(text).map(Self).map_err(|_| not("it has characters that are invalid in a host"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

/// The origin of a request's page, if it is let in.
pub(in super::super) fn allowed<'a>(origins: &'a [Origin], headers: &HeaderMap) -> Option<&'a Origin> {
    let mut values = headers.get_all(ORIGIN).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    origins.iter().find(|origin| origin.0 == *value)
}

/// The answer to a browser that asks whether a page may send a request: nothing of it goes on.
pub(in super::super) fn preflight<B>(
    origins: &[Origin],
    request: &Request<B>,
) -> Option<Response<AnswerBody>> {
    let headers = request.headers();
    let asks = request.method() == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if origins.is_empty() || !asks {
        return None;
    }
    let mut answer: Response<AnswerBody> =
        Response::new(BodyExt::boxed_unsync(Empty::<Bytes>::new().map_err(|never| match never {})));
    if allowed(origins, headers).is_none() {
        *answer.status_mut() = StatusCode::FORBIDDEN;
        return Some(answer);
    }
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let said = answer.headers_mut();
    said.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    said.insert(ACCESS_CONTROL_MAX_AGE, ASKED_FOR);
    if let Some(wished) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        said.insert(ACCESS_CONTROL_ALLOW_HEADERS, wished.clone());
    }
    Some(answer)
}

/// Shows an answer to the page, or to nobody: what the API server itself says of origins is meant for other addresses.
pub(in super::super) fn add_cors_headers(
    origins: &[Origin],
    origin: Option<&Origin>,
    answer: &mut HeaderMap,
) {
    if origins.is_empty() {
        return;
    }
    let ours = |name: &str| {
        [ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_ALLOW_HEADERS]
            .iter()
            .any(|header| header.as_str() == name)
    };
    remove(answer, |name| name.as_str().starts_with("access-control-") && !ours(name.as_str()));
    answer.append(VARY, VARIES);
    let Some(origin) = origin else { return };
    answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.0.clone());
    answer.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, YES);
    answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READABLE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        for good in ["https://console.example", "http://localhost:3000", "https://[::1]:8443"] {
            assert_eq!(good.parse::<Origin>().unwrap().to_string(), good);
        }
        for (bad, problem) in [
            ("", "not a URL"),
            ("*", "pattern"),
            ("https://*.example", "pattern"),
            ("console.example", "begins with neither"),
            ("ftp://console.example", "begins with neither"),
            ("null", "begins with neither"),
            ("https://console.example/", "more than"),
            ("https://console.example/x", "more than"),
            ("https://a@console.example", "more than"),
            ("https://Console.example", "more than"),
            ("https://console.example:443", "omit this port"),
            ("http://console.example:80", "omit this port"),
        ] {
            let error = bad.parse::<Origin>().unwrap_err().to_string();
            assert!(error.contains(problem), "{bad}: {error}");
        }
    }

    #[test]
    fn one_page_is_let_in_and_none_that_looks_like_it() {
        let origins = ["https://console.example".parse().unwrap()];
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ORIGIN, HeaderValue::from_str(value).unwrap());
            }
            allowed(&origins, &headers).is_some()
        };
        assert!(of(&["https://console.example"]));
        for others in [
            &["http://console.example"][..],
            &["https://console.example:444"],
            &["https://console.example.evil.example"],
            &["https://evil.example"],
            &["null"],
            &["https://console.example", "https://console.example"],
            &[],
        ] {
            assert!(!of(others), "{others:?}");
        }
    }
}
