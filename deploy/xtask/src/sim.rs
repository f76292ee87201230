//! `cargo xtask sim`: builds the simulation for release and hands over to it.

use std::process::{Command, ExitCode};

use crate::report;

#[derive(clap::Args)]
pub struct Arguments {
    /// Seeds to run.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    seeds: u64,
    /// The first seed; without it, one that nobody ran yet.
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// Run this seed alone, and tell all about it; RUST_LOG shows what the services log.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from", "keep"])]
    seed: Option<u64>,
    /// Write each step of that seed there.
    #[arg(long, value_name = "FILE", requires = "seed")]
    steps: Option<std::path::PathBuf>,
    /// Keep failing seeds in services/simulation/tests/kept_seeds.txt, which the tests run first.
    #[arg(long)]
    keep: bool,
}

/// Its exit code is the simulation's own: 1 when a seed fails.
pub fn run(arguments: &Arguments) -> ExitCode {
    report::hand_over(prepared(arguments))
}

fn prepared(arguments: &Arguments) -> anyhow::Result<Command> {
    let mut command = Command::new("cargo");
    command.current_dir(report::root()?);
    command.args(["run", "--quiet", "--locked", "--release", "--package", "simulation", "--"]);
    match arguments.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => command.args(["--seeds", &arguments.seeds.to_string()]),
    };
    if let Some(from) = arguments.from {
        command.args(["--from", &from.to_string()]);
    }
    if let Some(steps) = &arguments.steps {
        command.arg("--steps").arg(std::path::absolute(steps)?);
    }
    command.args(arguments.keep.then_some("--keep"));
    Ok(command)
}
