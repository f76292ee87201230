//! Which services run, and with what.

use std::sync::Arc;

use bus::Bus;
use chassis::{Metrics, Readiness, Shutdown};
use world::World;

use super::Args;
use super::addresses::Listeners;
use super::authority::Tls;
use super::drain::{Group, Groups};

/// The names under which the services say that they are ready.
pub(super) const NAMES: &[&str] =
    &["authz", "config-fetcher", "repo-poller", "delivery", "tunnel-gateway", "console"];

/// Protocols that agents speak to the gateway before the roles turn round.
const TUNNEL_PROTOCOLS: &[&[u8]] = &[b"http/1.1"];
/// Protocols of the API, best first.
const API_PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// What the services are made of.
pub(super) struct Parts<'a> {
    pub(super) args: &'a Args,
    pub(super) world: &'a World,
    pub(super) store: &'a store::Parts,
    pub(super) bus: &'a Arc<dyn Bus>,
    pub(super) readiness: &'a Readiness,
    pub(super) metrics: &'a Metrics,
    pub(super) tls: &'a Tls,
}

/// Starts all of them.
///
/// # Errors
/// When TLS cannot be set up.
pub(super) fn start(parts: Parts<'_>, groups: &Groups, listeners: Listeners) -> anyhow::Result<()> {
    let Listeners { admin, api, gateway } = listeners;
    start_core(&parts, groups, admin);
    let edge = &groups.edge;
    let tls = parts.tls.certificate.config(parts.world, TUNNEL_PROTOCOLS)?;
    let deps = tunnel_gateway::Deps {
        world: parts.world.clone(),
        log: Arc::clone(&parts.store.log),
        blobs: Arc::clone(&parts.store.blobs),
        snapshots: Arc::clone(&parts.store.snapshots),
        bus: Arc::clone(parts.bus),
        listener: gateway,
        tls: Some(tls).filter(|_| !parts.args.tunnel_gateway.tunnel_insecure_plain_text),
        readiness: parts.readiness.clone(),
        metrics: parts.metrics.clone(),
    };
    let args = parts.args.tunnel_gateway.clone();
    spawn(&parts, edge, "tunnel-gateway", tunnel_gateway::run(args, deps, edge.shutdown.clone()));
    let deps = console::Deps {
        world: parts.world.clone(),
        log: Arc::clone(&parts.store.log),
        keys: Arc::clone(&parts.store.keys),
        bus: Arc::clone(parts.bus),
        listener: api,
        tls: Some(parts.tls.certificate.config(parts.world, API_PROTOCOLS)?),
        readiness: parts.readiness.clone(),
        metrics: parts.metrics.clone(),
    };
    spawn(&parts, edge, "console", console::run(parts.args.console.clone(), deps, edge.shutdown.clone()));
    Ok(())
}

fn start_core(parts: &Parts<'_>, groups: &Groups, admin: Box<dyn world::network::Listener>) {
    let (core, args) = (&groups.core.supervisor, parts.args);
    let shutdown = || -> Shutdown { groups.core.shutdown.clone() };
    let (world, store) = (parts.world, parts.store);
    let (readiness, metrics) = (parts.readiness.clone(), parts.metrics.clone());
    core.spawn("admin listener", chassis::admin::serve(world.clone(), admin, readiness, metrics, shutdown()));
    core.spawn("certificate renewal", parts.tls.keep(world, shutdown()));
    let deps = authz::Deps {
        world: world.clone(),
        log: Arc::clone(&store.log),
        keys: Arc::clone(&store.keys),
        snapshots: Arc::clone(&store.snapshots),
        bus: Arc::clone(parts.bus),
        readiness: parts.readiness.clone(),
    };
    spawn(parts, &groups.core, "authz", authz::run(args.authz.clone(), deps, shutdown()));
    let deps = config_fetcher::Deps {
        world: world.clone(),
        log: Arc::clone(&store.log),
        snapshots: Arc::clone(&store.snapshots),
        bus: Arc::clone(parts.bus),
        readiness: parts.readiness.clone(),
    };
    spawn(
        parts,
        &groups.core,
        "config-fetcher",
        config_fetcher::run(args.config_fetcher.clone(), deps, shutdown()),
    );
    let deps = repo_poller::Deps {
        world: world.clone(),
        log: Arc::clone(&store.log),
        blobs: Arc::clone(&store.blobs),
        keys: Arc::clone(&store.keys),
        snapshots: Arc::clone(&store.snapshots),
        bus: Arc::clone(parts.bus),
        readiness: parts.readiness.clone(),
    };
    spawn(parts, &groups.core, "repo-poller", repo_poller::run(args.repo_poller.clone(), deps, shutdown()));
    let deps = delivery::Deps {
        world: world.clone(),
        log: Arc::clone(&store.log),
        blobs: Arc::clone(&store.blobs),
        snapshots: Arc::clone(&store.snapshots),
        bus: Arc::clone(parts.bus),
        readiness: parts.readiness.clone(),
    };
    spawn(parts, &groups.core, "delivery", delivery::run(args.delivery.clone(), deps, shutdown()));
}

/// Starts a service. One that is asked to stop before it was ready may end as it likes: it has nothing to finish.
fn spawn(
    parts: &Parts<'_>,
    group: &Group,
    name: &'static str,
    service: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) {
    let (readiness, shutdown) = (parts.readiness.clone(), group.shutdown.clone());
    group.supervisor.spawn(name, async move {
        let mut service = std::pin::pin!(service);
        let names = [name];
        let early = tokio::select! {
            biased;
            outcome = &mut service => outcome,
            () = readiness.wait_for(&names) => return service.await,
        };
        match early {
            Err(error) if shutdown.is_requested() => {
                tracing::debug!(service = name, error = format!("{error:#}"), "stopped before it was ready");
                Ok(())
            }
            outcome => outcome,
        }
    });
}
