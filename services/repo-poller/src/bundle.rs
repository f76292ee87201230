//! From the files of a commit to a bundle, doing only the work that a change asks for.
//!
//! A [`SourceBuild`] holds what one source looked like at the last commit that was built, good or bad. The next commit is
//! applied to it path by path: only changed files are parsed, only pages that hold a changed object are encoded anew.
//! Pure but for the object database that files are read from.

pub mod files;
pub mod pages;
pub mod source;
pub mod spec;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use events::configuration::FileFinding;
use events::{AgentId, Sha256, SourceId};

pub use files::{FileCache, FileLimits};
pub use source::SourceBuild;
pub use spec::SourceSpec;

use crate::git::objects::Reader;
use crate::git::{GitError, ObjectId, tree};

/// Findings and warnings that an event lists, at most.
pub const MAXIMUM_FINDINGS: usize = 100;

/// What a source may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildLimits {
    /// What one file may cost.
    pub file: FileLimits,
    /// Most objects of a source.
    pub objects: usize,
    /// Most bytes of all files of a source.
    pub bytes: u64,
}

impl Default for BuildLimits {
    /// 50,000 objects in 256 MiB.
    fn default() -> Self {
        Self { file: FileLimits::default(), objects: 50_000, bytes: 256 * 1024 * 1024 }
    }
}

/// How much work a build did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Paths that were looked at.
    pub paths: usize,
    /// Files that were parsed.
    pub parsed: usize,
    /// Pages that were encoded.
    pub pages: usize,
}

/// What came of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A bundle.
    Bundle {
        /// Digest of its encoded root.
        root: Sha256,
        /// How many objects it has.
        objects: u32,
        /// What is odd but harmless; at most [`MAXIMUM_FINDINGS`].
        warnings: Vec<FileFinding>,
    },
    /// The commit cannot be applied.
    Rejected {
        /// What is wrong; at most [`MAXIMUM_FINDINGS`].
        findings: Vec<FileFinding>,
        /// How many more there are.
        more: u32,
    },
}

/// What a build gave.
#[derive(Debug, Default)]
pub struct Built {
    /// For each source.
    pub outcomes: Vec<(SourceId, AgentId, Outcome)>,
    /// Objects, pages and roots that may not be stored yet.
    pub contents: Vec<Bytes>,
    /// The work that it took.
    pub statistics: Statistics,
}

/// All sources on one ref, as they were at the last commit that was built.
#[derive(Debug, Default)]
pub struct RefBuild {
    tree: Option<ObjectId>,
    sources: BTreeMap<SourceId, SourceBuild>,
}

impl RefBuild {
    /// Builds all sources at a tree. After an error nothing of this may be used any more.
    ///
    /// # Errors
    /// When Git objects are missing or damaged.
    pub fn build(
        &mut self,
        reader: &mut Reader,
        cache: &mut FileCache,
        tree: ObjectId,
        specs: &[Arc<SourceSpec>],
        limits: &BuildLimits,
    ) -> Result<Built, GitError> {
        let mut built = Built::default();
        self.sources.retain(|id, build| specs.iter().any(|spec| spec.id == *id && build.is_of(spec)));
        let changes = match self.tree {
            Some(old) if !self.sources.is_empty() => tree::changes(reader, Some(old), tree)?,
            _ => Vec::new(),
        };
        let new = specs.iter().any(|spec| !self.sources.contains_key(&spec.id));
        let all = if new { tree::changes(reader, None, tree)? } else { Vec::new() };
        built.statistics.paths = changes.len() + all.len();
        for spec in specs {
            let known = self.sources.contains_key(&spec.id);
            let source = self.sources.entry(spec.id).or_insert_with(|| SourceBuild::new(Arc::clone(spec)));
            for change in if known { &changes } else { &all } {
                source.apply(change, reader, cache, limits, &mut built)?;
            }
            let outcome = source.finish(limits, &mut built);
            built.outcomes.push((spec.id, spec.agent, outcome));
        }
        self.tree = Some(tree);
        Ok(built)
    }
}

#[cfg(test)]
mod tests;
