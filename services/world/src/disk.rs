//! Files: blocking calls, made from threads that may block.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is open.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the content durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Cuts or extends.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Writes zeros between two offsets, so that what is written there later takes the file's own blocks: a sync then has no
    /// new length and no new blocks to record, and takes two thirds of the time.
    fn fill(&self, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let length = usize::try_from(to - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            self.write_all_at(ZEROS.get(..length).unwrap_or(&ZEROS), at)?;
            at += length as u64;
        }
        Ok(())
    }
}

static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Holds a folder for one process; let go when dropped.
pub trait FolderLock: Send + Sync {}

/// Room on a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What this process may still fill.
    pub free: u64,
    /// All of it.
    pub size: u64,
}

/// Files and folders.
pub trait Disk: Send + Sync {
    /// Opens for reading and writing; makes the file if `create`.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// Reads a whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Replaces a file as a whole, durably: temporary file, sync, rename, sync of the folder. Mode 0600 when `private`.
    fn replace(&self, path: &Path, bytes: &[u8], private: bool) -> io::Result<()>;
    /// Names in a folder, sorted; empty when there is no such folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;
    /// Makes a folder and its parents, durably.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;
    /// Makes entries of a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Renames, durably.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Deletes a file, durably.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// How much room there is where a folder lies.
    fn space(&self, folder: &Path) -> io::Result<Space> {
        let detail = format!("the free space at {} is unknown", folder.display());
        Err(io::Error::new(io::ErrorKind::Unsupported, detail))
    }
    /// Takes a folder for this process; an error of kind `WouldBlock` when another has it.
    fn lock(&self, folder: &Path) -> io::Result<Box<dyn FolderLock>>;
}

/// The machine's.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}

/// The lock goes with the open file, so a process that dies lets go.
struct RealLock {
    _file: File,
}

impl FolderLock for RealLock {}

/// Tells temporary files of one process apart.
static TEMPORARY: AtomicU64 = AtomicU64::new(0);

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn temporary_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = TEMPORARY.fetch_add(1, Ordering::Relaxed);
    parent(path).join(format!(".{name}.{}.{number}.new", std::process::id()))
}

fn write_new(path: &Path, bytes: &[u8], private: bool) -> io::Result<()> {
    let mode = if private { 0o600 } else { 0o644 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        if create {
            match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
                Ok(file) => {
                    sync_folder(parent(path))?;
                    return Ok(Arc::new(RealFile(file)));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Arc::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn replace(&self, path: &Path, bytes: &[u8], private: bool) -> io::Result<()> {
        let temporary = temporary_beside(path);
        match std::fs::remove_file(&temporary) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let written = write_new(&temporary, bytes, private).and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            // What failed is what the caller must hear; a left-over temporary file does no harm.
            drop(std::fs::remove_file(&temporary));
        }
        written?;
        sync_folder(parent(path))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = entries
            .map(|entry| entry.map(|entry| PathBuf::from(entry.file_name())))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        let above = parent(folder);
        if above != folder {
            self.create_folder(above)?;
        }
        match std::fs::create_dir(folder) {
            Ok(()) => sync_folder(above),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        sync_folder(folder)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)?;
        sync_folder(parent(to))?;
        if parent(from) == parent(to) { Ok(()) } else { sync_folder(parent(from)) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)?;
        sync_folder(parent(path))
    }

    fn space(&self, folder: &Path) -> io::Result<Space> {
        let of = rustix::fs::statvfs(folder)?;
        let bytes = |blocks: u64| blocks.saturating_mul(of.f_frsize);
        Ok(Space { free: bytes(of.f_bavail), size: bytes(of.f_blocks) })
    }

    fn lock(&self, folder: &Path) -> io::Result<Box<dyn FolderLock>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock { _file: file })),
            Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::from(io::ErrorKind::WouldBlock)),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_by_one_only_and_let_go_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let held = RealDisk.lock(folder.path()).unwrap();
        let refused = RealDisk.lock(folder.path()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        RealDisk.lock(folder.path()).unwrap();
    }

    #[test]
    fn there_is_some_room() {
        let folder = tempfile::tempdir().unwrap();
        let space = RealDisk.space(folder.path()).unwrap();
        assert!(space.size > 0 && space.free <= space.size, "{space:?}");
        RealDisk.space(&folder.path().join("none")).unwrap_err();
    }

    #[test]
    fn replace_leaves_the_new_content_alone_and_private_if_asked() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        RealDisk.replace(&path, b"one", true).unwrap();
        RealDisk.replace(&path, b"two", true).unwrap();
        assert_eq!(RealDisk.read(&path).unwrap(), b"two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(RealDisk.list(folder.path()).unwrap(), vec![PathBuf::from("secret")]);
    }

    #[test]
    fn a_replace_that_fails_leaves_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("occupied");
        RealDisk.create_folder(&path.join("inside")).unwrap();
        RealDisk.replace(&path, b"two", false).unwrap_err();
        assert_eq!(RealDisk.list(folder.path()).unwrap(), vec![PathBuf::from("occupied")]);
    }

    #[test]
    fn files_are_read_and_written_at_offsets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("er").join("file");
        RealDisk.open(&path, true).err().unwrap();
        RealDisk.create_folder(path.parent().unwrap()).unwrap();
        let file = RealDisk.open(&path, true).unwrap();
        file.write_all_at(b"hello", 3).unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.length().unwrap(), 8);
        let again = RealDisk.open(&path, false).unwrap();
        let mut buffer = [9_u8; 16];
        assert_eq!(again.read_at(&mut buffer, 0).unwrap(), 8);
        assert_eq!(&buffer[..8], b"\0\0\0hello");
        assert_eq!(again.read_at(&mut buffer, 8).unwrap(), 0);
        again.set_length(4).unwrap();
        assert_eq!(file.length().unwrap(), 4);
        assert!(RealDisk.list(&folder.path().join("none")).unwrap().is_empty());
    }
}
