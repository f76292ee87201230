//! The command line.

use std::ffi::OsString;

use chassis::args::ConfigArgs;
use clap::{Parser, Subcommand};

use crate::client::ClientCommand;
use crate::{exit, up};

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
#[derive(Debug, Subcommand)]
pub enum Command {
    /// A command of the client.
    #[command(flatten)]
    Client(Box<ClientCommand>),
    /// Runs every server service in this process, with everything that they keep in one folder
    Up(Box<up::Args>),
}

/// Whether these words start a server process, whose mistakes are mistakes of settings.
#[must_use]
pub fn is_server(words: &[OsString]) -> bool {
    words.iter().skip(1).any(|word| word == "up")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
