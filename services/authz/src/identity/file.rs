//! The operator's file of identity providers.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chassis::args::parse_duration;
use events::requests::authz::ProviderKind;
use reqwest::Url;
use serde::Deserialize;
use world::World;
use zeroize::Zeroizing;

use crate::checks;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Longest issuer, audience and repositories.
const MAXIMUM_TEXT: usize = 2048;
const GITHUB_ISSUER_HOST: &str = "token.actions.githubusercontent.com";

/// Why the operator's file names no identity providers.
#[derive(Debug, thiserror::Error)]
pub enum ProvidersError {
    /// The file cannot be read.
    #[error("cannot read {}: {detail}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        detail: std::io::Error,
    },
    /// The file is no list of providers.
    #[error("{} holds no list of identity providers: {detail}; write them under identity_providers", path.display())]
    NoList {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        detail: String,
    },
    /// One of its providers is wrong.
    #[error("{}, identity provider {provider}: {detail}", path.display())]
    Provider {
        /// Which file.
        path: PathBuf,
        /// Its name, or else its number in the file.
        provider: String,
        /// The field, what is wrong with it, and what to do.
        detail: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    identity_providers: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    kind: ProviderKind,
    issuer: String,
    audience: String,
    ca_file: Option<PathBuf>,
    repositories: Option<String>,
    token_lifetime: Option<String>,
    login_claim: Option<String>,
    scopes: Option<Vec<String>>,
    client_secret: Option<String>,
    page_client_id: Option<String>,
    page_client_secret: Option<String>,
}

/// The client that the web page is at a provider of people.
pub(super) struct PageClient {
    pub(super) id: String,
    /// Known to the server alone.
    pub(super) secret: Option<Zeroizing<String>>,
}

/// A provider as the operator wants it, checked.
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) kind: ProviderKind,
    pub(super) issuer: String,
    pub(super) audience: String,
    pub(super) certificate_authority: Option<String>,
    /// Where repositories are, without a slash at its end.
    pub(super) repositories: String,
    pub(super) token_lifetime: Duration,
    pub(super) login_claim: String,
    pub(super) scopes: Vec<String>,
    pub(super) client_secret: Option<String>,
    pub(super) page: Option<PageClient>,
}

impl Settings {
    /// Whether tokens for this audience are for Kasbah.
    pub(super) fn takes(&self, audience: &str) -> bool {
        self.audience == audience || self.page.as_ref().is_some_and(|page| page.id == audience)
    }
}

/// Reads and checks the file.
pub(super) fn read(path: &Path, world: &World) -> Result<Vec<Settings>, ProvidersError> {
    let no_list = |detail: String| ProvidersError::NoList { path: path.to_owned(), detail };
    let bytes =
        world.disk.read(path).map_err(|detail| ProvidersError::File { path: path.to_owned(), detail })?;
    let text = String::from_utf8(bytes).map_err(|_| no_list("it is not UTF-8 text".to_owned()))?;
    // A snippet could show a client_secret.
    let options = serde_saphyr::options! { with_snippet: false };
    let file: File = serde_saphyr::from_str_with_options(&text, options)
        .map_err(|error| no_list(error.to_string().trim().to_owned()))?;
    let mut providers: Vec<Settings> = Vec::new();
    for (index, entry) in file.identity_providers.into_iter().enumerate() {
        let name = entry.get("name").and_then(serde_json::Value::as_str).map(shortened);
        let checked = parse(entry).and_then(|entry| {
            differs(&entry, &providers)?;
            check(entry, path, world)
        });
        let provider = name.unwrap_or_else(|| format!("number {}", index + 1));
        let wrong = |detail| ProvidersError::Provider { path: path.to_owned(), provider, detail };
        providers.push(checked.map_err(wrong)?);
    }
    Ok(providers)
}

/// The beginning of a foreign text, safe to print.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 100;
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().count() > SHOWN { format!("{shown}…") } else { shown }
}

fn parse(entry: serde_json::Value) -> Result<Entry, String> {
    serde_path_to_error::deserialize(entry).map_err(|error| {
        let field = error.path().to_string();
        match field.as_str() {
            "." => format!("{}; see the example in the documentation", error.inner()),
            secret @ ("client_secret" | "page_client_secret") => format!("{secret}: must be text"),
            _ => format!("{field}: {}", error.inner()),
        }
    })
}

fn differs(entry: &Entry, others: &[Settings]) -> Result<(), String> {
    if others.iter().any(|other| other.name == entry.name) {
        return Err("name: another provider has it: choose a unique name".to_owned());
    }
    let audiences = [Some(&entry.audience), entry.page_client_id.as_ref()];
    let is_taken = |other: &&Settings| audiences.iter().flatten().any(|audience| other.takes(audience));
    let same = others.iter().filter(|other| other.issuer == entry.issuer).find(is_taken);
    same.map_or(Ok(()), |other| {
        Err(format!(
            "audience: {} has the same issuer and audience: give each provider its own audience",
            other.name
        ))
    })
}

fn check(entry: Entry, path: &Path, world: &World) -> Result<Settings, String> {
    checks::name("name", &entry.name).map_err(|refusal| format!("name: {}", refusal.message))?;
    only_where_it_means_something(&entry)?;
    let issuer = secure_url(&entry.issuer).map_err(|what| format!("issuer: {what}"))?;
    check_text("audience", &entry.audience)?;
    let is_of_people = entry.kind == ProviderKind::People;
    let login_claim = entry.login_claim.unwrap_or_else(|| "email".to_owned());
    check_text("login_claim", &login_claim)?;
    let page = page_client(entry.page_client_id, entry.page_client_secret)?;
    Ok(Settings {
        repositories: repositories(entry.repositories.as_deref(), entry.kind, &entry.issuer, &issuer)?,
        token_lifetime: token_lifetime(entry.token_lifetime.as_deref(), is_of_people)?,
        scopes: if is_of_people { scopes(entry.scopes)? } else { Vec::new() },
        certificate_authority: entry.ca_file.map(|file| authority(&file, path, world)).transpose()?,
        name: entry.name,
        kind: entry.kind,
        issuer: entry.issuer,
        audience: entry.audience,
        login_claim,
        client_secret: entry.client_secret,
        page,
    })
}

