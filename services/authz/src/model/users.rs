//! Users and their roles.

use events::directory::{
    DirectoryEvent, PersonalData, Role, RoleAssigned, RoleWithdrawn, Scope, UserCreated,
};
use events::requests::authz::Action;
use events::{Actor, AggregateKind, CommitId, OrganizationId, Refusal, RefusalKind, UserId};

use super::access::{OPERATOR, word};
use super::projects::already;
use super::{Asker, Decided, Directory, aggregate};

impl Directory {
    /// Whether the asker may create users with a role there.
    ///
    /// # Errors
    /// When not, or when nobody may have that role there.
    pub fn may_create_user(&self, asker: &Asker, role: Role, scope: Scope) -> Result<(), Refusal> {
        self.authorize(asker, Action::CreateUser, Scope::Organization(asker.organization), "organization")?;
        self.may_assign(asker, role, scope)
    }

    /// Creates a user under their claimed id, with a first role.
    ///
    /// # Errors
    /// Not allowed, or another has the name.
    pub fn create_user(
        &self,
        asker: &Asker,
        id: UserId,
        name: PersonalData,
        first: (Role, Scope),
        key: CommitId,
    ) -> Result<Decided<()>, Refusal> {
        self.may_create_user(asker, first.0, first.1)?;
        self.new_user(asker.organization, id, name, &[first], key)
    }

    /// Creates a user with roles, whoever asks: the first owner of an organization.
    ///
    /// # Errors
    /// Another has the name.
    pub fn new_user(
        &self,
        organization: OrganizationId,
        id: UserId,
        name: PersonalData,
        roles: &[(Role, Scope)],
        key: CommitId,
    ) -> Result<Decided<()>, Refusal> {
        if let Some(existing) = self.users.get(&id) {
            return already(existing.created_by == key);
        }
        let mut events = vec![DirectoryEvent::UserCreated(UserCreated { user: id, name })];
        events.extend(roles.iter().map(|(role, scope)| {
            DirectoryEvent::RoleAssigned(RoleAssigned { user: id, role: *role, scope: *scope })
        }));
        self.draft(organization, aggregate(AggregateKind::User, id), events, ())
    }

    /// Gives or takes a role.
    ///
    /// # Errors
    /// Not allowed, or the organization would be left without an owner.
    pub fn assign_role(
        &self,
        asker: &Asker,
        user: UserId,
        role: (Role, Scope),
        withdraw: bool,
    ) -> Result<Decided<()>, Refusal> {
        self.may_assign(asker, role.0, role.1)?;
        let found = self
            .users
            .get(&user)
            .filter(|found| found.organization == asker.organization)
            .ok_or_else(|| Refusal::not_found("user"))?;
        if found.roles.contains(&role) != withdraw {
            return Ok(Decided::already(()));
        }
        if withdraw && self.is_last(user, role) {
            let message =
                format!("this is the last {} there; give the role to somebody else first", word(role.0));
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let (role, scope) = role;
        let event = if withdraw {
            DirectoryEvent::RoleWithdrawn(RoleWithdrawn { user, role, scope })
        } else {
            DirectoryEvent::RoleAssigned(RoleAssigned { user, role, scope })
        };
        self.draft(asker.organization, aggregate(AggregateKind::User, user), vec![event], ())
    }

    fn may_assign(&self, asker: &Asker, role: Role, scope: Scope) -> Result<(), Refusal> {
        match role {
            Role::Agent => Err(Refusal::invalid("role", "is what agents have; register an agent instead")),
            Role::Operator if (role, scope) != OPERATOR => {
                Err(Refusal::invalid("scope", "an operator's role holds in the organization system only"))
            }
            Role::Operator => match &asker.actor {
                Actor::User(user) if self.is_operator(*user) => Ok(()),
                _ => Err(Refusal::new(RefusalKind::Denied, "only an operator makes operators")),
            },
            _ => self.authorize(asker, Action::AssignRole, scope, "scope"),
        }
    }

    fn is_last(&self, user: UserId, role: (Role, Scope)) -> bool {
        let guarded = role == OPERATOR || matches!(role, (Role::Owner, Scope::Organization(_)));
        guarded && !self.users.iter().any(|(other, record)| *other != user && record.roles.contains(&role))
    }
}
