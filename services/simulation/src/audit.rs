//! What must hold of each record the moment it is stored.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use events::audit::AuditBatch;
use events::cloud_event::Recorded;
use events::configuration::ConfigurationEvent;
use events::delivery::DeliveryEvent;
use events::directory::DirectoryEvent;
use events::observation::{ObservationBatch, Observed};
use events::repository::RepositoryEvent;
use events::{
    AgentId, AggregateRef, ChainHash, CloudEvent, Commit, CommitId, Event, EventId, InstanceId,
    OrganizationId, Stream, SyncId,
};
use store::jetstream::simulated::Stored;

use crate::access::Access;
use crate::cluster::Reported;
use crate::exports::Exports;
use crate::forge::Forge;

type Acknowledged = (String, u64, Option<String>);

/// What is known of an aggregate.
#[derive(Default)]
struct Aggregate {
    version: u64,
    hash: ChainHash,
    commits: BTreeSet<CommitId>,
}

/// Checks what is stored.
#[derive(Default)]
pub struct Audit {
    forge: Option<Forge>,
    access: Option<Access>,
    exports: Exports,
    /// What is said of each agent's cluster.
    clusters: BTreeMap<AgentId, Reported>,
    aggregates: HashMap<(OrganizationId, AggregateRef), Aggregate>,
    events: HashSet<EventId>,
    /// How far each source and configuration has come, as its commit's place in the history.
    reached: BTreeMap<String, u64>,
    /// The newest epoch of each agent.
    epochs: BTreeMap<String, u64>,
    /// The newest epoch that each instance was named for.
    named: BTreeMap<InstanceId, u64>,
    /// What each agent's observations hold of each epoch: the last sequence of each batch by its first.
    observed: BTreeMap<(String, u64), BTreeMap<u64, u64>>,
    /// The same of the changes of objects that each agent saw.
    objects: BTreeMap<(String, u64), BTreeMap<u64, u64>>,
    /// Epochs that have begun without a statement of the inventory so far.
    unstated: BTreeSet<(String, u64)>,
    finished: BTreeSet<(SyncId, u32)>,
    acknowledged: Vec<Acknowledged>,
    violations: Vec<String>,
    stored: u64,
}

impl Audit {
    /// Compares commits with a history from now on, and tells of who is let in.
    pub(crate) fn know(&mut self, forge: Forge, access: Access) {
        (self.forge, self.access) = (Some(forge), Some(access));
    }

    /// Compares what an agent says with its cluster from now on.
    pub(crate) fn know_cluster(&mut self, agent: AgentId, told: Reported) {
        self.clusters.insert(agent, told);
    }

    /// What is said of an agent's cluster.
    pub(crate) fn told_of(&self, agent: AgentId) -> Option<&Reported> {
        self.clusters.get(&agent)
    }

    /// What is exported, and what is to be.
    pub(crate) const fn exports(&mut self) -> &mut Exports {
        &mut self.exports
    }

    /// The first thing that does not hold.
    #[must_use]
    pub fn violation(&self) -> Option<&String> {
        self.violations.first()
    }

    /// Records that were stored.
    #[must_use]
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// The newest epoch that an instance was named for.
    #[must_use]
    pub fn epoch_of(&self, instance: InstanceId) -> Option<u64> {
        self.named.get(&instance).copied()
    }

    /// Everything that somebody was told is stored.
    pub fn acknowledged(&self) -> impl Iterator<Item = &Acknowledged> {
        self.acknowledged.iter()
    }

    /// An agent of whose newest epoch something is missing, once nothing is on its way any more.
    #[must_use]
    pub fn gap(&self) -> Option<String> {
        let streams = [("observations", &self.observed), ("objects", &self.objects)];
        self.epochs.iter().find_map(|(writer, epoch)| {
            streams.iter().find_map(|(stream, batches)| {
                let mut next = 1;
                for (first, last) in batches.get(&(writer.clone(), *epoch))? {
                    if *first > next {
                        let there = format!("{next} of epoch {epoch} is missing, {first} is there");
                        return Some(format!("{writer}: {stream}: {there}"));
                    }
                    next = next.max(last + 1);
                }
                None
            })
        })
    }

