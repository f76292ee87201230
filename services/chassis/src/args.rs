//! Settings: command line, then environment, then a file, then defaults.
//!
//! A setting is an option that also has an environment variable. In the file (TOML) it is a key of the option's long name, at
//! the top or in a section: of a subcommand (`[up] listen = …`), or of the first part of its name (`[console] listen = …` is
//! `--console-listen`). The file's values become the options' defaults, so that clap checks and shows them.

mod duration;
mod file;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

pub use duration::{DurationError, parse_duration};
pub use file::FileError;

/// Exit code of a process whose settings are wrong (`EX_USAGE`).
pub const EXIT_BAD_CONFIGURATION: i32 = 64;

const CONFIG_OPTION: &str = "--config";

/// The file with settings. Read before the rest of the command line, by [`parse_from`].
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigArgs {
    /// TOML file with settings: each key is an option's long name
    #[arg(long, env = "KASBAH_CONFIG", global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Why no settings came of a command line.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Help or version was asked for: text for standard output.
    #[error("{0}")]
    Help(clap::Error),
    /// The command line or the environment is wrong; clap says how.
    #[error("{0}")]
    CommandLine(clap::Error),
    /// The file is wrong.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Refused {
    /// Prints it where it belongs and ends the process: 0 after help, `command_line_code` or [`EXIT_BAD_CONFIGURATION`].
    pub fn exit(&self, command_line_code: i32) -> ! {
        let code = match self {
            Self::Help(help) => {
                // Who closed standard output does not want the help.
                let _printed = help.print();
                0
            }
            Self::CommandLine(error) => {
                let _printed = error.print();
                command_line_code
            }
            Self::File(error) => {
                eprintln!("error: {error}");
                EXIT_BAD_CONFIGURATION
            }
        };
        std::process::exit(code)
    }
}

/// The settings of a server process, from its command line and environment. Ends the process when they are wrong.
#[must_use]
pub fn parse<T: Parser>() -> T {
    parse_from::<T>(std::env::args_os().collect(), std::env::var_os("KASBAH_CONFIG"))
        .unwrap_or_else(|refused| refused.exit(EXIT_BAD_CONFIGURATION))
}

/// The settings of a command line, and of the file that it names, or else `config_file`.
///
/// # Errors
/// When help was asked for, or anything is wrong.
pub fn parse_from<T: Parser>(
    command_line: Vec<OsString>,
    config_file: Option<OsString>,
) -> Result<T, Refused> {
    let mut command = T::command();
    if let Some(path) = named_config(&command_line).or(config_file).filter(|path| !path.is_empty()) {
        command = file::apply(command, &PathBuf::from(path))?;
    }
    let parsed = command
        .try_get_matches_from_mut(command_line)
        .and_then(|matches| T::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
    parsed.map_err(|error| match error.use_stderr() {
        true => Refused::CommandLine(error),
        false => Refused::Help(error),
    })
}

fn named_config(command_line: &[OsString]) -> Option<OsString> {
    let mut words = command_line.iter().skip(1).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == CONFIG_OPTION {
            return words.next().cloned();
        }
        let value = word
            .to_str()
            .and_then(|word| word.strip_prefix(CONFIG_OPTION))
            .and_then(|rest| rest.strip_prefix('='));
        if let Some(value) = value {
            return Some(value.into());
        }
    }
    None
}

#[cfg(test)]
mod tests;
