//! People and their roles.

use serde::{Deserialize, Serialize};

use super::TokenView;
use crate::directory::{Role, Scope};
use crate::id::UserId;
use crate::request::request;
use crate::requests::page::{PageCursor, PageLimit, paged};

/// Creates a user.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateUser {
    /// Login name.
    pub name: String,
    /// First role.
    pub role: Role,
    /// Where; the organization if not given.
    pub scope: Option<Scope>,
}
request!(CreateUser => UserView, "authz.create-user");

/// Lists users.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListUsers {
    /// How many items the page holds at most; 100 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// Where the page begins: `next` of the page before. The first page if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<PageCursor>,
}
paged!(ListUsers => UserView, by UserId, "authz.list-users");

/// Finds one user.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowUser {
    /// Login name or id.
    pub user: String,
}
request!(ShowUser => UserView, "authz.show-user");

/// Ends everything of a user at once: their tokens, those that they made, and what is open by any of these.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisableUser {
    /// Login name or id.
    pub user: String,
    /// Leaves agents' tokens that they made.
    #[serde(default)]
    pub keep_agents_tokens: bool,
}
request!(DisableUser => DisabledUser, "authz.disable-user");

/// The answer to [`DisableUser`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisabledUser {
    /// The user.
    pub user: UserView,
    /// Tokens of others that they made, which are dead now: the first [`DisabledUser::MOST`].
    pub ended: Vec<TokenView>,
    /// How many of those were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_ended: u32,
    /// Agents' tokens that they made and that live on: the first [`DisabledUser::MOST`].
    pub kept: Vec<TokenView>,
    /// How many of those were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_kept: u32,
}

impl DisabledUser {
    /// So many tokens of each kind are named.
    pub const MOST: usize = 500;
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Lets a user in again who was disabled. They have their roles, and no token of before.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnableUser {
    /// Login name or id.
    pub user: String,
}
request!(EnableUser => UserView, "authz.enable-user");

/// Gives or takes a role.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignRole {
    /// Whose: login name or id.
    pub user: String,
    /// Which.
    pub role: Role,
    /// Where; the organization if not given.
    pub scope: Option<Scope>,
    /// Takes it instead of giving it.
    pub withdraw: bool,
}
request!(AssignRole => UserView, "authz.assign-role");

/// One user.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    /// Their id.
    pub id: UserId,
    /// Login name; `None` once erased.
    pub name: Option<String>,
    /// Roles and where they hold.
    pub roles: Vec<(Role, Scope)>,
    /// The identity providers at which they have an account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
    /// They may do nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}
