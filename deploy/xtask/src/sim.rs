//! `cargo xtask sim`: builds the simulation for release and hands over to it.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use crate::report;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// Arguments of the simulation; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Its exit code is the simulation's own: 1 when a seed fails.
pub fn run(arguments: &Arguments) -> ExitCode {
    report::hand_over(prepared(arguments))
}

fn prepared(arguments: &Arguments) -> anyhow::Result<Command> {
    let mut command = testkit::cargo();
    command.args(["run", "--quiet", "--locked", "--release", "--package", "simulation", "--manifest-path"]);
    command.arg(report::root()?.join("Cargo.toml")).arg("--").args(&arguments.arguments);
    Ok(command)
}
