//! The certificate that a server shows, and its renewal.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use events::Timestamp;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use world::World;
use zeroize::Zeroizing;

use super::client::roots_in;
use super::{Authority, TlsError, explain, provider, time_of};
use crate::{Metrics, Shutdown};

/// How long a server's certificate is valid.
const VALID: Duration = Duration::from_secs(90 * 24 * 3600);
/// How old it gets before it is replaced.
const RENEW_AFTER_MILLIS: i64 = 30 * 24 * 3600 * 1000;
/// How often its age is looked at: a sleeping laptop's clock jumps.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// How often files are looked at, which others renew.
const READ_EVERY: Duration = Duration::from_secs(10);

/// A certificate that comes from elsewhere.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServerTlsArgs {
    /// PEM file with the server's certificate and its intermediates, reloaded when it changes; by default a certificate of this
    /// installation's own authority
    #[arg(long, env = "KASBAH_TLS_CERTIFICATE_FILE", value_name = "FILE")]
    pub tls_certificate_file: Option<PathBuf>,
    /// PEM file with its private key
    #[arg(long, env = "KASBAH_TLS_KEY_FILE", value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,
    /// PEM file with the authority that issued it, for clients and agents whose machines do not trust it
    #[arg(long, env = "KASBAH_TLS_CA_FILE", value_name = "FILE")]
    pub tls_ca_file: Option<PathBuf>,
}

crate::metrics! {
    /// Of what a server shows.
    pub struct CertificateMetrics in "kasbah_tls" {
        /// Expiry of the server's certificate, in seconds since 1970
        certificate_expiry_timestamp_seconds: Gauge,
    }
}

/// Where a certificate that comes from elsewhere lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

impl ServerTlsArgs {
    /// Both files, if they are given.
    ///
    /// # Errors
    /// When something is given without what belongs to it.
    pub fn files(&self) -> Result<Option<CertificateFiles>, TlsError> {
        let lacking = |given, wanted| Err(TlsError::Incomplete { given, wanted });
        match (&self.tls_certificate_file, &self.tls_key_file) {
            (Some(certificate), Some(key)) => {
                Ok(Some(CertificateFiles { certificate: certificate.clone(), key: key.clone() }))
            }
            (Some(_), None) => lacking("--tls-certificate-file", "--tls-key-file"),
            (None, Some(_)) => lacking("--tls-key-file", "--tls-certificate-file"),
            (None, None) if self.tls_ca_file.is_some() => lacking("--tls-ca-file", "--tls-certificate-file"),
            (None, None) => Ok(None),
        }
    }

    /// The authority that clients are to trust, PEM, if one is given.
    ///
    /// # Errors
    /// When the file cannot be read, holds none, or holds a private key, which is nobody else's business.
    pub fn authority(&self, world: &World) -> Result<Option<Vec<u8>>, TlsError> {
        let Some(path) = &self.tls_ca_file else { return Ok(None) };
        let pem = world.disk.read(path).map_err(|detail| TlsError::File { path: path.clone(), detail })?;
        let what = path.display().to_string();
        if PrivateKeyDer::from_pem_slice(&pem).is_ok() {
            return Err(TlsError::KeyBesideAuthority { what });
        }
        roots_in(&pem, &what)?;
        Ok(Some(pem))
    }
}

impl CertificateFiles {
    fn certified(&self, world: &World) -> Result<CertifiedKey, TlsError> {
        let read = |path: &PathBuf| {
            world.disk.read(path).map_err(|detail| TlsError::File { path: path.clone(), detail })
        };
        let (chain, key) = (read(&self.certificate)?, Zeroizing::new(read(&self.key)?));
        let shown = |path: &PathBuf| path.display().to_string();
        certified(&chain, &key, &shown(&self.certificate), &shown(&self.key))
    }
}

