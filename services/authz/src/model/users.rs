//! Users and their roles.

use events::directory::{
    DirectoryEvent, PersonalData, Role, RoleAssigned, RoleWithdrawn, Scope, TokenHolder, UserCreated,
    UserDisabled, UserEnabled,
};
use events::requests::authz::Action;
use events::{
    Actor, AggregateKind, AggregateRef, CommitId, OrganizationId, Refusal, RefusalKind, TokenId, UserId,
};

use super::access::{OPERATOR, word};
use super::projects::already;
use super::{Asker, Decided, Directory, Disabled, Token, User, aggregate};

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
                format!("this is the last {} there; assign the role to another user first", word(role.0));
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let (role, scope) = role;
        if withdraw {
            let event = DirectoryEvent::RoleWithdrawn(RoleWithdrawn { user, role, scope });
            let of = if is_ownership(role, scope) {
                of_owners(asker)
            } else {
                aggregate(AggregateKind::User, user)
            };
            return self.draft(asker.organization, of, vec![event], ());
        }
        let event = DirectoryEvent::RoleAssigned(RoleAssigned { user, role, scope });
        self.draft(asker.organization, aggregate(AggregateKind::User, user), vec![event], ())
    }

    /// Whether a user may do nothing.
    #[must_use]
    pub fn is_disabled(&self, user: UserId) -> bool {
        self.users.get(&user).is_some_and(|user| user.disabled.is_some())
    }

    /// Ends everything of a user.
    ///
    /// # Errors
    /// Not allowed, or nobody would be left with a role that somebody has to have.
    pub fn disable_user(
        &self,
        asker: &Asker,
        user: UserId,
        keeps_agents_tokens: bool,
    ) -> Result<Decided<()>, Refusal> {
        let found = self.may_disable(asker, user)?;
        if found.disabled == Some(Disabled { keeps_agents_tokens }) {
            return Ok(Decided::already(()));
        }
        if let Some((role, _)) = found.roles.iter().find(|role| self.is_last(user, **role)) {
            let message = format!("this is the last {}; assign the role to another user first", word(*role));
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let event = DirectoryEvent::UserDisabled(UserDisabled { user, keeps_agents_tokens });
        self.draft(asker.organization, of_owners(asker), vec![event], ())
    }

    /// Lets a user in again.
    ///
    /// # Errors
    /// Not allowed, or what they made has not ended yet.
    pub fn enable_user(&self, asker: &Asker, user: UserId) -> Result<Decided<()>, Refusal> {
        let Some(disabled) = self.may_disable(asker, user)?.disabled else {
            return Ok(Decided::already(()));
        };
        if self.to_end(user, disabled).next().is_some() {
            let message = "tokens that they issued are still valid: disable the user once more first";
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let event = DirectoryEvent::UserEnabled(UserEnabled { user });
        self.draft(asker.organization, of_owners(asker), vec![event], ())
    }

    /// Tokens of others that end with a user who is disabled, and have not been revoked.
    pub fn to_end(&self, user: UserId, disabled: Disabled) -> impl Iterator<Item = TokenId> {
        let is_kept = move |token: &Token| {
            disabled.keeps_agents_tokens && matches!(token.holder, TokenHolder::Agent(_))
        };
        self.made_by(user).filter(move |(_, token)| !is_kept(token)).map(|(id, _)| id)
    }

    fn may_disable(&self, asker: &Asker, user: UserId) -> Result<&User, Refusal> {
        let organization = Scope::Organization(asker.organization);
        self.authorize(asker, Action::DisableUser, organization, "organization")?;
        let found = self.users.get(&user).filter(|found| found.organization == asker.organization);
        let found = found.ok_or_else(|| Refusal::not_found("user"))?;
        let asker_is_operator = matches!(&asker.actor, Actor::User(id) if self.is_operator(*id));
        if self.is_operator(user) && !asker_is_operator {
            let message = "this user is an operator: only operators disable and enable them";
            return Err(Refusal::new(RefusalKind::Denied, message));
        }
        Ok(found)
    }

    fn may_assign(&self, asker: &Asker, role: Role, scope: Scope) -> Result<(), Refusal> {
        match role {
            Role::Agent => Err(Refusal::invalid("role", "is only for agents; register an agent instead")),
            Role::Operator if (role, scope) != OPERATOR => {
                Err(Refusal::invalid("scope", "an operator's role holds in the organization system only"))
            }
            Role::Operator => match &asker.actor {
                Actor::User(user) if self.is_operator(*user) => Ok(()),
                _ => Err(Refusal::new(RefusalKind::Denied, "only an operator can assign the role operator")),
            },
            _ => self.authorize(asker, Action::AssignRole, scope, "scope"),
        }
    }

    fn is_last(&self, user: UserId, role: (Role, Scope)) -> bool {
        let guarded = role == OPERATOR || is_ownership(role.0, role.1);
        let mut others =
            self.users.iter().filter(|(other, record)| **other != user && record.disabled.is_none());
        guarded && !others.any(|(_, record)| record.roles.contains(&role))
    }
}

/// What each decision is made on that may leave an organization with one owner less: of two that are made at once, on the same state,
/// the log takes one.
fn of_owners(asker: &Asker) -> AggregateRef {
    aggregate(AggregateKind::Organization, asker.organization)
}

const fn is_ownership(role: Role, scope: Scope) -> bool {
    matches!((role, scope), (Role::Owner, Scope::Organization(_)))
}

#[cfg(test)]
mod tests;
