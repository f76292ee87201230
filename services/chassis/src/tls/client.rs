//! Whom a client trusts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use world::World;

use super::{TlsError, provider, time_of};

/// Whom a client trusts.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ClientTlsArgs {
    /// PEM file with the certificate authority of the server; by default the machine's trusted authorities
    #[arg(long, env = "KASBAH_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// A configuration that trusts only the authorities in `ca_file`, or without one those of the machine.
///
/// # Errors
/// When the file cannot be read or holds none, or the machine has none.
pub fn client_config(
    world: &World,
    ca_file: Option<&Path>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, TlsError> {
    match ca_file {
        Some(path) => {
            let pem =
                world.disk.read(path).map_err(|detail| TlsError::File { path: path.to_owned(), detail })?;
            config(world, roots_in(&pem, &path.display().to_string())?, protocols)
        }
        None => config(world, roots_of_machine()?, protocols),
    }
}

/// A configuration that trusts only the authorities in `pem`.
///
/// # Errors
/// When it holds none.
pub fn client_config_trusting(
    world: &World,
    pem: &[u8],
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, TlsError> {
    config(world, roots_in(pem, "the certificate authority")?, protocols)
}

/// A configuration that trusts the machine's authorities, if it has any, and those in `pem` besides.
///
/// # Errors
/// When `pem` holds none.
pub fn client_config_trusting_also(
    world: &World,
    pem: Option<&[u8]>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = roots_of_machine().unwrap_or_else(|_| RootCertStore::empty());
    if let Some(pem) = pem {
        roots.extend(roots_in(pem, "the file")?.roots);
    }
    config(world, roots, protocols)
}

fn config(world: &World, roots: RootCertStore, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_details(provider(), time_of(world))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

pub(super) fn roots_in(pem: &[u8], what: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate
            .map_err(|error| TlsError::BadAuthority { what: what.to_owned(), detail: error.to_string() })?;
        roots
            .add(certificate)
            .map_err(|error| TlsError::BadAuthority { what: what.to_owned(), detail: error.to_string() })?;
    }
    if roots.is_empty() {
        return Err(TlsError::NoCertificate { what: what.to_owned() });
    }
    Ok(roots)
}

fn roots_of_machine() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(TlsError::NoRoots);
    }
    Ok(roots)
}
