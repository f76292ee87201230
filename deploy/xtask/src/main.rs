//! `cargo xtask`: commands that a developer or CI runs from a clone.
//!
//! Each command prints its steps and their duration, fetches its dependencies by itself (into a cache folder outside of
//! the build folder, once per pinned version), and leaves no process running.
#![allow(
    clippy::disallowed_methods,
    reason = "tasks are timed by the machine's clock and run on this machine"
)]

mod bench;
mod cache;
mod changed;
mod chaos;
mod check;
mod client;
mod demo;
mod golang;
mod image;
mod record;
mod report;
mod sim;
mod testbed;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Commands that a developer or CI runs from a clone of Kasbah.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the main job on this machine: server, cluster, agent and a Git repository with a demo shop.
    Demo(demo::Arguments),
    /// Kill, stop and disconnect real processes under load; then check that nothing is lost, doubled or leaked.
    Chaos(chaos::Arguments),
    /// Fetch and build what the tests need, and run every check.
    Test(check::Arguments),
    /// Run the services in a simulated world with any number of seeds, and inject faults.
    Sim(sim::Arguments),
    /// Measure, and compare with a baseline of the same run.
    Bench(bench::Arguments),
    /// Build the agent's container image as a tar file.
    Image(image::Arguments),
    /// Build, start and stop a real control plane on this machine.
    #[command(subcommand)]
    Testbed(testbed::Command),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Chaos(arguments) => chaos::run(&arguments),
        Command::Test(arguments) => check::run(&arguments),
        Command::Sim(arguments) => return sim::run(&arguments),
        Command::Bench(arguments) => return bench::run(&arguments),
        Command::Image(arguments) => image::run(&arguments),
        Command::Testbed(command) => testbed::run(&command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
