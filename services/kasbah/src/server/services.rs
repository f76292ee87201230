//! Which services run, and with what.

use std::sync::Arc;

use bus::Bus;
use chassis::{Metrics, Readiness, Shutdown};
use repo_poller::git::RealRepositories;
use world::World;
use world::network::Listener;

use super::addresses::Listeners;
use super::authority::Tls;
use super::drain::{Group, Groups};
use super::retention::RetentionArgs;
use super::settings::{ApiArgs, FirstStartArgs};

/// Protocols that agents speak to the gateway before the roles turn round.
const TUNNEL_PROTOCOLS: &[&[u8]] = &[b"http/1.1"];
/// Protocols of our API and of clusters' APIs, best first.
const API_PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Which services a process runs, each with its settings.
#[derive(Debug, Clone, Default)]
pub struct Services {
    pub(super) authz: Option<(authz::Args, FirstStartArgs)>,
    pub(super) retention: Option<RetentionArgs>,
    pub(super) config_fetcher: Option<config_fetcher::Args>,
    pub(super) repo_poller: Option<repo_poller::Args>,
    pub(super) delivery: Option<delivery::Args>,
    pub(super) resource_indexer: Option<resource_indexer::Args>,
    pub(super) event_relay: Option<event_relay::Args>,
    pub(super) tunnel_gateway: Option<tunnel_gateway::Args>,
    pub(super) console: Option<ApiArgs>,
}

impl Services {
    /// The names under which they say that they are ready.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let running = [
            (self.authz.is_some(), "authz"),
            (self.config_fetcher.is_some(), "config-fetcher"),
            (self.repo_poller.is_some(), "repo-poller"),
            (self.delivery.is_some(), "delivery"),
            (self.resource_indexer.is_some(), "resource-indexer"),
            (self.event_relay.is_some(), "event-relay"),
            (self.tunnel_gateway.is_some(), "tunnel-gateway"),
            (self.console.is_some(), "console"),
        ];
        running.into_iter().filter_map(|(runs, name)| runs.then_some(name)).collect()
    }
}

/// What the services are made of.
pub(super) struct Parts<'a> {
    pub(super) world: &'a World,
    pub(super) store: &'a store::Parts,
    pub(super) bus: &'a Arc<dyn Bus>,
    pub(super) readiness: &'a Readiness,
    pub(super) metrics: &'a Metrics,
    /// What those who dial are shown; there where somebody does.
    pub(super) tls: Option<&'a Tls>,
}

/// Starts them.
///
/// # Errors
/// When TLS cannot be set up.
pub(super) fn start(
    parts: Parts<'_>,
    services: &Services,
    groups: &Groups,
    listeners: Listeners,
) -> anyhow::Result<()> {
    let Listeners { admin, api, gateway, clusters } = listeners;
    start_every_process(&parts, groups, admin);
    start_core(&parts, services, groups)?;
    if let (Some(args), Some(listener), Some(tls)) = (&services.tunnel_gateway, gateway, parts.tls) {
        start_tunnel_gateway(&parts, args, groups, (listener, clusters), tls)?;
    }
    if let (Some(args), Some(listener), Some(tls)) = (&services.console, api, parts.tls) {
        start_console(&parts, args, groups, listener, tls)?;
    }
    Ok(())
}

fn start_every_process(parts: &Parts<'_>, groups: &Groups, admin: Box<dyn Listener>) {
    let (core, shutdown) = (&groups.core.supervisor, &groups.core.shutdown);
    let (readiness, metrics) = (parts.readiness.clone(), parts.metrics.clone());
    let serving = chassis::admin::serve(parts.world.clone(), admin, readiness, metrics, shutdown.clone());
    core.spawn("admin listener", serving);
    if let Some(tls) = parts.tls {
        core.spawn("certificate renewal", tls.keep(parts.world, shutdown.clone()));
    }
}

fn start_tunnel_gateway(
    parts: &Parts<'_>,
    args: &tunnel_gateway::Args,
    groups: &Groups,
    (listener, clusters): (Box<dyn Listener>, Option<Box<dyn Listener>>),
    tls: &Tls,
) -> anyhow::Result<()> {
    let clusters = match clusters {
        Some(listener) => {
            let tls = Some(tls.certificate.config(parts.world, API_PROTOCOLS)?);
            Some(tunnel_gateway::ClusterListener { listener, tls })
        }
        None => None,
    };
    let tls = tls.certificate.config(parts.world, TUNNEL_PROTOCOLS)?;
    let deps = tunnel_gateway::Deps {
        world: parts.world.clone(),
        log: Arc::clone(&parts.store.log),
        blobs: Arc::clone(&parts.store.blobs),
        keys: Arc::clone(&parts.store.keys),
        snapshots: Arc::clone(&parts.store.snapshots),
        bus: Arc::clone(parts.bus),
        listener,
        clusters,
        tls: Some(tls).filter(|_| !args.tunnel_insecure_plain_text),
        readiness: parts.readiness.clone(),
        metrics: parts.metrics.clone(),
    };
    let service = tunnel_gateway::run(args.clone(), deps, groups.edge.shutdown.clone());
    spawn(parts, &groups.edge, "tunnel-gateway", service);
    Ok(())
}

