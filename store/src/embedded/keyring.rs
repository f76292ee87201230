//! The key ring as one file, wrapped under the master key.
//!
//! ```text
//! 0   8  magic "KASBAHKR"
//! 8   4  format, little-endian
//! 12  32 check: HMAC-SHA256 over the magic, which tells a wrong master key from damage
//! 44  12 nonce
//! 56     ChaCha20-Poly1305 over the keys, with the bytes before as associated data
//! ```
//! Check and encryption key derive from the master key by HKDF-SHA256. The file is replaced as a whole, so a destroyed key is
//! in no file any more; what a disk may keep of old files is of no use without the master key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use serde::{Deserialize, Serialize};
use world::disk::FolderLock;
use world::{Disk, Random};
use zeroize::{Zeroize as _, Zeroizing};

use crate::keyring::{KeyName, KeyRing, KeyRingError};
use crate::root;

const MAGIC: [u8; 8] = *b"KASBAHKR";
const FORMAT: u32 = 1;
const CHECK: std::ops::Range<usize> = 12..44;
const HEADER: usize = 56;

/// The 32 bytes that wrap everything.
pub type MasterKey = Zeroizing<[u8; 32]>;

type Keys = BTreeMap<KeyName, Zeroizing<Vec<u8>>>;

/// The keys of one installation.
pub(super) struct KeyFile {
    inner: Arc<Inner>,
}

struct Inner {
    disk: Arc<dyn Disk>,
    random: Arc<dyn Random>,
    path: PathBuf,
    seal: Seal,
    keys: Mutex<Keys>,
    _lock: Arc<dyn FolderLock>,
}

struct Seal {
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

/// The master key of the file `master` in the folder, made if there is neither it nor a key ring.
pub(super) fn master_key(
    disk: &dyn Disk,
    random: &dyn Random,
    folder: &Path,
) -> Result<MasterKey, KeyRingError> {
    let path = folder.join("master");
    match disk.read(&path) {
        Ok(bytes) => {
            let bytes = Zeroizing::new(bytes);
            let key = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| KeyRingError::WrongMasterKey)?;
            Ok(Zeroizing::new(key))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let ring = disk.list(folder).map_err(failed)?.iter().any(|name| name.to_str() == Some("ring"));
            if ring {
                return Err(KeyRingError::WrongMasterKey);
            }
            let mut key = Zeroizing::new([0_u8; 32]);
            random.fill(key.as_mut());
            disk.replace(&path, key.as_ref(), true).map_err(failed)?;
            Ok(key)
        }
        Err(error) => Err(failed(error)),
    }
}

