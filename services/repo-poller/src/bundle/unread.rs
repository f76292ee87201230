//! What the globs take and cannot be read as manifests: links, submodules, folders with the name of a manifest, and names
//! that are not UTF-8. Whether objects stood there nobody knows, so none may go because of it.

use std::collections::{BTreeMap, BTreeSet};

use events::configuration::FileFinding;

use crate::bundle::rules::{Globs, is_manifest_name, is_own};
use crate::bundle::source::{finding, name_of};
use crate::git::link::{Target, follow};
use crate::git::objects::Reader;
use crate::git::tree::{self, Entry, FileKind, join, shown};
use crate::git::{GitError, ObjectId};

/// Everything of one commit that cannot be read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// Paths that are not UTF-8.
    names: BTreeSet<Vec<u8>>,
    /// Folders with the name of a manifest, and the paths below them.
    folders: BTreeMap<String, BTreeSet<Vec<u8>>>,
    links: BTreeSet<String>,
    submodules: BTreeSet<String>,
    /// What stands in folders that links lead to, by path, as of a tree.
    walked: BTreeMap<Vec<u8>, (ObjectId, Holds)>,
}

/// What comes of it.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// What is wrong.
    pub findings: Vec<FileFinding>,
    /// What is left out, as the source reads it elsewhere.
    pub warnings: Vec<FileFinding>,
    /// Every path that is left out, or below which everything is.
    pub left_out: Vec<String>,
}

/// What stands in a folder that a link leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Nothing that could be a manifest.
    Nothing,
    /// Only what the source takes there.
    Taken,
    /// Something else.
    Others,
}

impl Unread {
    /// Nothing is known of a path any more.
    pub fn forget(&mut self, path: &[u8]) {
        self.names.remove(path);
        for folder in folders_of(path) {
            if let Some(below) = self.folders.get_mut(folder) {
                below.remove(path);
                if below.is_empty() {
                    self.folders.remove(folder);
                }
            }
        }
        if let Ok(path) = std::str::from_utf8(path) {
            self.links.remove(path);
            self.submodules.remove(path);
        }
    }

    /// Takes a path into account. Says whether it is a file with a name that can be written down.
    pub fn add<'p>(&mut self, path: &'p [u8], entry: Entry, globs: &Globs) -> Option<&'p str> {
        for folder in folders_of(path).filter(|folder| globs.take(folder)) {
            self.folders.entry(folder.to_owned()).or_default().insert(path.to_owned());
        }
        let Ok(text) = std::str::from_utf8(path) else {
            let text = String::from_utf8_lossy(path);
            let is_wanted = match entry.kind {
                FileKind::File => is_manifest_name(&text) && globs.take(&text),
                FileKind::Link | FileKind::Submodule => globs.take_or_enter(&text),
            };
            if is_wanted {
                self.names.insert(path.to_owned());
            }
            return None;
        };
        match entry.kind {
            FileKind::File => return Some(text),
            FileKind::Link if globs.take_or_enter(text) => self.links.insert(text.to_owned()),
            FileKind::Submodule if globs.take_or_enter(text) => self.submodules.insert(text.to_owned()),
            FileKind::Link | FileKind::Submodule => false,
        };
        None
    }

    /// What comes of it at a commit, given the files that the source reads.
    ///
    /// # Errors
    /// When an object of the repository is missing or damaged.
    pub fn judge(
        &mut self,
        globs: &Globs,
        is_read: impl Fn(&str) -> bool,
        reader: &mut Reader,
        root: ObjectId,
    ) -> Result<Judged, GitError> {
        let mut judged = Judged::default();
        for path in &self.names {
            let message =
                "the path is not UTF-8, so that it cannot be named exactly; rename it or exclude its folder";
            judged.findings.push(finding(&shown(path), 0, 0, message));
        }
        for folder in self.folders.keys() {
            let message =
                "a folder with the name of a manifest; rename it, or exclude it if it never was a file";
            judged.findings.push(finding(folder, 0, 0, message));
        }
        for path in &self.submodules {
            let message = "a submodule is not read; exclude it, and make a source of the other repository's own project";
            judged.findings.push(finding(path, 0, 0, message));
        }
        for path in &self.links {
            link(path, globs, &is_read, &mut self.walked, (reader, root), &mut judged)?;
        }
        Ok(judged)
    }
}

/// Judges one link. What it leads to is never read through it.
fn link(
    path: &str,
    globs: &Globs,
    is_read: impl Fn(&str) -> bool,
    walked: &mut BTreeMap<Vec<u8>, (ObjectId, Holds)>,
    (reader, root): (&mut Reader, ObjectId),
    judged: &mut Judged,
) -> Result<(), GitError> {
    let is_manifest = is_manifest_name(path) && globs.take(path);
    let may_be_folder = !name_of(path).contains('.');
    let (is_wrong, is_odd, leads) = match follow(reader, root, path)? {
        Target::File(target) => {
            let is_read = std::str::from_utf8(&target).is_ok_and(is_read);
            (is_manifest && !is_read, is_manifest, format!("to {}", shown(&target)))
        }
        Target::Folder(target, tree) => {
            let holds = match walked.get(&target) {
                Some((known, holds)) if *known == tree => *holds,
                _ => walk(reader, tree, &target, globs)?,
            };
            let leads = format!("to the folder {}", shown(&target));
            walked.insert(target, (tree, holds));
            (holds == Holds::Others, holds == Holds::Taken, leads)
        }
        Target::Submodule => (is_manifest || may_be_folder, false, "into a submodule".to_owned()),
        Target::Outside => (is_manifest || may_be_folder, false, "out of the repository".to_owned()),
        Target::Nowhere => (is_manifest || may_be_folder, false, "nowhere".to_owned()),
    };
    if is_wrong {
        let message = format!(
            "a symbolic link {leads}, which this source does not read; links are not followed: commit the file or \
             folder itself, or exclude the link"
        );
        judged.findings.push(finding(path, 0, 0, &message));
        return Ok(());
    }
    if is_odd {
        let message = format!("a symbolic link {leads}, which this source reads there; the link is left out");
        judged.warnings.push(finding(path, 0, 0, &message));
    }
    judged.left_out.push(path.to_owned());
    Ok(())
}

fn walk(reader: &mut Reader, tree: ObjectId, folder: &[u8], globs: &Globs) -> Result<Holds, GitError> {
    let mut holds = Holds::Nothing;
    for change in tree::changes(reader, None, tree)? {
        let path = join(folder, &change.path);
        let text = String::from_utf8_lossy(&path);
        let is_file = change.now.is_some_and(|entry| entry.kind == FileKind::File);
        if is_own(&text) || (is_file && !is_manifest_name(&text)) {
            continue;
        }
        if !globs.take(&text) {
            return Ok(Holds::Others);
        }
        holds = Holds::Taken;
    }
    Ok(holds)
}

/// Folders on the way to a path that have the name of a manifest.
fn folders_of(path: &[u8]) -> impl Iterator<Item = &str> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    let folders = ends.filter_map(|end| std::str::from_utf8(path.get(..end)?).ok());
    folders.filter(|folder| is_manifest_name(folder))
}
