//! The binary.

use agent::kubernetes::{Connections, KubeOptions};
use agent::{Args, Deps};
use anyhow::Context as _;
use chassis::traces::Process;
use chassis::{Metrics, Readiness, ShutdownTrigger};
use events::InstanceId;
use world::World;

/// What is kept of each object lies between bodies that wait for the server. With glibc's allocator nothing of that memory is given back
/// once they are sent (decision 0058).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    let args: Args = chassis::args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    runtime.block_on(start(args))
}

async fn start(args: Args) -> std::process::ExitCode {
    let world = World::real();
    let (metrics, instance) = (Metrics::new(), InstanceId(world.new_uuid()));
    let process = Process {
        service: "kasbah-agent",
        version: env!("CARGO_PKG_VERSION"),
        instance: instance.to_string(),
    };
    let traces = match chassis::logs::init(&world, &args.logs, &args.traces, &process, &metrics) {
        Ok(traces) => traces,
        Err(error) => {
            eprintln!("error: {error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    let (trigger, shutdown) = ShutdownTrigger::new();
    match chassis::shutdown::signals() {
        Ok(signals) => {
            let heard = async move {
                let signal = signals.await;
                tracing::info!(signal, "stopping");
                trigger.request();
            };
            world.spawner.spawn("signals", Box::pin(heard));
        }
        Err(error) => {
            eprintln!("error: cannot listen for signals: {error}");
            return std::process::ExitCode::FAILURE;
        }
    }
    let options = KubeOptions { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
    let outcome = match Connections::open(&world, &options).await.context("no cluster") {
        Ok(connections) => {
            let deps = Deps { world, connections, readiness: Readiness::new(), metrics, instance };
            agent::run(args, deps, shutdown).await
        }
        Err(error) => Err(error),
    };
    // It blocks, and the last spans are sent meanwhile.
    let finished = tokio::task::spawn_blocking(|| traces.finish()).await;
    match outcome.and(finished.map_err(Into::into)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
