//! The Ed25519 root that signs passes; agents pin its public half when they are registered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::RootId;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use zeroize::Zeroizing;

use crate::keyring::{KeyName, KeyRing, KeyRingError};

/// What stands in front of the 32 bytes of an Ed25519 key in PKCS#8 (RFC 8410, version 1, without the public key).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The root key, ready to sign.
pub struct RootKey {
    pair: Ed25519KeyPair,
}

/// There is no usable root key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootKeyError {
    /// The key ring could not be used.
    #[error(transparent)]
    KeyRing(#[from] KeyRingError),
    /// What is stored under the root's name is no Ed25519 key in PKCS#8.
    #[error("the root key in the key ring is malformed: restore the key ring from its backup")]
    Malformed,
}

/// The installation's first root, or the later one with that id; nothing when the key ring has none. None is made: a key that agents pin or
/// the log names cannot be made again.
///
/// # Errors
/// When the key ring fails, or holds something else under the root's name.
pub async fn root_key(keys: &dyn KeyRing, later: Option<RootId>) -> Result<Option<RootKey>, RootKeyError> {
    let key = keys.get(later.map_or(KeyName::Root, KeyName::LaterRoot)).await?;
    key.map(|key| RootKey::from_pkcs8(&key)).transpose()
}

/// A root that is to take the place of the one that signs now, under an id that nobody has used.
///
/// # Errors
/// As [`root_key`].
pub async fn new_root_key(keys: &dyn KeyRing, id: RootId) -> Result<RootKey, RootKeyError> {
    RootKey::from_pkcs8(&keys.get_or_create(KeyName::LaterRoot(id)).await?)
}

impl RootKey {
    /// Reads a key in PKCS#8.
    ///
    /// # Errors
    /// When it is no Ed25519 key.
    pub fn from_pkcs8(bytes: &[u8]) -> Result<Self, RootKeyError> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes).map_err(|_| RootKeyError::Malformed)?;
        Ok(Self { pair })
    }

    /// The public half, 32 bytes.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// The public half as people and settings carry it: standard base64 with padding.
    #[must_use]
    pub fn public_key_base64(&self) -> String {
        STANDARD.encode(self.public_key())
    }

    /// The signature over a message, 64 bytes.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// An Ed25519 key in PKCS#8 out of 32 random bytes.
pub(crate) fn pkcs8(seed: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(PKCS8_PREFIX.len() + seed.len()));
    bytes.extend_from_slice(&PKCS8_PREFIX);
    bytes.extend_from_slice(seed);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_root_signs_its_public_half_verifies() {
        let key = RootKey::from_pkcs8(&pkcs8(&[7; 32])).unwrap();
        let public = STANDARD.decode(key.public_key_base64()).unwrap();
        let verifier = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, public);
        verifier.verify(b"pass", &key.sign(b"pass")).unwrap();
        verifier.verify(b"other", &key.sign(b"pass")).unwrap_err();
    }

    #[test]
    fn something_else_is_refused() {
        assert_eq!(RootKey::from_pkcs8(b"something").err(), Some(RootKeyError::Malformed));
    }
}
