//! Subjects: the names under which things cross the bus and lie in the log. Built here and nowhere else.

use std::fmt;

use crate::aggregate::AggregateRef;
use crate::id::{AgentId, OrganizationId, derived_uuid};

/// A subject in NATS' sense: tokens joined by dots, no wildcards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(String);

impl Subject {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What a request or notice is about, such as `authz.decide`: without the ids that may stand behind it. `None` for a subject
    /// of the log.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let name =
            self.0.strip_prefix("kasbah.request.").or_else(|| self.0.strip_prefix("kasbah.notice."))?;
        Some(
            name.rsplit_once('.')
                .filter(|(_, last)| uuid::Uuid::try_parse(last).is_ok())
                .map_or(name, |(name, _)| name),
        )
    }

    /// A commit of an aggregate.
    #[must_use]
    pub fn log(partition: u16, organization: OrganizationId, aggregate: &AggregateRef) -> Self {
        Self(format!("kasbah.log.{partition}.{organization}.{}.{}", aggregate.kind, aggregate.id))
    }

    /// Observations of one writer.
    #[must_use]
    pub fn observed(partition: u16, organization: OrganizationId, writer: &str) -> Self {
        Self(format!("kasbah.observed.{partition}.{organization}.{writer}"))
    }

    /// Changes of objects that one agent saw.
    #[must_use]
    pub fn objects(partition: u16, organization: OrganizationId, writer: &str) -> Self {
        Self(format!("kasbah.objects.{partition}.{organization}.{writer}"))
    }

    /// API requests of an organization.
    #[must_use]
    pub fn audit(partition: u16, organization: OrganizationId) -> Self {
        Self(format!("kasbah.audit.{partition}.{organization}"))
    }

    /// Refused commands of an organization.
    #[must_use]
    pub fn refused(partition: u16, organization: OrganizationId) -> Self {
        Self(format!("kasbah.refused.{partition}.{organization}"))
    }

    /// What went through one session.
    #[must_use]
    pub fn recorded(partition: u16, organization: OrganizationId, session: &str) -> Self {
        Self(format!("kasbah.recorded.{partition}.{organization}.{session}"))
    }

    /// A CloudEvent of an organization for programs outside. Its type may consist of several tokens.
    #[must_use]
    pub fn exported(partition: u16, organization: OrganizationId, event_type: &str) -> Self {
        Self(format!("kasbah.exported.{partition}.{organization}.{event_type}"))
    }

    /// A request that any replica of a service answers. `name` is a [`crate::Request::NAME`], such as `authz.decide`.
    #[must_use]
    pub fn request(name: &str) -> Self {
        Self(format!("kasbah.request.{name}"))
    }

    /// A request that only the gateway replica holding the agent's tunnel answers.
    #[must_use]
    pub fn agent_request(name: &str, agent: AgentId) -> Self {
        Self(format!("kasbah.request.{name}.{agent}"))
    }

    /// A request that only one replica of a service answers.
    #[must_use]
    pub fn replica_request(name: &str, replica: uuid::Uuid) -> Self {
        Self(format!("kasbah.request.{name}.{replica}"))
    }

    /// A wake-up or presence message, not kept. `name` such as `repository.pushed`.
    #[must_use]
    pub fn notice(name: &str) -> Self {
        Self(format!("kasbah.notice.{name}"))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The partition of an organization's records, out of `partitions`. Fixed for ever once a log exists.
#[must_use]
pub fn partition_of_organization(organization: OrganizationId, partitions: u16) -> u16 {
    partition(&[organization.0.as_bytes()], partitions)
}

/// The partition of a writer's observations, out of `partitions`.
#[must_use]
pub fn partition_of_writer(writer: &str, partitions: u16) -> u16 {
    partition(&[writer.as_bytes()], partitions)
}

fn partition(parts: &[&[u8]], partitions: u16) -> u16 {
    let wide = derived_uuid(parts).as_u128() % u128::from(partitions.max(1));
    u16::try_from(wide).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_ids() {
        let id = uuid::Uuid::from_u128(7);
        assert_eq!(Subject::request("authz.decide").name(), Some("authz.decide"));
        assert_eq!(
            Subject::agent_request("tunnel-gateway.diff", AgentId(id)).name(),
            Some("tunnel-gateway.diff")
        );
        assert_eq!(
            Subject::replica_request("repo-poller.read-file", id).name(),
            Some("repo-poller.read-file")
        );
        assert_eq!(Subject::notice("repository.pushed").name(), Some("repository.pushed"));
        assert_eq!(Subject::audit(3, OrganizationId(id)).name(), None);
    }
}
