//! What is wrong with a server's certificate, in words that say what to do.

use rustls::{CertificateError, Error, InvalidMessage};

/// The rustls error inside an I/O error of a TLS handshake.
pub(super) fn of_io(error: &std::io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Error>())
}

/// One line for people. `host` is the name that the certificate must hold.
pub(super) fn explain(host: &str, error: &Error) -> String {
    match error {
        Error::InvalidCertificate(problem) => certificate(host, problem),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            format!("{host} does not speak TLS on this port: check host and port")
        }
        Error::AlertReceived(alert) => format!("{host} ended the TLS handshake with alert {alert:?}"),
        other => format!("TLS handshake with {host} failed: {other}"),
    }
}

fn certificate(host: &str, problem: &CertificateError) -> String {
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the certificate of {host} was issued by an authority that is not trusted here: give the server's authority with --ca-file"
        ),
        CertificateError::Expired => {
            format!("the certificate of {host} has expired: renew it, or check this machine's clock")
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "the certificate of {host} expired at {}, and this machine's clock says {}: renew it, or set the clock",
            moment(not_after.as_secs()),
            moment(time.as_secs()),
        ),
        CertificateError::NotValidYet => {
            format!("the certificate of {host} is not valid yet: check this machine's clock")
        }
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the certificate of {host} is valid from {} only, and this machine's clock says {}: set the clock",
            moment(not_before.as_secs()),
            moment(time.as_secs()),
        ),
        CertificateError::NotValidForName => {
            format!(
                "the certificate of the server is not for {host}: dial it by a name that the certificate holds"
            )
        }
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "the certificate of the server is not for {host} but for {}: dial it by such a name",
            presented.join(", "),
        ),
        other => format!("the certificate of {host} cannot be used: {other}"),
    }
}

fn moment(seconds: u64) -> String {
    let millis = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
    events::Timestamp(millis).to_string()
}
