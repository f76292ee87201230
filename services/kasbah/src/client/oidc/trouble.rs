//! Why there is no ID token.

use chassis::tls::{CertificateProblem, TlsError};
use serde::Deserialize;

use crate::client::print::one_line;

/// Longer texts of a provider are cut.
const LONGEST_TEXT: usize = 300;

/// Why a provider gave no ID token.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// It cannot be reached, or the connection broke.
    #[error("cannot reach the identity provider at {asked}: {detail}")]
    Unreachable {
        /// Who was asked.
        asked: String,
        /// What happened.
        detail: String,
    },
    /// Its certificate is not what it must be.
    #[error("the identity provider's certificate is refused; the operator sets the authority to trust: {0}")]
    Certificate(CertificateProblem),
    /// It gave an answer that makes no sense.
    #[error("the identity provider's answer from {asked} is invalid: {detail}")]
    Odd {
        /// Who was asked.
        asked: String,
        /// What is odd.
        detail: String,
    },
    /// It says that it is somebody else.
    #[error("the identity provider's issuer is {said:?}, and the operator allows {wanted:?}")]
    OtherIssuer {
        /// What it says.
        said: String,
        /// What it should say.
        wanted: String,
    },
    /// Something would travel in plain text.
    #[error("{url} is in plain text: an identity provider must use https")]
    PlainText {
        /// What.
        url: String,
    },
    /// It says no.
    #[error("the identity provider reports {0}")]
    Refused(#[from] ProviderRefusal),
    /// Nobody signed in.
    #[error("no sign-in within {minutes} min; try again")]
    TooLate {
        /// How long was waited.
        minutes: u64,
    },
    /// The ID token answers another request than ours.
    #[error("the identity provider's ID token is not for this sign-in; try again")]
    OtherSignIn,
    /// It has no device flow.
    #[error("the identity provider {provider} does not support sign-in on another device; use --browser")]
    NoDeviceFlow {
        /// Which.
        provider: String,
    },
    /// Nothing can be listened on.
    #[error("cannot listen for the browser's answer on this machine: {0}; use --device")]
    Listen(std::io::Error),
    /// TLS cannot be set up.
    #[error("the certificate authority that the operator names for the identity provider: {0}")]
    Tls(#[from] TlsError),
}

impl ProviderError {
    /// An answer that makes no sense.
    #[must_use]
    pub fn odd(asked: impl ToString, detail: impl Into<String>) -> Self {
        Self::Odd { asked: asked.to_string(), detail: detail.into() }
    }

    /// Whether the same may succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether somebody said no.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.error == "access_denied")
    }
}

/// A provider's error (RFC 6749, sections 4.1.2.1 and 5.2).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{}", in_words(error, error_description.as_deref()))]
pub struct ProviderRefusal {
    /// Its code.
    pub error: String,
    /// What it says to people.
    #[serde(default)]
    pub error_description: Option<String>,
}

fn in_words(error: &str, description: Option<&str>) -> String {
    let short = |text: &str| one_line(text).chars().take(LONGEST_TEXT).collect::<String>();
    match description.map(short).filter(|text| !text.is_empty()) {
        Some(description) => format!("{}: {description}", short(error)),
        None => short(error),
    }
}
