//! Benchmarks of Kasbah. Each figure stands beside a baseline measured in the same run; each is the median of five runs.
//!
//! Purpose: `cargo xtask bench <scenario>…`. Deliberately absent: timed assertions in tests.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark measures real time and prints what it measured"
)]

mod agents;
mod bus;
mod console;
mod counting_disk;
mod figure;
mod index;
mod jetstream;
mod link;
mod log;
mod push;
mod record;
mod replicas;
mod simulation;
mod status;
mod tunnel;
mod usage;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};

use crate::figure::Figure;

/// That of the kasbah binary: what runs in this process, baselines too, is measured as it is shipped.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How often each figure is measured.
const RUNS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// The embedded log: durable appends and replay.
    Log,
    /// The log on one NATS server and on three: durable appends and replay.
    Jetstream,
    /// Many processes on NATS: a new one is ready, others take over.
    Replicas,
    /// Two gateways under thousands of simulated agents: memory, processor time, storms, one push for all.
    Agents,
    /// The bus over NATS: requests and byte streams.
    Bus,
    /// The link between agent and gateway: observations until they are durable, and one small push.
    Link,
    /// The simulation: steps a second on one core.
    Simulation,
    /// A cluster's API through the tunnel: latency, many clients, large lists, watches; and what the tunnel alone costs.
    Tunnel,
    /// From a push to the cluster: latency, first syncs, idle cost, memory, disk.
    Push,
    /// From a fact in the cluster or in Git to the status of its source.
    Status,
    /// What runs in the clusters: changes until they are told, a million objects, history, and what observing costs an agent.
    Index,
    /// The web page of a large environment in a browser, while it changes: first paint, longest task, keys on a slow machine, memory.
    Console,
}

#[derive(Debug, Parser)]
#[command(
    about = "Measures Kasbah beside a baseline of the same run; exits with 1 when a figure falls short"
)]
struct Arguments {
    /// Scenarios to run; all by default.
    scenarios: Vec<Scenario>,
    /// List the scenarios and exit.
    #[arg(long)]
    list: bool,
    /// Write figures and machine into docs/benchmarks.md.
    #[arg(long, conflicts_with = "quick")]
    record: bool,
    /// Quick measurement: one run instead of five, and no idle minutes.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    crowd: agents::AgentLoad,
    #[command(flatten)]
    index: index::IndexLoad,
    #[command(flatten)]
    console: console::ConsoleLoad,
    /// File for the figures as JSON.
    #[arg(long, default_value = "target/bench.json")]
    output: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<std::process::ExitCode> {
    if std::env::args().nth(1).as_deref() == Some(agents::bare::ARGUMENT) {
        agents::bare::hold(&std::env::args().nth(2).unwrap_or_default()).await?;
        return Ok(std::process::ExitCode::SUCCESS);
    }
    if std::env::args().nth(1).as_deref() == Some(tunnel::bare::ARGUMENT) {
        tunnel::bare::run(&std::env::args().skip(2).collect::<Vec<_>>()).await?;
        return Ok(std::process::ExitCode::SUCCESS);
    }
    if std::env::args().nth(1).as_deref() == Some(index::watcher::ARGUMENT) {
        index::watcher::run(&std::env::args().skip(2).collect::<Vec<_>>()).await?;
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let arguments = Arguments::parse();
    if arguments.list {
        list();
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let runs = if arguments.quick { 1 } else { RUNS };
    let mut figures: Vec<Figure> = Vec::new();
    let all = Scenario::value_variants();
    let scenarios = if arguments.scenarios.is_empty() { all } else { &arguments.scenarios };
    for scenario in scenarios {
        let measured = match scenario {
            Scenario::Log => log::run(runs).await.context("scenario log")?,
            Scenario::Jetstream => jetstream::run(runs).await.context("scenario jetstream")?,
            Scenario::Replicas => replicas::run(runs).await.context("scenario replicas")?,
            Scenario::Agents => {
                agents::run(runs, arguments.crowd, !arguments.quick).await.context("scenario agents")?
            }
            Scenario::Bus => bus::run(runs).await.context("scenario bus")?,
            Scenario::Link => link::run(runs).context("scenario link")?,
            Scenario::Simulation => simulation::run(runs).context("scenario simulation")?,
            Scenario::Tunnel => tunnel::run(runs).await.context("scenario tunnel")?,
            Scenario::Push => push::run(runs, !arguments.quick).await.context("scenario push")?,
            Scenario::Status => status::run(runs).await.context("scenario status")?,
            Scenario::Index => index::run(runs, arguments.index).await.context("scenario index")?,
            Scenario::Console => {
                console::run(runs, arguments.console, !arguments.quick).await.context("scenario console")?
            }
        };
        for figure in &measured {
            println!("{figure}");
        }
        figures.extend(measured);
    }
    if let Some(folder) = arguments.output.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&arguments.output, serde_json::to_string_pretty(&figures)?)?;
    println!("figures written to {}", arguments.output.display());
    if arguments.record {
        record::write(&figures)?;
    }
    let short = figures.iter().any(|figure| !figure.is_met());
    Ok(if short { std::process::ExitCode::FAILURE } else { std::process::ExitCode::SUCCESS })
}

/// Prints each scenario with what it measures.
fn list() {
    for scenario in Scenario::value_variants() {
        if let Some(value) = scenario.to_possible_value() {
            println!(
                "{}  {}",
                value.get_name(),
                value.get_help().map(ToString::to_string).unwrap_or_default()
            );
        }
    }
}
