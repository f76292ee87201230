//! Who was let use which cluster when, as the log says it, and whose requests came to API servers: what must hold of each of these.

mod decisions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use events::audit::{AuditBatch, AuditRecord};
use events::configuration::ConfigurationChanged;
use events::grants::Grants;
use events::{Actor, AgentId, ProjectId, TokenId, UserId};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use crate::executor::Executor;
use decisions::Decisions;

/// How long before it was asked for a request may have been decided on: as long as its pass lives, and as much as an agent allows for
/// clocks that differ.
const DECIDED_WITHIN: Duration = Duration::from_secs(90);
/// How long a request goes on without what let it through, whatever else goes wrong: as long as authz may be silent, with the look
/// before that and the longest standstills of a gateway, an agent and what lies between them.
const OPEN_WITHOUT: Duration = Duration::from_secs(150);
/// The same when nothing goes wrong: two seconds are promised, and what is said takes a moment to arrive.
const OPEN_WITHOUT_IN_PEACE: Duration = Duration::from_millis(2_200);

/// Somebody with an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asker {
    /// Their id.
    pub(crate) user: UserId,
    /// Their name.
    pub(crate) name: String,
    /// Where they have a role, and which; who has none is never let in.
    pub(crate) role: Option<(String, ProjectId)>,
}

/// A request that somebody makes; each attempt is one.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Who asks.
    pub(crate) asker: Asker,
    /// With which token.
    pub(crate) token: TokenId,
    /// Whose cluster is meant.
    pub(crate) agent: AgentId,
    /// What for.
    pub(crate) path: String,
    /// When.
    pub(crate) at: Duration,
}

/// As whom a cluster sees a request; nothing for the agent itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenAs {
    user: String,
    uid: String,
    groups: Vec<String>,
}

impl SeenAs {
    /// As its headers say.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Some(Self {
            user: headers.get("impersonate-user").map(text)?,
            uid: headers.get("impersonate-uid").map(text).unwrap_or_default(),
            groups: headers.get_all("impersonate-group").iter().map(text).collect(),
        })
    }
}

/// A request that came to an API server.
struct Arrived {
    asked: Asked,
    seen_as: Option<SeenAs>,
    at: Duration,
}

struct State {
    asked: BTreeMap<String, Asked>,
    arrived: Vec<(String, Arrived)>,
    /// Those that are not over.
    open: BTreeSet<usize>,
    decisions: Decisions,
    /// What was recorded of each request.
    recorded: BTreeMap<String, Vec<AuditRecord>>,
    /// When a gateway last died, with what it had not recorded yet.
    gateway_died: Duration,
    /// Since when nothing goes wrong.
    peace: Option<Duration>,
    violations: Vec<String>,
}

/// See the module; cheap to clone.
#[derive(Clone)]
pub(crate) struct Access {
    executor: Executor,
    state: Arc<Mutex<State>>,
}

