//! Which headers go on to the API server, and which come back.

use events::pass::{AccessAs, Impersonated};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tunnel::wire::cluster::{OWN_HEADERS, remove, without_the_connections};

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const IMPERSONATE_UID: HeaderName = HeaderName::from_static("impersonate-uid");
const IMPERSONATE_EXTRA: &str = "impersonate-extra-";

/// What says who somebody is, or where they mean to be: the agent says both by itself.
const OF_THE_ASKER: [HeaderName; 3] = [AUTHORIZATION, COOKIE, HOST];
/// The same, by what a name begins with: impersonation, and a proxy in front that authenticates.
const OF_THE_ASKER_IN_GENERAL: [&str; 3] = ["impersonate-", "x-remote-", OWN_HEADERS];
/// How browsers hand a bearer token to an API server: as a protocol of a WebSocket.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
/// An API server lowers names of headers before it decodes them, so capitals are encoded too.
const EXTRA_KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Somebody cannot be named to the API server as what they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotNameable {
    #[error("the pass names no user: without a user name the agent itself would act")]
    Nobody,
    #[error(
        "the pass's {what} is not valid in a header: it is empty, begins or ends with a space, or has control characters"
    )]
    Text { what: &'static str },
    #[error("the pass has an extra field without a name")]
    ExtraKey,
}

/// The headers of a request as it goes on.
pub(super) fn to_api_server(came: &HeaderMap, access_as: &AccessAs) -> Result<HeaderMap, NotNameable> {
    let mut headers = without_the_connections(came);
    remove(&mut headers, is_of_the_asker);
    remove_bearer_protocol(&mut headers);
    match access_as {
        AccessAs::Agent => {}
        AccessAs::Impersonated(whom) => impersonate(&mut headers, whom)?,
    }
    Ok(headers)
}

/// The headers of an answer as it goes back. No cookie: none would come again.
pub(super) fn from_api_server(came: &HeaderMap) -> HeaderMap {
    let mut headers = without_the_connections(came);
    headers.remove(SET_COOKIE);
    remove(&mut headers, |name| name.as_str().starts_with(OWN_HEADERS));
    headers
}

/// Asks that the connection becomes another protocol. What the body carries then is none of the request's.
pub(super) fn ask_for_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, protocol);
}

fn is_of_the_asker(name: &HeaderName) -> bool {
    OF_THE_ASKER.contains(name)
        || OF_THE_ASKER_IN_GENERAL.iter().any(|beginning| name.as_str().starts_with(beginning))
}

fn remove_bearer_protocol(headers: &mut HeaderMap) {
    let offered: Vec<HeaderValue> = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().cloned().collect();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    for value in offered {
        let is_bearer = |protocol: &[u8]| protocol.starts_with(BEARER_PROTOCOL.as_bytes());
        let protocols = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let left: Vec<&[u8]> = protocols.filter(|protocol| !is_bearer(protocol)).collect();
        // What consisted of parts of a header's value is one.
        if let Ok(left) = HeaderValue::from_bytes(&left.join(&b", "[..]))
            && !left.is_empty()
        {
            headers.append(SEC_WEBSOCKET_PROTOCOL, left);
        }
    }
}

fn impersonate(headers: &mut HeaderMap, whom: &Impersonated) -> Result<(), NotNameable> {
    if whom.username.trim().is_empty() {
        return Err(NotNameable::Nobody);
    }
    headers.insert(IMPERSONATE_USER, named("user name", &whom.username)?);
    for group in &whom.groups {
        headers.append(IMPERSONATE_GROUP, named("group", group)?);
    }
    if !whom.uid.is_empty() {
        headers.insert(IMPERSONATE_UID, named("uid", &whom.uid)?);
    }
    for (key, values) in &whom.extra {
        let name = format!("{IMPERSONATE_EXTRA}{}", extra_key(key));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| NotNameable::ExtraKey)?;
        if key.is_empty() {
            return Err(NotNameable::ExtraKey);
        }
        for value in values {
            headers.append(&name, named("extra field", value)?);
        }
    }
    Ok(())
}

fn extra_key(key: &str) -> String {
    key.chars()
        .map(|letter| match letter {
            'A'..='Z' => format!("%{:02x}", u32::from(letter)),
            letter => utf8_percent_encode(letter.encode_utf8(&mut [0; 4]), EXTRA_KEY).to_string(),
        })
        .collect()
}

