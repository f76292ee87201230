//! The server: every service in one process (`kasbah up`), on the in-process bus and the embedded store, or on NATS with any
//! number of others; or one service by itself on NATS (`kasbah delivery`).

mod accounts;
mod addresses;
mod authority;
mod drain;
mod first_start;
mod measured;
pub mod metrics;
mod nats;
mod observed;
mod retention;
mod services;
mod settings;
mod single_service;
mod up;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use bus::Bus;
use chassis::{Metrics, Readiness, Shutdown, ShutdownTrigger, traces};
use store::embedded::{EmbeddedStore, Options, TornTail};
use world::World;

pub use accounts::AccountsArgs;
pub use addresses::Addresses;
pub use nats::NatsArgs;
pub use services::Services;
pub use settings::Settings;
pub use single_service::SingleService;
pub use up::UpArgs;

use crate::exit;
use crate::folder::{AUTHORITY_FILE, CLIENT_FILE, ClientFile};
use authority::Tls;
use drain::Groups;
use measured::MeasuredLog;
use observed::ObservedBus;
use services::{Parts, start};

/// Who makes a log, for people.
pub(crate) const CREATED_BY: &str = concat!("kasbah ", env!("CARGO_PKG_VERSION"));

/// Runs until SIGTERM or SIGINT; a second one ends the process without draining.
#[must_use]
pub fn main(settings: anyhow::Result<Settings>) -> ExitCode {
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => return failed(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("cannot start")),
    };
    match runtime.block_on(run_until_signals(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(u8::try_from(exit::FAILED).unwrap_or(1))
}

async fn run_until_signals(settings: Settings) -> anyhow::Result<()> {
    let world = World::real();
    let metrics = Metrics::new();
    let process = traces::Process {
        service: settings.name,
        version: env!("CARGO_PKG_VERSION"),
        instance: world.new_uuid().to_string(),
    };
    let (logs, traces) = (&settings.process.logs, &settings.process.traces);
    let traces = chassis::logs::init(&world, logs, traces, &process, &metrics)?;
    let (trigger, shutdown) = ShutdownTrigger::new();
    let first = chassis::shutdown::signals()?;
    let heard = async {
        let name = first.await;
        tracing::info!(signal = name, "draining; a second signal stops the process at once");
        trigger.request();
        match chassis::shutdown::signals() {
            Ok(second) => anyhow::anyhow!("ended by a second {}", second.await),
            Err(error) => error.into(),
        }
    };
    let running = async {
        let bus = settings.bus(&world, &metrics).await?;
        run(settings, world, bus, metrics, shutdown, |addresses| println!("{addresses}")).await
    };
    let outcome = tokio::select! {
        biased;
        outcome = running => outcome,
        hurried = heard => Err(hurried),
    };
    let finishing = tokio::task::spawn_blocking(|| traces.finish());
    finishing.await.map_err(anyhow::Error::new).and(outcome)
}

/// Runs until shutdown is asked for, all services on `bus`; `ready` hears the addresses once everything is served.
///
/// # Errors
/// When the folder or a port cannot be taken, or a task ends unexpectedly: the message names it.
pub async fn run(
    settings: Settings,
    world: World,
    bus: Arc<dyn Bus>,
    metrics: Metrics,
    shutdown: Shutdown,
    ready: impl FnOnce(&Addresses) + Send,
) -> anyhow::Result<()> {
    if settings.nats.is_given() {
        if let Some(folder) = &settings.folder {
            let made = world.disk.create_folder(folder);
            made.with_context(|| format!("cannot create the data folder {}", folder.display()))?;
        }
        let makes_log = authz::ACCESS.makes_log && settings.services.authz.is_some();
        let store = settings.nats.store(&world, settings.name, makes_log).await?;
        metrics::watch_log(&metrics, store.connection.clone());
        if store.replicas == 1 {
            tracing::warn!("data has one replica: with three NATS servers it would have three");
        }
        return serve(settings, &world, &store.parts, bus, metrics, shutdown, ready).await;
    }
    let store = open_store(settings.folder()?, &world)?;
    metrics::watch_folder(&metrics, &world, settings.folder()?.to_owned());
    let outcome = serve(settings, &world, &store.parts(), bus, metrics, shutdown, ready).await;
    tokio::task::spawn_blocking(move || store.close()).await.context("the log's threads failed")?;
    outcome
}

fn open_store(folder: &Path, world: &World) -> anyhow::Result<EmbeddedStore> {
    let options = Options { created_by: CREATED_BY.to_owned(), ..Options::default() };
    let store = store::embedded::open(world, folder, options)
        .with_context(|| format!("cannot open the data folder {}", folder.display()))?;
    for torn in &store.torn {
        let TornTail { segment, offset, bytes, kept_in } = torn;
        tracing::warn!(
            segment,
            offset,
            bytes,
            kept_in,
            "an incomplete record from an unclean stop was removed from the log's end and kept aside"
        );
    }
    Ok(store)
}

async fn serve(
    mut settings: Settings,
    world: &World,
    store: &store::Parts,
    bus: Arc<dyn Bus>,
    metrics: Metrics,
    shutdown: Shutdown,
    ready: impl FnOnce(&Addresses) + Send,
) -> anyhow::Result<()> {
    let given = Tls::given(world, &settings)?;
    let listeners = addresses::Listeners::bind(world, &settings).await?;
    let has_authority = given.as_ref().is_none_or(|given| given.authority.is_some());
    let addresses = listeners.addresses(&settings, has_authority)?;
    let tls = match given {
        Some(given) => Some(given),
        None if addresses.is_dialled() => {
            Some(Tls::issued(world, &*store.keys, &settings.tls_names(&addresses)).await?)
        }
        None => None,
    };
    if let Some(api) = &mut settings.services.console {
        api.console.api_url = api.console.api_url.take().or_else(|| addresses.api_url());
        let authority = tls.as_ref().and_then(|tls| tls.authority.as_deref());
        leave_authority(world, &settings.folder()?.join(AUTHORITY_FILE), authority)?;
    }
    settings.let_own_page_in(&addresses);
    let bus: Arc<dyn Bus> = Arc::new(ObservedBus::new(bus, world.clone(), &metrics));
    let readiness = Readiness::new();
    let first_start = readiness.register("first start");
    let groups = Groups::new(world);
    chassis::metrics::watch_process(&metrics, world);
    chassis::metrics::show_version(&metrics, env!("CARGO_PKG_VERSION"));
    if let Some(tls) = &tls {
        tls.certificate.show_end(&metrics);
    }
    let log = Arc::new(MeasuredLog::new(Arc::clone(&store.log), world.clone(), &metrics));
    let watching = Arc::clone(&log).watch_projections(groups.core.shutdown.clone());
    groups.core.supervisor.spawn("projections' lag", watching);
    let store = &store::Parts { log, ..store.clone() };
    let parts =
        Parts { world, store, bus: &bus, readiness: &readiness, metrics: &metrics, tls: tls.as_ref() };
    start(parts, &settings.services, &groups, listeners)?;
    let introducing = async {
        introduce(&settings, world, &*bus, &addresses, &readiness).await?;
        first_start.set(true);
        let (api, gateway) =
            (addresses.api.map(tracing::field::display), addresses.gateway.map(tracing::field::display));
        tracing::info!(api, gateway, admin = %addresses.admin, "ready");
        ready(&addresses);
        anyhow::Ok(())
    };
    let introduced = async {
        match introducing.await {
            // Who is asked to stop before it was ready drains all the same.
            Err(failed) if !shutdown.is_requested() => failed,
            _ => {
                shutdown.requested().await;
                first_start.set(false);
                std::future::pending().await
            }
        }
    };
    tokio::select! {
        biased;
        outcome = groups.join(&*world.clock, settings.process.drain, shutdown.clone()) => outcome,
        failed = introduced => Err(failed),
    }
}

/// Leaves in the folder what a client needs, and waits until every service serves.
async fn introduce(
    settings: &Settings,
    world: &World,
    bus: &dyn Bus,
    addresses: &Addresses,
    readiness: &Readiness,
) -> anyhow::Result<()> {
    if let Some((_, first_start)) = &settings.services.authz {
        readiness.wait_for(&["authz"]).await;
        let shared = settings.nats.is_given();
        first_start::ensure_owner(first_start, settings.folder()?, shared, world, bus).await?;
    }
    if let Some(url) = addresses.api_url() {
        let client = ClientFile::new(
            url,
            addresses.agents_dial.clone(),
            addresses.clusters_url.clone(),
            addresses.has_authority,
        )
        .with_page(addresses.page_url());
        let client = serde_json::to_vec_pretty(&client)?;
        write_if_other(world, &settings.folder()?.join(CLIENT_FILE), &client)?;
    }
    readiness.wait_for(&settings.services.names()).await;
    Ok(())
}

/// Leaves what clients are to trust, or nothing where they trust the server anyway.
fn leave_authority(world: &World, path: &Path, authority: Option<&[u8]>) -> anyhow::Result<()> {
    match authority {
        Some(authority) => write_if_other(world, path, authority),
        None if world.disk.read(path).is_ok() => {
            world.disk.remove(path).with_context(|| format!("cannot remove {}", path.display()))
        }
        None => Ok(()),
    }
}

fn write_if_other(world: &World, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if world.disk.read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    world.disk.replace(path, bytes, false).with_context(|| format!("cannot write {}", path.display()))
}