impl Access {
    pub(crate) fn new(executor: &Executor) -> Self {
        let state = State {
            asked: BTreeMap::new(),
            arrived: Vec::new(),
            open: BTreeSet::new(),
            decisions: Decisions::default(),
            recorded: BTreeMap::new(),
            gateway_died: Duration::ZERO,
            peace: None,
            violations: Vec::new(),
        };
        Self { executor: executor.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// A configuration is in the log.
    pub(crate) fn configured(&self, changed: &ConfigurationChanged) {
        let (now, grants) = (self.executor.now(), changed.configuration.grants.clone());
        self.state.lock().decisions.configured(changed.agent, now, grants);
    }

    /// A token's end is in the log.
    pub(crate) fn revoked(&self, token: TokenId) {
        self.state.lock().decisions.revoked(token, self.executor.now());
    }

    /// Records are in the log.
    pub(crate) fn recorded(&self, batch: AuditBatch) {
        let mut state = self.state.lock();
        for record in batch.records {
            state.recorded.entry(record.client.clone()).or_default().push(record);
        }
    }

    /// A gateway died.
    pub(crate) fn gateway_died(&self) {
        self.state.lock().gateway_died = self.executor.now();
    }

    /// Nothing goes wrong from now on.
    pub(crate) fn end_faults(&self) {
        self.state.lock().peace = Some(self.executor.now());
    }

    /// Somebody is about to ask; gives what they say that they are, as no other request does.
    pub(crate) fn ask(&self, asker: &Asker, token: TokenId, agent: AgentId, path: &str) -> String {
        let mut state = self.state.lock();
        let client = format!("{}/{}", asker.name, state.asked.len());
        let (asker, path, at) = (asker.clone(), path.to_owned(), self.executor.now());
        let asked = Asked { asker, token, agent, path, at };
        state.asked.insert(client.clone(), asked);
        client
    }

    /// A request came to an agent's API server; gives its number.
    pub(crate) fn arrive(&self, agent: AgentId, client: &str, seen_as: Option<SeenAs>) -> usize {
        let (now, mut state) = (self.executor.now(), self.state.lock());
        let Some(asked) = state.asked.get(client).cloned() else {
            state.violations.push(format!("a request of nobody came to an API server: {client:?}"));
            return usize::MAX;
        };
        let arrived = Arrived { asked, seen_as, at: now };
        if let Err(violation) = state.judge(agent, &arrived) {
            state.violations.push(format!("{client}: {violation}"));
        }
        let number = state.arrived.len();
        state.arrived.push((client.to_owned(), arrived));
        state.open.insert(number);
        number
    }

    /// It is over.
    pub(crate) fn over(&self, number: usize) {
        self.state.lock().open.remove(&number);
    }

    /// What somebody was answered.
    pub(crate) fn answered(&self, client: &str, status: StatusCode) {
        let mut state = self.state.lock();
        let asker = state.asked.get(client).map(|asked| &asked.asker);
        if asker.is_some_and(|asker| asker.role.is_none()) && status.is_success() {
            state.violations.push(format!("{client}: {status} for somebody who is never let in"));
        }
    }

    /// Whom an agent's cluster lets in, as the log says it last.
    pub(crate) fn in_force(&self, agent: AgentId) -> Grants {
        self.state.lock().decisions.in_force(agent)
    }

    /// How many requests of this token are open at API servers.
    pub(crate) fn open_by(&self, token: TokenId) -> usize {
        let state = self.state.lock();
        state.open().filter(|(_, arrived)| arrived.asked.token == token).count()
    }

    /// How many requests came.
    pub(crate) fn arrivals(&self) -> usize {
        self.state.lock().arrived.len()
    }

    /// The first thing that does not hold now.
    pub(crate) fn violation(&self) -> Option<String> {
        let (now, state) = (self.executor.now(), self.state.lock());
        state.violations.first().cloned().or_else(|| state.open_without(now))
    }

    /// A request that came and of which the log has no record, though it must have one by now.
    pub(crate) fn unrecorded(&self) -> Option<String> {
        let state = self.state.lock();
        let missing = state.arrived.iter().find(|(client, arrived)| !state.is_recorded(client, arrived));
        missing.map(|(client, arrived)| {
            let (at, path) = (arrived.at, &arrived.asked.path);
            let others = state.recorded.get(client).map_or(0, Vec::len);
            format!("{client} ({path}), which came at {at:?}, is in none of {others} records")
        })
    }
}

impl State {
    /// Whether somebody decided on it.
    fn judge(&self, agent: AgentId, arrived: &Arrived) -> Result<(), String> {
        let Arrived { asked, seen_as, .. } = arrived;
        if asked.agent != agent {
            return Err(format!("a request to {} came to the cluster of {agent}", asked.agent));
        }
        let Some((path, project)) = &asked.asker.role else {
            return Err("a request of somebody who is never let in came to an API server".to_owned());
        };
        if let Some(expected) = seen_as
            && *expected != asked.asker.as_themselves(*project)
        {
            return Err(format!("the cluster sees it as {expected:?}"));
        }
        let since = asked.at.saturating_sub(DECIDED_WITHIN);
        if self.decisions.revoked_at(asked.token).is_some_and(|at| at < since) {
            return Err("it came long after its token was revoked".to_owned());
        }
        if !self.decisions.let_in_since(agent, path, seen_as.is_some(), since) {
            return Err("it came and nothing lets it in so".to_owned());
        }
        Ok(())
    }

    /// A request that goes on too long without what let it through.
    fn open_without(&self, now: Duration) -> Option<String> {
        self.open().find_map(|(client, arrived)| {
            let (path, _) = arrived.asked.asker.role.as_ref()?;
            let revoked = self.decisions.revoked_at(arrived.asked.token);
            let withdrawn = self.decisions.withdrawn_at(arrived.asked.agent, path, arrived.seen_as.is_some());
            let since = [revoked, withdrawn].into_iter().flatten().min()?.max(arrived.at);
            let bound = match self.peace {
                Some(peace) if since > peace => OPEN_WITHOUT_IN_PEACE,
                _ => OPEN_WITHOUT,
            };
            let goes_on = now.saturating_sub(since);
            (goes_on > bound).then(|| {
                format!(
                    "{client} ({}) is open {goes_on:?} after what let it through was withdrawn",
                    arrived.asked.path
                )
            })
        })
    }

    fn open(&self) -> impl Iterator<Item = &(String, Arrived)> {
        self.open.iter().filter_map(|number| self.arrived.get(*number))
    }

    /// Records follow requests, so that a gateway that dies takes some with it; not where each is durable before.
    fn is_recorded(&self, client: &str, arrived: &Arrived) -> bool {
        let asked = &arrived.asked;
        let is_of_it = |record: &AuditRecord| {
            record.agent == asked.agent
                && record.holder == Actor::User(asked.asker.user)
                && record.code != StatusCode::FORBIDDEN
                && record.impersonated == arrived.seen_as.is_some()
        };
        let recorded = self.recorded.get(client);
        recorded.is_some_and(|records| records.iter().any(is_of_it))
            || (asked.at <= self.gateway_died && !self.decisions.is_fail_closed(asked.agent))
    }
}

impl Asker {
    /// As whom a cluster sees them.
    fn as_themselves(&self, project: ProjectId) -> SeenAs {
        SeenAs {
            user: format!("kasbah:user:{}", self.name),
            uid: self.user.to_string(),
            groups: vec!["kasbah:user".to_owned(), format!("kasbah:project_role:{project}:developer")],
        }
    }
}
