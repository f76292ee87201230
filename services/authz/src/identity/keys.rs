//! The keys of an identity provider: fetched from where it publishes them, and kept for a while.

use std::sync::Arc;
use std::time::Duration;

use events::{Refusal, RefusalKind};
use form_urlencoded::byte_serialize;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use world::World;

use super::file::{Settings, secure_url, shortened};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const FORM: &str = "application/x-www-form-urlencoded";
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

/// What a provider publishes.
struct Published {
    keys: Vec<Key>,
    endpoints: Result<Endpoints, String>,
}

/// Where a provider signs people in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) authorization: Url,
    pub(super) token: Url,
    /// Whether a secret may stand in a form (RFC 6749, section 2.3.1).
    pub(super) takes_secret_in_form: bool,
}

#[derive(Default)]
struct Held {
    published: Option<(Duration, Arc<Published>)>,
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
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
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
        self.find(|published| published.keys_named(id)).await.ok_or_else(|| self.refusal())
    }

    /// Where people sign in.
    pub(super) async fn endpoints(&self) -> Result<Endpoints, Refusal> {
        let found = self.find(|published| Some(published.endpoints.clone())).await;
        found.ok_or_else(|| self.refusal())?.map_err(|what| {
            // Asking again changes nothing: the provider's operator has to.
            let message = format!("{} signs nobody in on the page: {what}", self.provider);
            Refusal::invalid("provider", message)
        })
    }

    /// Looks in what was fetched last; fetches again where that is old or does not have it.
    async fn find<T>(&self, pick: impl Fn(&Published) -> Option<T>) -> Option<T> {
        let held = |longest| self.held_within(longest).and_then(|published| pick(&published));
        if let Some(found) = held(FRESH) {
            return Some(found);
        }
        let turn = self.fetching.lock().await;
        // Whoever had the turn before may have fetched what is looked for.
        if let Some(found) = held(FRESH) {
            return Some(found);
        }
        if self.may_ask() {
            self.fetch().await;
        }
        drop(turn);
        held(USABLE)
    }

    fn held_within(&self, longest: Duration) -> Option<Arc<Published>> {
        let held = self.held.lock();
        let (at, published) = held.published.as_ref()?;
        let is_young = self.world.clock.monotonic().saturating_sub(*at) < longest;
        is_young.then(|| Arc::clone(published))
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
            Ok(published) => {
                held.published = Some((at, Arc::new(published)));
                None
            }
            Err(error) => {
                let provider = &self.provider;
                let has_older = held.published.is_some();
                tracing::warn!(provider, has_older, error, "keys of an identity provider cannot be fetched");
                Some(error)
            }
        };
        held.attempt = Some(Attempt { at, failure });
    }

    fn refusal(&self) -> Refusal {
        let held = self.held.lock();
        match held.attempt.as_ref().and_then(|last| last.failure.as_ref()) {
            Some(failure) => self.unavailable(failure),
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

    fn unavailable(&self, failure: &str) -> Refusal {
        let (provider, seconds) = (&self.provider, PAUSE.as_secs());
        let message = format!(
            "the keys of the identity provider {provider} cannot be fetched: {failure}; try again in {seconds} s"
        );
        Refusal::new(RefusalKind::Unavailable, message)
    }

    async fn published(&self) -> Result<Published, String> {
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
        let endpoints = discovery.endpoints();
        let address =
            dialled(&discovery.jwks_uri).map_err(|what| format!("{address} names a jwks_uri that {what}"))?;
        let set: KeySet = self.read(&address).await?;
        let keys: Vec<Key> = set.keys.into_iter().take(MOST_KEYS).filter_map(Key::of).collect();
        if keys.is_empty() {
            return Err(format!("{address} has no signing key"));
        }
        Ok(Published { keys, endpoints })
    }

    async fn read<T: DeserializeOwned>(&self, address: &Url) -> Result<T, String> {
        let (status, body) = self.answer(address, self.http.get(address.clone())).await?;
        if !status.is_success() {
            return Err(format!("{address} answers with HTTP status {}", status.as_u16()));
        }
        serde_json::from_slice(&body).map_err(|error| format!("{address} is malformed: {error}"))
    }

    /// Posts a form. `client` is the id and secret for the header, where they do not stand in the form (RFC 6749, section 2.3.1).
    pub(super) async fn post(
        &self,
        address: &Url,
        form: &[(&str, &str)],
        client: Option<(&str, &str)>,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let mut request = self.http.post(address.clone()).body(body).header(CONTENT_TYPE, FORM);
        if let Some((id, secret)) = client {
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            request = request.basic_auth(encoded(id), Some(encoded(secret)));
        }
        self.answer(address, request).await
    }

    /// What is answered, within size and time.
    async fn answer(&self, address: &Url, request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), String> {
        let explain = |error: reqwest::Error| {
            let host = address.host_str().unwrap_or_default();
            let trouble = chassis::tls::explain(&error, host).map(|trouble| trouble.to_string());
            let cause = if error.is_timeout() { "no answer in time".to_owned() } else { root_cause(&error) };
            format!("{address}: {}", trouble.unwrap_or(cause))
        };
        let mut response = request.header(ACCEPT, "application/json").send().await.map_err(explain)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(format!("{address} redirects, which is not followed"));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(explain)? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(format!("{address} answers with more than {} KiB", LONGEST_ANSWER / 1024));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }
}

impl Published {
    fn keys_named(&self, id: Option<&str>) -> Option<Vec<Key>> {
        let is_named = |key: &&Key| id.is_none() || key.id.as_deref() == id;
        let found: Vec<Key> = self.keys.iter().filter(is_named).cloned().collect();
        Some(found).filter(|found| !found.is_empty())
    }
}

impl Discovery {
    /// Where people sign in. Providers of jobs have no such place.
    fn endpoints(&self) -> Result<Endpoints, String> {
        let part = |name: &str, given: &Option<String>| {
            let text = given.as_ref().ok_or_else(|| format!("its openid-configuration names no {name}"))?;
            dialled(text).map_err(|what| format!("its openid-configuration names a {name} that {what}"))
        };
        let methods = &self.token_endpoint_auth_methods_supported;
        Ok(Endpoints {
            authorization: part("authorization_endpoint", &self.authorization_endpoint)?,
            token: part("token_endpoint", &self.token_endpoint)?,
            takes_secret_in_form: methods.iter().any(|method| method == "client_secret_post"),
        })
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