/// What a server shows. Connections that begin after a renewal get the new one; configurations stay.
#[derive(Debug)]
pub struct ServerCertificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl ServerCertificate {
    /// The certificate in `chain` (PEM, the server's first) with the private key in `key`.
    ///
    /// # Errors
    /// When one of them is missing, or the key does not belong to the certificate.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Arc<Self>, TlsError> {
        Ok(Self::showing(certified(chain, key, ITS_CERTIFICATE, ITS_KEY)?))
    }

    /// The certificate that lies in files. Run [`ServerCertificate::keep_reading`] to follow them.
    ///
    /// # Errors
    /// When a file cannot be read or is not what it should be, or the key does not belong to the certificate.
    pub fn from_files(world: &World, files: &CertificateFiles) -> Result<Arc<Self>, TlsError> {
        Ok(Self::showing(files.certified(world)?))
    }

    fn showing(certified: CertifiedKey) -> Arc<Self> {
        Arc::new(Self { current: RwLock::new(Arc::new(certified)) })
    }

    /// A certificate for `names`, issued now. Run [`ServerCertificate::keep_renewed`] to have it replaced in time.
    ///
    /// # Errors
    /// When a name is neither host name nor IP address.
    pub fn issued(world: &World, authority: &Authority, names: &[String]) -> Result<Arc<Self>, TlsError> {
        let issued = authority.issue(names, Timestamp(world.clock.now_millis()), VALID)?;
        Self::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes())
    }

    /// Shows another certificate from now on.
    ///
    /// # Errors
    /// As [`ServerCertificate::from_pem`]; the old one then stays.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), TlsError> {
        *self.current.write() = Arc::new(certified(chain, key, ITS_CERTIFICATE, ITS_KEY)?);
        Ok(())
    }

    /// When the certificate ends, in seconds since 1970, if that can be read.
    #[must_use]
    pub fn ends_at(&self) -> Option<i64> {
        let current = Arc::clone(&self.current.read());
        let (_, certificate) = x509_parser::parse_x509_certificate(current.cert.first()?).ok()?;
        Some(certificate.validity().not_after.timestamp())
    }

    /// Shows when it ends.
    pub fn show_end(self: &Arc<Self>, metrics: &Metrics) {
        let (counts, shown) = (CertificateMetrics::register(metrics), Arc::clone(self));
        metrics.before_shown(move || {
            if let Some(end) = shown.ends_at() {
                counts.certificate_expiry_timestamp_seconds.set(end);
            }
        });
    }

    /// Whether the certificate is for a name or address, whatever the time.
    ///
    /// # Errors
    /// When it is not: which names it has.
    pub fn is_for(&self, host: &str) -> Result<(), TlsError> {
        let name = ServerName::try_from(host).map_err(|_| TlsError::BadName { name: host.to_owned() })?;
        let current = Arc::clone(&self.current.read());
        let leaf = current.end_entity_cert()?;
        let parsed = ParsedCertificate::try_from(leaf)?;
        verify_server_name(&parsed, &name).map_err(|error| TlsError::OtherName {
            host: host.to_owned(),
            detail: explain(&error, host).map_or_else(|| error.to_string(), |trouble| trouble.names()),
        })
    }

    /// Shows what lies in `files` whenever that is another certificate, until shutdown is asked for. What cannot be used is
    /// said once, and the certificate stays as it was: two files are never written at the same moment.
    ///
    /// # Errors
    /// Never; a task that is watched over has this form.
    pub async fn keep_reading(
        self: Arc<Self>,
        world: World,
        files: CertificateFiles,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let mut said = None;
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                () = world.clock.sleep(READ_EVERY) => {}
            }
            match files.certified(&world) {
                Ok(read) if read.cert == self.current.read().cert => said = None,
                Ok(read) => {
                    *self.current.write() = Arc::new(read);
                    tracing::info!(file = %files.certificate.display(), "server certificate reloaded");
                    said = None;
                }
                Err(error) => {
                    let error = Some(error.to_string());
                    if said != error {
                        tracing::warn!(error, "new server certificate is invalid, the old one stays in use");
                    }
                    said = error;
                }
            }
        }
    }

    /// Replaces what `authority` issued long before it expires, until shutdown is asked for.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub async fn keep_renewed(
        self: Arc<Self>,
        world: World,
        authority: Arc<Authority>,
        names: Vec<String>,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let mut issued_at = world.clock.now_millis();
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                () = world.clock.sleep(LOOK_EVERY) => {}
            }
            let now = world.clock.now_millis();
            if now.saturating_sub(issued_at) >= RENEW_AFTER_MILLIS {
                let issued = authority.issue(&names, Timestamp(now), VALID)?;
                self.replace(issued.certificate.as_bytes(), issued.key.as_bytes())?;
                issued_at = now;
                tracing::info!("server certificate renewed");
            }
        }
    }

    /// A configuration that shows it, with the protocols that are offered by ALPN, best first.
    ///
    /// # Errors
    /// When rustls refuses its provider, which tests show.
    pub fn config(
        self: &Arc<Self>,
        world: &World,
        protocols: &[&[u8]],
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_details(provider(), time_of(world))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

const ITS_CERTIFICATE: &str = "the server's certificate";
const ITS_KEY: &str = "the server's key";

fn certified(chain: &[u8], key: &[u8], chain_is: &str, key_is: &str) -> Result<CertifiedKey, TlsError> {
    let none = || TlsError::NoCertificate { what: chain_is.to_owned() };
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|_| none())?;
    if chain.is_empty() {
        return Err(none());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey { what: key_is.to_owned() })?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::OtherKey { certificate: chain_is.to_owned(), key: key_is.to_owned() }
        }
        other => TlsError::Rustls(other),
    })
}
