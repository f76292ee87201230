//! Why a command did not do what it was asked, and with which exit code it says so.

use std::process::ExitCode;

use chassis::tls::CertificateProblem;
use events::request::{Refusal, RefusalKind};

use super::oidc::ProviderError;
use super::settings::SettingsError;
use crate::exit;

/// A command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It is not known where or as whom to ask.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The command line makes no sense in a way that only shows later.
    #[error("{option}: {message}")]
    Usage {
        /// Which option or argument.
        option: &'static str,
        /// What is wrong and what to do.
        message: String,
    },
    /// The server refused.
    #[error("{}", in_words(refusal, *retry_after))]
    Refused {
        /// Why.
        refusal: Refusal,
        /// Seconds after which to try again.
        retry_after: Option<u64>,
    },
    /// The server's certificate is not what it must be.
    #[error(transparent)]
    Certificate(#[from] CertificateProblem),
    /// The server cannot be reached.
    #[error("cannot reach {server}: {detail}{}", if *refused { "; is `kasbah up` running there?" } else { "; check --server" })]
    Unreachable {
        /// Who was dialled.
        server: String,
        /// What happened.
        detail: String,
        /// The machine is there, but nothing listens on the port.
        refused: bool,
    },
    /// The server did not answer in time, or the connection broke.
    #[error("{server} {detail}; try again")]
    Broken {
        /// Who was asked.
        server: String,
        /// What happened.
        detail: String,
    },
    /// The identity provider did not do what was asked.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The server does not take what the identity provider said.
    #[error("{server} refuses your token: {reason}")]
    NotLetIn {
        /// Who was asked.
        server: String,
        /// Why not.
        reason: String,
    },
    /// Something answered that is not this API.
    #[error(
        "{server} gave an answer that this client cannot read ({detail}); check --server, and that both are of the same version"
    )]
    Unreadable {
        /// Who was asked.
        server: String,
        /// What is odd.
        detail: String,
    },
    /// What was asked for was done, and did not succeed.
    #[error("{0}")]
    Unsuccessful(String),
    /// What was compared differs, and that was shown.
    #[error("there is a difference")]
    Differs,
    /// There is no comparison.
    #[error(transparent)]
    NotCompared(Box<Failure>),
    /// Standard output or input does not work.
    #[error("cannot {doing}: {detail}")]
    Io {
        /// What was tried.
        doing: String,
        /// What the operating system said.
        detail: std::io::Error,
    },
    /// A value cannot be printed.
    #[error("cannot print: {0}")]
    Print(String),
}

fn in_words(refusal: &Refusal, retry_after: Option<u64>) -> String {
    // A message that begins with its field says it already.
    let field = refusal.field.as_ref().filter(|field| !refusal.message.starts_with(field.as_str()));
    let field = field.map(|field| format!("{field}: ")).unwrap_or_default();
    let advice = match (refusal.kind, retry_after) {
        (RefusalKind::Unavailable, Some(seconds)) => format!("; try again in {seconds} s"),
        (RefusalKind::Unauthenticated, _) => {
            "; run `kasbah login`, or give a valid token with --token-file or KASBAH_TOKEN".to_owned()
        }
        _ => String::new(),
    };
    format!("{field}{}{advice}", refusal.message)
}

impl Failure {
    /// A value on the command line is wrong.
    #[must_use]
    pub fn usage(option: &'static str, message: impl Into<String>) -> Self {
        Self::Usage { option, message: message.into() }
    }

    /// The reader of our output is gone, which is no failure of ours.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Io { detail, .. } => detail.kind() == std::io::ErrorKind::BrokenPipe,
            Self::NotCompared(why) => why.is_closed_pipe(),
            _ => false,
        }
    }

    /// There is no such thing among what the asker may see.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::Refused { refusal: Refusal::not_found(what), retry_after: None }
    }

    /// The same, but where there is no such thing it is called as the asker called it.
    #[must_use]
    pub fn about(self, what: &str) -> Self {
        match self {
            Self::Refused { refusal, .. }
                if refusal.kind == RefusalKind::NotFound && refusal.message.starts_with("source ") =>
            {
                Self::not_found(what)
            }
            other => other,
        }
    }

    /// Of a command that compares: a difference stays one, and everything else means that there is no comparison.
    #[must_use]
    pub fn of_comparison(self) -> Self {
        match self {
            Self::Differs => self,
            other => Self::NotCompared(Box::new(other)),
        }
    }

    /// How a comparison ends that was shown. A reader that closes the pipe early wants the exit code all the same.
    ///
    /// # Errors
    /// When it could not be shown, or there is a difference.
    pub fn compared(shown: Result<(), Self>, differs: bool) -> Result<(), Self> {
        match shown {
            Err(failure) if !failure.is_closed_pipe() => Err(failure),
            _ if differs => Err(Self::Differs),
            _ => Ok(()),
        }
    }

    /// Whether the same may succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.code() == exit::UNAVAILABLE
    }

    /// The code that the process ends with: [`exit`].
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            _ if self.is_closed_pipe() => exit::DONE,
            Self::Settings(SettingsError::LoginEnded { .. } | SettingsError::NotSignedIn { .. })
            | Self::NotLetIn { .. } => exit::DENIED,
            Self::Settings(_) => exit::BAD_CONFIGURATION,
            Self::Provider(trouble) if trouble.is_transient() => exit::UNAVAILABLE,
            Self::Provider(trouble) if trouble.is_denial() => exit::DENIED,
            Self::Usage { .. } => exit::USAGE,
            Self::Differs => exit::DIFFERS,
            Self::NotCompared(_) => exit::NOT_COMPARED,
            Self::Refused { refusal, .. } => exit::of(refusal.kind),
            Self::Unreachable { .. } | Self::Broken { .. } => exit::UNAVAILABLE,
            Self::Certificate(_)
            | Self::Provider(_)
            | Self::Unreadable { .. }
            | Self::Unsuccessful(_)
            | Self::Io { .. }
            | Self::Print(_) => exit::FAILED,
        }
    }

    /// Says on standard error what was wrong, in one line, and gives the exit code.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        if !self.is_closed_pipe() && !matches!(self, Self::Differs) {
            eprintln!("error: {}", super::print::one_line(&self.to_string()));
        }
        ExitCode::from(u8::try_from(self.code()).unwrap_or(1))
    }
}

#[cfg(test)]
mod tests;