fn page_client(id: Option<String>, secret: Option<String>) -> Result<Option<PageClient>, String> {
    let Some(id) = id else {
        return match secret {
            Some(_) => Err("page_client_secret: is of no use without page_client_id".to_owned()),
            None => Ok(None),
        };
    };
    check_text("page_client_id", &id)?;
    Ok(Some(PageClient { id, secret: secret.map(Zeroizing::new) }))
}

fn only_where_it_means_something(entry: &Entry) -> Result<(), String> {
    let is_of_people = entry.kind == ProviderKind::People;
    let of_people = [
        ("login_claim", entry.login_claim.is_some()),
        ("scopes", entry.scopes.is_some()),
        ("client_secret", entry.client_secret.is_some()),
        ("page_client_id", entry.page_client_id.is_some()),
        ("page_client_secret", entry.page_client_secret.is_some()),
    ];
    let of_jobs = [("repositories", entry.repositories.is_some())];
    let (others, whose) = if is_of_people { (&of_jobs[..], "jobs") } else { (&of_people[..], "people") };
    match others.iter().find(|(_, given)| *given) {
        Some((field, _)) => Err(format!("{field}: is for providers of {whose} only: remove it")),
        None => Ok(()),
    }
}

/// A URL that may be dialled: over TLS, or on this machine.
pub(super) fn secure_url(text: &str) -> Result<Url, String> {
    let wrong = |what: &str| Err(format!("{what}: write it as https://gitlab.example.org"));
    if text.len() > MAXIMUM_TEXT || text.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
        return wrong("must be a URL of at most 2048 characters without spaces");
    }
    let Ok(url) = Url::parse(text) else { return wrong("is not a URL") };
    let is_here = url.host_str().is_some_and(is_loopback);
    if !(url.scheme() == "https" || url.scheme() == "http" && is_here) {
        return wrong("must begin with https:// (http:// is for hosts on this machine alone)");
    }
    if text.contains('@') {
        return wrong("must not contain a user name or password");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return wrong("must not have a query or a fragment");
    }
    Ok(url)
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn check_text(field: &str, text: &str) -> Result<(), String> {
    let is_good = !text.is_empty()
        && text.len() <= MAXIMUM_TEXT
        && !text.chars().any(|letter| letter.is_control() || letter.is_whitespace());
    if is_good {
        Ok(())
    } else {
        Err(format!("{field}: must be 1 to {MAXIMUM_TEXT} characters without spaces"))
    }
}

fn repositories(
    given: Option<&str>,
    kind: ProviderKind,
    issuer: &str,
    issuer_url: &Url,
) -> Result<String, String> {
    let Some(text) = given else {
        return Ok(match kind {
            ProviderKind::GithubJobs if issuer_url.host_str() == Some(GITHUB_ISSUER_HOST) => {
                "https://github.com".to_owned()
            }
            ProviderKind::GithubJobs => {
                let path = issuer_url.path();
                let whole = issuer_url.as_str();
                whole.strip_suffix(path).unwrap_or(whole).trim_end_matches('/').to_owned()
            }
            ProviderKind::GitlabJobs | ProviderKind::People => issuer.trim_end_matches('/').to_owned(),
        });
    };
    check_text("repositories", text)?;
    if !(text.starts_with('/') || text.starts_with("file:///")) {
        secure_url(text).map_err(|what| format!("repositories: {what}, or as an absolute path"))?;
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn token_lifetime(given: Option<&str>, is_of_people: bool) -> Result<Duration, String> {
    let (default, longest, shown) =
        if is_of_people { (12 * HOUR, 30 * DAY, "30d") } else { (HOUR, 24 * HOUR, "24h") };
    let Some(text) = given else { return Ok(Duration::from_secs(default)) };
    let lifetime = parse_duration(text).map_err(|error| format!("token_lifetime: {error}"))?;
    if lifetime < Duration::from_secs(MINUTE) || lifetime > Duration::from_secs(longest) {
        return Err(format!("token_lifetime: must be 1m to {shown}"));
    }
    Ok(lifetime)
}

fn scopes(given: Option<Vec<String>>) -> Result<Vec<String>, String> {
    let scopes = given.unwrap_or_else(|| ["openid", "email", "profile"].map(str::to_owned).to_vec());
    for scope in &scopes {
        check_text("scopes", scope)?;
    }
    if !scopes.iter().any(|scope| scope == "openid") {
        return Err("scopes: must have openid, or the provider returns no ID token: add it".to_owned());
    }
    Ok(scopes)
}

/// The PEM text, which clients get to see.
fn authority(file: &Path, beside: &Path, world: &World) -> Result<String, String> {
    let path = beside.parent().unwrap_or(Path::new("")).join(file);
    let bytes = world
        .disk
        .read(&path)
        .map_err(|error| format!("ca_file: cannot read {}: {error}", path.display()))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    if text.contains("PRIVATE KEY-----") {
        return Err(format!(
            "ca_file: {} holds a private key: name a file with the authority's certificate alone",
            path.display()
        ));
    }
    Ok(text)
}
