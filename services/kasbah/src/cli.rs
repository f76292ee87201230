//! The command line.

use std::ffi::OsString;

use chassis::args::ConfigArgs;
use clap::{Args as _, CommandFactory as _, Parser, Subcommand as _};
use clap_complete::Shell;

use crate::client::{ClientCommand, Common};
use crate::exit;
use crate::server::{AccountsArgs, SingleService, UpArgs};

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
    /// Run every server service in this process, with all data in one folder
    Up(Box<UpArgs>),
    /// Run one service.
    #[command(flatten)]
    SingleService(Box<SingleService>),
    /// Print the accounts for NATS servers: what each service may publish and subscribe to, and what external subscribers may
    /// subscribe to
    NatsAccounts(AccountsArgs),
    /// Answer with what imported health rules say of objects: a process that the index starts for them, and may kill.
    #[command(hide = true)]
    JudgeImported,
    /// Print a completion script for a shell, such as `source <(kasbah completion bash)`
    Completion {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
}

/// The completion script of a shell.
#[must_use]
pub fn completion(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "kasbah", &mut script);
    script
}

/// Moves the client's options that stand before the command to behind it, as in `kasbah -o json source list`: on the left they
/// would be options of the servers' commands, too.
#[must_use]
pub fn client_options_behind_command(words: Vec<OsString>) -> Vec<OsString> {
    let client = Common::augment_args(clap::Command::new("client"));
    let is_client_option = |word: &str| {
        client.get_arguments().any(|option| {
            let long = option.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
            long || option.get_short().is_some_and(|short| word.strip_prefix('-') == Some(&short.to_string()))
        })
    };
    let mut words = words.into_iter();
    let (mut left, mut moved) = (Vec::from_iter(words.next()), Vec::new());
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let option = text.split_once('=').map_or(text.as_str(), |(option, _)| option);
        match option {
            "--config" if option == text => left.extend([word].into_iter().chain(words.next())),
            _ if is_client_option(option) && option == text => {
                moved.extend([word].into_iter().chain(words.next()));
            }
            _ if is_client_option(option) => moved.push(word),
            // `-ojson`
            _ if !text.starts_with("--") && text.get(..2).is_some_and(is_client_option) => moved.push(word),
            _ if text.starts_with('-') => left.push(word),
            _ => {
                left.push(word);
                break;
            }
        }
    }
    left.into_iter().chain(moved).chain(words).collect()
}

/// Whether these words start a server process, whose mistakes are mistakes of settings.
#[must_use]
pub fn is_server(words: &[OsString]) -> bool {
    let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match word {
            "--config" => drop(words.next()),
            option if option.starts_with('-') => {}
            command => return command == "up" || SingleService::has_subcommand(command),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn options_of_the_client_may_stand_on_either_side_of_the_command() {
        for (given, expected) in [
            ("kasbah -o json source list", "kasbah source -o json list"),
            ("kasbah -ojson source list", "kasbah source -ojson list"),
            ("kasbah --output=json source list", "kasbah source --output=json list"),
            (
                "kasbah --config f --server https://k source list",
                "kasbah --config f source --server https://k list",
            ),
            ("kasbah source list -o json", "kasbah source list -o json"),
            ("kasbah --config -o up", "kasbah --config -o up"),
            ("kasbah --help", "kasbah --help"),
            ("kasbah -o", "kasbah -o"),
        ] {
            let words = given.split(' ').map(OsString::from).collect();
            let moved: Vec<String> = client_options_behind_command(words)
                .into_iter()
                .map(|word| word.into_string().unwrap())
                .collect();
            assert_eq!(moved.join(" "), expected);
        }
    }

    #[test]
    fn each_shell_gets_a_script_that_knows_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let script = String::from_utf8(completion(shell)).unwrap();
            assert!(script.contains("kubeconfig") && script.contains("tunnel-gateway"), "{shell}");
        }
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