/// A text as the API server reads it again; it cuts spaces off, and somebody else would be meant.
fn named(what: &'static str, text: &str) -> Result<HeaderValue, NotNameable> {
    let refused = NotNameable::Text { what };
    if text.is_empty() || text.trim() != text {
        return Err(refused);
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| refused)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers.iter().map(header) {
            map.append(name, value);
        }
        map
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut shown: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        shown.sort();
        shown
    }

    fn ann() -> Impersonated {
        Impersonated { username: "ann".to_owned(), groups: vec!["a".to_owned()], ..Impersonated::default() }
    }

    #[test]
    fn what_says_who_somebody_is_comes_from_the_pass_alone() {
        let came = map(&[
            ("accept", "application/json"),
            ("authorization", "Bearer x"),
            ("cookie", "x"),
            ("host", "x"),
            ("Impersonate-User", "root"),
            ("impersonate-group", "system:masters"),
            ("impersonate-extra-a", "b"),
            ("impersonate-new", "b"),
            ("x-remote-user", "root"),
            ("X-Remote-Extra-A", "b"),
            ("kasbah-pass", "x"),
            ("kasbah-upgrade", "x"),
            ("user-agent", "kubectl"),
            ("accept-encoding", "gzip"),
        ]);
        let kept = ["accept-encoding: gzip", "accept: application/json", "user-agent: kubectl"];
        assert_eq!(shown(&to_api_server(&came, &AccessAs::Agent).unwrap()), kept);
        let impersonated = to_api_server(&came, &AccessAs::Impersonated(ann())).unwrap();
        let mut expected = kept.to_vec();
        expected.splice(2..2, ["impersonate-group: a", "impersonate-user: ann"]);
        assert_eq!(shown(&impersonated), expected);
    }

    #[test]
    fn a_connection_header_takes_away_what_came_and_nothing_that_is_set_here() {
        let came = map(&[
            ("connection", "close, Impersonate-User,x-mine"),
            ("connection", "impersonate-group, not a name"),
            ("x-mine", "1"),
            ("keep-alive", "1"),
            ("te", "gzip;q=0.5, Trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-theirs", "1"),
        ]);
        let went = to_api_server(&came, &AccessAs::Impersonated(ann())).unwrap();
        assert_eq!(
            shown(&went),
            ["impersonate-group: a", "impersonate-user: ann", "te: trailers", "x-theirs: 1"]
        );
    }

    #[test]
    fn everything_of_somebody_is_said_and_keys_survive_the_header() {
        let extra = BTreeMap::from([
            ("a.example/Some%Key é".to_owned(), vec!["1".to_owned(), "2, 3".to_owned()]),
            ("none".to_owned(), Vec::new()),
            ("scopes".to_owned(), vec!["é".to_owned()]),
        ]);
        let groups = vec!["a".to_owned(), "b,c".to_owned()];
        let whom =
            Impersonated { username: "kasbah:user:ann".to_owned(), groups, uid: "7".to_owned(), extra };
        let went = to_api_server(&HeaderMap::new(), &AccessAs::Impersonated(whom)).unwrap();
        let all = |name: &str| -> Vec<_> {
            went.get_all(name)
                .iter()
                .map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap())
                .collect()
        };
        assert_eq!(all("impersonate-user"), ["kasbah:user:ann"]);
        assert_eq!(all("impersonate-group"), ["a", "b,c"]);
        assert_eq!(all("impersonate-uid"), ["7"]);
        assert_eq!(all("impersonate-extra-a.example%2f%53ome%25%4bey%20%c3%a9"), ["1", "2, 3"]);
        assert_eq!(all("impersonate-extra-scopes"), ["é"]);
        assert_eq!(went.len(), 7);
    }

    #[test]
    fn whoever_the_api_server_would_take_for_another_is_refused() {
        let refused = |whom: Impersonated| {
            to_api_server(&HeaderMap::new(), &AccessAs::Impersonated(whom)).expect_err("refused")
        };
        for username in ["", " ", "\t"] {
            assert_eq!(refused(Impersonated { username: username.to_owned(), ..ann() }), NotNameable::Nobody);
        }
        for text in [" ann", "ann ", "a\nb", "a\0"] {
            let whom = Impersonated { username: text.to_owned(), ..ann() };
            assert_eq!(refused(whom), NotNameable::Text { what: "user name" }, "{text:?}");
            let whom = Impersonated { groups: vec![text.to_owned()], ..ann() };
            assert_eq!(refused(whom), NotNameable::Text { what: "group" }, "{text:?}");
        }
        assert_eq!(
            refused(Impersonated { groups: vec![String::new()], ..ann() }),
            NotNameable::Text { what: "group" }
        );
        let extra = BTreeMap::from([(String::new(), vec!["a".to_owned()])]);
        assert_eq!(refused(Impersonated { extra, ..ann() }), NotNameable::ExtraKey);
    }

    #[test]
    fn a_token_among_the_protocols_of_a_websocket_stays_here() {
        let came = map(&[
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io,v4.channel.k8s.io",
            ),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0"),
            ("sec-websocket-key", "x"),
            ("content-length", "0"),
        ]);
        let mut went = to_api_server(&came, &AccessAs::Agent).unwrap();
        ask_for_upgrade(&mut went, HeaderValue::from_static("websocket"));
        assert_eq!(
            shown(&went),
            [
                "connection: Upgrade",
                "sec-websocket-key: x",
                "sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io",
                "upgrade: websocket"
            ]
        );
    }

    #[test]
    fn an_answer_keeps_its_headers_but_those_of_its_connection_cookies_and_ours() {
        let came = map(&[
            ("content-type", "application/json"),
            ("audit-id", "1"),
            ("warning", "299 - \"a\""),
            ("warning", "299 - \"b\""),
            ("set-cookie", "a=b"),
            ("kasbah-answered-by", "agent"),
            ("connection", "upgrade, x-mine"),
            ("upgrade", "SPDY/3.1"),
            ("x-mine", "1"),
        ]);
        let kept =
            ["audit-id: 1", "content-type: application/json", "warning: 299 - \"a\"", "warning: 299 - \"b\""];
        assert_eq!(shown(&from_api_server(&came)), kept);
    }
}
