//! Folders that vanish with their owner, also when the owner was killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder of a test's own, or one that is kept.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    held: Option<(tempfile::TempDir, File)>,
}

impl Folder {
    /// A new folder that is removed with this handle. What killed processes left behind is removed here as well.
    pub fn temporary() -> Result<Self> {
        let parent = parent();
        fs::create_dir_all(&parent).with_context(|| format!("cannot create {}", parent.display()))?;
        // A lock that another process has created and not locked yet would look abandoned: one start at a time.
        let starting = File::create(parent.join("starting")).context("cannot create the lock of starts")?;
        starting.lock().context("cannot lock starts")?;
        remove_abandoned(&parent);
        let folder = tempfile::Builder::new()
            .prefix("t-")
            .tempdir_in(&parent)
            .with_context(|| format!("cannot create a folder in {}", parent.display()))?;
        let lock = File::create(lock_of(folder.path())).context("cannot create the folder's lock")?;
        lock.lock().context("cannot lock the folder")?;
        Ok(Self { path: folder.path().to_owned(), held: Some((folder, lock)) })
    }

    /// A folder that is created where it is missing, and kept.
    pub fn kept(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("cannot resolve {}", path.display()))?;
        Ok(Self { path, held: None })
    }

    /// Kept when a path is given, temporary otherwise.
    pub fn at(path: Option<&Path>) -> Result<Self> {
        path.map_or_else(Self::temporary, Self::kept)
    }

    /// Where it is (absolute).
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.held.is_some() {
            let _ = fs::remove_file(lock_of(&self.path));
        }
    }
}

/// One a user, because folders of others cannot be written to.
fn parent() -> PathBuf {
    std::env::temp_dir().join(format!("kasbah-testkit-{}", rustix::process::getuid().as_raw()))
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// Locks are released by the kernel when their process ends, so a lock that can be had has no owner any more.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        let Ok(lock) = File::open(&path) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(path.with_extension(""));
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_goes_with_its_handle_and_not_before() {
        let first = Folder::temporary().unwrap();
        let second = Folder::temporary().unwrap();
        assert!(first.path().is_dir(), "a second start must not take a held folder for an abandoned one");
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && !lock_of(&path).exists());
        assert!(second.path().is_dir());
    }

    #[test]
    fn an_abandoned_folder_is_removed_by_the_next_start() {
        let parent = parent();
        fs::create_dir_all(&parent).unwrap();
        let abandoned = parent.join(format!("t-abandoned-{}", std::process::id()));
        fs::create_dir_all(&abandoned).unwrap();
        File::create(lock_of(&abandoned)).unwrap();
        let _next = Folder::temporary().unwrap();
        assert!(!abandoned.exists());
    }
}
