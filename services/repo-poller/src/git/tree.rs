//! Trees: which files differ between two commits, and one file by its path.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gix::objs::tree::EntryKind;
use gix::objs::{Kind, TreeRefIter};
use parking_lot::Mutex;

use crate::git::objects::Reader;
use crate::git::{GitError, ObjectId};

/// Folders inside folders, at most.
const MAXIMUM_DEPTH: usize = 100;
/// Changed entries of one comparison, at most: a tree that is larger than any sensible repository.
const MAXIMUM_CHANGES: usize = 1_000_000;

/// Folders that a [`Finder`] remembers, and names in them all together.
const REMEMBERED_FOLDERS: usize = 16;
const REMEMBERED_NAMES: usize = 100_000;

/// What lies under a path, folders aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: FileKind,
    /// The object.
    pub id: ObjectId,
}

/// What a tree's entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    File,
    /// A symbolic link.
    Link,
    /// A commit of another repository.
    Submodule,
}

/// A path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// From the repository's root, as bytes: Git takes any, and two that differ never become the same text.
    pub path: Vec<u8>,
    /// What lies there now; `None` when nothing does.
    pub now: Option<Entry>,
}

/// Paths that differ between two trees; all of the new one when there is no old one.
///
/// # Errors
/// When a tree is missing, damaged, or over a limit.
pub fn changes(reader: &mut Reader, old: Option<ObjectId>, new: ObjectId) -> Result<Vec<Change>, GitError> {
    let mut found = Vec::new();
    if old != Some(new) {
        compare(reader, old, Some(new), b"", 0, &mut found)?;
    }
    Ok(found)
}

fn compare(
    reader: &mut Reader,
    old: Option<ObjectId>,
    new: Option<ObjectId>,
    folder: &[u8],
    depth: usize,
    found: &mut Vec<Change>,
) -> Result<(), GitError> {
    if depth > MAXIMUM_DEPTH {
        return Err(GitError::broken(format!("folders are nested more than {MAXIMUM_DEPTH} deep")));
    }
    let before = entries(reader, old)?;
    let after = entries(reader, new)?;
    for (name, entry) in &before {
        if !after.contains_key(name) {
            differ(reader, Some(*entry), None, &join(folder, name), depth, found)?;
        }
    }
    for (name, entry) in &after {
        let earlier = before.get(name).copied();
        if earlier != Some(*entry) {
            differ(reader, earlier, Some(*entry), &join(folder, name), depth, found)?;
        }
    }
    Ok(())
}

/// One name that differs: below it when it is a folder, itself otherwise, both when it changed its nature.
fn differ(
    reader: &mut Reader,
    before: Option<(EntryKind, ObjectId)>,
    after: Option<(EntryKind, ObjectId)>,
    path: &[u8],
    depth: usize,
    found: &mut Vec<Change>,
) -> Result<(), GitError> {
    let tree = |entry: Option<(EntryKind, ObjectId)>| {
        entry.filter(|(kind, _)| *kind == EntryKind::Tree).map(|(_, id)| id)
    };
    let (old_tree, new_tree) = (tree(before), tree(after));
    if old_tree.is_some() || new_tree.is_some() {
        compare(reader, old_tree, new_tree, path, depth + 1, found)?;
    }
    let now = after.and_then(file);
    if now != before.and_then(file) {
        if found.len() >= MAXIMUM_CHANGES {
            return Err(GitError::broken(format!("the repository has more than {MAXIMUM_CHANGES} files")));
        }
        found.push(Change { path: path.to_owned(), now });
    }
    Ok(())
}

fn file((kind, id): (EntryKind, ObjectId)) -> Option<Entry> {
    let kind = match kind {
        EntryKind::Tree => return None,
        EntryKind::Blob | EntryKind::BlobExecutable => FileKind::File,
        EntryKind::Link => FileKind::Link,
        EntryKind::Commit => FileKind::Submodule,
    };
    Some(Entry { kind, id })
}

type Entries = BTreeMap<Vec<u8>, (EntryKind, ObjectId)>;

pub(super) fn entries(reader: &mut Reader, tree: Option<ObjectId>) -> Result<Entries, GitError> {
    let Some(id) = tree else { return Ok(Entries::new()) };
    let data = reader.read(&id, Kind::Tree)?;
    let damaged = || GitError::broken(format!("tree {id} is damaged"));
    let mut entries = Entries::new();
    for entry in TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1) {
        let entry = entry.map_err(|_| damaged())?;
        // A name that stands twice would hide one of the two.
        let twice = entries.insert(entry.filename.to_vec(), (entry.mode.kind(), entry.oid.to_owned()));
        if twice.is_some() {
            return Err(damaged());
        }
    }
    Ok(entries)
}

