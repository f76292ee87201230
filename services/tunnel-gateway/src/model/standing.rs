//! Who may no longer be connected, and which sources are whose.

use std::collections::{BTreeMap, BTreeSet};

use events::catalogue::DecodeError;
use events::configuration::ConfigurationEvent;
use events::directory::{DirectoryEvent, TokenHolder};
use events::{AgentId, AggregateKind, NewEvent, SourceId, TokenId};
use serde::{Deserialize, Serialize};
use store::{Projection, ReadFilter, Record};

/// Folded from agents and their configurations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Standing {
    revoked: BTreeSet<TokenId>,
    deleted: BTreeSet<AgentId>,
    sources: BTreeMap<AgentId, BTreeSet<SourceId>>,
    /// Aggregates with an event that is not known here.
    unreadable: BTreeSet<String>,
}

impl Standing {
    /// Why a tunnel with this token of this agent must not be open.
    #[must_use]
    pub fn objection(&self, agent: AgentId, token: TokenId) -> Option<&'static str> {
        if self.deleted.contains(&agent) {
            return Some("the agent was deleted");
        }
        self.revoked.contains(&token).then_some("the token was revoked")
    }

    /// How many revocations and deletions there were: when it grows, open tunnels are looked at.
    #[must_use]
    pub fn withdrawals(&self) -> usize {
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

    fn fold(&mut self, kind: AggregateKind, event: &NewEvent) -> Result<(), DecodeError> {
        if kind == AggregateKind::Configuration {
            if let ConfigurationEvent::ConfigurationChanged(changed) =
                ConfigurationEvent::decode(&event.body)?
            {
                let ids = changed.configuration.sources.iter();
                let ids = ids.map(|source| SourceId::derive(changed.agent, &source.name));
                self.sources.entry(changed.agent).or_default().extend(ids);
            }
            return Ok(());
        }
        match DirectoryEvent::decode(&event.body)? {
            DirectoryEvent::TokenRevoked(revoked) => {
                if let TokenHolder::Agent(_) = revoked.holder {
                    self.revoked.insert(revoked.token);
                }
            }
            DirectoryEvent::AgentDeleted(deleted) => {
                self.deleted.insert(deleted.agent);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Projection for Standing {
    const NAME: &'static str = "tunnel-gateway-standing";
    const FOLD_VERSION: u32 = 1;
    const SNAPSHOT_EVERY: u64 = 1_000;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[AggregateKind::Agent, AggregateKind::Configuration])
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, record: &Record) {
        let Some(commit) = record.commit() else { return };
        for event in &commit.events {
            if let Err(error) = self.fold(commit.aggregate.kind, event) {
                tracing::warn!(aggregate = %commit.aggregate, %error, "event is not known here: upgrade this replica");
                self.unreadable.insert(commit.aggregate.to_string());
            }
        }
    }
}
