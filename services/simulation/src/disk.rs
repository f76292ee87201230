//! A disk in memory: what was written is there until the disk is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use world::Disk;
use world::disk::{DiskFile, FolderLock};

type Content = Arc<Mutex<Vec<u8>>>;

#[derive(Default)]
struct Files {
    files: BTreeMap<PathBuf, Content>,
    locked: BTreeSet<PathBuf>,
}

/// One machine's disk; cheap to clone.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Files>>);

impl MemoryDisk {
    /// Everything is gone.
    pub fn lose(&self) {
        *self.0.lock() = Files::default();
    }

    fn file(&self, path: &Path) -> io::Result<Content> {
        let files = self.0.lock();
        files.files.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

struct MemoryFile(Content);

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.0.lock();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let rest = content.get(from..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut content = self.0.lock();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let length = content.len().max(from.saturating_add(bytes.len()));
        content.resize(length, 0);
        content.iter_mut().skip(from).zip(bytes).for_each(|(to, byte)| *to = *byte);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.lock().resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        Ok(())
    }
}

struct Held {
    disk: MemoryDisk,
    folder: PathBuf,
}

impl FolderLock for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.0.lock().locked.remove(&self.folder);
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        if create {
            self.0.lock().files.entry(path.to_owned()).or_default();
        }
        Ok(Arc::new(MemoryFile(self.file(path)?)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.file(path)?.lock().clone())
    }

    fn replace(&self, path: &Path, bytes: &[u8], _private: bool) -> io::Result<()> {
        self.0.lock().files.insert(path.to_owned(), Arc::new(Mutex::new(bytes.to_vec())));
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let files = self.0.lock();
        let below = files.files.keys().filter_map(|path| path.strip_prefix(folder).ok());
        let names: BTreeSet<PathBuf> =
            below.filter_map(|path| path.iter().next()).map(PathBuf::from).collect();
        Ok(names.into_iter().collect())
    }

    fn create_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.0.lock();
        let content = files.files.remove(from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        files.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.0.lock().files.remove(path);
        removed.map(drop).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn lock(&self, folder: &Path) -> io::Result<Box<dyn FolderLock>> {
        if self.0.lock().locked.insert(folder.to_owned()) {
            Ok(Box::new(Held { disk: self.clone(), folder: folder.to_owned() }))
        } else {
            Err(io::Error::from(io::ErrorKind::WouldBlock))
        }
    }
}
