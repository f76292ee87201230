//! Where the page in a browser finds clusters' APIs: it asks them itself, with a session of its own there (decision 0045).

use axum::http::Uri;

/// The address of clusters' APIs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clusters {
    host: String,
    port: Option<u16>,
    /// It is on this machine's loopback, where a browser speaks plain HTTP to it.
    is_loopback: bool,
}

impl Clusters {
    /// By its URL; `None` for one that names no single host, as where each agent has its own.
    #[must_use]
    pub fn at(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https"))?.to_owned();
        let is_loopback = is_loopback(&host);
        Some(Self { host, port: uri.port_u16(), is_loopback })
    }

    /// How a page asks it, that was loaded from a host in plain text or over TLS.
    #[must_use]
    pub fn for_page(&self, page_host: &str, is_plain: bool) -> String {
        match is_plain && self.is_loopback {
            // Of the same host, since a session's cookie goes to the page's own site only.
            true if is_loopback(page_host) => self.written("http", page_host),
            true => self.written("http", &self.host),
            false => self.written("https", &self.host),
        }
    }

    /// All origins under which a page may ask it, those of WebSockets included: to a browser they are others.
    #[must_use]
    pub fn origins(&self) -> Vec<String> {
        let both = |secure: &str, plain: &str| {
            let mut origins = vec![self.written(secure, &self.host)];
            if self.is_loopback {
                origins.extend([self.host.as_str(), "localhost"].map(|host| self.written(plain, host)));
            }
            origins
        };
        [both("https", "http"), both("wss", "ws")].concat()
    }

    fn written(&self, scheme: &str, host: &str) -> String {
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{scheme}://{host}{port}")
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']);
    host == "localhost" || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_this_machine_asks_its_own_host_in_plain_http_and_others_over_tls() {
        let here = Clusters::at("https://127.0.0.1:8443").unwrap();
        assert_eq!(here.for_page("127.0.0.1", true), "http://127.0.0.1:8443");
        assert_eq!(here.for_page("localhost", true), "http://localhost:8443");
        assert_eq!(here.for_page("evil.example; script-src *", true), "http://127.0.0.1:8443");
        assert_eq!(here.for_page("127.0.0.1", false), "https://127.0.0.1:8443");
        for origin in ["https://127.0.0.1:8443", "http://127.0.0.1:8443", "http://localhost:8443"] {
            assert!(here.origins().contains(&origin.to_owned()), "{origin}");
        }
        let there = Clusters::at("https://clusters.example/").unwrap();
        assert_eq!(there.for_page("kasbah.example", false), "https://clusters.example");
        assert_eq!(there.for_page("localhost", true), "https://clusters.example");
        assert_eq!(there.origins(), ["https://clusters.example", "wss://clusters.example"]);
        for none in ["https://{agent}.clusters.example", "http://clusters.example", "clusters.example", ""] {
            assert_eq!(Clusters::at(none), None, "{none}");
        }
    }
}
