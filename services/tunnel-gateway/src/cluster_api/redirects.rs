//! Where an answer leads. All clusters answer under one name, and the gateway as well; whoever follows brings a token or a session along.
//! So an answer leads within its own cluster or nowhere. Pure.

use events::AgentId;
use http::header::{HeaderMap, HeaderValue, LOCATION};
use http::{StatusCode, Uri};

use super::error::{Hop, ProxyError};
use super::route::path_of;

/// The headers of an answer that leads nowhere else: a path of the cluster's own API is one below the agent's, where that is how the
/// request named it (`below`).
pub(super) fn rewrite_location(
    status: StatusCode,
    mut headers: HeaderMap,
    below: Option<AgentId>,
) -> Result<HeaderMap, ProxyError> {
    if !status.is_redirection() || !headers.contains_key(LOCATION) {
        return Ok(headers);
    }
    let inside = inside(&headers).map(|location| match below {
        Some(agent) => format!("{}{location}", path_of(agent)),
        None => location.to_owned(),
    });
    let location = inside.and_then(|location| HeaderValue::try_from(location).ok()).ok_or_else(|| {
        let message =
            format!("the answer is {status} and redirects to an address outside this cluster's API, which is not allowed");
        ProxyError::new(StatusCode::BAD_GATEWAY, Hop::Gateway, message)
    })?;
    headers.insert(LOCATION, location);
    Ok(headers)
}

/// A path with its query that stays below what is put in front of it, however a client reads it.
fn inside(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(LOCATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let location = value.to_str().ok()?;
    let is_plain = location.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_rooted = location.starts_with('/') && !location.starts_with("//");
    let uri: Uri = location.parse().ok().filter(|_| is_plain && is_rooted)?;
    let dots =
        |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    (!uri.path().split('/').any(dots)).then_some(location)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(status: u16, locations: &[&str], below: Option<AgentId>) -> Option<Vec<String>> {
        let mut headers = HeaderMap::new();
        for location in locations {
            headers.append(LOCATION, HeaderValue::from_str(location).unwrap());
        }
        let kept = rewrite_location(StatusCode::from_u16(status).unwrap(), headers, below).ok()?;
        Some(kept.get_all(LOCATION).iter().map(|value| value.to_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn an_answer_leads_within_its_cluster() {
        let agent = AgentId(uuid::Uuid::nil());
        let path = "/api/v1/namespaces/a/services/b/proxy/c?next=../d";
        assert_eq!(led(302, &[path], Some(agent)), Some(vec![format!("/agents/{agent}{path}")]));
        assert_eq!(led(302, &[path], None), Some(vec![path.to_owned()]));
    }

    #[test]
    fn an_answer_that_leads_elsewhere_is_none() {
        for location in [
            "https://elsewhere.example/",
            "//elsewhere.example/",
            "/\\elsewhere.example",
            "/\t/elsewhere.example",
            "/../other/api",
            "/a/%2E%2e/other",
            "/a/.%2e",
            "../other",
            "other",
            "",
        ] {
            for status in [301, 302, 303, 307, 308, 300] {
                assert_eq!(led(status, &[location], None), None, "{status} {location:?}");
            }
        }
        assert_eq!(led(302, &["/a", "/b"], None), None, "two of them");
    }

    #[test]
    fn what_sends_nobody_anywhere_stays_as_it_is() {
        let elsewhere = "https://elsewhere.example/";
        assert_eq!(led(201, &[elsewhere], None), Some(vec![elsewhere.to_owned()]));
        assert_eq!(led(304, &[], None), Some(Vec::new()));
    }
}
