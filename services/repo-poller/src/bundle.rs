//! From the files of a commit to a bundle, doing only the work that a change asks for.
//!
//! A [`SourceBuild`] holds what the sources with the same rules looked like at the last commit that was built, good or bad. The
//! next commit is applied to it path by path: only changed files are parsed, only pages that hold a changed object are encoded
//! anew. So what a commit costs depends on how many different rules there are, and hardly on how many sources.
//! Pure but for the object database that files are read from.

pub mod files;
pub mod pages;
pub mod rules;
pub mod source;
mod unread;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;
use events::bundle::{MAXIMUM_CONTENT_BYTES, MAXIMUM_SOURCE_BYTES};
use events::configuration::FileFinding;
use events::{AgentId, Sha256, SourceId};

pub use files::{FileCache, FileLimits};
pub use rules::Rules;
pub use source::SourceBuild;

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
    /// Most bytes that a source's objects may take in an agent.
    pub agent_bytes: usize,
    /// Largest page of a bundle, in bytes.
    pub page_bytes: usize,
}

impl Default for BuildLimits {
    /// 50,000 objects in 256 MiB, and no more than an agent can take.
    fn default() -> Self {
        Self {
            file: FileLimits::default(),
            objects: 50_000,
            bytes: 256 * 1024 * 1024,
            agent_bytes: MAXIMUM_SOURCE_BYTES,
            page_bytes: MAXIMUM_CONTENT_BYTES,
        }
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
        /// The globs take no file, so that it has none.
        takes_no_file: bool,
        /// What is odd but harmless; at most [`MAXIMUM_FINDINGS`].
        warnings: Vec<FileFinding>,
    },
    /// The commit cannot be applied.
    Rejected {
        /// What is wrong; at most [`MAXIMUM_FINDINGS`].
        findings: Vec<FileFinding>,
        /// How many more there are.
        more: u32,
        /// What is odd but harmless beside it; at most [`MAXIMUM_FINDINGS`].
        warnings: Vec<FileFinding>,
    },
}

impl Outcome {
    /// No bundle, for these reasons.
    #[must_use]
    pub fn rejected(mut findings: Vec<FileFinding>, warnings: Vec<FileFinding>) -> Self {
        findings.sort_by(|left, right| {
            (&left.file, left.line, left.column).cmp(&(&right.file, right.line, right.column))
        });
        let more = u32::try_from(findings.len().saturating_sub(MAXIMUM_FINDINGS)).unwrap_or(u32::MAX);
        findings.truncate(MAXIMUM_FINDINGS);
        Self::Rejected { findings, more, warnings }
    }
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

/// Sources on one ref by what decides their bundles.
pub type SourcesByRules = BTreeMap<Rules, Vec<(SourceId, AgentId)>>;

/// All sources on one ref, as they were at the last commit that was built.
#[derive(Debug, Default)]
pub struct RefBuild {
    tree: Option<ObjectId>,
    builds: BTreeMap<Rules, SourceBuild>,
}

impl RefBuild {
    /// Builds all sources at a tree. After an error nothing of this may be used any more.
    ///
    /// # Errors
    /// When Git objects are missing or damaged, or a glob cannot be understood.
    pub fn build(
        &mut self,
        reader: &mut Reader,
        cache: &mut FileCache,
        tree: ObjectId,
        sources: &SourcesByRules,
        limits: &BuildLimits,
    ) -> Result<Built, GitError> {
        let mut built = Built::default();
        self.builds.retain(|rules, _| sources.contains_key(rules));
        let changes = match self.tree {
            Some(old) if !self.builds.is_empty() => tree::changes(reader, Some(old), tree)?,
            _ => Vec::new(),
        };
        let new = sources.len() > self.builds.len();
        let all = if new { tree::changes(reader, None, tree)? } else { Vec::new() };
        built.statistics.paths = changes.len() + all.len();
        for (rules, sources) in sources {
            let (build, changes) = match self.builds.entry(rules.clone()) {
                Entry::Occupied(known) => (known.into_mut(), &changes),
                Entry::Vacant(new) => {
                    let build = SourceBuild::new(rules.clone());
                    let build = build.map_err(|error| GitError::refused(error.to_string()))?;
                    (new.insert(build), &all)
                }
            };
            for change in changes {
                build.apply(change, reader, cache, limits, &mut built)?;
            }
            let outcome = build.finish(reader, tree, limits, &mut built)?;
            built.outcomes.extend(sources.iter().map(|(id, agent)| (*id, *agent, outcome.clone())));
        }
        built.outcomes.sort_by_key(|(id, ..)| *id);
        self.tree = Some(tree);
        Ok(built)
    }

    /// The sources with these rules, as they were at the last commit that was built.
    #[must_use]
    pub fn with(&self, rules: &Rules) -> Option<&SourceBuild> {
        self.builds.get(rules)
    }
}

#[cfg(test)]
mod tests;
