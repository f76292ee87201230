//! Passes that authz signed, for as long as they count here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use events::pass::Pass;
use events::requests::authz::{IssuedPass, SignPass};
use events::{AgentId, OrganizationId, Position, Refusal, RefusalKind, Sha256, Timestamp};
use http::HeaderValue;
use parking_lot::Mutex;
use tunnel::wire::cluster::{pass_to_header, roots_to_header};

use crate::gateway::Gateway;

/// How long a pass is used here: the agent has to see it live.
const USED: Duration = Duration::from_secs(30);
/// Passes that are held at once.
const MOST: usize = 16_384;

/// Whose token, for which agent.
pub(super) type Key = (Sha256, AgentId);

/// A pass that can be used.
pub(crate) struct HeldPass {
    pub(super) pass: Pass,
    pub(super) header: HeaderValue,
    /// How agents come to the root that signed it.
    pub(super) roots: Option<HeaderValue>,
    /// When the token ends by itself.
    pub(super) token_ends: Option<Timestamp>,
    until: Duration,
    /// How many changes were heard before it was asked for.
    asked_after: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Passes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: BTreeMap<Key, Arc<HeldPass>>,
    /// What was heard of changes of who may do what: a pass from before counts no more.
    seen: Position,
    /// How many changes were heard of, and after how many each organization's last one.
    changes: u64,
    changed: BTreeMap<OrganizationId, u64>,
}

impl Passes {
    /// A pass for the holder of a token.
    pub(super) async fn of(&self, gateway: &Gateway, key: Key) -> Result<Arc<HeldPass>, Refusal> {
        let now = gateway.world.clock.monotonic();
        let held = self.state.lock().held.get(&key).cloned();
        let held = held.filter(|held| !held.token_has_ended(gateway));
        if let Some(held) = held.as_ref().filter(|held| now < held.until) {
            return Ok(Arc::clone(held));
        }
        match (self.renewed(gateway, key).await, held) {
            // While authz cannot be asked, what it said last counts for as long as it lives.
            (Err(refusal), Some(held)) if refusal.kind == RefusalKind::Unavailable && held.lives(gateway) => {
                Ok(held)
            }
            (renewed, _) => renewed,
        }
    }

    /// A pass that is no older than what was heard of changes.
    pub(super) async fn renewed(&self, gateway: &Gateway, key: Key) -> Result<Arc<HeldPass>, Refusal> {
        let (since, asked_after) = {
            let state = self.state.lock();
            (state.seen.clone(), state.changes)
        };
        let (now, (hash, agent)) = (gateway.world.clock.monotonic(), key);
        let request = SignPass { hash, agent, since };
        let context = gateway.context(OrganizationId::SYSTEM);
        let issued: IssuedPass = bus::ask(&*gateway.bus, &context, &request).await?;
        let internal = |error: &dyn std::fmt::Display| Refusal::new(RefusalKind::Internal, error.to_string());
        let held = Arc::new(HeldPass {
            pass: issued.pass.unverified().map_err(|error| internal(&error))?,
            header: pass_to_header(&issued.pass).map_err(|error| internal(&error))?,
            roots: roots_to_header(&issued.roots).map_err(|error| internal(&error))?,
            token_ends: issued.token_ends,
            until: now.saturating_add(USED),
            asked_after,
        });
        let mut state = self.state.lock();
        if !state.is_stale(&held) {
            if state.held.len() >= MOST {
                state.held.retain(|_, held| now < held.until);
            }
            if state.held.len() < MOST {
                state.held.insert(key, Arc::clone(&held));
            }
        }
        Ok(held)
    }

    /// Whether something changed in the pass's organization since it was asked for.
    pub(super) fn is_stale(&self, held: &HeldPass) -> bool {
        self.state.lock().is_stale(held)
    }

    /// Something changed in an organization.
    pub(super) fn changed(&self, organization: OrganizationId, at: &Position) {
        let mut state = self.state.lock();
        state.seen.merge(at);
        state.changes += 1;
        let changes = state.changes;
        state.changed.insert(organization, changes);
        state.held.retain(|_, held| held.pass.organization != organization);
    }
}

impl State {
    fn is_stale(&self, held: &HeldPass) -> bool {
        self.changed.get(&held.pass.organization).is_some_and(|changed| *changed > held.asked_after)
    }
}

impl HeldPass {
    fn lives(&self, gateway: &Gateway) -> bool {
        gateway.world.clock.now_millis() < self.pass.expires_at.0
    }

    fn token_has_ended(&self, gateway: &Gateway) -> bool {
        self.token_ends.is_some_and(|end| end.0 <= gateway.world.clock.now_millis())
    }
}
