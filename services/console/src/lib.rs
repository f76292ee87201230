//! Kasbah's own HTTP entry point: the API under `/api`, webhooks under `/hooks/v1`, and the web page under everything else.
//!
//! Purpose: users and programs reach every service through one address, over TLS, with one token, which they can get through an identity provider.
//!
//! Laws:
//! - The console decides nothing. It authenticates the caller ([`caller`]), forwards the request with the caller's identity and organization,
//!   and returns the service's answer. It never takes an actor or an organization from the request.
//! - One table lists all routes but those of GraphQL and the page ([`routes`]). The router, the OpenAPI document and the tests are derived from it.
//! - An invalid body or query is refused with the name of its field. A refusal is JSON with the status of its kind ([`problem`]).
//! - Positions of the log leave the console only encrypted: their numbers would reveal the activity of other organizations ([`log::cursor`]).
//! - A slow or endless client occupies only its own connection ([`chassis::server`]).
//!
//! - The page is files alone (`page`); what it shows, it asks of the API, by a session that is a token in a cookie (`session`).
//!
//! Deliberately absent: cross-origin rules, as the page is of the same origin, and any state.
#![warn(missing_docs)]

mod access;
pub mod app;
pub mod asyncapi;
pub mod caller;
mod clusters;
mod events_docs;
pub mod graphql;
pub mod input;
pub mod log;
pub mod metrics;
pub mod objects;
pub mod openapi;
mod page;
pub mod problem;
pub mod route;
pub mod routes;
mod session;
pub mod webhook;

pub use access::ACCESS;

use std::sync::Arc;

use bus::Bus;
use chassis::server::{Limits, Server};
use chassis::{Metrics, Readiness, Shutdown, Supervisor};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use store::{EventLog, KeyRing};
use world::World;
use world::network::Listener;

use crate::app::{App, Urls};
use crate::clusters::Clusters;

/// Settings of the console.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// URL of the API for users and forges, such as `https://kasbah.example:8440`; used in webhook addresses.
    #[arg(long = "api-url", env = "KASBAH_API_URL")]
    pub api_url: Option<String>,
    /// URL of clusters' APIs, which the web page asks for logs and sends its writes to; without it the page offers neither.
    #[arg(skip)]
    pub clusters_url: Option<String>,
    /// Maximum number of open connections; further connections wait.
    #[arg(long = "api-connections", env = "KASBAH_API_CONNECTIONS", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub connections: u32,
}

impl Default for Args {
    fn default() -> Self {
        Self { api_url: None, clusters_url: None, connections: 1024 }
    }
}

/// What the console needs.
pub struct Deps {
    /// Clock, randomness, ids, tasks.
    pub world: World,
    /// For reading the log.
    pub log: Arc<dyn EventLog>,
    /// For sealing cursors and for the webhooks' secrets.
    pub keys: Arc<dyn KeyRing>,
    /// Where requests go.
    pub bus: Arc<dyn Bus>,
    /// Where connections come in, bound already.
    pub listener: Box<dyn Listener>,
    /// How they are encrypted; offer `h2` and `http/1.1`. `None` speaks plain text: only by an explicit wish, with a warning.
    pub tls: Option<Arc<ServerConfig>>,
    /// Set while requests are served.
    pub readiness: Readiness,
    /// Counts of requests.
    pub metrics: Metrics,
}

/// Runs the console until `shutdown`, then finishes what runs.
///
/// # Errors
/// When the listener fails or a task ends unexpectedly.
pub async fn run(args: Args, deps: Deps, shutdown: Shutdown) -> anyhow::Result<()> {
    let ready = deps.readiness.register("console");
    let local = deps.listener.local_address()?;
    let scheme = if deps.tls.is_some() { "https" } else { "http" };
    let api_url =
        args.api_url.unwrap_or_else(|| format!("{scheme}://{local}")).trim_end_matches('/').to_owned();
    if deps.tls.is_none() {
        tracing::warn!(%local, "API listens without TLS: others can read tokens on the network");
    }
    let urls = Urls { api: api_url, clusters: args.clusters_url.and_then(|url| Clusters::at(&url)) };
    let app =
        App::new(deps.world.clone(), deps.log, deps.keys, deps.bus, &deps.metrics, urls, shutdown.clone());
    let supervisor = Supervisor::new(Arc::clone(&deps.world.spawner), shutdown.clone());
    supervisor.spawn("console-revocations", Arc::clone(&app).watch_revocations(shutdown.clone()));
    let telling = app.readers.clone().tell_for_ever(Arc::clone(&app), shutdown.clone());
    supervisor.spawn("console-readers", telling);
    let limits = Limits { connections: args.connections as usize, ..Limits::default() };
    let server = Server {
        name: "console-connection",
        world: deps.world,
        listener: deps.listener,
        tls: deps.tls,
        plain_on_loopback: true,
        limits,
    };
    let router = app::router(Arc::clone(&app));
    supervisor.spawn("console-server", async move {
        ready.set(true);
        let served = server.serve(TowerToHyperService::new(router), shutdown).await;
        ready.set(false);
        served
    });
    supervisor.join().await
}
