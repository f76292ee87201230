//! What is wrong in environments, for people: an alert once it stays so for a while, and another once all is well. Pure.
//!
//! The index knows all objects of an environment, and so its word counts ([`Word`]). Exported events say which syncs failed and who changed
//! something; how objects are, they say only of those in sources, which is used where the index has no word or is away.

use std::collections::BTreeMap;

use events::requests::environments::EnvironmentState;
use events::requests::index::{EnvironmentHealth, HealthState, IndexedObject, ObjectFilter};
use events::{AgentId, CloudEvent, EnvironmentId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Environments and objects in trouble that are remembered.
const MOST_ENVIRONMENTS: usize = 2_000;
const MOST_OBJECTS: usize = 5_000;
/// Longest reason.
const LONGEST_REASON: usize = 300;
/// What the key of a trouble with a source's syncs begins with.
const SYNC_OF: &str = "source ";

/// How the environments stand that a subscription is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Alerts {
    environments: BTreeMap<EnvironmentId, Standing>,
    /// The index answered when it was last asked.
    #[serde(default)]
    index_answers: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Standing {
    /// Objects that are degraded or missing, and sources whose last sync failed.
    troubles: BTreeMap<String, Trouble>,
    /// More troubles than are remembered: all is well only after a sync of its source succeeded.
    more: bool,
    last_change: Option<Change>,
    /// The index's last word.
    #[serde(default)]
    word: Option<Word>,
    /// Since when it differs from the last alert.
    turned: Option<Timestamp>,
    /// The last alert said that it is degraded.
    told: bool,
}

/// What the index says of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Word {
    /// An object at the top is degraded or missing, and so are others.
    Degraded { object: Blamed, reason: String, others: u64 },
    /// All objects are as they should be, and the index sees all of them.
    Well,
    /// Something is on its way.
    Progressing,
    /// The index does not see everything now.
    Unclear,
}

/// An object that the index blames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blamed {
    agent: AgentId,
    kind: String,
    namespace: String,
    name: String,
}

impl Blamed {
    fn of(object: &IndexedObject) -> Self {
        let identity = &object.identity;
        let kind = match identity.group.as_str() {
            "" => identity.kind.clone(),
            group => format!("{}.{group}", identity.kind),
        };
        Self { agent: object.agent, kind, namespace: identity.namespace.clone(), name: identity.name.clone() }
    }

    /// Finds this object in the index.
    pub(crate) fn filter(&self) -> ObjectFilter {
        ObjectFilter {
            agent: Some(self.agent.to_string()),
            kind: Some(self.kind.clone()),
            namespace: Some(self.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(self.name.clone()),
            ..ObjectFilter::default()
        }
    }
}

/// How an environment is, all in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Degraded,
    Well,
    /// Nothing is said now: neither that it degraded nor that it recovered.
    Unclear,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Trouble {
    reason: String,
    since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    /// Such as a Git commit.
    pub(crate) what: String,
    /// Who, as far as is known.
    pub(crate) by: Option<String>,
    pub(crate) at: Timestamp,
}

/// A message about an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alert {
    pub(crate) environment: EnvironmentId,
    /// Degraded, or well again.
    pub(crate) is_degraded: bool,
    /// Why; empty when it is well.
    pub(crate) reason: String,
    /// The object that the index blames, at the top of a chain of reasons.
    pub(crate) object: Option<Blamed>,
    pub(crate) since: Timestamp,
    pub(crate) last_change: Option<Change>,
}

impl Alerts {
    /// Takes the next event.
    pub(crate) fn take(&mut self, event: &CloudEvent) {
        let Some(environment) = event.environment else { return };
        if matches!(&*event.event_type, "kasbah.environment.stopped" | "kasbah.environment.deleted") {
            self.environments.remove(&environment);
            return;
        }
        let is_full = self.environments.len() >= MOST_ENVIRONMENTS;
        if is_full && !self.environments.contains_key(&environment) {
            return;
        }
        let index_answers = self.index_answers;
        self.environments.entry(environment).or_default().take(event, index_answers);
    }

