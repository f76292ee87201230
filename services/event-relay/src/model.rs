//! What events are about, and which subscriptions there are, folded from decisions. Pure.

mod subscriptions;

pub use subscriptions::{Given, Subscription, WantedWay, Way};

use std::collections::BTreeMap;

use events::configuration::ConfigurationEvent;
use events::directory::DirectoryEvent;
use events::environment::EnvironmentEvent;
use events::observation::ObservationBatch;
use events::{AgentId, AggregateKind, CloudEvent, EnvironmentId, Event, ProjectId, SourceId, SubscriptionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Committed, Fact, Projection, ReadFilter};

/// Which agents, sources and environments there are, and where they belong. Those that were deleted stay: events about them may
/// be exported later.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// Each agent's configuration project.
    agents: BTreeMap<AgentId, ProjectId>,
    sources: BTreeMap<SourceId, SourcePlace>,
    environments: BTreeMap<EnvironmentId, EnvironmentPlace>,
    subscriptions: BTreeMap<SubscriptionId, Subscription>,
    /// Versions of the aggregates of subscriptions that were deleted.
    deleted: BTreeMap<SubscriptionId, u64>,
    /// Grows with each event of a subscription.
    revision: u64,
}

/// Where an environment belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EnvironmentPlace {
    project: ProjectId,
    name: String,
}

/// Where a source belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct SourcePlace {
    agent: AgentId,
    environment: Option<EnvironmentId>,
}

impl State {
    /// Whether there is, or was, such an environment.
    #[must_use]
    pub fn has_environment(&self, environment: EnvironmentId) -> bool {
        self.environments.contains_key(&environment)
    }

    /// The name of an environment.
    #[must_use]
    pub fn environment_name(&self, environment: EnvironmentId) -> Option<&str> {
        self.environments.get(&environment).map(|place| place.name.as_str())
    }

    /// Says in an event what it is about, as far as that is known.
    pub fn place(&self, event: &mut CloudEvent) {
        let (kind, id) = event.subject.split_once('/').unwrap_or(("", &event.subject));
        let source = named(&event.data, "source").or_else(|| parsed(kind == "source", id));
        let environment = named(&event.data, "environment").or_else(|| parsed(kind == "environment", id));
        let is_agents = matches!(kind, "agent" | "configuration" | "applier");
        let agent = named(&event.data, "agent")
            .or_else(|| parsed(is_agents, id))
            .or_else(|| ObservationBatch::agent_of_writer(&event.subject));
        let project = named(&event.data, "project").or_else(|| parsed(kind == "project", id));
        let place = source.and_then(|source| self.sources.get(&source)).copied();
        event.agent = agent.or(place.map(|place| place.agent));
        event.environment = environment.or(place.and_then(|place| place.environment));
        let of_environment = event.environment.and_then(|environment| self.environments.get(&environment));
        let of_agent = event.agent.and_then(|agent| self.agents.get(&agent)).copied();
        event.project = of_environment.map(|place| place.project).or(of_agent).or(project);
    }

    fn apply_commit(&mut self, committed: Committed<'_, Event>) {
        let Committed { commit, events, .. } = committed;
        for (_, event) in events {
            match event {
                Event::Subscription(event) => self.apply_subscription(commit, event),
                Event::Directory(DirectoryEvent::AgentRegistered(registered)) => {
                    self.agents.insert(registered.agent, registered.project);
                }
                Event::Configuration(ConfigurationEvent::ConfigurationChanged(changed)) => {
                    let own = self.agents.get(&changed.agent).copied();
                    for source in changed.configuration.sources {
                        let environment = source.environment.and_then(|environment| {
                            Some(EnvironmentId::derive(environment.project.or(own)?, &environment.name))
                        });
                        self.sources.insert(source.id, SourcePlace { agent: changed.agent, environment });
                    }
                }
                Event::Environment(EnvironmentEvent::EnvironmentCreated(created)) => {
                    let place = EnvironmentPlace { project: created.project, name: created.name };
                    self.environments.insert(created.environment, place);
                }
                _ => {}
            }
        }
    }
}

/// An id that the data has under this name, or what is in it about an object.
fn named<T: std::str::FromStr>(data: &Value, name: &str) -> Option<T> {
    let found = data.get(name).or_else(|| data.get("object").and_then(|object| object.get(name)));
    found.and_then(Value::as_str).and_then(|text| text.parse().ok())
}

fn parsed<T: std::str::FromStr>(is: bool, text: &str) -> Option<T> {
    text.parse().ok().filter(|_| is)
}

impl Projection for State {
    const NAME: &'static str = "event-relay";
    const FOLD_VERSION: u32 = 3;
    const SNAPSHOT_EVERY: u64 = 2000;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[
            AggregateKind::Agent,
            AggregateKind::Configuration,
            AggregateKind::Environment,
            AggregateKind::Subscription,
        ])
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        if let Fact::Commit(committed) = fact {
            self.apply_commit(committed);
        }
    }
}
