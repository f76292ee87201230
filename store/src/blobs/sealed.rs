//! Contents, sealed with their organization's key.
//!
//! Address and encryption key derive from the organization's key by HKDF-SHA256: the address is HMAC-SHA256 over the content's
//! SHA-256, the content is sealed with ChaCha20-Poly1305 under a random nonce, bound to organization and address.

use bytes::Bytes;
use events::{BlobDigest, OrganizationId, Sha256};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use zeroize::Zeroizing;

use super::BlobError;
use crate::seal::derive;

/// Which addresses an organization's contents have.
#[derive(Clone)]
pub struct Addresses {
    key: hmac::Key,
}

impl Addresses {
    /// The address that content with this plain digest has, stored or not.
    #[must_use]
    pub fn of(&self, content: Sha256) -> BlobDigest {
        let tag = hmac::sign(&self.key, &content.0);
        BlobDigest(tag.as_ref().first_chunk::<32>().copied().unwrap_or_default())
    }
}

/// An organization's keys for blobs.
pub(crate) struct BlobKeys {
    pub(crate) organization: OrganizationId,
    pub(crate) addresses: Addresses,
    seal: LessSafeKey,
}

impl BlobKeys {
    pub(crate) fn of(organization: OrganizationId, key: &[u8]) -> Result<Self, BlobError> {
        let failed = |_| BlobError::Failed { detail: "keys cannot be derived".to_owned() };
        let mut address = Zeroizing::new([0_u8; 32]);
        derive(key, b"kasbah blob address", &mut address).map_err(failed)?;
        let mut seal = Zeroizing::new([0_u8; 32]);
        derive(key, b"kasbah blob encryption", &mut seal).map_err(failed)?;
        let seal = UnboundKey::new(&CHACHA20_POLY1305, seal.as_ref()).map_err(failed)?;
        let addresses = Addresses { key: hmac::Key::new(hmac::HMAC_SHA256, address.as_ref()) };
        Ok(Self { organization, addresses, seal: LessSafeKey::new(seal) })
    }

    /// Content as it is stored.
    pub(crate) fn seal(
        &self,
        digest: BlobDigest,
        nonce: [u8; 12],
        content: &[u8],
    ) -> Result<Vec<u8>, BlobError> {
        let mut sealed = content.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.seal
            .seal_in_place_append_tag(nonce, self.bound(digest), &mut sealed)
            .map_err(|_| BlobError::Failed { detail: "content cannot be sealed".to_owned() })?;
        Ok(sealed)
    }

    /// The content, if it is whole, and the one of that address.
    pub(crate) fn open(&self, digest: BlobDigest, nonce: [u8; 12], mut sealed: Vec<u8>) -> Option<Bytes> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let length = self.seal.open_in_place(nonce, self.bound(digest), &mut sealed).ok()?.len();
        sealed.truncate(length);
        (self.addresses.of(Sha256::of(&sealed)) == digest).then(|| Bytes::from(sealed))
    }

    fn bound(&self, digest: BlobDigest) -> Aad<[u8; 48]> {
        let mut bytes = [0; 48];
        for (to, from) in bytes.iter_mut().zip(self.organization.0.as_bytes().iter().chain(&digest.0)) {
            *to = *from;
        }
        Aad::from(bytes)
    }
}