    /// Takes what the index says of all environments that the subscription is about.
    pub(crate) fn hear(&mut self, found: &[EnvironmentHealth], now: Timestamp) {
        self.index_answers = true;
        let mut words: BTreeMap<EnvironmentId, &EnvironmentHealth> =
            found.iter().map(|health| (health.environment, health)).collect();
        self.environments.retain(|environment, standing| {
            match words.remove(environment) {
                Some(health) if health.state != EnvironmentState::Available => return false,
                // One whose objects the index does not see any more is not well by that.
                found => {
                    let before = standing.word.take().map(|_| Word::Unclear);
                    standing.word = found.and_then(word).or(before);
                }
            }
            standing.turn(now, true);
            true
        });
        for (environment, health) in words {
            let word = word(health).filter(|word| matches!(word, Word::Degraded { .. }));
            let is_news = word.is_some() && health.state == EnvironmentState::Available;
            if is_news && self.environments.len() < MOST_ENVIRONMENTS {
                let mut standing = Standing { word, ..Standing::default() };
                standing.turn(now, true);
                self.environments.insert(environment, standing);
            }
        }
    }

    /// Notes that the index does not answer. What it said to be degraded stays so, and nothing recovers.
    pub(crate) fn lose_index(&mut self, now: Timestamp) {
        self.index_answers = false;
        self.environments.values_mut().for_each(|standing| standing.turn(now, false));
    }

    /// When the next alert is due, if nothing else happens. An environment must stay so for `after` milliseconds.
    pub(crate) fn due(&self, after: i64) -> Option<Timestamp> {
        let decided = self.environments.values().filter(|standing| standing.is_decided(self.index_answers));
        decided.filter_map(|standing| Some(standing.turned?.plus_millis(after))).min()
    }

    /// An alert that is due by now. Trouble that passes earlier causes none.
    pub(crate) fn alert(&self, now: Timestamp, after: i64) -> Option<Alert> {
        let is_due = |turned: Timestamp| turned.plus_millis(after) <= now;
        let (environment, standing) = self.environments.iter().find(|(_, standing)| {
            standing.turned.is_some_and(is_due) && standing.is_decided(self.index_answers)
        })?;
        let turned = standing.turned?;
        let is_degraded = !standing.told;
        let blamed = match &standing.word {
            Some(Word::Degraded { object, .. }) if is_degraded => Some(object.clone()),
            _ => None,
        };
        let oldest = standing.troubles.values().map(|trouble| trouble.since).min();
        let oldest = oldest.filter(|_| is_degraded && blamed.is_none());
        Some(Alert {
            environment: *environment,
            is_degraded,
            reason: if is_degraded { standing.reason() } else { String::new() },
            object: blamed,
            since: oldest.unwrap_or(turned),
            last_change: standing.last_change.clone(),
        })
    }

    /// Notes that an alert was sent.
    pub(crate) fn told(&mut self, alert: &Alert) {
        if let Some(standing) = self.environments.get_mut(&alert.environment) {
            standing.told = alert.is_degraded;
            standing.turned = None;
            standing.turn(alert.since, self.index_answers);
        }
    }
}

impl Standing {
    fn take(&mut self, event: &CloudEvent, index_answers: bool) {
        let data = &event.data;
        match &*event.event_type {
            "kasbah.observed.health-changed" => {
                let status = text(data, "status");
                let key = object(data);
                if matches!(status, "degraded" | "missing") {
                    let message = text(data, "message");
                    let reason = if message.is_empty() { status } else { message };
                    self.trouble(key.clone(), &format!("{key}: {reason}"), event.recordedat);
                } else {
                    self.troubles.remove(&key);
                }
            }
            "kasbah.observed.object-pruned" => drop(self.troubles.remove(&object(data))),
            "kasbah.sync.finished" => {
                let key = format!("{SYNC_OF}{}", text(data, "source"));
                match text(data, "outcome") {
                    "failed" => {
                        let failure = data.pointer("/failures/0/message").and_then(Value::as_str);
                        let reason = format!("a sync failed: {}", failure.unwrap_or("see the source"));
                        self.trouble(key, &reason, event.recordedat);
                    }
                    "succeeded" => {
                        self.troubles.remove(&key);
                        self.more = false;
                    }
                    _ => {}
                }
            }
            "kasbah.bundle.desired" | "kasbah.source.pinned" | "kasbah.deployment.started" => {
                self.last_change = Some(Change {
                    what: text(data, "commit").chars().take(12).collect(),
                    by: event.actor.as_ref().map(ToString::to_string),
                    at: event.recordedat,
                });
            }
            _ => {}
        }
        self.turn(event.recordedat, index_answers);
    }

    fn trouble(&mut self, key: String, reason: &str, since: Timestamp) {
        if self.troubles.len() >= MOST_OBJECTS && !self.troubles.contains_key(&key) {
            self.more = true;
            return;
        }
        let known = self.troubles.entry(key).or_insert(Trouble { reason: String::new(), since });
        known.reason = plain(reason);
    }

