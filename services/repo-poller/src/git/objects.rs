//! Reading Git objects out of a database, and out of what was fetched since.

use std::sync::Arc;

use gix::objs::{CommitRefIter, Find, FindHeader, Kind, TagRefIter};

use crate::git::overlay::{Overlay, Unpacked};
use crate::git::{GitError, ObjectId};

/// Objects as they were at one moment, cheap to clone.
#[derive(Clone)]
pub struct Objects {
    store: Option<Arc<gix::odb::Store>>,
    overlay: Arc<Overlay>,
}

impl Objects {
    /// Reads from memory alone.
    #[must_use]
    pub fn in_memory(objects: Unpacked) -> Self {
        Self { store: None, overlay: Arc::new(Overlay::default().with(objects)) }
    }

    /// Reads from an opened database.
    #[must_use]
    pub fn new(store: Arc<gix::odb::Store>) -> Self {
        Self::with(store, Arc::default())
    }

    /// Reads from an opened database and from memory.
    #[must_use]
    pub const fn with(store: Arc<gix::odb::Store>, overlay: Arc<Overlay>) -> Self {
        Self { store: Some(store), overlay }
    }

    /// What completes the deltas of a pack on disk: the database alone, if there is one.
    pub(crate) fn finder(&self) -> Option<gix::odb::HandleArc> {
        self.store.as_ref().map(|store| store.to_cache_arc())
    }

    /// Something to read with; one for each thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader { handle: self.finder(), overlay: Arc::clone(&self.overlay), buffer: Vec::new() }
    }
}

/// Reads objects on one thread. Calls block.
pub struct Reader {
    handle: Option<gix::odb::HandleArc>,
    overlay: Arc<Overlay>,
    buffer: Vec<u8>,
}

/// A file's content, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The bytes.
    Bytes(Vec<u8>),
    /// More than was allowed: this many.
    TooLarge(u64),
}

impl Reader {
    /// Whether the object is there.
    #[must_use]
    pub fn contains(&self, id: &ObjectId) -> bool {
        let stored = |handle: &gix::odb::HandleArc| gix::objs::Exists::exists(handle, id);
        self.overlay.get(id).is_some() || self.handle.as_ref().is_some_and(stored)
    }

    /// Kind and content of an object, if it is there.
    pub(crate) fn raw(&mut self, id: &ObjectId) -> Result<Option<(Kind, &[u8])>, GitError> {
        if let Some(found) = self.overlay.get(id) {
            return Ok(Some(found));
        }
        let Some(handle) = &self.handle else { return Ok(None) };
        match handle.try_find(id, &mut self.buffer) {
            Ok(found) => Ok(found.map(|object| (object.kind, object.data))),
            Err(_) => Err(GitError::broken(format!("object {id} cannot be read"))),
        }
    }

    /// The content of an object, which must be of that kind.
    pub(crate) fn read(&mut self, id: &ObjectId, kind: Kind) -> Result<&[u8], GitError> {
        match self.raw(id)? {
            Some((found, content)) if found == kind => Ok(content),
            Some((found, _)) => Err(GitError::broken(format!("object {id} is a {found}, not a {kind}"))),
            None => Err(GitError::broken(format!("object {id} is missing"))),
        }
    }

    /// The commit that an id names: itself, or what an annotated tag points at; and its tree.
    ///
    /// # Errors
    /// When there is no such commit.
    pub fn commit_and_tree(&mut self, id: &ObjectId) -> Result<(ObjectId, ObjectId), GitError> {
        let hash = gix::hash::Kind::Sha1;
        let mut id = *id;
        for _ in 0..8 {
            let Some((kind, content)) = self.raw(&id)? else {
                return Err(GitError::not_found(format!("no commit {id}")));
            };
            match kind {
                Kind::Commit => {
                    let tree = CommitRefIter::from_bytes(content, hash).tree_id();
                    return tree
                        .map(|tree| (id, tree))
                        .map_err(|_| GitError::broken(format!("commit {id} is damaged")));
                }
                Kind::Tag => {
                    let target = TagRefIter::from_bytes(content, hash).target_id();
                    id = target.map_err(|_| GitError::broken(format!("tag {id} is damaged")))?;
                }
                Kind::Tree | Kind::Blob => break,
            }
        }
        Err(GitError::not_found(format!("{id} is no commit")))
    }

    /// The content of a file, unless it is larger than `limit` bytes.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn file(&mut self, id: &ObjectId, limit: u64) -> Result<Content, GitError> {
        let size = match (self.overlay.get(id), &self.handle) {
            (Some((_, content)), _) => Ok(content.len() as u64),
            (None, Some(handle)) => {
                handle.try_header(id).map(|header| header.map_or(0, |header| header.size))
            }
            (None, None) => Ok(0),
        };
        match size {
            Ok(size) if size > limit => Ok(Content::TooLarge(size)),
            Ok(_) => self.read(id, Kind::Blob).map(|bytes| Content::Bytes(bytes.to_vec())),
            Err(_) => Err(GitError::broken(format!("object {id} cannot be read"))),
        }
    }

    /// The one commit whose id begins with `prefix` among those that were fetched.
    #[must_use]
    pub fn find_commit(&mut self, prefix: &str) -> Option<ObjectId> {
        let mut candidates: std::collections::HashSet<ObjectId> = self.overlay.commits(prefix).collect();
        if let Some(handle) = &self.handle {
            let prefix = gix::hash::Prefix::from_hex(prefix).ok()?;
            let mut stored = std::collections::HashSet::new();
            handle.lookup_prefix(prefix, Some(&mut stored)).ok()?;
            candidates.extend(stored);
        }
        let mut commits = candidates.into_iter().filter(|id| self.read(id, Kind::Commit).is_ok());
        match (commits.next(), commits.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }
}
