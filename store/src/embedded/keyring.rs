//! The key ring as one file, wrapped under the master key.
//!
//! The file is replaced as a whole, so a destroyed key is in no file any more; what a disk may keep of old files is of no use
//! without the master key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use world::disk::FolderLock;
use world::{Disk, Random};
use zeroize::Zeroizing;

use crate::keyring::{KeyName, KeyRing, KeyRingError};
use crate::seal::{Keys, MasterKey, Seal, fresh_key};

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
        self.inner.put_new(name, || fresh_key(self.inner.random.as_ref(), name))
    }

    /// As [`KeyRing::put_new`]; blocks.
    pub(super) fn key_or_put(
        &self,
        name: KeyName,
        key: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, KeyRingError> {
        self.inner.put_new(name, || key)
    }

    /// Names of all keys.
    pub(super) fn names(&self) -> Vec<KeyName> {
        self.inner.keys.lock().keys().copied().collect()
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