    pub(crate) fn note_acknowledged(&mut self, stream: &str, sequence: u64, id: Option<String>) {
        let kept_for_good =
            ["kasbah-decisions", "kasbah-observations", "kasbah-objects", "kasbah-refusals", "kasbah-audit"];
        if kept_for_good.iter().any(|name| stream.starts_with(name)) {
            self.acknowledged.push((stream.to_owned(), sequence, id));
        }
    }

    pub(crate) fn note_stored(&mut self, stream: &str, stored: &Stored, now: Duration) {
        self.stored += 1;
        if stream.starts_with("kasbah-decisions") {
            match events::decode::<Commit>(&stored.payload) {
                Ok(commit) => {
                    self.note_commit(&commit, &stored.payload);
                    let source = (Stream::Decisions, commit.organization, Some(&commit));
                    self.exports.stored(&recorded(source, stored), now);
                }
                Err(error) => self.violations.push(format!("a commit is not readable: {error}")),
            }
        } else if stream.starts_with("kasbah-observations") {
            match events::decode::<ObservationBatch>(&stored.payload) {
                Ok(batch) => {
                    self.note_batch(&batch);
                    let source = (Stream::Observations, batch.organization, None);
                    self.exports.stored(&recorded(source, stored), now);
                }
                Err(error) => self.violations.push(format!("observations are not readable: {error}")),
            }
        } else if stream.starts_with("kasbah-objects") {
            match events::decode::<ObservationBatch>(&stored.payload) {
                Ok(batch) => self.note_objects(&batch),
                Err(error) => self.violations.push(format!("changes of objects are not readable: {error}")),
            }
        } else if stream.starts_with("kasbah-exports") {
            let exported = CloudEvent::from_json(&stored.payload);
            let judged = exported.and_then(|event| self.exports.exported(event, now));
            self.violations.extend(judged.err());
        } else if stream.starts_with("kasbah-audit") {
            match (events::decode::<AuditBatch>(&stored.payload), &self.access) {
                (Ok(batch), Some(access)) => access.recorded(batch),
                (Ok(_), None) => {}
                (Err(error), _) => self.violations.push(format!("audit records are not readable: {error}")),
            }
        }
    }

    fn note_commit(&mut self, commit: &Commit, bytes: &[u8]) {
        let aggregate = self.aggregates.entry((commit.organization, commit.aggregate.clone())).or_default();
        let wrong = if commit.version != aggregate.version + 1 {
            Some(format!("version {} follows {}", commit.version, aggregate.version))
        } else if commit.previous != aggregate.hash {
            Some(format!("version {} does not name the hash of the one before", commit.version))
        } else if !aggregate.commits.insert(commit.id) {
            Some(format!("commit {} is there twice", commit.id))
        } else {
            None
        };
        aggregate.version = commit.version;
        aggregate.hash = ChainHash::of(bytes);
        if let Some(wrong) = wrong {
            self.violations.push(format!("{}: {wrong}", commit.aggregate));
        }
        for event in &commit.events {
            if !self.events.insert(event.id) {
                self.violations.push(format!("event {} is there twice", event.id));
            }
            match Event::decode(&event.body) {
                Ok(event) => self.note_event(commit, &event),
                Err(error) => {
                    self.violations.push(format!("{}: an event is not readable: {error}", commit.aggregate))
                }
            }
        }
    }

