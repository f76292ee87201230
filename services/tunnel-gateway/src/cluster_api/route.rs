//! Which agent's cluster a request means. Pure.

use events::AgentId;
use http::header::{HOST, HeaderMap};
use http::{Request, Uri};

/// The beginning of paths that name an agent.
const AGENTS: &str = "/agents/";

/// Which agent's cluster, and what of it: as it stands in the request line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route<'a> {
    pub(super) agent: AgentId,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    /// By its path, which begins as [`path_of`] the agent.
    pub(super) by_path: bool,
}

/// How paths begin that name an agent.
pub(super) fn path_of(agent: AgentId) -> String {
    format!("{AGENTS}{agent}")
}

/// A request that means no agent, or more than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RouteError {
    #[error(
        "the path names no agent: it must begin with /agents/<id of the agent>, as `kasbah kubeconfig` writes it"
    )]
    NoAgent,
    #[error("the request names two hosts")]
    Hosts,
}

/// What a request means: by its host, if that is an agent's name below `domain`, or else by the beginning of its path.
pub(super) fn route<'a, B>(request: &'a Request<B>, domain: Option<&str>) -> Result<Route<'a>, RouteError> {
    let uri = request.uri();
    let host = host(uri, request.headers())?;
    let query = uri.query();
    if let Some(agent) = domain.and_then(|domain| agent_of_host(host?, domain)) {
        return Ok(Route { agent, path: uri.path(), query, by_path: false });
    }
    let rest = uri.path().strip_prefix(AGENTS).ok_or(RouteError::NoAgent)?;
    let (agent, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, "/"),
    };
    let agent = agent.parse().map_err(|_| RouteError::NoAgent)?;
    Ok(Route { agent, path, query, by_path: true })
}

/// The one host of a request, without its port.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Option<&'a str>, RouteError> {
    let mut hosts = headers.get_all(HOST).iter().map(|value| value.to_str().unwrap_or_default());
    let (header, second) = (hosts.next(), hosts.next());
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let differ =
        header.zip(authority).is_some_and(|(header, authority)| !header.eq_ignore_ascii_case(authority));
    if second.is_some() || differ {
        return Err(RouteError::Hosts);
    }
    let without_port = |host: &'a str| host.rsplit_once(':').map_or(host, |(host, _)| host);
    Ok(authority.or(header).map(without_port))
}

fn agent_of_host(host: &str, domain: &str) -> Option<AgentId> {
    let (label, rest) = host.strip_suffix('.').unwrap_or(host).split_once('.')?;
    rest.eq_ignore_ascii_case(domain).then(|| label.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01a20945-a5cc-7508-b575-0fdafa0c3680";

    fn request(uri: &str, hosts: &[&str]) -> Request<()> {
        let mut request = Request::builder().uri(uri.replace("ID", ID));
        for host in hosts {
            request = request.header(HOST, host.replace("ID", ID));
        }
        request.body(()).unwrap()
    }

    #[test]
    fn a_path_names_an_agent_and_keeps_what_stands_behind_it() {
        for (uri, path, query) in [
            ("/agents/ID/api/v1/pods?watch=1", "/api/v1/pods", Some("watch=1")),
            ("/agents/ID", "/", None),
            ("/agents/ID/", "/", None),
            ("/agents/ID//api/%2e%2e/x", "//api/%2e%2e/x", None),
            ("http://kasbah.example/agents/ID/version", "/version", None),
        ] {
            let request = request(uri, &[]);
            let found = route(&request, None).unwrap();
            assert_eq!((found.agent.to_string().as_str(), found.path, found.query), (ID, path, query));
            assert!(found.by_path);
        }
        for uri in ["/", "/api/v1/pods", "/agents/", "/agents/x/api", "/agents//ID/api", "/Agents/ID/api"] {
            assert_eq!(
                route(&request(uri, &[]), Some("clusters.example")),
                Err(RouteError::NoAgent),
                "{uri}"
            );
        }
    }

    #[test]
    fn a_host_below_the_domain_names_an_agent() {
        let domain = Some("clusters.example");
        for host in ["ID.clusters.example", "ID.Clusters.Example:8443", "ID.clusters.example."] {
            let request = request("/agents/other/x", &[host]);
            let found = route(&request, domain).unwrap();
            assert_eq!((found.agent.to_string().as_str(), found.path), (ID, "/agents/other/x"), "{host}");
        }
        for host in ["ID.other.example", "clusters.example", "x.clusters.example", "a.ID.clusters.example"] {
            assert_eq!(route(&request("/api", &[host]), domain), Err(RouteError::NoAgent), "{host}");
        }
        assert_eq!(route(&request("/api", &["ID.clusters.example"]), None), Err(RouteError::NoAgent));
    }

    #[test]
    fn two_hosts_are_refused() {
        for (uri, hosts) in [
            ("/agents/ID/api", vec!["a", "a"]),
            ("http://a/agents/ID/api", vec!["b"]),
            ("http://a:1/agents/ID/api", vec!["a"]),
        ] {
            assert_eq!(route(&request(uri, &hosts), None), Err(RouteError::Hosts), "{uri}");
        }
        assert!(route(&request("http://A:1/agents/ID/api", &["a:1"]), None).is_ok());
    }
}
