//! TLS: a certificate authority of our own, servers' certificates that renew themselves, whom clients trust, and what to say
//! when a certificate is refused. rustls with ring throughout, versions 1.2 and 1.3.

mod authority;
mod client;
mod explain;
mod server;
mod tickets;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;
use world::{Clock, World};

pub use authority::{Authority, Issued};
pub use client::{ClientTlsArgs, client_config, client_config_trusting, client_config_trusting_also};
pub use explain::{CertificateProblem, explain};
pub use server::{CertificateFiles, CertificateMetrics, ServerCertificate, ServerTlsArgs};
pub use tickets::SharedTickets;

/// TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {detail}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        detail: std::io::Error,
    },
    /// PEM text holds no certificate.
    #[error("{what} holds no certificate in PEM form")]
    NoCertificate {
        /// Which text.
        what: String,
    },
    /// PEM text holds no private key.
    #[error("{what} holds no private key in PEM form")]
    NoKey {
        /// Which text.
        what: String,
    },
    /// Key and certificate do not belong together.
    #[error("{key} is not the private key of {certificate}")]
    OtherKey {
        /// Which certificate.
        certificate: String,
        /// Which key.
        key: String,
    },
    /// A setting lacks the one that belongs to it.
    #[error("{given} is given without {wanted}: give both, or neither")]
    Incomplete {
        /// What is given.
        given: &'static str,
        /// What is not.
        wanted: &'static str,
    },
    /// An authority's file is handed out to clients.
    #[error("{what} holds a private key: name a file with the authority's certificate alone")]
    KeyBesideAuthority {
        /// Which text.
        what: String,
    },
    /// The certificate is for others.
    #[error("the certificate is not for {host}{detail}")]
    OtherName {
        /// Who was asked for.
        host: String,
        /// Its names.
        detail: String,
    },
    /// A certificate cannot be trusted as an authority.
    #[error("{what} holds a certificate that cannot be an authority: {detail}")]
    BadAuthority {
        /// Which text.
        what: String,
        /// What is wrong.
        detail: String,
    },
    /// The machine trusts no authority at all.
    #[error("this machine has no trusted certificate authorities; name the server's with --ca-file")]
    NoRoots,
    /// A name cannot stand in a certificate.
    #[error("{name:?} is neither a host name nor an IP address")]
    BadName {
        /// The name.
        name: String,
    },
    /// A key or certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// rustls refused what it was given.
    #[error("cannot set up TLS: {0}")]
    Rustls(#[from] rustls::Error),
}

/// ring's, with AES of 128 bits first, as browsers and Go ask for it: its hash is SHA-256, which processors have instructions for, and
/// which a handshake works out dozens of times.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

/// The world's clock for rustls.
struct WorldTime(Arc<dyn Clock>);

impl std::fmt::Debug for WorldTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorldTime")
    }
}

impl TimeProvider for WorldTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now_millis().div_euclid(1000)).ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

fn time_of(world: &World) -> Arc<WorldTime> {
    Arc::new(WorldTime(Arc::clone(&world.clock)))
}

#[cfg(test)]
mod tests;
