//! `kasbah credential kubectl`: a credential plugin (client.authentication.k8s.io/v1).

use std::path::{Path, PathBuf};

use events::requests::authz::{IssueToken, SecretToken};
use events::{Sha256, Timestamp};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use world::World;
use zeroize::Zeroizing;

use crate::client::failure::Failure;
use crate::client::session::Session;
use crate::client::settings::Settings;

/// How long each token lives, in seconds.
const LIFETIME_SECONDS: u64 = 15 * 60;
/// One that lives longer than this is used again.
const ENOUGH_MILLIS: i64 = 3 * 60 * 1000;
/// What the tokens are called in lists.
const NAME: &str = "kubectl";

/// A token that is kept until it is nearly over.
#[derive(Serialize, Deserialize)]
struct CachedToken {
    token: Zeroizing<String>,
    expires_at: Timestamp,
}

/// Prints a short-lived token in the form that kubectl and every other client of Kubernetes take.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(session: &Session) -> Result<(), Failure> {
    let kept = usable(session).await?;
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": kept.token.as_str(), "expirationTimestamp": kept.expires_at},
    });
    session.printer.text(&credential.to_string())
}

/// A short-lived token that is good for clusters' APIs and nothing else.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn token(session: &Session) -> Result<Zeroizing<String>, Failure> {
    usable(session).await.map(|kept| kept.token)
}

async fn usable(session: &Session) -> Result<CachedToken, Failure> {
    let now = Timestamp(session.world.clock.now_millis());
    let file = file_of(&session.settings);
    let kept = file.as_ref().and_then(|file| read(session, file));
    match kept.filter(|kept| kept.expires_at.millis_since(now) > ENOUGH_MILLIS) {
        Some(kept) => Ok(kept),
        None => issue(session, file.as_ref()).await,
    }
}

async fn issue(session: &Session, file: Option<&PathBuf>) -> Result<CachedToken, Failure> {
    let wanted = IssueToken {
        agent: None,
        user: None,
        name: NAME.to_owned(),
        lifetime_seconds: Some(LIFETIME_SECONDS),
        clusters_only: true,
    };
    let issued: SecretToken = session.api.send(Method::POST, &["tokens"], &wanted).await?;
    let expires_at = issued.view.expires_at.unwrap_or(issued.view.issued_at);
    let kept = CachedToken { token: Zeroizing::new(issued.secret), expires_at };
    // Where it cannot be kept, the next one is issued sooner.
    if let (Some(file), Ok(text)) = (file, serde_json::to_vec(&kept).map(Zeroizing::new)) {
        let folder = file.parent().map(|folder| session.world.disk.create_folder(folder));
        if matches!(folder, Some(Ok(()))) {
            drop(session.world.disk.replace(file, &text, true));
        }
    }
    Ok(kept)
}

fn read(session: &Session, file: &Path) -> Option<CachedToken> {
    let bytes = Zeroizing::new(session.world.disk.read(file).ok()?);
    serde_json::from_slice(&bytes).ok()
}

/// Forgets the token that is kept for a login, if there is one.
pub fn forget(settings: &Settings, world: &World) {
    if let Some(file) = file_of(settings) {
        // What cannot be removed ends by itself within a quarter of an hour.
        drop(world.disk.remove(&file));
    }
}

/// Another file for each server and each holder: `$XDG_CACHE_HOME`, else `~/.cache`.
fn file_of(settings: &Settings) -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    let whose = format!("{}\n{}", settings.server, settings.token.as_str());
    Some(cache.join("kasbah/credentials").join(format!("{}.json", Sha256::of(whose.as_bytes()))))
}
