//! What is got once a version: made in a folder beside its place, and moved there when it is whole.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folder `name` in the cache, made by `make` where it is missing. A second process that wants the same waits.
pub fn once(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let cache = testkit::cache_folder()?;
    once_in(&cache, name, make)
}

fn once_in(cache: &Path, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let place = cache.join(name);
    if place.exists() {
        return Ok(place);
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let lock =
        File::create(cache.join(format!("{name}.lock"))).context("cannot create a lock in the cache")?;
    lock.lock().context("cannot lock the cache")?;
    if place.exists() {
        return Ok(place);
    }
    let unfinished = cache.join(format!("{name}.unfinished"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    fs::create_dir_all(&unfinished)?;
    make(&unfinished)?;
    fs::rename(&unfinished, &place).with_context(|| format!("cannot create {}", place.display()))?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_made_once_and_never_half() {
        let folder = testkit::Folder::temporary().unwrap();
        let failed = once_in(folder.path(), "tool-1", |path| {
            fs::write(path.join("half"), "")?;
            anyhow::bail!("no network")
        });
        assert!(failed.is_err() && !folder.path().join("tool-1").exists());
        let place = once_in(folder.path(), "tool-1", |path| Ok(fs::write(path.join("whole"), "")?)).unwrap();
        assert!(place.join("whole").exists() && !place.join("half").exists());
        once_in(folder.path(), "tool-1", |_| panic!("made twice")).unwrap();
    }
}
