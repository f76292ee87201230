//! Identifiers: one newtype per thing, so that none is passed for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

/// A text is not an identifier of the wanted type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}: expected a UUID such as 0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55")]
pub struct ParseIdError {
    text: String,
    what: &'static str,
}

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident, $what:literal;)*) => {$(
        $(#[$doc])*
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.hyphenated())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0.hyphenated())
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text)
                    .map(Self)
                    .map_err(|_| ParseIdError { text: text.to_owned(), what: $what })
            }
        }
    )*};
}

id! {
    /// A tenant.
    OrganizationId, "an organization id";
    /// A group of projects inside an organization.
    GroupId, "a group id";
    /// A project, which names one repository.
    ProjectId, "a project id";
    /// A person, or a machine account that acts like one.
    UserId, "a user id";
    /// A registered identity for one cluster.
    AgentId, "an agent id";
    /// One process of an agent.
    InstanceId, "an instance id";
    /// A Git credential in the key ring.
    CredentialId, "a credential id";
    /// A token of an agent, a user or a job.
    TokenId, "a token id";
    /// A CI job that was let in.
    JobId, "a job id";
    /// A root that took the place of an earlier one: its key in the key ring.
    RootId, "a root id";
    /// A manifest source of an agent: [`SourceId::derive`].
    SourceId, "a source id";
    /// One run that makes a cluster match a bundle.
    SyncId, "a sync id";
    /// An environment of a project: [`EnvironmentId::derive`].
    EnvironmentId, "an environment id";
    /// One delivery into an environment.
    DeploymentId, "a deployment id";
    /// A way out for events: [`SubscriptionId::derive`].
    SubscriptionId, "a subscription id";
    /// One commit of the event log; also the idempotency key of its append.
    CommitId, "a commit id";
    /// One event.
    EventId, "an event id";
    /// Carried unchanged from the first cause to the last effect.
    CorrelationId, "a correlation id";
}

impl SyncId {
    /// How long ago it was made, in milliseconds; `None` when its maker did not put the time into it.
    #[must_use]
    pub fn age_millis(&self, now: Timestamp) -> Option<u64> {
        Some(u64::try_from(now.0.saturating_sub(made(self.0)?.0)).unwrap_or(0))
    }
}

impl CorrelationId {
    /// When it was made; `None` when its maker did not put the time into it.
    #[must_use]
    pub fn made(&self) -> Option<Timestamp> {
        made(self.0)
    }
}

/// The time in a UUIDv7 (RFC 9562 section 5.7).
fn made(id: Uuid) -> Option<Timestamp> {
    let (seconds, nanoseconds) = id.get_timestamp().filter(|_| id.get_version_num() == 7)?.to_unix();
    let millis = i64::try_from(seconds).ok()?.checked_mul(1000)?;
    millis.checked_add(i64::from(nanoseconds / 1_000_000)).map(Timestamp)
}

impl OrganizationId {
    /// The reserved organization `system`, in which the platform's operators act.
    pub const SYSTEM: Self = Self(Uuid::from_u128(0));
}

impl SourceId {
    /// The id of the source `name` of an agent. Derived, so that poller, delivery and agent agree without asking each other.
    #[must_use]
    pub fn derive(agent: AgentId, name: &str) -> Self {
        Self(derived_uuid(&[b"source", agent.0.as_bytes(), name.as_bytes()]))
    }
}

impl EnvironmentId {
    /// The id of the environment `name` of a project. Derived, so that a project has one environment of a name.
    #[must_use]
    pub fn derive(project: ProjectId, name: &str) -> Self {
        Self(derived_uuid(&[b"environment", project.0.as_bytes(), name.as_bytes()]))
    }
}

impl SubscriptionId {
    /// The id of the subscription `name` of an organization. Derived, so that an organization has one subscription of a name.
    #[must_use]
    pub fn derive(organization: OrganizationId, name: &str) -> Self {
        Self(derived_uuid(&[b"subscription", organization.0.as_bytes(), name.as_bytes()]))
    }
}

impl DeploymentId {
    /// The id of the deployment that a request starts: the same for each retry.
    #[must_use]
    pub fn of_request(key: CommitId) -> Self {
        Self(derived_uuid(&[b"deployment of a request", key.0.as_bytes()]))
    }

    /// The id of the deployment that one run of a sync is, so that two replicas that record it at once record one.
    #[must_use]
    pub fn of_sync(source: SourceId, sync: SyncId, run: u32) -> Self {
        let parts: [&[u8]; 4] =
            [b"deployment of a sync", source.0.as_bytes(), sync.0.as_bytes(), &run.to_be_bytes()];
        Self(derived_uuid(&parts))
    }
}

impl DeploymentId {
    /// The id under which it is recorded that a sync is not recorded where its source says: once for each sync.
    #[must_use]
    pub fn refused(source: SourceId, sync: SyncId) -> Self {
        Self(derived_uuid(&[b"refused deployment of a sync", source.0.as_bytes(), sync.0.as_bytes()]))
    }
}

/// A UUID (version 8) out of a SHA-256 over length-prefixed parts.
#[must_use]
pub fn derived_uuid(parts: &[&[u8]]) -> Uuid {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut bytes = [0_u8; 16];
    for (to, from) in bytes.iter_mut().zip(context.finish().as_ref()) {
        *to = *from;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_tells_its_age_if_its_maker_put_the_time_into_it() {
        let made = uuid::Builder::from_unix_timestamp_millis(1_700_000_000_123, &[7; 10]).into_uuid();
        assert_eq!(SyncId(made).age_millis(Timestamp(1_700_000_001_123)), Some(1000));
        assert_eq!(SyncId(made).age_millis(Timestamp(0)), Some(0), "a clock that runs behind");
        assert_eq!(SyncId(Uuid::nil()).age_millis(Timestamp(7)), None);
    }
}
