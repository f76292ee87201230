//! An API server as one user sees it: kubectl, and plain requests.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{Method, StatusCode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::{Tools, eventually};

/// How long a loaded API server may take until it has made a namespace.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// What the API server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The body; a body that is not JSON stands as a string.
    pub body: Value,
}

/// A cluster's API as one user: the path of a kubeconfig, and requests with its token.
#[derive(Debug, Clone)]
pub struct Cluster {
    kubeconfig: PathBuf,
    server: String,
    token: String,
    http: reqwest::Client,
}

impl Cluster {
    /// Writes a kubeconfig for a token and opens it.
    pub(crate) fn create(
        kubeconfig: &Path,
        server: &str,
        authority: &str,
        user: &str,
        token: &str,
    ) -> Result<Self> {
        use base64::Engine;
        let authority = base64::engine::general_purpose::STANDARD.encode(authority);
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        });
        crate::pki::write_private(kubeconfig, &serde_json::to_string_pretty(&text)?)?;
        Self::open(kubeconfig)
    }

    /// Opens a kubeconfig that a [`crate::ControlPlane`] wrote (other forms are not understood).
    pub fn open(kubeconfig: &Path) -> Result<Self> {
        use base64::Engine;
        let text = fs::read_to_string(kubeconfig)
            .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        let config: Value = serde_json::from_str(&text).context("not a kubeconfig of the testbed")?;
        let field = |path: &str| {
            config.pointer(path).and_then(Value::as_str).context("not a kubeconfig of the testbed")
        };
        let authority = field("/clusters/0/cluster/certificate-authority-data")?;
        let authority = base64::engine::general_purpose::STANDARD.decode(authority)?;
        Ok(Self {
            kubeconfig: kubeconfig.to_owned(),
            server: field("/clusters/0/cluster/server")?.to_owned(),
            token: field("/users/0/user/token")?.to_owned(),
            http: client_trusting(&authority)?,
        })
    }

    /// The kubeconfig file (JSON, which every reader of kubeconfigs takes as YAML).
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The user's bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Runs the pinned kubectl; gives standard output, or an error with both outputs.
    pub async fn kubectl<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<String> {
        self.kubectl_with_input(arguments, "").await
    }

    /// The same with text on standard input, as in `kubectl apply -f -`.
    pub async fn kubectl_with_input<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &str,
    ) -> Result<String> {
        let mut command = Command::new(Tools::find()?.path("kubectl")?);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start kubectl")?;
        if let Some(mut stdin) = child.stdin.take() {
            // A kubectl that does not read its input closes the pipe; its exit code tells the rest.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.context("cannot wait for kubectl")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        bail!("kubectl: {}: {}{text}", output.status, String::from_utf8_lossy(&output.stderr))
    }

    /// One request. `path` starts with a slash; a JSON body is sent with `content_type`.
    pub async fn send(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Answer> {
        let mut request =
            self.http.request(method, format!("{}{path}", self.server)).bearer_auth(&self.token);
        if let Some((content_type, body)) = body {
            request = request.header(http::header::CONTENT_TYPE, content_type).body(body.to_string());
        }
        let response = request.send().await.with_context(|| format!("no answer to {path}"))?;
        let status = response.status();
        let text = response.text().await.with_context(|| format!("half an answer to {path}"))?;
        Ok(Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
    }

    /// Opens a path whose answer goes on, such as a watch or a log.
    pub async fn stream(&self, path: &str) -> Result<reqwest::Response> {
        let request = self.http.get(format!("{}{path}", self.server)).bearer_auth(&self.token);
        request.send().await.with_context(|| format!("no answer to {path}"))
    }

    /// Reads one path; an answer other than 200 is an error.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.send(Method::GET, path, None).await?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            status => bail!("GET {path}: {status}: {}", message(&answer.body)),
        }
    }

    /// Whether something is at a path: `false` on 404, an error on anything unexpected.
    pub async fn exists(&self, path: &str) -> Result<bool> {
        let answer = self.send(Method::GET, path, None).await?;
        match answer.status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            status => bail!("GET {path}: {status}: {}", message(&answer.body)),
        }
    }

    /// Creates an object by POST to its collection's path.
    pub async fn create_object(&self, collection: &str, object: &Value) -> Result<Value> {
        let answer = self.send(Method::POST, collection, Some(("application/json", object))).await?;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        bail!("POST {collection}: {}: {}", answer.status, message(&answer.body))
    }

    /// A new namespace with a name that the API server makes up, ready for pods (its default service account exists when a
    /// controller manager runs; without one, give `false`). A loaded API server may say that it is late.
    pub async fn namespace(&self, prefix: &str, with_service_account: bool) -> Result<String> {
        let asked = json!({"metadata": {"generateName": format!("{prefix}-")}});
        let made = eventually(READY_WITHIN, || self.create_object("/api/v1/namespaces", &asked)).await;
        let name =
            made.pointer("/metadata/name").and_then(Value::as_str).context("a namespace has a name")?;
        if with_service_account {
            let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
            eventually(READY_WITHIN, || self.get(&path)).await;
        }
        Ok(name.to_owned())
    }
}

fn message(body: &Value) -> String {
    body.get("message").and_then(Value::as_str).map_or_else(|| body.to_string(), str::to_owned)
}

/// An HTTP client that trusts exactly these certificates (PEM) and uses no proxy.
///
/// # Errors
/// When they are no certificates.
pub fn client_trusting(pem: &[u8]) -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls_trusting(pem)?);
    builder.connect_timeout(Duration::from_secs(10)).build().context("cannot build an HTTP client")
}

/// TLS that trusts exactly these certificates (PEM), and asks for AES of 128 bits first, as Go's clients do and those that ship.
///
/// # Errors
/// When they are no certificates.
pub fn tls_trusting(pem: &[u8]) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.context("not a PEM certificate")?)?;
    }
    let mut provider = rustls::crypto::ring::default_provider();
    let first = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != first);
    Ok(rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
