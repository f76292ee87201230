//! A repository in a folder of this machine, read in place.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::git::objects::Objects;
use crate::git::{GitError, ObjectId};

/// An opened local repository.
#[derive(Clone)]
pub struct Local {
    repository: gix::ThreadSafeRepository,
}

impl Local {
    /// Opens a repository. Blocks.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub fn open(path: &Path) -> Result<Self, GitError> {
        let options = gix::open::Options::isolated();
        match options.open(path) {
            Ok(repository) => Ok(Self { repository }),
            Err(_) => {
                Err(GitError::not_found(format!("there is no readable repository in {}", path.display())))
            }
        }
    }

    /// Reads from it.
    #[must_use]
    pub fn objects(&self) -> Objects {
        Objects::new(Arc::clone(&self.repository.objects))
    }

    /// What full refs name now, tags peeled. Refs that do not exist are left out. Blocks.
    ///
    /// # Errors
    /// When a ref is damaged.
    pub fn references(&self, names: &[String]) -> Result<BTreeMap<String, ObjectId>, GitError> {
        let repository = self.repository.to_thread_local();
        let mut found = BTreeMap::new();
        for name in names {
            let damaged = |_| GitError::broken(format!("the ref {name} cannot be read"));
            let Ok(full) = gix::refs::FullName::try_from(name.as_str()) else { continue };
            if let Some(mut reference) =
                repository.try_find_reference(full.as_ref().as_partial_name()).map_err(damaged)?
            {
                let id = reference.peel_to_id().map_err(damaged)?;
                found.insert(name.clone(), id.detach());
            }
        }
        Ok(found)
    }
}
