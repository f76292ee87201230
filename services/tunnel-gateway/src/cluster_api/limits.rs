//! How much of the clusters' APIs one user, one agent and one organization may use through this gateway. Pure: time is given.
//!
//! Requests over a short time are counted as those that are open are, with a weight that fades: one of five seconds ago counts for a
//! third. So one rule keeps users fair to one another in both: of what an agent, or an organization, may have, nobody may hold more
//! than is free. Alone that is half, of two each a third, and so on: whoever comes next finds room.

use std::collections::BTreeMap;
use std::time::Duration;

use events::{Actor, AgentId, OrganizationId};

use crate::args::ClusterLimits;
use crate::token_bucket::TokenBucket;

/// In this time a request's weight fades to the e-th part; so many seconds' requests may come at once.
const DECAY_SECONDS: f64 = 5.0;
/// What weighs less than this is as good as nothing.
const NEGLIGIBLE: f64 = 0.01;
/// Worth another try when something that is open may have ended.
const RETRY_WHEN_FULL: Duration = Duration::from_secs(5);
/// Accounts are looked through for idle ones when there are more than this, and twice as many as were left.
const MINIMUM_SWEEP: usize = 1024;

/// Who makes a request, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requester {
    pub(super) user: Actor,
    pub(super) agent: AgentId,
    pub(super) organization: OrganizationId,
}

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitScope {
    User,
    Agent,
    Organization,
}

/// What there was too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitKind {
    /// Requests are open.
    Open,
    /// The user holds as many as are free.
    OpenShare(u32),
    /// Requests came within a short time.
    Rate,
    /// And of those the user's are as many as may still come.
    RateShare,
}

/// A request over a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exceeded {
    pub(super) scope: LimitScope,
    pub(super) kind: LimitKind,
    /// What is allowed.
    pub(super) limit: u32,
    /// When another try is worth it.
    pub(super) retry_after: Duration,
}

/// What is open, and what was used recently.
#[derive(Debug)]
pub(super) struct Limits {
    limits: ClusterLimits,
    users: BTreeMap<Actor, Account>,
    agents: BTreeMap<AgentId, Account>,
    organizations: BTreeMap<OrganizationId, Account>,
    /// What of an agent's is each user's.
    held: BTreeMap<(AgentId, Actor), Account>,
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Account {
    open: u32,
    recent: RecentCount,
    bytes: Option<TokenBucket>,
}

/// Requests that came recently, older ones counting less.
#[derive(Debug, Default)]
struct RecentCount {
    weight: f64,
    at: Duration,
}

impl Limits {
    pub(super) fn new(limits: ClusterLimits) -> Self {
        Self {
            limits,
            users: BTreeMap::new(),
            agents: BTreeMap::new(),
            organizations: BTreeMap::new(),
            held: BTreeMap::new(),
            sweep_at: MINIMUM_SWEEP,
        }
    }

    /// Counts a request as open, until it [`leaves`](Self::leave). `now` never runs backwards.
    ///
    /// # Errors
    /// The limit that it would exceed; then nothing is counted.
    pub(super) fn enter(&mut self, requester: &Requester, now: Duration) -> Result<(), Exceeded> {
        self.forget_idle(now);
        let limits = &self.limits;
        let user = account(&mut self.users, requester.user.clone(), now);
        let held = account(&mut self.held, (requester.agent, requester.user.clone()), now);
        let agent = account(&mut self.agents, requester.agent, now);
        let organization = account(&mut self.organizations, requester.organization, now);

        check_open(LimitScope::User, limits.clusters_open_per_user, user.open, 0)?;
        check_open(LimitScope::Agent, limits.clusters_open_per_agent, agent.open, held.open)?;
        check_open(
            LimitScope::Organization,
            limits.clusters_open_per_organization,
            organization.open,
            user.open,
        )?;
        let users = user.recent.weight;
        check_rate(LimitScope::User, limits.clusters_rate_per_user, &user.recent, 0.0)?;
        check_rate(LimitScope::Agent, limits.clusters_rate_per_agent, &agent.recent, held.recent.weight)?;
        let of_organization = limits.clusters_rate_per_organization;
        check_rate(LimitScope::Organization, of_organization, &organization.recent, users)?;

        for account in [user, held, agent, organization] {
            account.open = account.open.saturating_add(1);
            account.recent.weight += 1.0;
        }
        Ok(())
    }