    fn note_event(&mut self, commit: &Commit, event: &Event) {
        if let Event::Delivery(event) = event {
            let judged = self.clusters.values_mut().map(|told| told.decided(event));
            self.violations.extend(judged.filter_map(Result::err));
        }
        match event {
            Event::Repository(RepositoryEvent::SourceAdvanced(advanced)) => {
                self.comes_to(format!("source {}", advanced.source), &advanced.commit);
            }
            Event::Configuration(ConfigurationEvent::ConfigurationChanged(changed)) => {
                self.comes_to(format!("configuration of {}", changed.agent), &changed.commit);
                self.access.iter().for_each(|access| access.configured(changed));
            }
            Event::Directory(DirectoryEvent::TokenRevoked(revoked)) => {
                self.access.iter().for_each(|access| access.revoked(revoked.token));
            }
            Event::Delivery(DeliveryEvent::ApplierNamed(named)) => {
                self.epochs.insert(ObservationBatch::agent_writer(named.agent), commit.version);
                self.named.insert(named.instance, commit.version);
                let told = self.clusters.get_mut(&named.agent);
                told.into_iter().for_each(|told| told.named(commit.version, named.instance));
            }
            Event::Delivery(DeliveryEvent::SyncFinished(finished))
                if !self.finished.insert((finished.sync, finished.run)) =>
            {
                self.violations.push(format!("run {} of sync {} ends twice", finished.run, finished.sync));
            }
            _ => {}
        }
    }

    /// Nothing older is said after something newer.
    fn comes_to(&mut self, who: String, commit: &str) {
        let Some(place) = self.forge.as_ref().and_then(|forge| forge.place_of(commit)) else { return };
        let reached = self.reached.entry(who.clone()).or_default();
        if place < *reached {
            self.violations.push(format!("{who} goes back to commit {place} of the history, from {reached}"));
        }
        *reached = (*reached).max(place);
    }

    fn note_objects(&mut self, batch: &ObservationBatch) {
        let named = self.epochs.get(&batch.writer).copied().unwrap_or(0);
        if batch.epoch > named {
            let (writer, epoch) = (&batch.writer, batch.epoch);
            self.violations.push(format!("{writer} saw objects in epoch {epoch}, {named} is the newest"));
        }
        let belongs = |what: &Observed| what.is_of_objects() || matches!(what, Observed::Gap { .. });
        if let Some(other) = batch.observations.iter().find(|observation| !belongs(&observation.what)) {
            self.violations.push(format!("{} is no change of an object", other.what.kind()));
        }
        let batches = self.objects.entry((batch.writer.clone(), batch.epoch)).or_default();
        let last = batches.entry(batch.first).or_default();
        *last = (*last).max(batch.first + batch.observations.len() as u64 - 1);
    }

    fn note_batch(&mut self, batch: &ObservationBatch) {
        if !batch.writer.starts_with("agent-") {
            return;
        }
        let named = self.epochs.get(&batch.writer).copied().unwrap_or(0);
        if batch.epoch > named {
            self.violations
                .push(format!("{} writes in epoch {}, {named} is the newest", batch.writer, batch.epoch));
        }
        let epoch = (batch.writer.clone(), batch.epoch);
        let batches = self.observed.entry(epoch.clone()).or_default();
        if batch.first == 1 && !batches.contains_key(&1) {
            self.unstated.insert(epoch.clone());
        }
        let last = batches.entry(batch.first).or_default();
        *last = (*last).max(batch.first + batch.observations.len() as u64 - 1);
        let agent =
            |(agent, _): &(&AgentId, &mut Reported)| ObservationBatch::agent_writer(**agent) == batch.writer;
        let told = self.clusters.iter_mut().find(agent);
        self.violations.extend(told.and_then(|(_, told)| told.observed(batch).err()));
        // An applier that does not reach its API server can say nothing but that.
        let of_the_cluster = |what: &&Observed| {
            !matches!(what, Observed::ApiServerLost { .. } | Observed::ApiServerReached {})
        };
        let first = batch.observations.iter().map(|one| &one.what).find(of_the_cluster);
        if let Some(first) = first
            && self.unstated.remove(&epoch)
            && !matches!(first, Observed::InventoryStated { .. })
        {
            self.violations
                .push(format!("{}: epoch {} begins without a statement", batch.writer, batch.epoch));
        }
    }
}

fn recorded<'a>(
    (stream, organization, commit): (Stream, OrganizationId, Option<&'a Commit>),
    stored: &'a Stored,
) -> Recorded<'a> {
    Recorded { stream, recorded_at: stored.recorded_at, organization, bytes: &stored.payload, commit }
}
