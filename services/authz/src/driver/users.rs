//! Users and roles.

use bus::PageBuilder;
use events::directory::Scope;
use events::requests::authz::{
    AssignRole, CreateUser, DisableUser, DisabledUser, EnableUser, ListUsers, ShowUser, UserView,
};
use events::requests::page::{Page, Paged as _};
use events::{Refusal, TokenId, UserId};

use super::{Driver, gone};
use crate::call::Call;
use crate::checks;
use crate::model::steps::Step;
use crate::model::{Asker, Disabled};
use crate::personal;

impl Driver {
    pub(super) async fn create_user(self, mut call: Call, request: CreateUser) -> Result<UserView, Refusal> {
        checks::login("name", &request.name)?;
        let asker = call.asker();
        let first = (request.role, request.scope.unwrap_or(Scope::Organization(asker.organization)));
        self.directory.read(|directory| directory.may_create_user(&asker, first.0, first.1))?;
        let fresh = call.pass(self.fresh());
        let key = call.key();
        let claim = personal::login_claim(&*self.keys, asker.organization, &request.name).await?;
        let id = UserId(self.claim(&call, claim, fresh, key).await?);
        let name = personal::seal(&*self.keys, &*self.world.random, id, &request.name).await?;
        self.commit(&call, key, Step::CreateUser { id, name, first, key }).await?;
        self.user_view(id).await
    }

    pub(super) async fn assign_role(self, call: Call, request: AssignRole) -> Result<UserView, Refusal> {
        let asker = call.asker();
        let user = self.another_user(&asker, &request.user).await?;
        let role = (request.role, request.scope.unwrap_or(Scope::Organization(asker.organization)));
        let step = Step::AssignRole { user, role, withdraw: request.withdraw };
        self.commit(&call, call.key(), step).await?;
        self.user_view(user).await
    }

    /// Ends everything of a user. What they hold is dead with the first commit, and so is what they made; each of those tokens is revoked by
    /// itself as well, so that whatever is open by it ends.
    pub(super) async fn disable_user(
        self,
        call: Call,
        request: DisableUser,
    ) -> Result<DisabledUser, Refusal> {
        let asker = call.asker();
        let user = self.another_user(&asker, &request.user).await?;
        let keeps_agents_tokens = request.keep_agents_tokens;
        let step = Step::DisableUser { user, keeps_agents_tokens };
        self.commit(&call, call.key(), step).await?;
        let made = self
            .directory
            .read(|directory| directory.to_end(user, Disabled { keeps_agents_tokens }).collect::<Vec<_>>());
        for token in &made {
            self.commit(&call, call.step(&format!("revoke {token}")), Step::Revoke { token: *token }).await?;
        }
        let ((ended, more_ended), (kept, more_kept)) = self.directory.read(|directory| {
            let named = |all: Vec<TokenId>| {
                let more = u32::try_from(all.len().saturating_sub(DisabledUser::MOST)).unwrap_or(u32::MAX);
                let first = all.into_iter().take(DisabledUser::MOST);
                (first.filter_map(|id| directory.token_view(id)).collect::<Vec<_>>(), more)
            };
            (named(made), named(directory.made_by(user).map(|(id, _)| id).collect()))
        });
        Ok(DisabledUser { user: self.user_view(user).await?, ended, more_ended, kept, more_kept })
    }

    pub(super) async fn enable_user(self, call: Call, request: EnableUser) -> Result<UserView, Refusal> {
        let user = self.another_user(&call.asker(), &request.user).await?;
        self.commit(&call, call.key(), Step::EnableUser { user }).await?;
        self.user_view(user).await
    }

    pub(super) async fn list_users(
        self,
        asker: Asker,
        request: ListUsers,
    ) -> Result<Page<UserView>, Refusal> {
        let after = request.after()?;
        let next_page = request.limit().items().saturating_add(1);
        let users: Vec<_> = self.directory.read(|directory| {
            let users = directory.users_for(&asker, after)?;
            Ok::<_, Refusal>(users.take(next_page).collect())
        })?;
        let mut page = PageBuilder::of(&request);
        for user in users {
            let view = self.named_view(user).await?;
            if !page.push(view.id, view)? {
                break;
            }
        }
        page.finish()
    }

    pub(super) async fn show_user(self, asker: Asker, request: ShowUser) -> Result<UserView, Refusal> {
        let user = self.another_user(&asker, &request.user).await?;
        self.user_view(user).await
    }

    /// The user whom the asker names. Whether a name is known is told only to those who may see users.
    pub(super) async fn another_user(&self, asker: &Asker, text: &str) -> Result<UserId, Refusal> {
        self.directory.read(|directory| directory.may_read_users(asker))?;
        let user = self.user_ref(asker.organization, text).await?;
        self.directory.read(|directory| directory.find_user(asker, user))
    }

    pub(super) async fn user_view(&self, id: UserId) -> Result<UserView, Refusal> {
        let view = self.directory.read(|directory| directory.user_view(id)).ok_or_else(gone)?;
        self.named_view(view).await
    }
}
