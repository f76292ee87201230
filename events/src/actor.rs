//! Who did it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{AgentId, JobId, UserId};

/// Who caused an event or sends a request: an id, never a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// A person or machine account.
    User(UserId),
    /// An agent.
    Agent(AgentId),
    /// A CI job.
    Job(JobId),
    /// A service of Kasbah acting by itself, by its name.
    Service(String),
}

impl Actor {
    /// The service `name` acting by itself.
    #[must_use]
    pub fn service(name: &str) -> Self {
        Self::Service(name.to_owned())
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => write!(f, "user:{id}"),
            Self::Agent(id) => write!(f, "agent:{id}"),
            Self::Job(id) => write!(f, "job:{id}"),
            Self::Service(name) => write!(f, "service:{name}"),
        }
    }
}

/// A text names no actor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an actor: expected user:<id>, agent:<id>, job:<id> or service:<name>")]
pub struct ParseActorError(String);

impl FromStr for Actor {
    type Err = ParseActorError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseActorError(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        match kind {
            "user" => rest.parse().map(Self::User).map_err(|_| wrong()),
            "agent" => rest.parse().map(Self::Agent).map_err(|_| wrong()),
            "job" => rest.parse().map(Self::Job).map_err(|_| wrong()),
            "service" if !rest.is_empty() => Ok(Self::Service(rest.to_owned())),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for Actor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
