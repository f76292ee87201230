//! A disk that remembers what was written between two syncs, so that a baseline can write the same bytes in the same groups.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use world::disk::{Disk, DiskFile, FolderLock};

/// Bytes written to one file between two of its syncs.
pub type Groups = Arc<Mutex<Vec<usize>>>;

/// Counts what goes through another disk.
pub struct CountingDisk {
    inner: Arc<dyn Disk>,
    /// Only files below a folder of this name count.
    folder: &'static str,
    groups: Groups,
}

struct CountingFile {
    inner: Arc<dyn DiskFile>,
    pending: Mutex<usize>,
    groups: Option<Groups>,
}

impl CountingDisk {
    /// Counts the files below folders named `folder`.
    pub fn new(inner: Arc<dyn Disk>, folder: &'static str) -> (Self, Groups) {
        let groups = Groups::default();
        (Self { inner, folder, groups: Arc::clone(&groups) }, groups)
    }
}

impl DiskFile for CountingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        *self.pending.lock() += bytes.len();
        self.inner.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        let written = std::mem::take(&mut *self.pending.lock());
        if let Some(groups) = &self.groups {
            groups.lock().push(written);
        }
        self.inner.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }

    // What is filled holds nothing of what is appended: the baseline does not write it.
    fn fill(&self, from: u64, to: u64) -> io::Result<()> {
        self.inner.fill(from, to)
    }
}

impl Disk for CountingDisk {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.inner.open(path, create)?;
        let counts = path.components().any(|part| part.as_os_str() == self.folder);
        let groups = counts.then(|| Arc::clone(&self.groups));
        Ok(Arc::new(CountingFile { inner, pending: Mutex::new(0), groups }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read(path)
    }

    fn replace(&self, path: &Path, bytes: &[u8], private: bool) -> io::Result<()> {
        self.inner.replace(path, bytes, private)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list(folder)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.inner.create_folder(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.inner.sync_folder(folder)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn lock(&self, folder: &Path) -> io::Result<Box<dyn FolderLock>> {
        self.inner.lock(folder)
    }
}
