//! How keys are wrapped under the master key, in a file or in a message.
//!
//! ```text
//! 0   8  magic "KASBAHKR"
//! 8   4  format, little-endian
//! 12  32 check: HMAC-SHA256 over the magic, which tells a wrong master key from damage
//! 44  12 nonce
//! 56     ChaCha20-Poly1305 over the keys, with the bytes before as associated data
//! ```
//! Check and encryption key derive from the master key by HKDF-SHA256.

use std::collections::BTreeMap;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use serde::{Deserialize, Serialize};
use world::Random;
use zeroize::{Zeroize as _, Zeroizing};

use crate::keyring::{KeyName, KeyRingError};
use crate::root;

const MAGIC: [u8; 8] = *b"KASBAHKR";
const FORMAT: u32 = 1;
const CHECK: std::ops::Range<usize> = 12..44;
const HEADER: usize = 56;

/// The 32 bytes that wrap everything.
pub type MasterKey = Zeroizing<[u8; 32]>;

pub(crate) type Keys = BTreeMap<KeyName, Zeroizing<Vec<u8>>>;

/// Wraps and unwraps under one master key.
pub(crate) struct Seal {
    check: [u8; 32],
    key: LessSafeKey,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    name: String,
    #[serde(with = "serde_bytes")]
    key: Vec<u8>,
}

impl Drop for StoredKey {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Seal {
    pub(crate) fn of(master: &MasterKey) -> Result<Self, KeyRingError> {
        let mut key = Zeroizing::new([0_u8; 32]);
        derive(master.as_ref(), b"kasbah key ring encryption", &mut key).map_err(failed)?;
        let mut check_key = Zeroizing::new([0_u8; 32]);
        derive(master.as_ref(), b"kasbah key ring check", &mut check_key).map_err(failed)?;
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, check_key.as_ref()), &MAGIC);
        let check = <[u8; 32]>::try_from(tag.as_ref()).map_err(|_| KeyRingError::Damaged)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).map_err(|_| KeyRingError::Damaged)?;
        Ok(Self { check, key: LessSafeKey::new(key) })
    }

    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Keys, KeyRingError> {
        let (header, sealed) = bytes.split_at_checked(HEADER).ok_or(KeyRingError::Damaged)?;
        let nonce = header.last_chunk::<12>().ok_or(KeyRingError::Damaged)?;
        if !header.starts_with(&MAGIC) || header.get(8..12) != Some(FORMAT.to_le_bytes().as_slice()) {
            return Err(KeyRingError::Damaged);
        }
        let check = header.get(CHECK).ok_or(KeyRingError::Damaged)?;
        if check != self.check {
            return Err(KeyRingError::WrongMasterKey);
        }
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let opened = self
            .key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(header), &mut sealed)
            .map_err(|_| KeyRingError::Damaged)?;
        let stored: Vec<StoredKey> = events::decode(opened).map_err(|_| KeyRingError::Damaged)?;
        stored
            .into_iter()
            .map(|mut stored| {
                let name = parse_name(&stored.name).ok_or(KeyRingError::Damaged)?;
                Ok((name, Zeroizing::new(std::mem::take(&mut stored.key))))
            })
            .collect()
    }

    pub(crate) fn close(&self, keys: &Keys, nonce: [u8; 12]) -> Result<Vec<u8>, KeyRingError> {
        let stored: Vec<StoredKey> =
            keys.iter().map(|(name, key)| StoredKey { name: name_text(*name), key: key.to_vec() }).collect();
        let mut sealed = Zeroizing::new(events::encode(&stored).map_err(failed)?);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.check);
        bytes.extend_from_slice(&nonce);
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(&bytes), &mut *sealed)
            .map_err(failed)?;
        bytes.extend_from_slice(&sealed);
        Ok(bytes)
    }
}

/// Fills `out` with a key derived from `secret` for one purpose.
pub(crate) fn derive(
    secret: &[u8],
    purpose: &[u8],
    out: &mut [u8; 32],
) -> Result<(), ring::error::Unspecified> {
    struct Length;
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            32
        }
    }
    let key = hkdf::Salt::new(hkdf::HKDF_SHA256, b"kasbah").extract(secret);
    key.expand(&[purpose], Length)?.fill(out)
}

/// A new key of that name: 32 random bytes, a root's in PKCS#8.
pub(crate) fn fresh_key(random: &dyn Random, name: KeyName) -> Zeroizing<Vec<u8>> {
    let mut seed = Zeroizing::new(vec![0_u8; 32]);
    random.fill(&mut seed);
    if matches!(name, KeyName::Root | KeyName::LaterRoot(_)) { root::pkcs8(&seed) } else { seed }
}

pub(crate) fn name_text(name: KeyName) -> String {
    match name {
        KeyName::Organization(id) => format!("organization/{id}"),
        KeyName::Person(id) => format!("person/{id}"),
        KeyName::Credential(id) => format!("credential/{id}"),
        KeyName::Root => "root".to_owned(),
        KeyName::LaterRoot(id) => format!("root/{id}"),
        KeyName::CertificateAuthority => "certificate-authority".to_owned(),
        KeyName::TunnelTickets => "tunnel-tickets".to_owned(),
    }
}

pub(crate) fn parse_name(text: &str) -> Option<KeyName> {
    match text.split_once('/') {
        None if text == "root" => Some(KeyName::Root),
        None if text == "certificate-authority" => Some(KeyName::CertificateAuthority),
        None if text == "tunnel-tickets" => Some(KeyName::TunnelTickets),
        Some(("root", id)) => id.parse().ok().map(KeyName::LaterRoot),
        Some(("organization", id)) => id.parse().ok().map(KeyName::Organization),
        Some(("person", id)) => id.parse().ok().map(KeyName::Person),
        Some(("credential", id)) => id.parse().ok().map(KeyName::Credential),
        _ => None,
    }
}

fn failed(error: impl std::fmt::Display) -> KeyRingError {
    KeyRingError::Failed { detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written() {
        let id = uuid::Uuid::from_u128(5);
        for name in [
            KeyName::Organization(events::OrganizationId(id)),
            KeyName::Person(events::UserId(id)),
            KeyName::Credential(events::CredentialId(id)),
            KeyName::Root,
            KeyName::LaterRoot(events::RootId(id)),
            KeyName::CertificateAuthority,
            KeyName::TunnelTickets,
        ] {
            assert_eq!(parse_name(&name_text(name)), Some(name));
        }
    }

    #[test]
    fn each_flipped_byte_is_found_and_a_wrong_master_key_is_told_from_damage() {
        let seal = Seal::of(&Zeroizing::new([1; 32])).unwrap();
        let keys = Keys::from([(KeyName::Root, Zeroizing::new(vec![7; 32]))]);
        let bytes = seal.close(&keys, [3; 12]).unwrap();
        assert_eq!(seal.open(&bytes).unwrap(), keys);
        let other = Seal::of(&Zeroizing::new([2; 32])).unwrap();
        assert_eq!(other.open(&bytes), Err(KeyRingError::WrongMasterKey));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            let expected =
                if CHECK.contains(&at) { KeyRingError::WrongMasterKey } else { KeyRingError::Damaged };
            assert_eq!(seal.open(&flipped), Err(expected), "at {at}");
        }
        assert!(!bytes.windows(8).any(|window| window == [7; 8]), "keys are encrypted");
    }
}