    fn verdict(&self, index_answers: bool) -> Verdict {
        let by_events = self.more || !self.troubles.is_empty();
        match &self.word {
            Some(Word::Degraded { .. }) => Verdict::Degraded,
            // Of objects, the index knows better than events.
            Some(Word::Well | Word::Progressing) if index_answers && self.failed_syncs().next().is_some() => {
                Verdict::Degraded
            }
            Some(Word::Well) if index_answers => Verdict::Well,
            Some(Word::Progressing) if index_answers => Verdict::Unclear,
            _ if by_events => Verdict::Degraded,
            None => Verdict::Well,
            Some(_) => Verdict::Unclear,
        }
    }

    fn is_decided(&self, index_answers: bool) -> bool {
        self.verdict(index_answers) != Verdict::Unclear
    }

    fn failed_syncs(&self) -> impl Iterator<Item = &Trouble> {
        let syncs = self.troubles.iter().filter(|(key, _)| key.starts_with(SYNC_OF));
        syncs.map(|(_, trouble)| trouble)
    }

    /// Notes since when it differs from the last alert. It has to be well all the time to recover.
    fn turn(&mut self, at: Timestamp, index_answers: bool) {
        match (self.verdict(index_answers), self.told) {
            (Verdict::Degraded, false) | (Verdict::Well, true) => {
                self.turned.get_or_insert(at);
            }
            (Verdict::Unclear, false) => {}
            (Verdict::Degraded | Verdict::Unclear, true) | (Verdict::Well, false) => self.turned = None,
        }
    }

    /// What the index blames, else the oldest trouble, and how many more there are.
    fn reason(&self) -> String {
        let (first, others) = match &self.word {
            Some(Word::Degraded { reason, others, .. }) => {
                (Some(reason), *others + self.failed_syncs().count() as u64)
            }
            Some(_) if self.failed_syncs().next().is_some() => {
                let oldest = self.failed_syncs().min_by_key(|trouble| trouble.since);
                (oldest.map(|trouble| &trouble.reason), self.failed_syncs().count() as u64 - 1)
            }
            _ => {
                let oldest = self.troubles.values().min_by_key(|trouble| trouble.since);
                (oldest.map(|trouble| &trouble.reason), (self.troubles.len() as u64).saturating_sub(1))
            }
        };
        match (first, others) {
            (Some(first), 0) => first.clone(),
            (Some(first), others) => format!("{first} (and {others} more)"),
            (None, _) => String::new(),
        }
    }
}

/// What the index says; nothing where it has no object of the environment.
fn word(health: &EnvironmentHealth) -> Option<Word> {
    let sees_all = health.stale.is_none() && health.hidden.is_none();
    match (health.health, &health.worst) {
        _ if health.objects == 0 => None,
        (HealthState::Degraded | HealthState::Missing, Some(worst)) => {
            let bad = health
                .counts
                .iter()
                .filter(|count| matches!(count.state, HealthState::Degraded | HealthState::Missing));
            let bad: u64 = bad.map(|count| count.count).sum();
            Some(Word::Degraded {
                object: Blamed::of(worst),
                reason: described(worst),
                others: bad.saturating_sub(1),
            })
        }
        (HealthState::None | HealthState::Healthy | HealthState::Suspended, _) if sees_all => {
            Some(Word::Well)
        }
        (HealthState::Progressing, _) if sees_all => Some(Word::Progressing),
        _ => Some(Word::Unclear),
    }
}

/// An object of the index with why it is as it is, for people.
pub(crate) fn described(object: &IndexedObject) -> String {
    let identity = &object.identity;
    let name = named(&identity.kind, &identity.namespace, &identity.name);
    let word = if object.health.state == HealthState::Missing { "missing" } else { "degraded" };
    let message = if object.health.message.is_empty() { word } else { &object.health.message };
    plain(&format!("{name}: {message}"))
}

fn named(kind: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

/// The beginning of a text that somebody else wrote.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(LONGEST_REASON).collect()
}

fn text<'a>(data: &'a Value, name: &str) -> &'a str {
    data.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The object that data is about, as people name it.
fn object(data: &Value) -> String {
    let identity = data.get("identity").unwrap_or(&Value::Null);
    let [kind, namespace, name] = ["kind", "namespace", "name"].map(|part| text(identity, part));
    named(kind, namespace, name)
}

#[cfg(test)]
mod tests;
