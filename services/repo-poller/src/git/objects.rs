//! Reading Git objects out of a database.

use std::sync::Arc;

use gix::objs::{Find, FindHeader, Kind};

use crate::git::{GitError, ObjectId};

/// An object database, cheap to clone.
#[derive(Clone)]
pub struct Objects {
    store: Arc<gix::odb::Store>,
}

impl Objects {
    /// Reads from an opened database.
    #[must_use]
    pub fn new(store: Arc<gix::odb::Store>) -> Self {
        Self { store }
    }

    /// What completes the deltas of a pack.
    pub(crate) fn finder(&self) -> gix::odb::HandleArc {
        self.store.to_cache_arc()
    }

    /// Something to read with; one for each thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader { handle: self.store.to_cache_arc(), buffer: Vec::new() }
    }
}

/// Reads objects on one thread. Calls block.
pub struct Reader {
    handle: gix::odb::HandleArc,
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
        gix::objs::Exists::exists(&self.handle, id)
    }

    /// The raw object, which must be of that kind.
    pub(crate) fn read(&mut self, id: &ObjectId, kind: Kind) -> Result<&[u8], GitError> {
        match self.handle.try_find(id, &mut self.buffer) {
            Ok(Some(object)) if object.kind == kind => Ok(object.data),
            Ok(Some(object)) => Err(GitError::broken(format!("object {id} is a {}, not a {kind}", object.kind))),
            Ok(None) => Err(GitError::broken(format!("object {id} is missing"))),
            Err(_) => Err(GitError::broken(format!("object {id} cannot be read"))),
        }
    }

    /// The commit that an id names: itself, or what an annotated tag points at; and its tree.
    ///
    /// # Errors
    /// When there is no such commit.
    pub fn commit_and_tree(&mut self, id: &ObjectId) -> Result<(ObjectId, ObjectId), GitError> {
        let mut id = *id;
        for _ in 0..8 {
            let found = self.handle.try_find(&id, &mut self.buffer);
            let Ok(Some(object)) = found else { return Err(GitError::not_found(format!("no commit {id}"))) };
            match object.kind {
                Kind::Commit => {
                    let tree = gix::objs::CommitRefIter::from_bytes(object.data, gix::hash::Kind::Sha1).tree_id();
                    return tree.map(|tree| (id, tree)).map_err(|_| GitError::broken(format!("commit {id} is damaged")));
                }
                Kind::Tag => {
                    let target = gix::objs::TagRefIter::from_bytes(object.data, gix::hash::Kind::Sha1).target_id();
                    id = target.map_err(|_| GitError::broken(format!("tag {id} is damaged")))?;
                }
                _ => break,
            }
        }
        Err(GitError::not_found(format!("{id} is no commit")))
    }

    /// The content of a file, unless it is larger than `limit` bytes.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn file(&mut self, id: &ObjectId, limit: u64) -> Result<Content, GitError> {
        match self.handle.try_header(id) {
            Ok(Some(header)) if header.size > limit => Ok(Content::TooLarge(header.size)),
            Ok(_) => self.read(id, Kind::Blob).map(|bytes| Content::Bytes(bytes.to_vec())),
            Err(_) => Err(GitError::broken(format!("object {id} cannot be read"))),
        }
    }

    /// The one commit whose id begins with `prefix` among those that were fetched.
    #[must_use]
    pub fn find_commit(&mut self, prefix: &str) -> Option<ObjectId> {
        let prefix = gix::hash::Prefix::from_hex(prefix).ok()?;
        let mut candidates = std::collections::HashSet::new();
        self.handle.lookup_prefix(prefix, Some(&mut candidates)).ok()?;
        let mut commits = candidates.into_iter().filter(|id| self.read(id, Kind::Commit).is_ok());
        match (commits.next(), commits.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }
}
