//! Who may no longer be connected, and which sources are whose.

use std::collections::{BTreeMap, BTreeSet};

use events::configuration::ConfigurationEvent;
use events::directory::{DirectoryEvent, TokenHolder};
use events::{AgentId, AggregateKind, Event, SourceId, TokenId};
use serde::{Deserialize, Serialize};
use store::{Fact, Projection, ReadFilter};

/// Folded from agents and their configurations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Standing {
    revoked: BTreeSet<TokenId>,
    deleted: BTreeSet<AgentId>,
    sources: BTreeMap<AgentId, BTreeSet<SourceId>>,
}

impl Standing {
    /// Why a tunnel with this token of this agent must not be open.
    #[must_use]
    pub fn rejection_reason(&self, agent: AgentId, token: TokenId) -> Option<&'static str> {
        if self.deleted.contains(&agent) {
            return Some("the agent was deleted");
        }
        self.revoked.contains(&token).then_some("the token was revoked")
    }

    /// How many revocations and deletions there were: when it grows, open tunnels are checked.
    #[must_use]
    pub fn revocations(&self) -> usize {
        self.revoked.len().saturating_add(self.deleted.len())
    }

    /// The sources that an agent has or had in its configuration.
    #[must_use]
    pub fn sources(&self, agent: AgentId) -> BTreeSet<SourceId> {
        self.sources.get(&agent).cloned().unwrap_or_default()
    }

    /// Whether a source is, or was, this agent's.
    #[must_use]
    pub fn owns(&self, agent: AgentId, source: SourceId) -> bool {
        self.sources.get(&agent).is_some_and(|sources| sources.contains(&source))
    }
}

impl Projection for Standing {
    const NAME: &'static str = "tunnel-gateway-standing";
    const FOLD_VERSION: u32 = 1;
    const SNAPSHOT_EVERY: u64 = 1_000;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[AggregateKind::Agent, AggregateKind::Configuration])
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        let Fact::Commit(committed) = fact else { return };
        for (_, event) in committed.events {
            match event {
                Event::Configuration(ConfigurationEvent::ConfigurationChanged(changed)) => {
                    let ids = changed.configuration.sources.iter();
                    let ids = ids.map(|source| SourceId::derive(changed.agent, &source.name));
                    self.sources.entry(changed.agent).or_default().extend(ids);
                }
                Event::Directory(DirectoryEvent::TokenRevoked(revoked)) => {
                    if let TokenHolder::Agent(_) = revoked.holder {
                        self.revoked.insert(revoked.token);
                    }
                }
                Event::Directory(DirectoryEvent::AgentDeleted(deleted)) => {
                    self.deleted.insert(deleted.agent);
                }
                _ => {}
            }
        }
    }
}
