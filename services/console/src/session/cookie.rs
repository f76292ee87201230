//! The cookies of the page. No script reads any of them.

use axum::http::{HeaderMap, header};

use super::Visit;

/// What a browser keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// The token of a session.
    Session,
    /// A sign-in at an identity provider that was begun.
    SignIn,
    /// Why one failed.
    Refused,
}

impl Kept {
    const fn name(self) -> &'static str {
        match self {
            Self::Session => "kasbah-console",
            Self::SignIn => "kasbah-sign-in",
            Self::Refused => "kasbah-refused",
        }
    }

    /// The provider's site leads the browser back here, and the cookie of the sign-in has to come along. Browsers do not send the others when
    /// another site leads here.
    const fn same_site(self) -> &'static str {
        match self {
            Self::SignIn => "Lax",
            Self::Session | Self::Refused => "Strict",
        }
    }

    /// With this beginning a browser takes it from this host alone, over TLS, for all paths (RFC 6265bis, section 4.1.3.2).
    fn secure_name(self) -> String {
        format!("__Host-{}", self.name())
    }

    /// On the loopback there is no TLS, and cookies do not tell ports apart: several servers of a machine have a name each.
    fn plain_name(self, headers: &HeaderMap) -> String {
        let port = host(headers).rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80_u16);
        format!("{}-{port}", self.name())
    }

    /// The names that it may have here.
    pub(super) fn names(self, headers: &HeaderMap) -> [String; 2] {
        [self.secure_name(), self.plain_name(headers)]
    }
}

/// The host that a browser asked, with its port where it has one.
pub(super) fn host(headers: &HeaderMap) -> &str {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// The same without its port.
pub(super) fn page_host(headers: &HeaderMap) -> &str {
    let host = host(headers);
    host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(host, |(host, _)| host)
}

/// How a browser is to keep something.
pub(super) struct Cookie {
    name: String,
    attributes: String,
}

impl Cookie {
    pub(super) fn of(kept: Kept, visit: Visit<'_>) -> Self {
        let Visit { app, headers, is_plain } = visit;
        let site = kept.same_site();
        // Behind whatever ends TLS for it, the server itself speaks plain text.
        if is_plain || !app.api_url.starts_with("https://") {
            let attributes = format!("Path=/api; HttpOnly; SameSite={site}");
            return Self { name: kept.plain_name(headers), attributes };
        }
        Self { name: kept.secure_name(), attributes: format!("Path=/; Secure; HttpOnly; SameSite={site}") }
    }

    /// With a value that fits into a cookie, for so many seconds, or until the browser ends.
    pub(super) fn with(&self, value: &str, seconds: Option<i64>) -> String {
        let Self { name, attributes } = self;
        let age = seconds.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
        format!("{name}={value}; {attributes}{age}")
    }

    pub(super) fn ended(&self) -> String {
        let Self { name, attributes } = self;
        format!("{name}=; {attributes}; Max-Age=0")
    }
}
