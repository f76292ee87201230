//! What repo-poller answers and announces. It alone speaks Git.

use serde::{Deserialize, Serialize};

use crate::configuration::GitReference;
use crate::delivery::ObjectFailure;
use crate::digest::BlobDigest;
use crate::id::{AgentId, ProjectId, SourceId};
use crate::request::request;

/// A file of a project at a ref, on behalf of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// The agent for whom it is read.
    pub agent: AgentId,
    /// Whose repository.
    pub project: ProjectId,
    /// Which ref.
    pub reference: GitReference,
    /// Path from the repository's root.
    pub path: String,
    /// Largest size that is wanted, in bytes.
    pub limit: u32,
    /// Not from what the ref named some time ago: another replica may have told of more since.
    #[serde(default)]
    pub fresh: bool,
    /// The ref is watched for so many seconds more, though nobody's configuration or sources lie there, and its new commits are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_seconds: Option<u32>,
}
request!(ReadFile => FileAtCommit, "repo-poller.read-file");

/// The answer to [`ReadFile`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAtCommit {
    /// The commit that the ref names now.
    pub commit: String,
    /// The content; `None` when there is no such file.
    #[serde(with = "serde_bytes")]
    pub content: Option<Vec<u8>>,
    /// Size of the file when it is over the limit; content is then `None`.
    pub too_large: Option<u64>,
    /// Git's id of the first folder of the path, empty when there is none: as long as it is the same, so is the file.
    pub folder: String,
}

/// The bundle of a source at a given commit, for pinning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleAt {
    /// Which source.
    pub source: SourceId,
    /// Full or abbreviated commit.
    pub commit: String,
}
request!(BundleAt => BundleAtCommit, "repo-poller.bundle-at");

/// The answer to [`BundleAt`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleAtCommit {
    /// The full commit.
    pub commit: String,
    /// Its bundle.
    pub bundle: BlobDigest,
    /// How many objects it has.
    pub objects: u32,
}

/// Somebody pushed, or asks for a sync: look at once. A notice under `repository.pushed`, from the console's webhooks and
/// from delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryPushed {
    /// The project whose repository it is.
    pub project: ProjectId,
    /// The ref that moved, such as `refs/heads/main`, if the webhook said so.
    pub reference: Option<String>,
    /// The chain that begins with this push.
    pub correlation_id: crate::id::CorrelationId,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

impl crate::Notice for RepositoryPushed {
    const NAME: &'static str = "repository.pushed";
}

/// A poll or push found a new commit. A notice under `repository.advanced`, to all who read files of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryAdvanced {
    /// The project whose repository it is.
    pub project: ProjectId,
    /// The ref as somebody wants it.
    pub reference: GitReference,
    /// The commit that it names now.
    pub commit: String,
    /// Git's id of the folder of configuration files ([`crate::configuration::FOLDER`]) at that commit, empty when there is none;
    /// absent when it could not be read.
    pub configuration: Option<String>,
    /// The chain that led to it.
    pub correlation_id: crate::id::CorrelationId,
    /// W3C trace context of that chain.
    pub traceparent: Option<String>,
}

impl crate::Notice for RepositoryAdvanced {
    const NAME: &'static str = "repository.advanced";
}

/// How the fetching of a source stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowFetch {
    /// Which source.
    pub source: SourceId,
}
request!(ShowFetch => FetchView, "repo-poller.show-fetch");

/// The answer to [`ShowFetch`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FetchView {
    /// The newest commit that was seen on the ref.
    pub commit: Option<String>,
    /// A new commit is being fetched or its bundle built, or a requested check has not ended. A check because time has passed does
    /// not count.
    pub fetching: bool,
    /// Why it cannot be read, if it cannot.
    pub failure: Option<String>,
    /// When the next look is due.
    pub next_at: Option<crate::time::Timestamp>,
    /// Findings in the newest commit, if it was rejected.
    pub rejected: Vec<ObjectFailure>,
}
