//! The real disk, but it can run full and fail to sync.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use world::disk::{DiskFile, FolderLock, RealDisk};
use world::{Disk, World};

/// What fails.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Bytes that can still be written.
    pub(crate) room: AtomicI64,
    /// Syncs fail.
    pub(crate) syncs_fail: AtomicBool,
    /// Files cannot be cut or extended.
    pub(crate) lengths_fail: AtomicBool,
}

#[derive(Debug, Clone)]
struct FaultyDisk(Arc<Faults>);

struct FaultyFile {
    file: Arc<dyn DiskFile>,
    faults: Arc<Faults>,
}

/// The real world with a disk that can fail.
pub(crate) fn faulty_world() -> (World, Arc<Faults>) {
    let faults = Arc::new(Faults {
        room: AtomicI64::new(i64::MAX),
        syncs_fail: AtomicBool::new(false),
        lengths_fail: AtomicBool::new(false),
    });
    let disk = Arc::new(FaultyDisk(Arc::clone(&faults)));
    (World { disk, ..World::real() }, faults)
}

impl Faults {
    /// How many of so many bytes still fit.
    fn take_room(&self, bytes: usize) -> usize {
        let wanted = i64::try_from(bytes).unwrap();
        let room = self.room.fetch_sub(wanted, Ordering::SeqCst);
        usize::try_from(room.clamp(0, wanted)).unwrap()
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fits = self.faults.take_room(bytes.len());
        self.file.write_all_at(&bytes[..fits], offset)?;
        if fits < bytes.len() { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.faults.syncs_fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("input/output error"));
        }
        self.file.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        if self.faults.lengths_fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("input/output error"));
        }
        self.file.set_length(length)
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = RealDisk.open(path, create)?;
        Ok(Arc::new(FaultyFile { file, faults: Arc::clone(&self.0) }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        RealDisk.read(path)
    }

    fn replace(&self, path: &Path, bytes: &[u8], private: bool) -> io::Result<()> {
        if self.0.take_room(bytes.len()) < bytes.len() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        RealDisk.replace(path, bytes, private)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        RealDisk.list(folder)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        RealDisk.create_folder(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        RealDisk.sync_folder(folder)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn lock(&self, folder: &Path) -> io::Result<Box<dyn FolderLock>> {
        RealDisk.lock(folder)
    }
}
