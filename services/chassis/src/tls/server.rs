//! The certificate that a server shows, and its renewal.

use std::sync::Arc;
use std::time::Duration;

use events::Timestamp;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use world::World;

use super::{Authority, TlsError, provider, time_of};
use crate::Shutdown;

/// How long a server's certificate is valid.
const VALID: Duration = Duration::from_secs(90 * 24 * 3600);
/// How old it gets before it is replaced.
const RENEW_AFTER_MILLIS: i64 = 30 * 24 * 3600 * 1000;
/// How often its age is looked at: a sleeping laptop's clock jumps.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

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
        Ok(Arc::new(Self { current: RwLock::new(Arc::new(certified(chain, key)?)) }))
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
        *self.current.write() = Arc::new(certified(chain, key)?);
        Ok(())
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

fn certified(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let none = || TlsError::NoCertificate { what: "the server's certificate".to_owned() };
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|_| none())?;
    if chain.is_empty() {
        return Err(none());
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| TlsError::NoKey { what: "the server's key".to_owned() })?;
    Ok(CertifiedKey::from_der(chain, key, &provider())?)
}
