//! Events of repo-poller: what a ref's newest commit is and what bundles come of it. One commit of the log for all
//! sources on one ref of one repository.

use serde::{Deserialize, Serialize};

use crate::aggregate::{AggregateKind, AggregateRef};
use crate::catalogue::context;
use crate::configuration::{FileFinding, GitReference};
use crate::digest::{BlobDigest, Sha256};
use crate::id::{AgentId, ProjectId, SourceId};

context! {
    /// What repo-poller decided.
    RepositoryEvent {
        /// A source has a new newest bundle.
        SourceAdvanced(SourceAdvanced) = "kasbah.source.advanced" v 1,
        /// A commit of a source cannot be applied; the last good bundle stays.
        BundleRejected(BundleRejected) = "kasbah.bundle.rejected" v 1,
        /// A ref could not be read, for a new reason.
        FetchFailed(FetchFailed) = "kasbah.fetch.failed" v 1,
        /// A ref can be read again.
        FetchRecovered(FetchRecovered) = "kasbah.fetch.recovered" v 1,
    }
}

/// The aggregate of a ref of a project's repository.
#[must_use]
pub fn ref_aggregate(project: ProjectId, reference: &GitReference) -> AggregateRef {
    let id = crate::id::derived_uuid(&[project.0.as_bytes(), reference.to_string().as_bytes()]);
    AggregateRef::new(AggregateKind::Ref, id.hyphenated())
}

/// See [`RepositoryEvent::SourceAdvanced`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceAdvanced {
    /// Which source.
    pub source: SourceId,
    /// Whose source.
    pub agent: AgentId,
    /// The Git commit.
    pub commit: String,
    /// Its bundle: [`crate::bundle::BundleRoot`].
    pub bundle: BlobDigest,
    /// How many objects it has.
    pub objects: u32,
    /// What is odd but harmless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<FileFinding>,
    /// The source's globs take no file at this commit, which is hardly meant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_file: bool,
    /// Which files it was made of: [`crate::configuration::SourceConfiguration::selection`], as it was then. Pollers from before
    /// this was said leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Sha256>,
}

/// See [`RepositoryEvent::BundleRejected`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleRejected {
    /// Which source.
    pub source: SourceId,
    /// Whose source.
    pub agent: AgentId,
    /// The Git commit.
    pub commit: String,
    /// Everything that is wrong; at most 100, the rest counted in `more`.
    pub findings: Vec<FileFinding>,
    /// How many findings were left out.
    #[serde(default)]
    pub more: u32,
    /// What is odd but harmless beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<FileFinding>,
}

/// Why a ref could not be read.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FetchFailure {
    /// Not allowed: no grant, a private address, a local path. Nothing is tried until that changes.
    Refused,
    /// The server could not be reached or did not answer in time.
    Unreachable,
    /// The server refused the credential.
    Unauthorized,
    /// No such repository, ref or commit.
    NotFound,
    /// The repository is broken or over a limit.
    Broken,
}

/// See [`RepositoryEvent::FetchFailed`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchFailed {
    /// Whose repository.
    pub project: ProjectId,
    /// Which ref.
    pub reference: GitReference,
    /// The kind of failure.
    pub failure: FetchFailure,
    /// What was wrong and what to do, without secrets.
    pub message: String,
    /// The sources that wait for it.
    pub sources: Vec<SourceId>,
}

/// See [`RepositoryEvent::FetchRecovered`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchRecovered {
    /// Whose repository.
    pub project: ProjectId,
    /// Which ref.
    pub reference: GitReference,
    /// The sources that waited for it.
    pub sources: Vec<SourceId>,
}
