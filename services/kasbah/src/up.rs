//! `kasbah up`: every server service in one process, on the in-process bus and the embedded store, or on NATS with any number
//! of others.

mod addresses;
mod args;
mod authority;
mod drain;
mod first_start;
mod nats;
mod services;
mod traced;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use bus::{Bus, LocalBus};
use chassis::{Metrics, Readiness, Shutdown, ShutdownTrigger};
use store::embedded::{EmbeddedStore, Options};
use world::World;

pub use addresses::Addresses;
pub use args::Args;

use crate::exit;
use crate::folder::{AUTHORITY_FILE, CLIENT_FILE, ClientFile};
use authority::Tls;
use drain::Groups;
use services::{Parts, start};
use traced::TracedBus;

/// Who makes a log, for people.
const CREATED_BY: &str = concat!("kasbah ", env!("CARGO_PKG_VERSION"));

/// Runs until SIGTERM or SIGINT; a second one ends the process without draining.
#[must_use]
pub fn main(args: Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("cannot start")),
    };
    let outcome = runtime.block_on(async {
        let world = World::real();
        let traces = chassis::logs::init(&world, &args.logs, &args.traces, "kasbah")?;
        let (trigger, shutdown) = ShutdownTrigger::new();
        let first = chassis::shutdown::signals()?;
        let heard = async {
            let name = first.await;
            tracing::info!(signal = name, "draining; a second signal ends at once");
            trigger.request();
            match chassis::shutdown::signals() {
                Ok(second) => anyhow::anyhow!("ended by a second {}", second.await),
                Err(error) => error.into(),
            }
        };
        let running = async {
            let bus: Arc<dyn Bus> = match args.nats.is_given() {
                true => Arc::new(args.nats.bus(&world).await?),
                false => Arc::new(LocalBus::new(world.clone())),
            };
            run(args, world, bus, shutdown, |addresses| println!("{addresses}")).await
        };
        let outcome = tokio::select! {
            biased;
            outcome = running => outcome,
            hurried = heard => Err(hurried),
        };
        let finishing = tokio::task::spawn_blocking(|| traces.finish());
        finishing.await.map_err(anyhow::Error::new).and(outcome)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(u8::try_from(exit::FAILED).unwrap_or(1))
}

/// Runs until shutdown is asked for, all services on `bus`; `ready` hears the addresses once everything is served.
///
/// # Errors
/// When the folder or a port cannot be taken, or a task ends unexpectedly: the message names it.
pub async fn run(
    args: Args,
    world: World,
    bus: Arc<dyn Bus>,
    shutdown: Shutdown,
    ready: impl FnOnce(&Addresses) + Send,
) -> anyhow::Result<()> {
    let args = args.resolved()?;
    if args.nats.is_given() {
        let folder = args.folder()?;
        world
            .disk
            .create_folder(folder)
            .with_context(|| format!("cannot make the data folder {}", folder.display()))?;
        let store = args.nats.store(&world).await?;
        if store.replicas == 1 {
            tracing::warn!("everything is kept once: with three NATS servers it would be kept three times");
        }
        return serve(&args, &world, &store.parts, bus, shutdown, ready).await;
    }
    let store = open_store(&args, &world)?;
    let outcome = serve(&args, &world, &store.parts(), bus, shutdown, ready).await;
    tokio::task::spawn_blocking(move || store.close()).await.context("the log's threads ended badly")?;
    outcome
}

fn open_store(args: &Args, world: &World) -> anyhow::Result<EmbeddedStore> {
    let folder = args.folder()?;
    let options = Options { created_by: CREATED_BY.to_owned(), ..Options::default() };
    let store = store::embedded::open(world, folder, options)
        .with_context(|| format!("cannot open the data folder {}", folder.display()))?;
    for torn in &store.torn {
        tracing::warn!(tail = ?torn, "a tail that was being written when the machine stopped was cut and kept aside");
    }
    Ok(store)
}

async fn serve(
    args: &Args,
    world: &World,
    store: &store::Parts,
    bus: Arc<dyn Bus>,
    shutdown: Shutdown,
    ready: impl FnOnce(&Addresses) + Send,
) -> anyhow::Result<()> {
    let folder = args.folder()?;
    let given = Tls::given(world, &args.tls, &args.dialled_host())?;
    repo_poller::check(&args.repo_poller, world)?;
    let listeners = addresses::Listeners::bind(world, args).await?;
    let has_authority = given.as_ref().is_none_or(|given| given.authority.is_some());
    let addresses = listeners.addresses(args, has_authority)?;
    let tls = match given {
        Some(given) => given,
        None => Tls::issued(world, &*store.keys, &args.tls_names(&addresses)).await?,
    };
    let mut args = args.clone();
    args.console.api_url.get_or_insert_with(|| addresses.api_url());
    let args = &args;
    leave_authority(world, &folder.join(AUTHORITY_FILE), tls.authority.as_deref())?;
    if args.repo_poller.allow_private_addresses {
        tracing::info!(
            "repositories on this machine and private networks are allowed (KASBAH_ALLOW_PRIVATE_ADDRESSES=false forbids them)"
        );
    }
    let bus: Arc<dyn Bus> = Arc::new(TracedBus::new(bus));
    let readiness = Readiness::new();
    let first_start = readiness.register("first start");
    let groups = Groups::new(world);
    let metrics = Metrics::new();
    start(
        Parts { args, world, store, bus: &bus, readiness: &readiness, metrics: &metrics, tls: &tls },
        &groups,
        listeners,
    )?;
    let introducing = async {
        introduce(args, world, &*bus, &addresses, &readiness).await?;
        first_start.set(true);
        tracing::info!(api = %addresses.api, gateway = %addresses.gateway, admin = %addresses.admin, "ready");
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
        outcome = groups.join(&*world.clock, args.drain, shutdown.clone()) => outcome,
        failed = introduced => Err(failed),
    }
}

/// Leaves in the folder what a client needs, and waits until every service serves.
async fn introduce(
    args: &Args,
    world: &World,
    bus: &dyn Bus,
    addresses: &Addresses,
    readiness: &Readiness,
) -> anyhow::Result<()> {
    readiness.wait_for(&["authz"]).await;
    first_start::ensure_owner(args, world, bus).await?;
    let client = ClientFile::new(addresses.api_url(), addresses.gateway_address(), addresses.has_authority);
    let client = serde_json::to_vec_pretty(&client)?;
    write_if_other(world, &addresses.folder.join(CLIENT_FILE), &client)?;
    readiness.wait_for(services::NAMES).await;
    Ok(())
}

/// Leaves what clients are to trust, or nothing where they trust the server anyway.
fn leave_authority(world: &World, path: &std::path::Path, authority: Option<&[u8]>) -> anyhow::Result<()> {
    match authority {
        Some(authority) => write_if_other(world, path, authority),
        None if world.disk.read(path).is_ok() => {
            world.disk.remove(path).with_context(|| format!("cannot remove {}", path.display()))
        }
        None => Ok(()),
    }
}

fn write_if_other(world: &World, path: &std::path::Path, bytes: &[u8]) -> anyhow::Result<()> {
    if world.disk.read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    world.disk.replace(path, bytes, false).with_context(|| format!("cannot write {}", path.display()))
}
