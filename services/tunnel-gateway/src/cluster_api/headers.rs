//! What of a request's headers goes on, and what of an answer's comes back. Pure.

use http::header::{
    ACCEPT, ALT_SVC, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap,
    HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE, STRICT_TRANSPORT_SECURITY, UPGRADE,
};
use http::{Method, Request, Version};
use tunnel::wire::cluster::{OWN_HEADERS, remove, without_the_connections};

/// Who somebody is, and where they are, is ours to say.
const OURS: [HeaderName; 8] = [
    AUTHORIZATION,
    COOKIE,
    EXPECT,
    FORWARDED,
    HOST,
    ORIGIN,
    HeaderName::from_static("x-csrf-token"),
    HeaderName::from_static("x-real-ip"),
];
const OURS_BY_BEGINNING: [&str; 4] = [IMPERSONATE, "x-forwarded-", "x-remote-", OWN_HEADERS];
/// What the API server upgrades to.
const PROTOCOLS: [&str; 2] = ["websocket", "SPDY/3.1"];
const IMPERSONATE: &str = "impersonate-";
/// What a browser would take for the whole host and keep. All clusters answer there, and the gateway: none of them speaks for it.
const OF_THE_HOST: [HeaderName; 6] = [
    ALT_SVC,
    SET_COOKIE,
    STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
];
/// How the protocol of a WebSocket begins that is a ticket.
pub(super) const TICKET_PROTOCOL: &str = "kasbah.ticket.";

/// The headers that go on with a request.
pub(super) fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let mut forwarded = without_the_connections(headers);
    // API servers serve no watch over a WebSocket of which nobody says where it is from.
    let has_origin = headers.get(UPGRADE).is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    remove(&mut forwarded, |name| {
        let text = name.as_str();
        if has_origin && *name == ORIGIN {
            return false;
        }
        OURS.contains(name) || OURS_BY_BEGINNING.iter().any(|beginning| text.starts_with(beginning))
    });
    remove_tickets(&mut forwarded);
    forwarded
}

fn remove_tickets(headers: &mut HeaderMap) {
    let offered: Vec<HeaderValue> = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().cloned().collect();
    if !offered.iter().any(|value| value.to_str().is_ok_and(|value| value.contains(TICKET_PROTOCOL))) {
        return;
    }
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    for value in offered.iter().filter_map(|value| value.to_str().ok()) {
        let protocols = value.split(',').map(str::trim);
        let left: Vec<&str> = protocols.filter(|protocol| !protocol.starts_with(TICKET_PROTOCOL)).collect();
        // What consisted of parts of a header's value is one.
        if let Ok(left) = HeaderValue::from_str(&left.join(", "))
            && !left.is_empty()
        {
            headers.append(SEC_WEBSOCKET_PROTOCOL, left);
        }
    }
}

/// The headers that come back with an answer.
pub(super) fn answered(headers: &HeaderMap) -> HeaderMap {
    let mut answered = without_the_connections(headers);
    remove(&mut answered, |name| OF_THE_HOST.contains(name) || name.as_str().starts_with(OWN_HEADERS));
    answered
}

/// Whether a client wants to be somebody else in the cluster, as `kubectl --as` does.
pub(super) fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with(IMPERSONATE))
}

/// Whether a client looks for groups of kinds (Kubernetes: aggregated discovery).
pub(super) fn is_discovery(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.into_iter().any(|value| value.contains("as=APIGroupDiscoveryList"))
}

/// The protocol that a request's connection is to become.
pub(super) fn upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    let is_wished = request.version() == Version::HTTP_11
        && matches!(*request.method(), Method::GET | Method::POST)
        && asks_to_upgrade(request.headers());
    let known = |value: &&HeaderValue| {
        PROTOCOLS.iter().any(|known| value.as_bytes().eq_ignore_ascii_case(known.as_bytes()))
    };
    request.headers().get(UPGRADE).filter(|_| is_wished).filter(known).cloned()
}

/// Only what is said before a connection becomes another protocol.
pub(super) fn without_body(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
}

fn asks_to_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("upgrade"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        });
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn only_what_is_the_clients_to_say_goes_on() {
        let sent = headers(&[
            ("accept", "application/json"),
            ("accept", "text/html"),
            ("accept-encoding", "gzip"),
            ("content-length", "3"),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("connection", "close, X-Secret"),
            ("connection", "upgrade"),
            ("x-secret", "1"),
            ("upgrade", "websocket"),
            ("keep-alive", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("host", "x"),
            ("impersonate-user", "root"),
            ("impersonate-extra-a", "b"),
            ("x-remote-user", "root"),
            ("x-forwarded-for", "::1"),
            ("forwarded", "for=::1"),
            ("kasbah-pass", "x"),
        ]);
        let forwarded = forwarded(&sent);
        let mut names: Vec<&str> = forwarded.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = [
            "accept",
            "accept-encoding",
            "content-length",
            "sec-websocket-protocol",
            "te",
            "x-stream-protocol-version",
        ];
        assert_eq!(names, expected);
        assert_eq!(forwarded.get_all("accept").iter().count(), 2);
        assert!(impersonates(&sent) && !impersonates(&forwarded));
    }

    #[test]
    fn where_a_page_is_from_goes_on_with_its_websockets_only() {
        let origin = |upgrade: &str| {
            let sent =
                headers(&[("origin", "https://a.example"), ("connection", "upgrade"), ("upgrade", upgrade)]);
            forwarded(&sent).contains_key(ORIGIN)
        };
        assert!(origin("WebSocket"));
        assert!(!origin("SPDY/3.1"));
        assert!(!forwarded(&headers(&[("origin", "https://a.example")])).contains_key(ORIGIN));
    }

    #[test]
    fn answers_come_back_but_for_what_is_of_the_connection_the_host_or_ours() {
        let answered = answered(&headers(&[
            ("content-type", "application/json"),
            ("audit-id", "1"),
            ("warning", "299 - \"a\""),
            ("warning", "299 - \"b\""),
            ("connection", "audit-id"),
            ("transfer-encoding", "chunked"),
            ("kasbah-upgrade", "x"),
            ("set-cookie", "__Host-kasbah-session=x"),
            ("set-cookie", "theme=dark"),
            ("clear-site-data", "\"*\""),
            ("strict-transport-security", "max-age=1"),
            ("alt-svc", "h2=\":1\""),
            ("nel", "{}"),
            ("report-to", "{}"),
        ]));
        assert_eq!(answered.len(), 3);
        assert_eq!(answered.get_all("warning").iter().count(), 2);
    }

    #[test]
    fn an_upgrade_is_one_only_if_the_connection_says_so() {
        let request = |method: Method, version: Version, connection: &str| {
            let request = Request::builder().method(method).version(version);
            let request =
                request.header(CONNECTION, connection).header(UPGRADE, "SPDY/3.1").body(()).unwrap();
            upgrade(&request).is_some()
        };
        assert!(request(Method::POST, Version::HTTP_11, "keep-alive, Upgrade"));
        assert!(request(Method::GET, Version::HTTP_11, "upgrade"));
        assert!(!request(Method::GET, Version::HTTP_11, "keep-alive"));
        assert!(!request(Method::PUT, Version::HTTP_11, "upgrade"));
        assert!(!request(Method::GET, Version::HTTP_2, "upgrade"));
    }
}
