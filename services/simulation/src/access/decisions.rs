//! What the log says of who is let in.

use std::collections::BTreeMap;
use std::time::Duration;

use events::audit::AuditMode;
use events::grants::{Grants, UserAccessAs};
use events::{AgentId, TokenId};

/// All decisions, each from when it was in the log.
#[derive(Default)]
pub(super) struct Decisions {
    configured: BTreeMap<AgentId, Vec<(Duration, Grants)>>,
    revoked: BTreeMap<TokenId, Duration>,
}

fn lets_in(grants: &Grants, path: &str, as_themselves: bool) -> bool {
    let as_agent = grants.users_access_as == UserAccessAs::Agent;
    as_agent != as_themselves && grants.user_projects.iter().any(|grant| grant.path == path)
}

impl Decisions {
    pub(super) fn configured(&mut self, agent: AgentId, at: Duration, grants: Grants) {
        self.configured.entry(agent).or_default().push((at, grants));
    }

    pub(super) fn revoked(&mut self, token: TokenId, at: Duration) {
        self.revoked.entry(token).or_insert(at);
    }

    pub(super) fn revoked_at(&self, token: TokenId) -> Option<Duration> {
        self.revoked.get(&token).copied()
    }

    fn of(&self, agent: AgentId) -> &[(Duration, Grants)] {
        self.configured.get(&agent).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn in_force(&self, agent: AgentId) -> Grants {
        self.of(agent).last().map(|(_, grants)| grants.clone()).unwrap_or_default()
    }

    /// Whether people of a project were let in so at some moment from then on.
    pub(super) fn let_in_since(
        &self,
        agent: AgentId,
        path: &str,
        as_themselves: bool,
        since: Duration,
    ) -> bool {
        let configured = self.of(agent);
        let ends = configured.iter().skip(1).map(|(at, _)| *at).chain([Duration::MAX]);
        let mut after = configured.iter().zip(ends).filter(|(_, end)| *end >= since);
        after.any(|((_, grants), _)| lets_in(grants, path, as_themselves))
    }

    /// Since when people of a project are let in so no more; nothing while they are.
    pub(super) fn withdrawn_at(&self, agent: AgentId, path: &str, as_themselves: bool) -> Option<Duration> {
        let without = |(_, grants): &&(Duration, Grants)| !lets_in(grants, path, as_themselves);
        self.of(agent).iter().rev().take_while(without).last().map(|(at, _)| *at)
    }

    /// Whether all that is asked of an agent's cluster has always been recorded before.
    pub(super) fn is_fail_closed(&self, agent: AgentId) -> bool {
        self.of(agent).iter().all(|(_, grants)| grants.audit == AuditMode::FailClosed)
    }
}
