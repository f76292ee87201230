//! An identity provider: an HTTPS server that publishes its keys, and signs whatever a test says.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::LOCATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::background::{Server, accept, listen};
use crate::{Authority, Certified, Folder, free_port};

const DISCOVERY: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/keys";
/// How long tokens are valid that say nothing else.
const VALID: Duration = Duration::from_secs(300);

/// What an issuer does wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerFault {
    /// Its discovery document names this issuer.
    OtherIssuer(String),
    /// Its discovery document names keys at this URL.
    OtherKeys(String),
    /// Every request is redirected to this URL.
    Redirect(String),
    /// Every answer has this status and no content.
    Status(u16),
    /// Every answer has this many spaces before it.
    Padding(usize),
}

/// A running issuer; it ends with this handle.
#[derive(Debug)]
pub struct TokenIssuer {
    state: Arc<State>,
    ca_file: PathBuf,
    _folder: Folder,
    _server: Server,
}

#[derive(Debug)]
struct State {
    url: String,
    signer: Mutex<Signer>,
    others: Mutex<Vec<Value>>,
    fault: Mutex<Option<IssuerFault>>,
    requests: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Signer {
    id: String,
    key: EcdsaKeyPair,
}

impl TokenIssuer {
    /// Starts one on a free loopback port, with a key for ES256.
    pub fn start() -> Result<Self> {
        let authority = Authority::new("token issuer")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let shown = authority.server(&["localhost"], &[address.ip()])?;
        let folder = Folder::temporary()?;
        let ca_file = folder.path().join("issuer-ca.pem");
        std::fs::write(&ca_file, authority.certificate())?;
        let state = Arc::new(State {
            url: format!("https://localhost:{}", address.port()),
            signer: Mutex::new(Signer::new(1)?),
            others: Mutex::default(),
            fault: Mutex::default(),
            requests: Mutex::default(),
        });
        let (acceptor, served) = (acceptor(&shown)?, Arc::clone(&state));
        let serve = move |stream| Some(answer(acceptor.clone(), stream, Arc::clone(&served)));
        let server = Server::start(accept(listen(address)?, serve));
        Ok(Self { state, ca_file, _folder: folder, _server: server })
    }

    /// Its URL, which is its name as an issuer, too.
    pub fn url(&self) -> &str {
        &self.state.url
    }

    /// PEM file with the authority of its certificate.
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// A token of these claims. `iss`, `iat`, `exp` and `jti` are added where they are missing; one that is null is left out.
    pub fn sign(&self, claims: Value) -> Result<String> {
        let signer = self.state.signer.lock();
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": signer.id });
        let message = encoded(&header, &self.completed(claims)?);
        let signature = signer
            .key
            .sign(&SystemRandom::new(), message.as_bytes())
            .map_err(|_| anyhow!("cannot sign a token"))?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// A token of these claims and that header, with whatever signature `sign` makes of the text before it.
    pub fn sign_by(
        &self,
        header: &Value,
        claims: Value,
        sign: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> Result<String> {
        let message = encoded(header, &self.completed(claims)?);
        let signature = sign(message.as_bytes());
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Signs with a new key from now on, and publishes the old one no more.
    pub fn rotate(&self) -> Result<()> {
        let mut signer = self.state.signer.lock();
        let number: u32 = signer.id.trim_start_matches("key-").parse()?;
        *signer = Signer::new(number + 1)?;
        Ok(())
    }

    /// Publishes this key besides, a JSON Web Key.
    pub fn publish(&self, key: Value) {
        self.state.others.lock().push(key);
    }

    /// The key that it signs with, as it is published.
    pub fn key(&self) -> Value {
        self.state.signer.lock().published()
    }

    /// Does this wrong from now on, or nothing.
    pub fn set_fault(&self, fault: Option<IssuerFault>) {
        *self.state.fault.lock() = fault;
    }

    /// Paths that were asked for so far.
    pub fn requests(&self) -> Vec<String> {
        self.state.requests.lock().clone()
    }

    fn completed(&self, mut claims: Value) -> Result<Value> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let random: [u8; 16] = ring::rand::generate(&SystemRandom::new())
            .map_err(|_| anyhow!("no randomness for a token's id"))?
            .expose();
        let fields = claims.as_object_mut().ok_or_else(|| anyhow!("claims have to be an object"))?;
        for (name, value) in [
            ("iss", json!(self.state.url)),
            ("iat", json!(now.as_secs())),
            ("exp", json!((now + VALID).as_secs())),
            ("jti", json!(URL_SAFE_NO_PAD.encode(random))),
        ] {
            fields.entry(name).or_insert(value);
        }
        fields.retain(|_, value| !value.is_null());
        Ok(claims)
    }
}

impl Signer {
    fn new(number: u32) -> Result<Self> {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random)
            .map_err(|_| anyhow!("cannot make a key"))
            .and_then(|key| {
                EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).map_err(|error| anyhow!("{error}"))
            })?;
        Ok(Self { id: format!("key-{number}"), key })
    }

    fn published(&self) -> Value {
        // An uncompressed point: 4, x, y.
        let point = self.key.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at(32);
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        })
    }
}

impl State {
    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        self.requests.lock().push(path.to_owned());
        let fault = self.fault.lock().clone();
        let mut response = Response::new(Full::default());
        match &fault {
            Some(IssuerFault::Redirect(to)) => {
                *response.status_mut() = StatusCode::FOUND;
                if let Ok(to) = to.parse() {
                    response.headers_mut().insert(LOCATION, to);
                }
                return response;
            }
            Some(IssuerFault::Status(status)) => {
                *response.status_mut() = StatusCode::from_u16(*status).unwrap_or_default();
                return response;
            }
            _ => {}
        }
        let document = match path {
            DISCOVERY => self.discovery(fault.as_ref()),
            KEYS => {
                let mut keys = self.others.lock().clone();
                keys.push(self.signer.lock().published());
                json!({ "keys": keys })
            }
            _ => {
                *response.status_mut() = StatusCode::NOT_FOUND;
                return response;
            }
        };
        let padding = if let Some(IssuerFault::Padding(length)) = fault { length } else { 0 };
        *response.body_mut() = Full::from(format!("{}{document}", " ".repeat(padding)));
        response
    }

    fn discovery(&self, fault: Option<&IssuerFault>) -> Value {
        let issuer = if let Some(IssuerFault::OtherIssuer(other)) = fault { other } else { &self.url };
        let keys = match fault {
            Some(IssuerFault::OtherKeys(other)) => other.clone(),
            _ => format!("{}{KEYS}", self.url),
        };
        // Like issuers for jobs, it exchanges no codes: there is no token_endpoint.
        json!({
            "issuer": issuer, "jwks_uri": keys, "id_token_signing_alg_values_supported": ["ES256"],
            "authorization_endpoint": format!("{}/authorize", self.url),
        })
    }
}

fn encoded(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

fn acceptor(shown: &Certified) -> Result<TlsAcceptor> {
    let chain =
        CertificateDer::pem_slice_iter(shown.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream, state: Arc<State>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let response = state.answer(request.uri().path());
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    // The client may go when it likes.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
