//! Organizations, groups, and the first owner.

use events::directory::{Role, Scope, TokenHolder, TokenLifetimes};
use events::requests::authz::{
    Action, CreateGroup, CreateOrganization, DeleteGroup, EnsureOwner, FirstStart, GroupView,
    OrganizationView, SecretToken, SetTokenLifetimes,
};
use events::{Actor, GroupId, OrganizationId, Refusal, RefusalKind, UserId};
use store::Policy;

use super::tokens::NewTokenName;
use super::{Driver, gone};
use crate::call::Call;
use crate::checks;
use crate::model::access::OPERATOR;
use crate::model::claims::{NameId, Named};
use crate::model::steps::Step;
use crate::personal;

/// What the first owner's token is called.
const OWNER_TOKEN: &str = "owner-token";

impl Driver {
    pub(super) async fn create_organization(
        self,
        call: Call,
        request: CreateOrganization,
    ) -> Result<OrganizationView, Refusal> {
        checks::name("name", &request.name)?;
        checks::login("owner", &request.owner)?;
        let system = Scope::Organization(OrganizationId::SYSTEM);
        let call = call.in_organization(OrganizationId::SYSTEM);
        let asker = call.asker();
        self.directory.read(|directory| {
            directory.authorize(&asker, Action::CreateOrganization, system, "organization system")
        })?;
        let id = self.organization(&call, &request.name).await?;
        let call = call.in_organization(id);
        let owner =
            self.first_owner(&call, &request.owner, &[(Role::Owner, Scope::Organization(id))]).await?;
        let token = self.owner_token(&call, owner, false).await?;
        let view = self.directory.read(|directory| directory.organization_view(id)).ok_or_else(gone)?;
        Ok(OrganizationView { owner_token: Some(token), ..view })
    }

    pub(super) async fn set_token_lifetimes(
        self,
        call: Call,
        request: SetTokenLifetimes,
    ) -> Result<OrganizationView, Refusal> {
        let organization = call.context.organization;
        let former = self.directory.read(|directory| directory.token_lifetimes(organization));
        let lifetimes = TokenLifetimes {
            default_seconds: request.default_seconds.unwrap_or(former.default_seconds),
            longest_seconds: request.longest_seconds.unwrap_or(former.longest_seconds),
        };
        self.commit(&call, call.key(), Step::SetTokenLifetimes { lifetimes }).await?;
        self.directory.read(|directory| directory.organization_view(organization)).ok_or_else(gone)
    }

    pub(super) async fn delete_group(self, call: Call, request: DeleteGroup) -> Result<GroupView, Refusal> {
        let asker = call.asker();
        let (group, view) = self.directory.read(|directory| {
            let group = directory.group_to_delete(&asker, &request.group)?;
            Ok::<_, Refusal>((group, directory.group_view(group).ok_or_else(gone)?))
        })?;
        self.commit(&call, call.key(), Step::DeleteGroup { group }).await?;
        Ok(view)
    }

    pub(super) async fn create_group(self, call: Call, request: CreateGroup) -> Result<GroupView, Refusal> {
        checks::name("name", &request.name)?;
        let id = self.group(call, &request.name).await?;
        self.directory.read(|directory| directory.group_view(id)).ok_or_else(gone)
    }

    pub(super) async fn group(&self, mut call: Call, name: &str) -> Result<GroupId, Refusal> {
        let asker = call.asker();
        self.directory.read(|directory| directory.may_create_group(&asker))?;
        let fresh = call.pass(self.fresh());
        let created_by = call.step("group");
        let claim = NameId::of(Named::Group, asker.organization, asker.organization.0, name);
        let id = GroupId(self.claim(&call, claim, fresh, created_by).await?);
        let step = Step::CreateGroup { id, name: name.to_owned(), key: created_by };
        self.commit(&call, created_by, step).await?;
        Ok(id)
    }

