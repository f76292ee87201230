//! The file's values as defaults of the options.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use toml::{Table, Value};

/// The file with settings is wrong.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}: {detail}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        detail: std::io::Error,
    },
    /// It is not TOML.
    #[error("{} is not TOML: {detail}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser said, with the line.
        detail: String,
    },
    /// A key names no setting.
    #[error("{}: there is no setting `{key}`{}", path.display(), nearest.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The key as it stands there.
        key: String,
        /// The most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// A value is not what the setting takes.
    #[error("{}: setting `{key}`: {detail}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key as it stands there.
        key: String,
        /// What is wrong with the value.
        detail: String,
    },
}

/// Reads the file and puts its values into the options they name, of the command and all its subcommands.
pub(super) fn apply(mut command: Command, path: &Path) -> Result<Command, FileError> {
    let text =
        std::fs::read_to_string(path).map_err(|detail| FileError::Read { path: path.to_owned(), detail })?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| FileError::Syntax {
        path: path.to_owned(),
        detail: error.to_string(),
    })?;
    let file = File { path, known: settings(&command) };
    for (key, value) in &table {
        command = match value {
            Value::Table(section) => {
                let mut command = command;
                for (inner, value) in section {
                    command = file.set_in_section(command, key, inner, value)?;
                }
                command
            }
            value if file.known.contains(key) => file.set(command, key, key, value)?,
            _ => return Err(file.unknown(key, key)),
        };
    }
    Ok(command)
}

struct File<'a> {
    path: &'a Path,
    known: Vec<String>,
}

impl File<'_> {
    fn set_in_section(
        &self,
        command: Command,
        section: &str,
        key: &str,
        value: &Value,
    ) -> Result<Command, FileError> {
        let shown = format!("{section}.{key}");
        let prefixed = format!("{section}-{key}");
        if self.known.contains(&prefixed) {
            return self.set(command, &prefixed, &shown, value);
        }
        match command.find_subcommand(section).map(settings) {
            Some(known) if known.iter().any(|name| name == key) => {
                let mut failure = None;
                let command = command.mut_subcommand(section, |inner| {
                    let untouched = inner.clone();
                    self.set(inner, key, &shown, value).unwrap_or_else(|error| {
                        failure = Some(error);
                        untouched
                    })
                });
                failure.map_or(Ok(command), Err)
            }
            _ => Err(self.unknown(&shown, &prefixed)),
        }
    }

    /// Sets `name` wherever it is an option; `shown` is how the file calls it.
    fn set(
        &self,
        mut command: Command,
        name: &str,
        shown: &str,
        value: &Value,
    ) -> Result<Command, FileError> {
        let mut failure = None;
        command = command.mut_args(|option| {
            if failure.is_some() || !is_setting(&option) || option.get_long() != Some(name) {
                return option;
            }
            match checked_values(&option, value) {
                Ok(values) => option.required(false).default_values(values),
                Err(detail) => {
                    failure = Some(detail);
                    option
                }
            }
        });
        if let Some(detail) = failure {
            return Err(FileError::Value { path: self.path.to_owned(), key: shown.to_owned(), detail });
        }
        let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
        for inner in names {
            let mut failure = None;
            command = command.mut_subcommand(inner, |inner| {
                let untouched = inner.clone();
                self.set(inner, name, shown, value).unwrap_or_else(|error| {
                    failure = Some(error);
                    untouched
                })
            });
            if let Some(error) = failure {
                return Err(error);
            }
        }
        Ok(command)
    }

    fn unknown(&self, key: &str, name: &str) -> FileError {
        let similar = |known: &&String| strsim::jaro_winkler(known, name);
        let nearest = self
            .known
            .iter()
            .filter(|known| similar(known) > 0.8)
            .max_by(|one, other| similar(one).total_cmp(&similar(other)));
        FileError::Unknown { path: self.path.to_owned(), key: key.to_owned(), nearest: nearest.cloned() }
    }
}

fn is_setting(option: &Arg) -> bool {
    option.get_env().is_some() && option.get_long().is_some_and(|long| long != "config")
}

fn settings(command: &Command) -> Vec<String> {
    let own =
        command.get_arguments().filter(|option| is_setting(option)).filter_map(|option| option.get_long());
    let mut names: Vec<String> = own.map(str::to_owned).collect();
    names.extend(command.get_subcommands().flat_map(settings));
    names.sort_unstable();
    names.dedup();
    names
}

fn checked_values(option: &Arg, value: &Value) -> Result<Vec<String>, String> {
    let flag = matches!(option.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
    if flag {
        let value =
            value.as_bool().ok_or_else(|| format!("expected true or false, found {}", named(value)))?;
        return Ok(vec![value.to_string()]);
    }
    let many = matches!(option.get_action(), ArgAction::Append)
        || option.get_num_args().is_some_and(|n| n.max_values() > 1);
    let values = match value {
        Value::Array(values) if many => values.iter().map(single).collect::<Result<Vec<_>, _>>()?,
        value => vec![single(value)?],
    };
    for value in &values {
        check(option, value)?;
    }
    Ok(values)
}

fn single(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(truth) => Ok(truth.to_string()),
        other => Err(format!("expected one value, found {}", named(other))),
    }
}

fn named(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a section".to_owned(),
        Value::String(text) => format!("`\"{text}\"`"),
        Value::Integer(number) => format!("`{number}`"),
        Value::Float(number) => format!("`{number}`"),
        Value::Boolean(truth) => format!("`{truth}`"),
        Value::Datetime(moment) => format!("`{moment}`"),
    }
}

/// What clap says to the value, by an option of its own with the same parser.
fn check(option: &Arg, value: &str) -> Result<(), String> {
    let probe = Arg::new("value").long("value").value_parser(option.get_value_parser().clone());
    let parsed = Command::new("setting")
        .no_binary_name(true)
        .arg(probe)
        .try_get_matches_from([format!("--value={value}")]);
    parsed.map(drop).map_err(|error| {
        let text = error.to_string();
        let first =
            text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        first.trim_start_matches("error: ").replace(" for '--value <value>'", "")
    })
}
