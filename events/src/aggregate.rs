//! Aggregates: what has a version and decides one thing at a time. `docs/architecture.md` has the table of invariants.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// The kind of an aggregate; a token of its subject.
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum AggregateKind { $($(#[$doc])* $variant,)* }

        impl AggregateKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The token in subjects and on the command line.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

kinds! {
    /// A tenant.
    Organization = "organization",
    /// A group.
    Group = "group",
    /// A project and its repository.
    Project = "project",
    /// A user, their roles and personal tokens.
    User = "user",
    /// An agent and its tokens.
    Agent = "agent",
    /// A CI job that was let in, and its token.
    Job = "job",
    /// A Git credential (its secret lives in the key ring).
    Credential = "credential",
    /// A claimed name; the id derives from kind, parent and name.
    Name = "name",
    /// Which configuration of an agent is in force.
    Configuration = "configuration",
    /// A ref of a project's repository, with the bundles of all sources on it.
    Ref = "ref",
    /// A manifest source: what its agent is to have, and its syncs.
    Source = "source",
    /// Which instance of an agent applies; its version is the epoch.
    Applier = "applier",
    /// A project's place to run; the id derives from project and name.
    Environment = "environment",
    /// One delivery into an environment.
    Deployment = "deployment",
    /// A way out for events; the id derives from organization and name.
    Subscription = "subscription",
}

impl fmt::Display for AggregateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text names no kind of aggregate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {}", AggregateKind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", "))]
pub struct ParseKindError;

impl FromStr for AggregateKind {
    type Err = ParseKindError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == text).ok_or(ParseKindError)
    }
}

/// Names one aggregate inside an organization.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AggregateRef {
    /// Its kind.
    pub kind: AggregateKind,
    /// Its id: letters, digits, `-` and `_` only, so that it is one token of a subject.
    pub id: String,
}

impl AggregateRef {
    /// The aggregate of that kind with that id.
    #[must_use]
    pub fn new(kind: AggregateKind, id: impl fmt::Display) -> Self {
        Self { kind, id: id.to_string() }
    }
}

impl fmt::Display for AggregateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}

/// A text names no aggregate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an aggregate: expected <kind>/<id> such as source/0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55"
)]
pub struct ParseAggregateError(String);

impl FromStr for AggregateRef {
    type Err = ParseAggregateError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseAggregateError(text.to_owned());
        let (kind, id) = text.split_once('/').ok_or_else(wrong)?;
        let kind = kind.parse().map_err(|_: ParseKindError| wrong())?;
        if id.is_empty()
            || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        {
            return Err(wrong());
        }
        Ok(Self { kind, id: id.to_owned() })
    }
}