    /// Makes sure that the first organization has an owner with a live token. Each step is found done when it was done before, also
    /// by another replica that is started at the same time.
    pub(super) async fn ensure_owner(self, call: Call, request: EnsureOwner) -> Result<FirstStart, Refusal> {
        let mut attempt = 1;
        loop {
            match self.ensure_owner_once(&call, &request).await {
                Err(refusal)
                    if refusal.kind == RefusalKind::Conflict && attempt < Policy::REQUEST.decisions =>
                {
                    self.pause_after_conflict(attempt).await?;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn ensure_owner_once(&self, call: &Call, request: &EnsureOwner) -> Result<FirstStart, Refusal> {
        if !matches!(call.context.actor, Actor::Service(_)) {
            return Err(Refusal::new(RefusalKind::Denied, "only the server itself creates the first owner"));
        }
        checks::name("organization", &request.organization)?;
        checks::login("owner", &request.owner)?;
        let existing = self.directory.read(|directory| directory.organization_named(&request.organization));
        let organization = match existing {
            Some(organization) => organization,
            None => {
                self.organization(&call.in_organization(OrganizationId::SYSTEM), &request.organization)
                    .await?
            }
        };
        let call = call.in_organization(organization);
        let claim = personal::login_claim(&*self.keys, organization, &request.owner).await?;
        let owner = match self.directory.read(|directory| directory.named(claim)) {
            Some(owner) => UserId(owner),
            None => {
                let roles = [(Role::Owner, Scope::Organization(organization)), OPERATOR];
                self.first_owner(&call, &request.owner, &roles).await?
            }
        };
        let now = self.now();
        let longest =
            self.directory.read(|directory| directory.token_lifetimes(organization)).longest_seconds;
        let half = now.plus_millis(i64::try_from(longest).unwrap_or(i64::MAX).saturating_mul(500));
        let live = request.token.is_some_and(|hash| {
            let principal = self.directory.read(|directory| directory.authenticate(hash, now));
            principal.is_ok_and(|principal| {
                // Whoever starts again gets another in time.
                let lasts = principal.expires_at.is_none_or(|end| half < end);
                principal.actor == Actor::User(owner) && lasts
            })
        });
        let holder = TokenHolder::User(owner);
        let (held, is_disabled) = self.directory.read(|directory| {
            (directory.holds_token(holder, OWNER_TOKEN, now), directory.is_disabled(owner))
        });
        let enough = live || (request.shared && held) || is_disabled;
        let token = if enough { None } else { Some(self.owner_token(&call, owner, request.shared).await?) };
        Ok(FirstStart { organization, owner, token })
    }

    async fn organization(&self, call: &Call, name: &str) -> Result<OrganizationId, Refusal> {
        let mut call = call.clone();
        let fresh = call.pass(self.fresh());
        let created_by = call.step("organization");
        let id = OrganizationId(self.claim(&call, NameId::organization(name), fresh, created_by).await?);
        let call = call.in_organization(id);
        let step = Step::CreateOrganization { id, name: name.to_owned(), key: created_by };
        self.commit(&call, created_by, step).await?;
        Ok(id)
    }

    async fn first_owner(&self, call: &Call, name: &str, roles: &[(Role, Scope)]) -> Result<UserId, Refusal> {
        let mut call = call.clone();
        let organization = call.context.organization;
        let fresh = call.pass(self.fresh());
        let created_by = call.step("owner");
        let claim = personal::login_claim(&*self.keys, organization, name).await?;
        let id = UserId(self.claim(&call, claim, fresh, created_by).await?);
        let sealed = personal::seal(&*self.keys, &*self.world.random, id, name).await?;
        let step = Step::NewUser { id, name: sealed, roles: roles.to_vec(), key: created_by };
        self.commit(&call, created_by, step).await?;
        Ok(id)
    }

    /// Issues the owner's token; earlier ones of its name, which nobody may hold, are revoked. One that is `shared` is not issued
    /// beside another.
    async fn owner_token(&self, call: &Call, owner: UserId, shared: bool) -> Result<SecretToken, Refusal> {
        let holder = TokenHolder::User(owner);
        let earlier = self.directory.read(|directory| directory.tokens_of(holder));
        for token in earlier.iter().filter(|token| token.name == OWNER_TOKEN && token.revoked_at.is_none()) {
            let step = call.step(&format!("revoke {}", token.id));
            self.commit(call, step, Step::Revoke { token: token.id }).await?;
        }
        let organization = call.context.organization;
        let lifetimes = self.directory.read(|directory| directory.token_lifetimes(organization));
        let name = NewTokenName { name: OWNER_TOKEN, clusters_only: false };
        let expires_at = Some(self.in_seconds(lifetimes.longest_seconds));
        self.issue(call.clone(), holder, name, expires_at, shared).await
    }
}
