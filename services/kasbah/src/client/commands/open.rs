//! `kasbah open`: the web page.

use std::io::IsTerminal as _;

use events::Timestamp;
use events::requests::authz::{IssueToken, SecretToken};
use reqwest::{Method, Url};
use serde::Serialize;

use crate::client::failure::Failure;
use crate::client::oidc::open;
use crate::client::print::at;
use crate::client::session::Session;

/// How long a link signs in, in seconds.
const LIFETIME: u64 = 300;

/// How to open it.
#[derive(Debug, clap::Args)]
pub struct Open {
    /// Print the link and open no browser
    #[arg(long)]
    no_open: bool,
}

/// A link that signs in once.
#[derive(Debug, Serialize)]
struct Link {
    url: String,
    expires_at: Option<Timestamp>,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(wanted: Open, session: &Session) -> Result<(), Failure> {
    let body = IssueToken {
        agent: None,
        user: None,
        name: "link to the web page".to_owned(),
        lifetime_seconds: Some(LIFETIME),
        clusters_only: false,
    };
    let issued: SecretToken = session.api.send(Method::POST, &["tokens"], &body).await?;
    let page = session.settings.page.as_deref().unwrap_or(session.settings.server.as_str());
    let link = Link { url: link(page, &issued.secret), expires_at: issued.view.expires_at };
    session.printer.show(&link, |link, style| {
        let until = link.expires_at.map(|end| format!(", until {}", at(end, style.now))).unwrap_or_default();
        format!("{}\n\nThe link signs in once{until}.\n", link.url)
    })?;
    let is_seen = std::io::stdout().is_terminal() && session.is_for_people();
    if is_seen
        && !wanted.no_open
        && let Ok(url) = Url::parse(&link.url)
    {
        let _ = open(&url);
    }
    Ok(())
}

/// The token stands behind the `#`, which a browser sends to nobody.
fn link(page: &str, token: &str) -> String {
    format!("{}/sign-in#{token}", page.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_in_no_part_of_a_link_that_is_sent() {
        let url = Url::parse(&link("https://kasbah.example:8440/", "kasbah_p_x")).unwrap();
        assert_eq!(url.fragment(), Some("kasbah_p_x"));
        assert_eq!((url.path(), url.query()), ("/sign-in", None));
    }
}
