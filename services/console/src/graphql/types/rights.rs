//! What the caller may do, or what is missing: so that a page can say it before somebody tries.

use async_graphql::{Enum, Result, SimpleObject};
use events::directory::Scope;
use events::requests::authz::{Action, Decide, Decision};

use super::super::asker::Asker;

/// Something that can be done with a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum SourceAction {
    /// To have it synced now.
    Sync,
    /// To suspend and to resume it.
    Suspend,
    /// To pin it to a commit, and to unpin it.
    Pin,
    /// To confirm what is held.
    Confirm,
    /// To see what the next sync would do.
    Diff,
}

impl SourceAction {
    /// All, with what authz calls them.
    pub(super) const ALL: [(Self, Action); 5] = [
        (Self::Sync, Action::SyncSource),
        (Self::Suspend, Action::SuspendSource),
        (Self::Pin, Action::PinSource),
        (Self::Confirm, Action::ConfirmSource),
        (Self::Diff, Action::DiffSource),
    ];
}

/// Something that can be done in an organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum OrganizationAction {
    /// To read the log, and the audit log.
    ReadLog,
    /// To see users and their roles.
    ReadUsers,
    /// To list and to revoke tokens of other users.
    ManageUserTokens,
    /// To set how long tokens live.
    SetTokenLifetimes,
    /// To assign roles.
    AssignRole,
    /// To manage subscriptions to exported events.
    ManageSubscriptions,
}

impl OrganizationAction {
    /// All, with what authz calls them.
    pub(in crate::graphql) const ALL: [(Self, Action); 6] = [
        (Self::ReadLog, Action::ReadLog),
        (Self::ReadUsers, Action::ReadUsers),
        (Self::ManageUserTokens, Action::ManageUserTokens),
        (Self::SetTokenLifetimes, Action::SetTokenLifetimes),
        (Self::AssignRole, Action::AssignRole),
        (Self::ManageSubscriptions, Action::ManageSubscriptions),
    ];
}

/// Whether you may do something with a source.
#[derive(Debug, Clone, SimpleObject)]
pub struct SourceRight {
    /// What.
    action: SourceAction,
    /// Whether you may.
    allowed: bool,
    /// By which role and scope, or what is missing.
    reason: String,
}

/// Whether you may do something in your organization.
#[derive(Debug, Clone, SimpleObject)]
pub struct OrganizationRight {
    /// What.
    action: OrganizationAction,
    /// Whether you may.
    allowed: bool,
    /// By which role and scope, or what is missing.
    reason: String,
}

impl From<(SourceAction, Decision)> for SourceRight {
    fn from((action, decision): (SourceAction, Decision)) -> Self {
        Self { action, allowed: decision.allowed, reason: decision.reason }
    }
}

impl From<(OrganizationAction, Decision)> for OrganizationRight {
    fn from((action, decision): (OrganizationAction, Decision)) -> Self {
        Self { action, allowed: decision.allowed, reason: decision.reason }
    }
}

/// What authz decides of each action in a scope.
///
/// # Errors
/// What authz refuses.
pub(in crate::graphql) async fn decided<A: Copy>(
    asker: &Asker,
    actions: &[(A, Action)],
    scope: Scope,
) -> Result<Vec<(A, Decision)>> {
    let (actor, organization) = (&asker.context.actor, asker.context.organization);
    let decided = actions.iter().map(|(action, asked)| async move {
        let request = Decide { actor: actor.clone(), organization, action: *asked, scope };
        Ok((*action, asker.ask(&request).await?))
    });
    futures::future::try_join_all(decided).await
}
