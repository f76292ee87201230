//! Texts that lie or travel outside of the blobs, sealed with their organization's key.
//!
//! The encryption key derives from the organization's key and a purpose by HKDF-SHA256; what is sealed with ChaCha20-Poly1305 under a
//! random nonce, which stands in front of it, is bound to the organization and to what the caller says besides. Who destroys the
//! organization's key makes it unreadable.

use events::OrganizationId;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use world::Random;
use zeroize::Zeroizing;

use crate::keyring::{KeyName, KeyRing, KeyRingError};
use crate::seal::derive;

/// Seals and opens for one organization and one purpose.
pub struct Sealing {
    key: LessSafeKey,
    organization: OrganizationId,
}

/// What was to be sealed is too long, or no key can be derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be sealed")]
pub struct SealError;

impl Sealing {
    /// With the organization's key; a new one if it has none.
    ///
    /// # Errors
    /// When the key ring cannot be reached.
    pub async fn of(
        keys: &dyn KeyRing,
        organization: OrganizationId,
        purpose: &[u8],
    ) -> Result<Self, KeyRingError> {
        let secret = keys.get_or_create(KeyName::Organization(organization)).await?;
        Self::under(&secret, organization, purpose)
            .map_err(|error| KeyRingError::Failed { detail: error.to_string() })
    }

    /// With this key of an organization.
    ///
    /// # Errors
    /// When none can be derived from it.
    pub fn under(secret: &[u8], organization: OrganizationId, purpose: &[u8]) -> Result<Self, SealError> {
        let mut key = Zeroizing::new([0_u8; 32]);
        derive(secret, purpose, &mut key).map_err(|_| SealError)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_slice()).map_err(|_| SealError)?;
        Ok(Self { key: LessSafeKey::new(key), organization })
    }

    /// The content, to be opened with the same words only.
    ///
    /// # Errors
    /// When it is too long.
    pub fn seal(&self, random: &dyn Random, bound_to: &[u8], content: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0_u8; NONCE_LEN];
        random.fill(&mut nonce);
        let mut sealed = content.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(unique, self.bound(bound_to), &mut sealed)
            .map_err(|_| SealError)?;
        Ok([nonce.as_slice(), &sealed].concat())
    }

    /// The content, if it was sealed so.
    #[must_use]
    pub fn open(&self, bound_to: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut opened = sealed.to_vec();
        let length = self.key.open_in_place(nonce, self.bound(bound_to), &mut opened).ok()?.len();
        opened.truncate(length);
        Some(opened)
    }

    fn bound(&self, bound_to: &[u8]) -> Aad<Vec<u8>> {
        Aad::from([self.organization.0.as_bytes(), bound_to].concat())
    }
}

#[cfg(test)]
mod tests {
    use world::random::SystemRandom;

    use super::*;

    fn organization(number: u128) -> OrganizationId {
        OrganizationId(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn only_who_says_the_same_opens_it() {
        let sealing = |secret: u8, number, purpose: &[u8]| {
            Sealing::under(&[secret; 32], organization(number), purpose).unwrap()
        };
        let ours = sealing(1, 1, b"a");
        let sealed = ours.seal(&SystemRandom::new(), b"first", b"what was said").unwrap();
        assert!(!sealed.windows(4).any(|window| window == b"what"));
        assert_eq!(ours.open(b"first", &sealed).unwrap(), b"what was said");
        assert_eq!(ours.open(b"second", &sealed), None);
        for other in [sealing(2, 1, b"a"), sealing(1, 2, b"a"), sealing(1, 1, b"b")] {
            assert_eq!(other.open(b"first", &sealed), None);
        }
        for cut in 0..sealed.len() {
            assert_eq!(ours.open(b"first", &sealed[..cut]), None);
        }
    }
}