    /// A request is over.
    pub(super) fn leave(&mut self, requester: &Requester) {
        let accounts = [
            self.users.get_mut(&requester.user),
            self.held.get_mut(&(requester.agent, requester.user.clone())),
            self.agents.get_mut(&requester.agent),
            self.organizations.get_mut(&requester.organization),
        ];
        for account in accounts.into_iter().flatten() {
            account.open = account.open.saturating_sub(1);
        }
    }

    /// Takes bytes that went through an open request, in either direction; gives how long to wait before the next are taken.
    pub(super) fn take(&mut self, requester: &Requester, bytes: usize, now: Duration) -> Duration {
        let (user, organization) =
            (self.limits.clusters_bytes_per_user, self.limits.clusters_bytes_per_organization);
        let accounts = [
            (user, self.users.get_mut(&requester.user)),
            (organization, self.organizations.get_mut(&requester.organization)),
        ];
        let waits = accounts.into_iter().filter(|(limit, _)| *limit > 0).filter_map(|(limit, account)| {
            Some(account?.bytes.get_or_insert_with(|| TokenBucket::new(limit, now)).take(bytes, now))
        });
        waits.max().unwrap_or_default()
    }

    /// Forgets accounts that are as good as new.
    fn forget_idle(&mut self, now: Duration) {
        let count = |limits: &Self| {
            limits.users.len() + limits.held.len() + limits.agents.len() + limits.organizations.len()
        };
        if count(self) < self.sweep_at {
            return;
        }
        self.users.retain(|_, account| !account.is_idle(now));
        self.held.retain(|_, account| !account.is_idle(now));
        self.agents.retain(|_, account| !account.is_idle(now));
        self.organizations.retain(|_, account| !account.is_idle(now));
        self.sweep_at = MINIMUM_SWEEP.max(count(self).saturating_mul(2));
    }
}

fn account<Key: Ord>(accounts: &mut BTreeMap<Key, Account>, key: Key, now: Duration) -> &mut Account {
    let account = accounts.entry(key).or_default();
    account.recent.decay(now);
    account
}

/// Whether one more may be open beside `open` others, of which the user holds `held`.
fn check_open(scope: LimitScope, limit: u32, open: u32, held: u32) -> Result<(), Exceeded> {
    let free = limit.saturating_sub(open);
    let kind = match (limit, free) {
        (0, _) => return Ok(()),
        (_, 0) => LimitKind::Open,
        _ if held >= free => LimitKind::OpenShare(held),
        _ => return Ok(()),
    };
    Err(Exceeded { scope, kind, limit, retry_after: RETRY_WHEN_FULL })
}

/// Whether one more may come after those that came `recent`, of which the user's weigh `held`.
fn check_rate(scope: LimitScope, limit: u32, recent: &RecentCount, held: f64) -> Result<(), Exceeded> {
    let most = f64::from(limit) * DECAY_SECONDS;
    let free = most - recent.weight;
    let kind = match limit {
        0 => return Ok(()),
        _ if free < 1.0 => LimitKind::Rate,
        _ if held >= free => LimitKind::RateShare,
        _ => return Ok(()),
    };
    // Until there is room for one.
    let seconds = DECAY_SECONDS * (recent.weight.max(most - 1.0) / (most - 1.0).max(1.0)).ln();
    Err(Exceeded { scope, kind, limit, retry_after: Duration::from_secs_f64(seconds.max(0.0)) })
}

impl Account {
    fn is_idle(&mut self, now: Duration) -> bool {
        self.recent.decay(now);
        self.open == 0
            && self.recent.weight < NEGLIGIBLE
            && self.bytes.as_mut().is_none_or(|bytes| bytes.is_full(now))
    }
}

impl RecentCount {
    fn decay(&mut self, now: Duration) {
        let since = now.saturating_sub(self.at).as_secs_f64();
        self.at = now;
        self.weight *= (-since / DECAY_SECONDS).exp();
    }
}

#[cfg(test)]
mod tests;
