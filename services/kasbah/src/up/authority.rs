//! The certificate authority of this installation, whose key lies in the key ring, and the certificate that it issues to this
//! process.

use std::sync::Arc;

use anyhow::{Context, bail};
use chassis::tls::{Authority, ServerCertificate};
use events::Timestamp;
use store::{KeyName, KeyRing};
use world::World;
use zeroize::Zeroizing;

/// What stands between certificate and key in the key ring's entry, which holds both in PEM form.
const KEY_BEGINS: &str = "-----BEGIN PRIVATE KEY-----";

/// What this process shows to those who dial it.
pub(super) struct Tls {
    pub(super) authority: Arc<Authority>,
    pub(super) certificate: Arc<ServerCertificate>,
    pub(super) names: Vec<String>,
}

impl Tls {
    /// Takes the authority from the key ring, or makes it, and issues a certificate for `names`.
    pub(super) async fn prepare(world: &World, keys: &dyn KeyRing, names: &[String]) -> anyhow::Result<Self> {
        let authority = Arc::new(authority(world, keys).await?);
        let certificate = ServerCertificate::issued(world, &authority, names).context("--tls-name")?;
        Ok(Self { authority, certificate, names: names.to_vec() })
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
        let names = ["localhost".to_owned()];
        let first = Tls::prepare(&world, &*store.keys, &names).await.unwrap();
        let second = Tls::prepare(&world, &*store.keys, &names).await.unwrap();
        assert_eq!(first.authority.certificate(), second.authority.certificate());
        assert_eq!(first.authority.key(), second.authority.key());
        let wrong = Tls::prepare(&world, &*store.keys, &["no name".to_owned()]).await;
        assert!(format!("{:#}", wrong.err().unwrap()).starts_with("--tls-name: \"no name\" is neither"));
    }
}
