//! What to say when a certificate is refused.

use std::error::Error;
use std::io;

use events::Timestamp;
use rustls::{AlertDescription, CertificateError};
use rustls_pki_types::UnixTime;

/// Why TLS to a server failed, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateProblem {
    /// Its issuer is not trusted.
    #[error(
        "the certificate of {host} comes from an authority that is not trusted here; give the server's ca.crt with --ca-file, and if it is given, check that it is this server's"
    )]
    WrongAuthority {
        /// Who was dialled.
        host: String,
    },
    /// Its time is over.
    #[error("the certificate of {host} expired{}; renew it on the server, or set this machine's clock if it is ahead", at(*.not_after, *.now))]
    Expired {
        /// Who was dialled.
        host: String,
        /// When it ended.
        not_after: Option<Timestamp>,
        /// What time it is here.
        now: Option<Timestamp>,
    },
    /// Its time has not come.
    #[error("the certificate of {host} is not valid yet{}; set this machine's clock, which is probably behind, or the server's, which was ahead when it was issued", from(*.not_before, *.now))]
    NotYetValid {
        /// Who was dialled.
        host: String,
        /// When it begins.
        not_before: Option<Timestamp>,
        /// What time it is here.
        now: Option<Timestamp>,
    },
    /// It is for somebody else.
    #[error("the server's certificate is not for {host}{}; connect with a name that is in its certificate, or issue one for this name (kasbah up --tls-name {host}, if its certificate is from its own authority)", names(.presented))]
    WrongName {
        /// Who was dialled.
        host: String,
        /// The names in the certificate.
        presented: Vec<String>,
    },
    /// No TLS on that port.
    #[error(
        "{host} does not speak TLS on this port; check the port, and that no plain-text proxy answers instead"
    )]
    NotTls {
        /// Who was dialled.
        host: String,
    },
    /// Another trouble with the certificate.
    #[error("the certificate of {host} is refused: {detail}")]
    Other {
        /// Who was dialled.
        host: String,
        /// What rustls said.
        detail: String,
    },
    /// The other side refused what we showed.
    #[error("{host} ended the handshake: {detail}")]
    RefusedByPeer {
        /// Who it was.
        host: String,
        /// Its alert, in words.
        detail: String,
    },
}

impl CertificateProblem {
    /// For which names the certificate is, as a part of a sentence; empty where that is not the trouble.
    #[must_use]
    pub fn names(&self) -> String {
        match self {
            Self::WrongName { presented, .. } => names(presented),
            _ => String::new(),
        }
    }
}

/// Looks through an error and its sources for a refusal of TLS; `host` is who was dialled.
#[must_use]
pub fn explain(error: &(dyn Error + 'static), host: &str) -> Option<CertificateProblem> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return of_rustls(found, host);
        }
        // An io::Error hides what it wraps from `source`.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}

fn of_rustls(error: &rustls::Error, host: &str) -> Option<CertificateProblem> {
    let host = host.to_owned();
    match error {
        rustls::Error::InvalidCertificate(error) => Some(of_certificate(error, host)),
        rustls::Error::InvalidMessage(_) => Some(CertificateProblem::NotTls { host }),
        rustls::Error::AlertReceived(alert) => Some(of_alert(*alert, host)),
        _ => None,
    }
}

fn of_certificate(error: &CertificateError, host: String) -> CertificateProblem {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            CertificateProblem::WrongAuthority { host }
        }
        CertificateError::Expired => CertificateProblem::Expired { host, not_after: None, now: None },
        CertificateError::ExpiredContext { time, not_after } => {
            CertificateProblem::Expired { host, not_after: moment(*not_after), now: moment(*time) }
        }
        CertificateError::NotValidYet => {
            CertificateProblem::NotYetValid { host, not_before: None, now: None }
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            CertificateProblem::NotYetValid { host, not_before: moment(*not_before), now: moment(*time) }
        }
        CertificateError::NotValidForName => CertificateProblem::WrongName { host, presented: Vec::new() },
        CertificateError::NotValidForNameContext { presented, .. } => CertificateProblem::WrongName {
            host,
            presented: presented.iter().map(|name| plain(name)).collect(),
        },
        other => CertificateProblem::Other { host, detail: other.to_string() },
    }
}

fn of_alert(alert: AlertDescription, host: String) -> CertificateProblem {
    let detail = match alert {
        AlertDescription::UnknownCA => {
            "it does not trust the authority of this side's certificate".to_owned()
        }
        AlertDescription::CertificateExpired => {
            "it reports this side's certificate as expired, or not valid yet".to_owned()
        }
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "it refuses this side's certificate".to_owned()
        }
        other => format!("it sent the TLS alert {other:?}"),
    };
    CertificateProblem::RefusedByPeer { host, detail }
}

/// rustls shows `DnsName("localhost")` and `IpAddress(127.0.0.1)`.
fn plain(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').to_owned()
}

fn moment(time: UnixTime) -> Option<Timestamp> {
    i64::try_from(time.as_secs()).ok().and_then(|seconds| seconds.checked_mul(1000)).map(Timestamp)
}

fn at(end: Option<Timestamp>, now: Option<Timestamp>) -> String {
    match (end, now) {
        (Some(end), Some(now)) => format!(" at {end}, and it is {now} here"),
        _ => String::new(),
    }
}

fn from(begin: Option<Timestamp>, now: Option<Timestamp>) -> String {
    match (begin, now) {
        (Some(begin), Some(now)) => format!(": it begins at {begin}, and it is {now} here"),
        _ => String::new(),
    }
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        ", and names nobody".to_owned()
    } else {
        format!(", only for {}", presented.join(", "))
    }
}
