//! `cargo xtask bench`: builds the `loadtest` program and hands over to it.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::{report, testbed};

#[derive(clap::Args)]
pub struct Arguments {
    /// Scenarios to run; all by default.
    scenarios: Vec<String>,
    /// List the scenarios and measure nothing.
    #[arg(long)]
    list: bool,
    /// Write figures and machine into docs/benchmarks.md.
    #[arg(long, conflicts_with = "quick")]
    record: bool,
    /// Quick measurement: one run instead of five, no idle minutes, and programs that are built faster and run a little slower.
    #[arg(long)]
    quick: bool,
    /// Number of simulated agents in the scenario of that name; 10,000 by default.
    #[arg(long, value_name = "COUNT")]
    agents: Option<usize>,
    /// Reports per agent and minute while their cost is measured; 6 by default.
    #[arg(long, value_name = "COUNT")]
    reports_per_minute: Option<u32>,
}

/// Its exit code is the scenarios' own: 1 when a figure falls short.
pub fn run(arguments: &Arguments) -> ExitCode {
    report::hand_over(prepared(arguments))
}

fn prepared(arguments: &Arguments) -> anyhow::Result<Command> {
    let root = report::root()?;
    let profile = if arguments.quick { "quick" } else { "release" };
    let build = |arguments: &[&str]| {
        report::run(testkit::cargo().current_dir(&root).args(["build", "--locked"]).args(arguments))
    };
    if arguments.list {
        build(&["--profile", profile, "--quiet", "--package", "loadtest"])?;
    } else {
        report::step("what the scenarios run on", || testbed::build(testbed::ALL))?;
        report::step("what is measured", || match arguments.quick {
            true => build(&[
                "--profile",
                "quick",
                "--package",
                "loadtest",
                "--package",
                "kasbah",
                "--package",
                "agent",
                "--package",
                "simulation",
            ]),
            false => {
                // Each by itself, with the features that ship and no others.
                build(&["--release", "--package", "kasbah"])?;
                build(&["--profile", "agent", "--package", "agent"])?;
                if arguments.scenarios.is_empty()
                    || arguments.scenarios.iter().any(|name| name == "simulation")
                {
                    build(&["--release", "--package", "simulation"])?;
                }
                build(&["--release", "--package", "loadtest"])
            }
        })?;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = testkit::as_at_a_prompt(target.join(profile).join("loadtest"));
    command.current_dir(&root).args(&arguments.scenarios);
    command.args(arguments.list.then_some("--list")).args(arguments.record.then_some("--record"));
    command.args(arguments.quick.then_some("--quick"));
    if let Some(agents) = arguments.agents {
        command.args(["--agents", &agents.to_string()]);
    }
    if let Some(reports) = arguments.reports_per_minute {
        command.args(["--reports-per-minute", &reports.to_string()]);
    }
    Ok(command)
}
