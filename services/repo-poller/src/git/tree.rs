//! Trees: which files differ between two commits, and one file by its path.

use std::collections::BTreeMap;

use gix::objs::tree::EntryKind;
use gix::objs::{Kind, TreeRefIter};

use crate::git::objects::Reader;
use crate::git::{GitError, ObjectId};

/// Folders inside folders, at most.
const MAXIMUM_DEPTH: usize = 100;
/// Changed entries of one comparison, at most: a tree that is larger than any sensible repository.
const MAXIMUM_CHANGES: usize = 1_000_000;

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
    /// From the repository's root.
    pub path: String,
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
        compare(reader, old, Some(new), "", 0, &mut found)?;
    }
    Ok(found)
}

fn compare(
    reader: &mut Reader,
    old: Option<ObjectId>,
    new: Option<ObjectId>,
    folder: &str,
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
    path: &str,
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

type Entries = BTreeMap<String, (EntryKind, ObjectId)>;

/// Names that are not UTF-8 are given with replacement characters; two that then look alike count as one.
fn entries(reader: &mut Reader, tree: Option<ObjectId>) -> Result<Entries, GitError> {
    let Some(id) = tree else { return Ok(Entries::new()) };
    let data = reader.read(&id, Kind::Tree)?;
    TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1)
        .map(|entry| {
            let entry = entry.map_err(|_| GitError::broken(format!("tree {id} is damaged")))?;
            let name = String::from_utf8_lossy(entry.filename).into_owned();
            Ok((name, (entry.mode.kind(), entry.oid.to_owned())))
        })
        .collect()
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The id of a folder that lies in a tree.
///
/// # Errors
/// When the tree is missing or damaged.
pub fn folder(reader: &mut Reader, tree: ObjectId, name: &str) -> Result<Option<ObjectId>, GitError> {
    let entry = entries(reader, Some(tree))?.remove(name);
    Ok(entry.filter(|(kind, _)| *kind == EntryKind::Tree).map(|(_, id)| id))
}

/// What lies under a path of a tree, folders aside.
///
/// # Errors
/// When a tree is missing or damaged.
pub fn find(reader: &mut Reader, tree: ObjectId, path: &str) -> Result<Option<Entry>, GitError> {
    let mut current = tree;
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        let Some(entry) = entries(reader, Some(current))?.remove(part) else { return Ok(None) };
        match (parts.peek(), entry.0) {
            (None, _) => return Ok(file(entry)),
            (Some(_), EntryKind::Tree) => current = entry.1,
            (Some(_), _) => return Ok(None),
        }
    }
    Ok(None)
}
