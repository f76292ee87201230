//! Files: blocking calls, made from threads that may block.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
}

/// Holds a folder for one process; let go when dropped.
pub trait FolderLock: Send + Sync {}

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
    /// Takes a folder for this process; an error of kind `WouldBlock` when another has it.
    fn lock(&self, folder: &Path) -> io::Result<Box<dyn FolderLock>>;
}

/// The machine's.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk;
