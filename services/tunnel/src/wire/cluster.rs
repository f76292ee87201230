//! Requests to the cluster's API on their way to an agent: below [`super::path::CLUSTER`], with method, path, query, headers and body
//! as the person or job sent them, but for their credentials.
//!
//! A connection that becomes another protocol (a WebSocket, SPDY) is a request whose body never ends by itself: it carries what the
//! client says, the answer's body what the API server says, and the end of either is that side's half-close.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use events::pass::SignedPass;
use events::root::RootLink;
use http::Method;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE as UPGRADE_HEADER,
};

/// The pass that lets a request through.
pub const PASS: HeaderName = HeaderName::from_static("kasbah-pass");
/// How an agent comes from an earlier root to the one that signed the pass; missing while there was but one.
pub const ROOTS: HeaderName = HeaderName::from_static("kasbah-roots");
/// Of a request: the protocol that the connection is to become, as in `Upgrade`. Of an answer, whose status is then 200: the one that it
/// became.
pub const UPGRADE: HeaderName = HeaderName::from_static("kasbah-upgrade");
/// Of an answer: who gave it. Only an agent's own answer has it; what else comes is the API server's.
pub const ANSWERED_BY: HeaderName = HeaderName::from_static("kasbah-answered-by");
/// What [`ANSWERED_BY`] says when the agent answers for itself.
pub const AGENT: HeaderValue = HeaderValue::from_static("agent");
/// The same when it answers for an API server that does not.
pub const API_SERVER: HeaderValue = HeaderValue::from_static("api-server");
/// What the names of this project's own headers begin with. Neither a client nor an API server gets one through.
pub const OWN_HEADERS: &str = "kasbah-";

/// Whether a request changes nothing, so that it may be asked twice where nothing was heard of it. What becomes a session is none.
#[must_use]
pub fn only_reads(method: &Method, headers: &HeaderMap) -> bool {
    method.is_safe() && !headers.contains_key(UPGRADE)
}

/// Headers of one connection and not of what is said over it (RFC 9110, section 7.6.1).
const OF_THE_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE_HEADER,
];

/// What of headers is passed on: not those of the connection that they came over, nor those that it names. Only that somebody takes
/// trailers is said again, as they are passed on, too (RFC 9110, section 6.5).
#[must_use]
pub fn without_the_connections(came: &HeaderMap) -> HeaderMap {
    let mut headers = came.clone();
    for value in came.get_all(CONNECTION) {
        let named = value.as_bytes().split(|byte| *byte == b',');
        for name in named.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()) {
            headers.remove(name);
        }
    }
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
    let offered = came.get_all(TE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    if offered.into_iter().any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers")) {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    headers
}

/// Removes all headers that are not wanted.
pub fn remove(headers: &mut HeaderMap, is_unwanted: impl Fn(&HeaderName) -> bool) {
    let unwanted: Vec<HeaderName> = headers.keys().filter(|name| is_unwanted(name)).cloned().collect();
    for name in unwanted {
        headers.remove(name);
    }
}

/// A header that is no pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the header Kasbah-Pass is missing or invalid")]
pub struct NoPass;

/// A pass as a header's value.
///
/// # Errors
/// Never with a pass; the header type wants to be asked.
pub fn pass_to_header(pass: &SignedPass) -> Result<HeaderValue, NoPass> {
    let [body, signature] = [&pass.pass, &pass.signature].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
    HeaderValue::from_str(&format!("{body}.{signature}")).map_err(|_| NoPass)
}

/// The one pass in a request's headers. Nothing of it is verified.
///
/// # Errors
/// When there is none, or more than one.
pub fn pass_from_headers(headers: &HeaderMap) -> Result<SignedPass, NoPass> {
    let mut values = headers.get_all(PASS).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(NoPass) };
    let (body, signature) = value.to_str().ok().and_then(|text| text.split_once('.')).ok_or(NoPass)?;
    let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| NoPass);
    Ok(SignedPass { pass: decoded(body)?, signature: decoded(signature)? })
}

/// Links as a header's value; none of none.
///
/// # Errors
/// Never with links; encoder and header type want to be asked.
pub fn roots_to_header(links: &[RootLink]) -> Result<Option<HeaderValue>, NoPass> {
    if links.is_empty() {
        return Ok(None);
    }
    let encoded = URL_SAFE_NO_PAD.encode(events::encode(&links.to_vec()).map_err(|_| NoPass)?);
    HeaderValue::from_str(&encoded).map(Some).map_err(|_| NoPass)
}

/// The links in a request's headers; nothing of what are none. Nothing of them is verified.
#[must_use]
pub fn roots_from_headers(headers: &HeaderMap) -> Vec<RootLink> {
    let decoded = headers.get(ROOTS).and_then(|value| URL_SAFE_NO_PAD.decode(value).ok());
    decoded.and_then(|encoded| events::decode(&encoded).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_survives_its_header_and_there_is_only_one() {
        let pass = SignedPass { pass: vec![0, 255, 3], signature: vec![7; 64] };
        let mut headers = HeaderMap::new();
        assert_eq!(pass_from_headers(&headers), Err(NoPass));
        headers.insert(PASS, pass_to_header(&pass).unwrap());
        assert_eq!(pass_from_headers(&headers), Ok(pass.clone()));
        headers.append(PASS, pass_to_header(&pass).unwrap());
        assert_eq!(pass_from_headers(&headers), Err(NoPass), "two of them");
        for wrong in ["", "a", "a.b.c", "!.!", "AA.A"] {
            headers.insert(PASS, HeaderValue::from_static(wrong));
            assert_eq!(pass_from_headers(&headers), Err(NoPass), "{wrong}");
        }
    }
}