/// The path of a name in a folder; the root's is empty.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, name].join(&b'/') }
}

/// A path as people read it: what is not UTF-8 is escaped as in `caf\xE9.yaml`.
#[must_use]
pub fn shown(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02X}"));
        }
    }
    text
}

/// Finds what lies under a path of a tree. Remembers the folders that it read last: of a fleet's configuration files, many
/// are read one after the other, and all of them lie in one large folder.
#[derive(Default)]
pub struct Finder(Mutex<VecDeque<(ObjectId, Arc<Entries>)>>);

impl Finder {
    /// The id of a folder that lies in a tree.
    ///
    /// # Errors
    /// When the tree is missing or damaged.
    pub fn folder(
        &self,
        reader: &mut Reader,
        tree: ObjectId,
        name: &str,
    ) -> Result<Option<ObjectId>, GitError> {
        let entry = self.entries(reader, tree)?.get(name.as_bytes()).copied();
        Ok(entry.filter(|(kind, _)| *kind == EntryKind::Tree).map(|(_, id)| id))
    }

    /// What lies under a path of a tree, folders aside.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    pub fn find(&self, reader: &mut Reader, tree: ObjectId, path: &str) -> Result<Option<Entry>, GitError> {
        let mut current = tree;
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let Some(entry) = self.entries(reader, current)?.get(part.as_bytes()).copied() else {
                return Ok(None);
            };
            match (parts.peek(), entry.0) {
                (None, _) => return Ok(file(entry)),
                (Some(_), EntryKind::Tree) => current = entry.1,
                (Some(_), _) => return Ok(None),
            }
        }
        Ok(None)
    }

    fn entries(&self, reader: &mut Reader, tree: ObjectId) -> Result<Arc<Entries>, GitError> {
        let known = self.0.lock().iter().find(|(id, _)| *id == tree).map(|(_, known)| Arc::clone(known));
        if let Some(known) = known {
            return Ok(known);
        }
        let read = Arc::new(entries(reader, Some(tree))?);
        let mut remembered = self.0.lock();
        if read.len() > REMEMBERED_NAMES || remembered.iter().any(|(id, _)| *id == tree) {
            return Ok(read);
        }
        remembered.push_back((tree, Arc::clone(&read)));
        let mut names: usize = remembered.iter().map(|(_, entries)| entries.len()).sum();
        while remembered.len() > REMEMBERED_FOLDERS || names > REMEMBERED_NAMES {
            names -= remembered.pop_front().map_or(0, |(_, entries)| entries.len());
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use gix::objs::tree::{Entry as TreeEntry, EntryKind};
    use gix::objs::{Tree, WriteTo as _};

    use super::*;
    use crate::git::objects::Objects;
    use crate::git::overlay::Unpacked;

    /// A tree that holds an empty file of each name, and the tree's id.
    fn tree(names: &[String]) -> (ObjectId, Unpacked) {
        let file = ObjectId::empty_blob(gix::hash::Kind::Sha1);
        let entry = |name: &String| TreeEntry {
            mode: EntryKind::Blob.into(),
            filename: name.as_str().into(),
            oid: file,
        };
        let mut bytes = Vec::new();
        Tree { entries: names.iter().map(entry).collect() }.write_to(&mut bytes).unwrap();
        let id = gix::objs::compute_hash(gix::hash::Kind::Sha1, Kind::Tree, &bytes).unwrap();
        (id, Unpacked::from([(id, (Kind::Tree, Bytes::from(bytes)))]))
    }

    fn finds(finder: &Finder, objects: Unpacked, tree: ObjectId, name: &str) -> bool {
        let found = finder.find(&mut Objects::in_memory(objects).reader(), tree, name);
        found.is_ok_and(|entry| entry.is_some())
    }

    #[test]
    fn a_folder_is_read_once_while_few_others_are() {
        let finder = Finder::default();
        let (id, objects) = tree(&["a".to_owned()]);
        assert!(finds(&finder, objects, id, "a"));
        assert!(finds(&finder, Unpacked::new(), id, "a"), "it was read again");
        for number in 0..REMEMBERED_FOLDERS {
            let (other, objects) = tree(&[format!("other-{number}")]);
            assert!(!finds(&finder, objects, other, "a"));
        }
        assert!(!finds(&finder, Unpacked::new(), id, "a"), "it is remembered for ever");
    }

    #[test]
    fn a_folder_of_too_many_names_is_not_remembered() {
        let finder = Finder::default();
        let names: Vec<String> = (0..=REMEMBERED_NAMES).map(|number| format!("{number:06}")).collect();
        let (id, objects) = tree(&names);
        assert!(finds(&finder, objects, id, "000000"));
        assert!(!finds(&finder, Unpacked::new(), id, "000000"));
    }
}
