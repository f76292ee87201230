//! Names: claimed first, then given.

use events::directory::{DirectoryEvent, NameClaimed};
use events::id::derived_uuid;
use events::{AggregateKind, CommitId, OrganizationId, Refusal, RefusalKind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Decided, Directory, aggregate};

/// What has names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Named {
    /// Unique on the installation; claimed in the organization `system`.
    Organization,
    /// Unique in the organization.
    Group,
    /// Unique in the group.
    Project,
    /// Numeric id in another system, unique in the organization.
    External,
    /// Unique in the project.
    Agent,
    /// Unique in the organization.
    User,
    /// Unique in the organization, among those not revoked.
    Credential,
}

impl Named {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Organization => "organization",
            Self::Group => "group",
            Self::Project => "project",
            Self::External => "external-project",
            Self::Agent => "agent",
            Self::User => "user",
            Self::Credential => "credential",
        }
    }

    /// Whether a claim whose thing never came to be is completed under the id that it names. The others are taken over: a
    /// credential's id may have a secret of the request that died, and an external id goes to a project that has its own id.
    const fn is_completed(self) -> bool {
        !matches!(self, Self::External | Self::Credential)
    }
}

/// A name to be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameId {
    /// What it names.
    pub what: Named,
    /// The organization in which the claim lies.
    pub organization: OrganizationId,
    /// The id of the claim.
    pub id: Uuid,
}

impl NameId {
    /// The claim of `name` below `parent`.
    #[must_use]
    pub fn of(what: Named, organization: OrganizationId, parent: Uuid, name: &str) -> Self {
        let id = derived_uuid(&[b"name", what.word().as_bytes(), parent.as_bytes(), name.as_bytes()]);
        Self { what, organization, id }
    }

    /// The claim of an organization's name.
    #[must_use]
    pub fn organization(name: &str) -> Self {
        Self::of(Named::Organization, OrganizationId::SYSTEM, OrganizationId::SYSTEM.0, name)
    }
}

/// How a holder stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// It was never created.
    Missing,
    /// It lives and was created by that commit.
    Living(CommitId),
    /// It was deleted, revoked, or has given the name up.
    Gone,
}

impl Directory {
    /// Claims a name. Answers the id under which the thing is to be created: `fresh`, or that of a claim which was made
    /// before and not used. A name whose holder was created by the very request `key` is answered again.
    ///
    /// # Errors
    /// When it is taken.
    pub fn claim(&self, name: NameId, fresh: Uuid, key: CommitId) -> Result<Decided<Uuid>, Refusal> {
        if let Some(holder) = self.claimant(name) {
            match self.holder(name, holder) {
                _ if holder == fresh => return Ok(Decided::already(holder)),
                Holder::Living(created_by) if created_by == key => return Ok(Decided::already(holder)),
                Holder::Living(_) => return Err(taken(name.what)),
                Holder::Missing if name.what.is_completed() => return Ok(Decided::already(holder)),
                Holder::Missing | Holder::Gone => {}
            }
        }
        let event = NameClaimed { what: name.what.word().to_owned(), holder: fresh.to_string() };
        let aggregate = aggregate(AggregateKind::Name, name.id);
        self.draft(name.organization, aggregate, vec![DirectoryEvent::NameClaimed(event)], fresh)
    }

    /// Whom a claim names, living or not.
    #[must_use]
    pub fn claimant(&self, name: NameId) -> Option<Uuid> {
        self.names.get(&(name.organization, name.id))?.holder.parse().ok()
    }

    /// Whether a claim names this holder, living or not.
    #[must_use]
    pub fn is_claimed_by(&self, name: NameId, holder: Uuid) -> bool {
        self.claimant(name) == Some(holder)
    }

    /// The living thing of that name.
    #[must_use]
    pub fn named(&self, name: NameId) -> Option<Uuid> {
        let holder = self.claimant(name)?;
        matches!(self.holder(name, holder), Holder::Living(_)).then_some(holder)
    }

    fn holder(&self, name: NameId, id: Uuid) -> Holder {
        let living = |created_by: &CommitId| Holder::Living(*created_by);
        if self.gone.contains(&id) {
            return Holder::Gone;
        }
        match name.what {
            Named::Organization => {
                self.organizations.get(&OrganizationId(id)).map(|found| living(&found.created_by))
            }
            Named::Group => self.groups.get(&events::GroupId(id)).map(|found| living(&found.created_by)),
            Named::Project => {
                self.projects.get(&events::ProjectId(id)).map(|found| living(&found.created_by))
            }
            Named::User => self.users.get(&events::UserId(id)).map(|found| living(&found.created_by)),
            Named::Agent => self
                .agents
                .get(&events::AgentId(id))
                .map(|found| if found.deleted { Holder::Gone } else { living(&found.created_by) }),
            Named::Credential => self
                .credentials
                .get(&events::CredentialId(id))
                .map(|found| if found.revoked { Holder::Gone } else { living(&found.created_by) }),
            Named::External => self.projects.get(&events::ProjectId(id)).map(|found| {
                let still = found.settings.external_id.is_some_and(|external| {
                    super::projects::external_name(found.organization, external).id == name.id
                });
                if still { living(&found.created_by) } else { Holder::Gone }
            }),
        }
        .unwrap_or(Holder::Missing)
    }
}

fn taken(what: Named) -> Refusal {
    let field = if what == Named::External { "external_id" } else { "name" };
    let message = format!("this {} name is taken; choose another", what.word());
    Refusal { kind: RefusalKind::Conflict, field: Some(field.to_owned()), message }
}