impl KeyFile {
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        random: Arc<dyn Random>,
        folder: &Path,
        master: &MasterKey,
        lock: Arc<dyn FolderLock>,
    ) -> Result<Self, KeyRingError> {
        let path = folder.join("ring");
        let seal = Seal::of(master)?;
        let keys = match disk.read(&path) {
            Ok(bytes) => seal.open(&bytes)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Keys::new(),
            Err(error) => return Err(failed(error)),
        };
        let inner = Inner { disk, random, path, seal, keys: Mutex::new(keys), _lock: lock };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The key, at once: keys are in memory.
    pub(super) fn key(&self, name: KeyName) -> Option<Zeroizing<Vec<u8>>> {
        self.inner.keys.lock().get(&name).cloned()
    }

    /// As [`KeyRing::get_or_create`]; blocks.
    pub(super) fn key_or_new(&self, name: KeyName) -> Result<Zeroizing<Vec<u8>>, KeyRingError> {
        self.inner.put_new(name, || {
            let mut seed = Zeroizing::new(vec![0_u8; 32]);
            self.inner.random.fill(&mut seed);
            if name == KeyName::Root { root::pkcs8(&seed) } else { seed }
        })
    }

    /// Another handle to the same keys.
    pub(super) fn handle(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl Inner {
    fn put_new(
        &self,
        name: KeyName,
        new: impl FnOnce() -> Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, KeyRingError> {
        let mut keys = self.keys.lock();
        if let Some(key) = keys.get(&name) {
            return Ok(key.clone());
        }
        let mut changed = keys.clone();
        let key = new();
        changed.insert(name, key.clone());
        self.write(&changed)?;
        *keys = changed;
        Ok(key)
    }

    fn destroy(&self, name: KeyName) -> Result<(), KeyRingError> {
        let mut keys = self.keys.lock();
        let mut changed = keys.clone();
        if changed.remove(&name).is_some() {
            self.write(&changed)?;
            *keys = changed;
        }
        Ok(())
    }

    fn write(&self, keys: &Keys) -> Result<(), KeyRingError> {
        let mut nonce = [0_u8; 12];
        self.random.fill(&mut nonce);
        let bytes = self.seal.close(keys, nonce)?;
        self.disk.replace(&self.path, &bytes, true).map_err(failed)
    }
}

impl Seal {
    fn of(master: &MasterKey) -> Result<Self, KeyRingError> {
        let mut key = Zeroizing::new([0_u8; 32]);
        derive(master.as_ref(), b"kasbah key ring encryption", &mut key).map_err(failed)?;
        let mut check_key = Zeroizing::new([0_u8; 32]);
        derive(master.as_ref(), b"kasbah key ring check", &mut check_key).map_err(failed)?;
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, check_key.as_ref()), &MAGIC);
        let check = <[u8; 32]>::try_from(tag.as_ref()).map_err(|_| KeyRingError::Damaged)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).map_err(|_| KeyRingError::Damaged)?;
        Ok(Self { check, key: LessSafeKey::new(key) })
    }

    fn open(&self, bytes: &[u8]) -> Result<Keys, KeyRingError> {
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

    fn close(&self, keys: &Keys, nonce: [u8; 12]) -> Result<Vec<u8>, KeyRingError> {
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
pub(super) fn derive(
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

fn name_text(name: KeyName) -> String {
    match name {
        KeyName::Organization(id) => format!("organization/{id}"),
        KeyName::Person(id) => format!("person/{id}"),
        KeyName::Credential(id) => format!("credential/{id}"),
        KeyName::Root => "root".to_owned(),
        KeyName::CertificateAuthority => "certificate-authority".to_owned(),
    }
}

fn parse_name(text: &str) -> Option<KeyName> {
    match text.split_once('/') {
        None if text == "root" => Some(KeyName::Root),
        None if text == "certificate-authority" => Some(KeyName::CertificateAuthority),
        Some(("organization", id)) => id.parse().ok().map(KeyName::Organization),
        Some(("person", id)) => id.parse().ok().map(KeyName::Person),
        Some(("credential", id)) => id.parse().ok().map(KeyName::Credential),
        _ => None,
    }
}

fn failed(error: impl std::fmt::Display) -> KeyRingError {
    KeyRingError::Failed { detail: error.to_string() }
}

#[async_trait]
impl KeyRing for KeyFile {
    async fn get(&self, name: KeyName) -> Result<Option<Zeroizing<Vec<u8>>>, KeyRingError> {
        Ok(self.key(name))
    }

    async fn get_or_create(&self, name: KeyName) -> Result<Zeroizing<Vec<u8>>, KeyRingError> {
        if let Some(key) = self.key(name) {
            return Ok(key);
        }
        let keys = self.handle();
        tokio::task::spawn_blocking(move || keys.key_or_new(name)).await.map_err(failed)?
    }

    async fn put_new(
        &self,
        name: KeyName,
        key: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, KeyRingError> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || inner.put_new(name, || key)).await.map_err(failed)?
    }

    async fn destroy(&self, name: KeyName) -> Result<(), KeyRingError> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || inner.destroy(name)).await.map_err(failed)?
    }
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
            KeyName::CertificateAuthority,
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
