//! The `kasbah` binary: every server service in one process (`kasbah up`) or in separate processes, and the command-line client.
//!
//! Purpose: starts the services and prints results. The services, behind the HTTP API, decide what a command does.
//!
//! Laws:
//! - An invalid setting is refused by name before anything starts, with exit code 64.
//! - A client command that fails prints the reason in one line on standard error and exits with the code that `--help` documents.
//! - Only the command that created a secret prints it, once. No secret is passed on the command line of another process.
//!
//! Deliberately absent: access to state other than the HTTP API. The commands of `kasbah log` that read a file, or a log that no
//! server has open, read records and fold them; they change nothing, and write only copies.
#![warn(missing_docs)]

pub mod cli;
pub mod client;
pub mod exit;
pub mod folder;
pub mod server;

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::cli::{Command, CommandLine};

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let words = cli::client_options_behind_command(std::env::args_os().collect());
    let serves = cli::is_server(&words);
    let parsed = chassis::args::parse_from::<CommandLine>(words, std::env::var_os("KASBAH_CONFIG"));
    let line = parsed.unwrap_or_else(|refused| {
        let no_command = matches!(&refused, chassis::args::Refused::CommandLine(error)
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
        refused.exit(if serves && !no_command { exit::BAD_CONFIGURATION } else { exit::USAGE })
    });
    match line.command {
        Command::Client(command) => client::run(*command),
        Command::Up(args) => server::main(args.settings()),
        Command::SingleService(alone) => server::main(alone.settings()),
        Command::NatsAccounts(args) => {
            print!("{}", args.text());
            ExitCode::SUCCESS
        }
        Command::JudgeImported => match resource_indexer::imported::judge_imported() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Command::Completion { shell } => match std::io::stdout().write_all(&cli::completion(shell)) {
            Ok(()) => ExitCode::SUCCESS,
            // A reader that has enough, such as `head`, is no failure of ours to report.
            Err(_) => ExitCode::FAILURE,
        },
    }
}
