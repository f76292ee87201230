//! A developer's clone, driven by the real git.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::Folder;
use crate::git_server::git;

/// A clone with files to change, commit and push. Calls block: they run git.
#[derive(Debug)]
pub struct WorkTree {
    folder: Folder,
}

impl WorkTree {
    /// Clones into a temporary folder; an empty repository gives an empty tree on `main`.
    pub fn clone(url: &str) -> Result<Self> {
        Self::clone_into(url, Folder::temporary()?)
    }

    /// Clones into a folder that is kept; one that holds a clone already is taken as it is.
    pub fn clone_kept(url: &str, path: &Path) -> Result<Self> {
        let folder = Folder::kept(path)?;
        if folder.path().join(".git").exists() {
            let tree = Self { folder };
            tree.git(&["remote", "set-url", "origin", url])?;
            return Ok(tree);
        }
        Self::clone_into(url, folder)
    }

    fn clone_into(url: &str, folder: Folder) -> Result<Self> {
        git(folder.path(), &["clone", "--quiet", url, "."], None)?;
        let tree = Self { folder };
        tree.git(&["config", "user.name", "Dana Developer"])?;
        tree.git(&["config", "user.email", "dana@example.com"])?;
        Ok(tree)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file, with the folders above it.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path().join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes a file or a folder with all that is in it.
    pub fn remove(&self, path: &str) -> Result<()> {
        let path = self.path().join(path);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Copies a folder's files into a folder of this tree.
    pub fn copy_from(&self, source: &Path, target: &str) -> Result<()> {
        copy_folder(source, &self.path().join(target))
    }

    /// Commits everything that changed, an empty commit when nothing did; gives the commit's id.
    pub fn commit(&self, message: &str) -> Result<String> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message])?;
        self.git(&["rev-parse", "HEAD"])
    }

    /// Pushes the current branch.
    pub fn push(&self) -> Result<()> {
        self.git(&["push", "--quiet", "--set-upstream", "origin", "HEAD"]).map(|_| ())
    }

    /// Commit and push; gives the commit's id.
    pub fn commit_and_push(&self, message: &str) -> Result<String> {
        let id = self.commit(message)?;
        self.push()?;
        Ok(id)
    }

    /// Any other git command; gives its output.
    pub fn git(&self, arguments: &[&str]) -> Result<String> {
        git(self.path(), arguments, None)
    }
}

fn copy_folder(source: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target).with_context(|| format!("cannot create {}", target.display()))?;
    let entries = fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))?;
    for entry in entries {
        let entry = entry?;
        let (from, to): (PathBuf, PathBuf) = (entry.path(), target.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
    }
    Ok(())
}
