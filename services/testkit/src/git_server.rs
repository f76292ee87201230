//! A real Git server: bare repositories behind `git http-backend`, over HTTP.

mod cgi;
mod webhook;

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::background::{Server, accept, listen};
use crate::{Folder, free_port};
pub use webhook::{Webhook, WebhookStyle};

/// How to start a [`GitServer`].
#[derive(Debug, Clone, Default)]
pub struct GitServerOptions {
    /// A folder to keep with the repositories in it; `None` is a temporary one.
    pub directory: Option<PathBuf>,
    /// A fixed port, so that URLs stay the same across starts; `None` is a free one.
    pub port: Option<u16>,
}

/// One request that reached the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRequest {
    /// `GET` or `POST`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The status that was answered.
    pub status: u16,
    /// The user of an accepted basic authentication.
    pub user: Option<String>,
    /// The `Git-Protocol` header, such as `version=2`.
    pub protocol: Option<String>,
}

/// One reference that a push moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The repository's name.
    pub repository: String,
    /// The full reference, `refs/heads/main`.
    pub reference: String,
    /// The commit before; all zeros for a new reference.
    pub before: String,
    /// The commit after; all zeros for a deleted reference.
    pub after: String,
    /// When the post-receive hook started.
    pub hook_started: SystemTime,
}

/// What goes wrong for a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Every request is answered with this status and nothing else.
    Status(u16),
    /// Every request is redirected to this URL (path and query are appended).
    Redirect(String),
    /// Every request is accepted and never answered.
    Hang,
    /// Every answer comes this much later.
    Slow(Duration),
}

/// A running server; it ends with this handle.
#[derive(Debug)]
pub struct GitServer {
    state: Arc<State>,
    _server: Server,
}

#[derive(Debug)]
pub(crate) struct State {
    folder: Folder,
    address: SocketAddr,
    repositories: Mutex<HashMap<String, Settings>>,
    requests: Mutex<Vec<GitRequest>>,
    pushes: Mutex<Vec<Push>>,
}

#[derive(Debug, Clone, Default)]
struct Settings {
    login: Option<(String, String)>,
    fault: Option<Fault>,
    webhooks: Vec<Webhook>,
}

impl GitServer {
    /// Starts one in a temporary folder on a free port.
    pub fn start() -> Result<Self> {
        Self::start_with(GitServerOptions::default())
    }

    /// Starts one. Repositories that lie in a kept folder are served again.
    pub fn start_with(options: GitServerOptions) -> Result<Self> {
        let folder = Folder::at(options.directory.as_deref())?;
        let port = match options.port {
            Some(port) => port,
            None => free_port()?,
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = listen(address)?;
        let state = Arc::new(State {
            folder,
            address,
            repositories: Mutex::default(),
            requests: Mutex::default(),
            pushes: Mutex::default(),
        });
        let server = Self { _server: Server::start(accept(listener, served(&state))), state };
        for entry in fs::read_dir(server.state.folder.path())?.flatten() {
            if let Some(name) = entry.file_name().to_str().and_then(|name| name.strip_suffix(".git")) {
                server.adopt(name)?;
            }
        }
        Ok(server)
    }

    /// Creates an empty bare repository whose default branch is `main`; gives its URL. Name: letters, digits, `-`, `/`.
    pub fn create(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        if path.exists() {
            bail!("repository {name} exists");
        }
        git(self.state.folder.path(), &["init", "--quiet", "--bare", "--initial-branch=main"], Some(&path))?;
        for (key, value) in [
            ("http.receivepack", "true"),
            ("uploadpack.allowFilter", "true"),
            ("uploadpack.allowAnySHA1InWant", "true"),
            ("receive.advertisePushOptions", "true"),
            ("gc.auto", "0"),
        ] {
            git(&path, &["config", key, value], None)?;
        }
        self.adopt(name)?;
        Ok(self.url(name))
    }

    /// Whether a repository of that name is served.
    pub fn has(&self, name: &str) -> bool {
        self.state.repositories.lock().contains_key(name)
    }

    /// `http://127.0.0.1:<port>/<name>.git`.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}.git", self.state.address)
    }

    /// The bare repository's folder, for reading it as a local path.
    pub fn path(&self, name: &str) -> PathBuf {
        self.state.folder.path().join(format!("{name}.git"))
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.state.address
    }

    /// From now on the repository wants basic authentication.
    pub fn require_login(&self, name: &str, user: &str, password: &str) -> Result<()> {
        self.change(name, |settings| settings.login = Some((user.to_owned(), password.to_owned())))
    }

    /// From now on the repository misbehaves, or with `None` behaves again.
    pub fn set_fault(&self, name: &str, fault: Option<Fault>) -> Result<()> {
        self.change(name, |settings| settings.fault = fault)
    }

    /// From now on each push calls this URL as well. The push does not wait for it.
    pub fn add_webhook(&self, name: &str, webhook: Webhook) -> Result<()> {
        self.change(name, |settings| settings.webhooks.push(webhook))
    }

    /// From now on pushes call nothing.
    pub fn remove_webhooks(&self, name: &str) -> Result<()> {
        self.change(name, |settings| settings.webhooks.clear())
    }

    /// All requests so far, in the order of their answers.
    pub fn requests(&self) -> Vec<GitRequest> {
        self.state.requests.lock().clone()
    }

    /// All references moved by pushes so far.
    pub fn pushes(&self) -> Vec<Push> {
        self.state.pushes.lock().clone()
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Settings)) -> Result<()> {
        let mut repositories = self.state.repositories.lock();
        change(repositories.get_mut(name).with_context(|| format!("no repository {name}"))?);
        Ok(())
    }

    /// Serves a bare repository in the folder: writes its hook, which names this server's port.
    fn adopt(&self, name: &str) -> Result<()> {
        let hook = self.path(name).join("hooks").join("post-receive");
        if let Some(folder) = hook.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&hook, webhook::hook_script(self.state.address.port(), name))
            .context("cannot write the hook")?;
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))?;
        self.state.repositories.lock().insert(name.to_owned(), Settings::default());
        Ok(())
    }
}

/// How each connection is served.
fn served(state: &Arc<State>) -> impl FnMut(TcpStream) -> Option<BoxFuture<'static, ()>> + use<> {
    let state = Arc::clone(state);
    move |stream| {
        // As real servers do: an answer in several small writes is not to wait for acknowledgements.
        let _ = stream.set_nodelay(true);
        let state = Arc::clone(&state);
        let service = service_fn(move |request| cgi::answer(Arc::clone(&state), request));
        // The hook closes its side as soon as it has written: its request counts all the same.
        let serving = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(stream), service);
        Some(serving.map(drop).boxed())
    }
}

/// Runs git apart from the machine's configuration.
pub(crate) fn git(folder: &Path, arguments: &[&str], target: Option<&Path>) -> Result<String> {
    let mut command = Command::new("git");
    command.current_dir(folder).args(arguments).args(target);
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Dana Developer");
        command.env(format!("GIT_{role}_EMAIL"), "dana@example.com");
    }
    let output = command.output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
