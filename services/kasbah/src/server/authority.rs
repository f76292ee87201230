//! The certificate of this process: issued by the installation's own authority, whose key lies in the key ring, or given by
//! whoever operates it.

use std::sync::Arc;

use anyhow::{Context, bail};
use chassis::Shutdown;
use chassis::tls::{Authority, CertificateFiles, ServerCertificate};
use events::Timestamp;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use store::{KeyName, KeyRing};
use world::World;
use zeroize::Zeroizing;

use super::Settings;

/// What stands between certificate and key in the key ring's entry, which holds both in PEM form.
const KEY_BEGINS: &str = "-----BEGIN PRIVATE KEY-----";

/// What this process shows to those who dial it.
pub(super) struct Tls {
    pub(super) certificate: Arc<ServerCertificate>,
    /// Whom clients are to trust, PEM; `None` when their machines do.
    pub(super) authority: Option<Vec<u8>>,
    kept: CertificateSource,
}

/// How the certificate stays valid.
enum CertificateSource {
    /// Issued anew by the installation's own authority.
    Issued { authority: Arc<Authority>, names: Vec<String> },
    /// Read again when whoever renews it has written it.
    Read(CertificateFiles),
}

impl Tls {
    /// Reads the certificate that the settings name, if they do; it must be for those who dial.
    pub(super) fn given(world: &World, settings: &Settings) -> anyhow::Result<Option<Self>> {
        let args = &settings.certificate.tls;
        let (Some(files), Some(dialled)) = (args.files()?, settings.dialled_host()) else { return Ok(None) };
        let certificate = ServerCertificate::from_files(world, &files)
            .context("--tls-certificate-file and --tls-key-file")?;
        certificate.is_for(&dialled).context("--tls-name must be the name that clients use")?;
        let authority = args.authority(world).context("--tls-ca-file")?;
        Ok(Some(Self { certificate, authority, kept: CertificateSource::Read(files) }))
    }

    /// Takes the authority from the key ring, or makes it, and issues a certificate for `names`.
    pub(super) async fn issued(world: &World, keys: &dyn KeyRing, names: &[String]) -> anyhow::Result<Self> {
        let authority = Arc::new(authority(world, keys).await?);
        let certificate = ServerCertificate::issued(world, &authority, names).context("--tls-name")?;
        let pem = authority.certificate().as_bytes().to_vec();
        let kept = CertificateSource::Issued { authority, names: names.to_vec() };
        Ok(Self { certificate, authority: Some(pem), kept })
    }

    /// Keeps the certificate valid until shutdown is asked for.
    pub(super) fn keep(&self, world: &World, shutdown: Shutdown) -> BoxFuture<'static, anyhow::Result<()>> {
        let (certificate, world) = (Arc::clone(&self.certificate), world.clone());
        match &self.kept {
            CertificateSource::Issued { authority, names } => {
                certificate.keep_renewed(world, Arc::clone(authority), names.clone(), shutdown).boxed()
            }
            CertificateSource::Read(files) => {
                certificate.keep_reading(world, files.clone(), shutdown).boxed()
            }
        }
    }
}

async fn authority(world: &World, keys: &dyn KeyRing) -> anyhow::Result<Authority> {
    let name = KeyName::CertificateAuthority;
    let stored = match keys.get(name).await? {
        Some(stored) => stored,
        None => {
            let fresh = Authority::generate(Timestamp(world.clock.now_millis()))?;
            let entry = format!("{}{}", fresh.certificate(), fresh.key().as_str());
            keys.put_new(name, Zeroizing::new(entry.into_bytes())).await?
        }
    };
    let entry =
        std::str::from_utf8(&stored).context("the certificate authority in the key ring is damaged")?;
    let Some(begin) = entry.find(KEY_BEGINS) else {
        bail!("the certificate authority in the key ring has no key")
    };
    let (certificate, key) = entry.split_at(begin);
    Ok(Authority::from_pem(certificate.to_owned(), key)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_next_start_has_the_same_authority() {
        let world = World::real();
        let folder = tempfile::tempdir().unwrap();
        let store =
            store::embedded::open(&world, folder.path(), store::embedded::Options::default()).unwrap();
        let first = authority(&world, &*store.keys).await.unwrap();
        let second = authority(&world, &*store.keys).await.unwrap();
        assert_eq!(first.certificate(), second.certificate());
        assert_eq!(first.key(), second.key());
        let wrong = Tls::issued(&world, &*store.keys, &["no name".to_owned()]).await;
        assert!(format!("{:#}", wrong.err().unwrap()).starts_with("--tls-name: \"no name\" is neither"));
    }
}