fn start_console(
    parts: &Parts<'_>,
    args: &ApiArgs,
    groups: &Groups,
    listener: Box<dyn Listener>,
    tls: &Tls,
) -> anyhow::Result<()> {
    let deps = console::Deps {
        world: parts.world.clone(),
        log: Arc::clone(&parts.store.log),
        keys: Arc::clone(&parts.store.keys),
        bus: Arc::clone(parts.bus),
        listener,
        tls: Some(tls.certificate.config(parts.world, API_PROTOCOLS)?),
        readiness: parts.readiness.clone(),
        metrics: parts.metrics.clone(),
    };
    let service = console::run(args.console.clone(), deps, groups.edge.shutdown.clone());
    spawn(parts, &groups.edge, "console", service);
    Ok(())
}

fn start_core(parts: &Parts<'_>, services: &Services, groups: &Groups) -> anyhow::Result<()> {
    let core = &groups.core;
    let shutdown = || -> Shutdown { core.shutdown.clone() };
    let (world, store) = (parts.world, parts.store);
    if let Some((args, _)) = &services.authz {
        let deps = authz::Deps {
            world: world.clone(),
            log: Arc::clone(&store.log),
            keys: Arc::clone(&store.keys),
            snapshots: Arc::clone(&store.snapshots),
            bus: Arc::clone(parts.bus),
            readiness: parts.readiness.clone(),
        };
        spawn(parts, core, "authz", authz::run(args.clone(), deps, shutdown()));
    }
    if let Some(args) = &services.retention {
        let metrics = parts.metrics.clone();
        let keeping = args.clone().run(store.clone(), world.clone(), metrics, shutdown());
        core.supervisor.spawn("retention", keeping);
    }
    if let Some(args) = &services.config_fetcher {
        let deps = config_fetcher::Deps {
            world: world.clone(),
            log: Arc::clone(&store.log),
            snapshots: Arc::clone(&store.snapshots),
            bus: Arc::clone(parts.bus),
            readiness: parts.readiness.clone(),
        };
        spawn(parts, core, "config-fetcher", config_fetcher::run(args.clone(), deps, shutdown()));
    }
    if let Some(args) = &services.repo_poller {
        start_repo_poller(parts, args, groups)?;
    }
    if let Some(args) = &services.delivery {
        let deps = delivery::Deps {
            world: world.clone(),
            log: Arc::clone(&store.log),
            blobs: Arc::clone(&store.blobs),
            snapshots: Arc::clone(&store.snapshots),
            bus: Arc::clone(parts.bus),
            readiness: parts.readiness.clone(),
            metrics: parts.metrics.clone(),
        };
        spawn(parts, core, "delivery", delivery::run(args.clone(), deps, shutdown()));
    }
    if let Some(args) = &services.resource_indexer {
        let deps = resource_indexer::Deps {
            world: world.clone(),
            log: Arc::clone(&store.log),
            blobs: Arc::clone(&store.blobs),
            bus: Arc::clone(parts.bus),
            readiness: parts.readiness.clone(),
            metrics: parts.metrics.clone(),
        };
        spawn(parts, core, "resource-indexer", resource_indexer::run(args.clone(), deps, shutdown()));
    }
    if let Some(args) = &services.event_relay {
        start_event_relay(parts, args, groups);
    }
    Ok(())
}

fn start_event_relay(parts: &Parts<'_>, args: &event_relay::Args, groups: &Groups) {
    let deps = event_relay::Deps {
        world: parts.world.clone(),
        log: Arc::clone(&parts.store.log),
        keys: Arc::clone(&parts.store.keys),
        snapshots: Arc::clone(&parts.store.snapshots),
        consumers: parts.store.consumers.clone(),
        bus: Arc::clone(parts.bus),
        readiness: parts.readiness.clone(),
        metrics: parts.metrics.clone(),
    };
    let service = event_relay::run(args.clone(), deps, groups.core.shutdown.clone());
    spawn(parts, &groups.core, "event-relay", service);
}

fn start_repo_poller(parts: &Parts<'_>, args: &repo_poller::Args, groups: &Groups) -> anyhow::Result<()> {
    let repositories = RealRepositories::new(args, parts.world)?;
    let deps = repo_poller::Deps {
        repositories: Arc::new(repositories),
        world: parts.world.clone(),
        log: Arc::clone(&parts.store.log),
        blobs: Arc::clone(&parts.store.blobs),
        keys: Arc::clone(&parts.store.keys),
        snapshots: Arc::clone(&parts.store.snapshots),
        bus: Arc::clone(parts.bus),
        readiness: parts.readiness.clone(),
        metrics: parts.metrics.clone(),
    };
    let service = repo_poller::run(args.clone(), deps, groups.core.shutdown.clone());
    spawn(parts, &groups.core, "repo-poller", service);
    Ok(())
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
