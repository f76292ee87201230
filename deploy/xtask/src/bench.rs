//! `cargo xtask bench`: builds the `loadtest` program and hands over to it.

use std::process::{Command, ExitCode};

use crate::{report, testbed};

#[derive(clap::Args)]
pub struct Arguments {
    /// Which scenarios; all without any.
    scenarios: Vec<String>,
    /// Name the scenarios and measure nothing.
    #[arg(long)]
    list: bool,
    /// Write figures and machine into docs/benchmarks.md.
    #[arg(long, conflicts_with = "quick")]
    record: bool,
    /// A first look: one run instead of five, and no idle minutes.
    #[arg(long)]
    quick: bool,
    /// How many agents are simulated, for the scenario of that name; 10,000 when not given.
    #[arg(long, value_name = "COUNT")]
    agents: Option<usize>,
    /// How often each of them reports something a minute, while it is looked at what that costs; 6 when not given.
    #[arg(long, value_name = "COUNT")]
    reports_per_minute: Option<u32>,
}

/// Its exit code is the scenarios' own: 1 when a figure falls short.
pub fn run(arguments: &Arguments) -> ExitCode {
    report::hand_over(prepared(arguments))
}

fn prepared(arguments: &Arguments) -> anyhow::Result<Command> {
    let root = report::root()?;
    if !arguments.list {
        report::step("what the scenarios run on", || testbed::build(testbed::ALL))?;
        report::step("what is measured, built for release", || {
            report::run(cargo_build(&root).args([
                "--release",
                "--package",
                "loadtest",
                "--package",
                "kasbah",
            ]))?;
            report::run(cargo_build(&root).args(["--profile", "agent", "--package", "agent"]))?;
            if arguments.scenarios.is_empty() || arguments.scenarios.iter().any(|name| name == "simulation") {
                // By itself: its parts of the log and the bus are not in what is shipped.
                report::run(cargo_build(&root).args(["--release", "--package", "simulation"]))?;
            }
            Ok(())
        })?;
    }
    let mut command = testkit::cargo();
    command.current_dir(&root).args(["run", "--quiet", "--release", "--package", "loadtest", "--"]);
    command.args(&arguments.scenarios);
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

fn cargo_build(root: &std::path::Path) -> Command {
    let mut command = testkit::cargo();
    command.current_dir(root).args(["build", "--locked"]);
    command
}
