//! The keys of an identity provider: fetched from where it publishes them, and kept for a while.

use std::sync::Arc;
use std::time::Duration;

use events::{Refusal, RefusalKind};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use parking_lot::Mutex;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use world::World;

use super::file::{Settings, secure_url, shortened};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST_ANSWER: usize = 512 * 1024;
/// Keys beyond this number are not looked at.
const MOST_KEYS: usize = 64;
/// How soon a provider is asked again.
const PAUSE: Duration = Duration::from_secs(10);
/// When keys are fetched again, so that one that the provider took back is forgotten.
const FRESH: Duration = Duration::from_secs(3600);
/// How long keys are used while the provider is away.
const USABLE: Duration = Duration::from_secs(24 * 3600);

/// A public key.
#[derive(Clone)]
pub(super) struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    pub(super) key: DecodingKey,
}

/// The keys of one provider.
pub(super) struct Keys {
    http: Client,
    world: World,
    provider: String,
    issuer: String,
    held: Mutex<Held>,
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    keys: Option<(Duration, Arc<Vec<Key>>)>,
    attempt: Option<Attempt>,
}

/// The last time that the provider was asked.
struct Attempt {
    at: Duration,
    failure: Option<String>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

impl Keys {
    pub(super) fn new(settings: &Settings, world: &World) -> Result<Self, String> {
        let protocols: &[&[u8]] = &[b"h2", b"http/1.1"];
        let tls = match &settings.certificate_authority {
            Some(pem) => chassis::tls::client_config_trusting(world, pem.as_bytes(), protocols),
            None => chassis::tls::client_config(world, None, protocols),
        };
        let tls = tls.map_err(|error| format!("ca_file: {error}"))?;
        let http = Client::builder()
            .tls_backend_preconfigured((*tls).clone())
            .user_agent(concat!("kasbah/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .build()
            .map_err(|error| format!("cannot set up the connection: {}", root_cause(&error)))?;
        Ok(Self {
            http,
            world: world.clone(),
            provider: settings.name.clone(),
            issuer: settings.issuer.clone(),
            held: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        })
    }

    /// The keys that a token may be signed with which names the key `id`, or none; never an empty list.
    pub(super) async fn named(&self, id: Option<&str>) -> Result<Vec<Key>, Refusal> {
        if let Some(found) = self.held_for(id, FRESH) {
            return Ok(found);
        }
        let turn = self.fetching.lock().await;
        // Whoever had the turn before may have fetched what is looked for.
        if let Some(found) = self.held_for(id, FRESH) {
            return Ok(found);
        }
        if self.may_ask() {
            self.fetch().await;
        }
        drop(turn);
        self.held_for(id, USABLE).ok_or_else(|| self.refusal())
    }

    fn held_for(&self, id: Option<&str>, longest: Duration) -> Option<Vec<Key>> {
        let held = self.held.lock();
        let (at, keys) = held.keys.as_ref()?;
        if self.world.clock.monotonic().saturating_sub(*at) >= longest {
            return None;
        }
        let found: Vec<Key> =
            keys.iter().filter(|key| id.is_none() || key.id.as_deref() == id).cloned().collect();
        Some(found).filter(|found| !found.is_empty())
    }

    fn may_ask(&self) -> bool {
        let now = self.world.clock.monotonic();
        self.held.lock().attempt.as_ref().is_none_or(|last| now.saturating_sub(last.at) >= PAUSE)
    }

    async fn fetch(&self) {
        let fetched = self.published().await;
        let at = self.world.clock.monotonic();
        let mut held = self.held.lock();
        let failure = match fetched {
            Ok(keys) => {
                held.keys = Some((at, Arc::new(keys)));
                None
            }
            Err(error) => {
                let provider = &self.provider;
                let has_older = held.keys.is_some();
                tracing::warn!(provider, has_older, error, "keys of an identity provider cannot be fetched");
                Some(error)
            }
        };
        held.attempt = Some(Attempt { at, failure });
    }

    fn refusal(&self) -> Refusal {
        let held = self.held.lock();
        match held.attempt.as_ref().and_then(|last| last.failure.as_ref()) {
            Some(failure) => {
                let message = format!(
                    "the keys of the identity provider {} cannot be fetched: {failure}; try again in {} s",
                    self.provider,
                    PAUSE.as_secs()
                );
                Refusal::new(RefusalKind::Unavailable, message)
            }
            None => {
                let message = format!(
                    "the ID token is signed with a key that {} does not publish; if the key is new, try again in {} s",
                    self.provider,
                    PAUSE.as_secs()
                );
                Refusal::new(RefusalKind::Unauthenticated, message)
            }
        }
    }

    async fn published(&self) -> Result<Vec<Key>, String> {
        let root = self.issuer.strip_suffix('/').unwrap_or(&self.issuer);
        let address = secure_url(&format!("{root}/.well-known/openid-configuration"))?;
        let discovery: Discovery = self.read(&address).await?;
        if discovery.issuer != self.issuer {
            let named = shortened(&discovery.issuer);
            return Err(format!(
                "{address} names the issuer {named}, and the operator {}: they must be identical",
                self.issuer
            ));
        }
        let address =
            dialled(&discovery.jwks_uri).map_err(|what| format!("{address} names a jwks_uri that {what}"))?;
        let set: KeySet = self.read(&address).await?;
        let keys: Vec<Key> = set.keys.into_iter().take(MOST_KEYS).filter_map(Key::of).collect();
        if keys.is_empty() {
            return Err(format!("{address} has no signing key"));
        }
        Ok(keys)
    }

    async fn read<T: DeserializeOwned>(&self, address: &Url) -> Result<T, String> {
        let explain = |error: reqwest::Error| {
            let host = address.host_str().unwrap_or_default();
            let trouble = chassis::tls::explain(&error, host).map(|trouble| trouble.to_string());
            let cause = if error.is_timeout() { "no answer in time".to_owned() } else { root_cause(&error) };
            format!("{address}: {}", trouble.unwrap_or(cause))
        };
        let mut response = self.http.get(address.clone()).send().await.map_err(explain)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(format!("{address} redirects, which is not followed"));
        }
        if !status.is_success() {
            return Err(format!("{address} answers with HTTP status {}", status.as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(explain)? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(format!("{address} answers with more than {} KiB", LONGEST_ANSWER / 1024));
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|error| format!("{address} is malformed: {error}"))
    }
}

impl Key {
    /// A published key, if signatures may be made with it. What is not known is left out, as RFC 7517 has it.
    fn of(published: serde_json::Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(published).ok()?;
        let is_for_others = jwk
            .common
            .public_key_use
            .as_ref()
            .is_some_and(|what| *what != PublicKeyUse::Signature)
            || jwk.common.key_operations.as_ref().is_some_and(|list| !list.contains(&KeyOperations::Verify));
        if is_for_others {
            return None;
        }
        let mut algorithms = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms().to_vec(),
            AlgorithmParameters::EllipticCurve(parameters) => match parameters.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(parameters) if parameters.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            // A symmetric key that is published is nobody's.
            _ => return None,
        };
        if let Some(only) = jwk.common.key_algorithm {
            algorithms.retain(|algorithm| Algorithm::try_from(only).is_ok_and(|only| only == *algorithm));
        }
        let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| !algorithms.is_empty())?;
        Some(Self { id: jwk.common.key_id, algorithms, key })
    }

    pub(super) fn makes(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }
}

/// Other than an issuer, the address of keys may have a query.
fn dialled(text: &str) -> Result<Url, String> {
    let (before, _) = text.split_once('?').unwrap_or((text, ""));
    secure_url(before).map_err(|_| "is neither https:// nor on this machine".to_owned())?;
    Url::parse(text).map_err(|error| error.to_string())
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
