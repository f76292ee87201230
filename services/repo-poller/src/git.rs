//! Everything that speaks Git: where a repository is, what its refs name, and the objects behind them.

pub mod cache;
pub mod http;
pub mod link;
pub mod local;
pub mod location;
pub mod objects;
pub mod overlay;
pub mod packet;
pub mod remote;
pub mod repository;
pub mod tree;

use events::repository::FetchFailure;

pub use gix::ObjectId;
pub use location::Location;
pub use objects::Objects;
pub use remote::Login;
pub use repository::{RealRepositories, Repositories, Repository};

/// Git could not be read. The message says what was wrong and what to do, and holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GitError {
    /// The kind of failure.
    pub failure: FetchFailure,
    /// What was wrong, lower-case, without a final dot.
    pub message: String,
}

impl GitError {
    /// An error of that kind.
    pub fn new(failure: FetchFailure, message: impl Into<String>) -> Self {
        Self { failure, message: message.into() }
    }

    /// Not allowed here.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(FetchFailure::Refused, message)
    }

    /// The server did not answer, or not sensibly.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::new(FetchFailure::Unreachable, message)
    }

    /// No such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(FetchFailure::NotFound, message)
    }

    /// What was read makes no sense, or is over a limit.
    pub fn broken(message: impl Into<String>) -> Self {
        Self::new(FetchFailure::Broken, message)
    }
}

/// The object id that a text of 40 hexadecimal digits names.
#[must_use]
pub fn parse_id(text: &str) -> Option<ObjectId> {
    ObjectId::from_hex(text.as_bytes()).ok()
}
