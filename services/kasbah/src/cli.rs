//! The command line.

use std::ffi::OsString;

use chassis::args::ConfigArgs;
use clap::{Parser, Subcommand as _};

use crate::client::ClientCommand;
use crate::exit;
use crate::server::{AccountsArgs, Alone, UpArgs};

/// Event-sourced control plane for fleets of Kubernetes clusters
#[derive(Debug, Parser)]
#[command(name = "kasbah", version, after_help = exit::HELP, propagate_version = true)]
pub struct CommandLine {
    /// The file with settings.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// A command of the client.
    #[command(flatten)]
    Client(Box<ClientCommand>),
    /// Runs every server service in this process, with everything that they keep in one folder
    Up(Box<UpArgs>),
    /// Runs one service.
    #[command(flatten)]
    Alone(Box<Alone>),
    /// Prints the accounts for NATS servers: what each service may say and hear there, and what subscribers from outside may hear
    NatsAccounts(AccountsArgs),
}

/// Whether these words start a server process, whose mistakes are mistakes of settings.
#[must_use]
pub fn is_server(words: &[OsString]) -> bool {
    let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match word {
            "--config" => drop(words.next()),
            option if option.starts_with('-') => {}
            command => return command == "up" || Alone::has_subcommand(command),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn the_commands_that_run_services_are_told_from_those_of_the_client() {
        let server = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            is_server(&words)
        };
        assert!(server("kasbah up"));
        assert!(server("kasbah --config file tunnel-gateway --nats nats://nats-0"));
        assert!(!server("kasbah agent register delivery"));
        assert!(!server("kasbah --config up group list"));
        assert!(!server("kasbah --help"));
    }
}
