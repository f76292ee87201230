//! What the log says of the health of a cluster's Deployments and of the syncs that wait for it, held against what was true.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use events::delivery::{DeliveryEvent, SyncOutcome};
use events::observation::{Observation, ObservationBatch, Observed, Write};
use events::{AgentId, InstanceId, ObjectIdentity, SourceId, SyncId, Timestamp};

use super::truth::SharedTruth;
use super::{NAMESPACE, SharedInstances};
use crate::executor::Executor;
use crate::forge::Forge;
use crate::people::{SOURCES, SharedPushes, never_available, source_of};

/// As the log says it.
const HEALTHY: &str = "healthy";

/// An epoch of the agent.
struct Epoch {
    instance: InstanceId,
    named_at: Duration,
    /// When what was read last was told, at the earliest.
    told_at: Duration,
    /// The sequence of the observation that is read next.
    next: u64,
    /// What came before its turn.
    early: BTreeMap<u64, Observation>,
    /// When the run of each sync began that has not ended.
    began: BTreeMap<SyncId, Duration>,
    /// The first moment of each Deployment that its newest word may be about.
    reached: BTreeMap<String, usize>,
}

/// What a source is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    sync: SyncId,
    commit: String,
}

/// Everything that was said of one agent's cluster.
pub(crate) struct Reported {
    agent: AgentId,
    executor: Executor,
    forge: Forge,
    truth: SharedTruth,
    pushes: SharedPushes,
    instances: SharedInstances,
    epochs: BTreeMap<u64, Epoch>,
    wanted: BTreeMap<SourceId, Wanted>,
    /// Which commit of which source each sync is to bring.
    syncs: BTreeMap<SyncId, (SourceId, String)>,
    /// Syncs of which the agent said that all is applied and healthy.
    succeeded: BTreeSet<SyncId>,
    /// How the last run of each source ended.
    ended: BTreeMap<SourceId, (SyncId, SyncOutcome)>,
    /// The last word on each Deployment, and of which epoch it is.
    words: BTreeMap<String, (u64, String)>,
}

/// What is known of a cluster without the log.
pub(crate) struct Known {
    pub(crate) forge: Forge,
    pub(super) truth: SharedTruth,
    pub(super) pushes: SharedPushes,
    pub(super) instances: SharedInstances,
}

impl Reported {
    pub(super) fn new(executor: &Executor, agent: AgentId, known: Known) -> Self {
        let Known { forge, truth, pushes, instances } = known;
        Self {
            agent,
            executor: executor.clone(),
            forge,
            truth,
            pushes,
            instances,
            epochs: BTreeMap::new(),
            wanted: BTreeMap::new(),
            syncs: BTreeMap::new(),
            succeeded: BTreeSet::new(),
            ended: BTreeMap::new(),
            words: BTreeMap::new(),
        }
    }

    /// An instance was named for an epoch.
    pub(crate) fn named(&mut self, epoch: u64, instance: InstanceId) {
        self.epochs.entry(epoch).or_insert_with(|| Epoch {
            instance,
            named_at: self.executor.now(),
            told_at: self.executor.now(),
            next: 1,
            early: BTreeMap::new(),
            began: BTreeMap::new(),
            reached: BTreeMap::new(),
        });
    }

    /// Something was decided.
    pub(crate) fn decided(&mut self, event: &DeliveryEvent) -> Result<(), String> {
        match event {
            DeliveryEvent::BundleDesired(desired) if desired.agent == self.agent => {
                self.is_to_bring(desired.source, desired.sync, desired.commit.clone());
            }
            DeliveryEvent::SyncRequested(requested) => {
                if let Some(Wanted { commit, .. }) = self.wanted.get(&requested.source).cloned() {
                    self.is_to_bring(requested.source, requested.sync, commit);
                }
            }
            DeliveryEvent::SourceRemoved(removed) if removed.agent == self.agent => {
                self.wanted.remove(&removed.source);
                // It brings nothing.
                let sync = removed.sync.map(|sync| (sync, (removed.source, String::new())));
                self.syncs.extend(sync);
            }
            DeliveryEvent::SyncFinished(finished) if self.syncs.contains_key(&finished.sync) => {
                self.ended.insert(finished.source, (finished.sync, finished.outcome));
                let sync = finished.sync;
                if finished.outcome == SyncOutcome::Succeeded && !self.succeeded.contains(&sync) {
                    return Err(format!("sync {sync} succeeded, as nobody said who ran it"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_to_bring(&mut self, source: SourceId, sync: SyncId, commit: String) {
        self.syncs.insert(sync, (source, commit.clone()));
        self.wanted.insert(source, Wanted { sync, commit });
    }

    /// Observations were stored; each is read once, and in the order in which it was told.
    pub(crate) fn observed(&mut self, batch: &ObservationBatch) -> Result<(), String> {
        let Some(epoch) = self.epochs.get_mut(&batch.epoch) else { return Ok(()) };
        let numbered = (batch.first..).zip(&batch.observations);
        let news = numbered.filter(|(number, _)| *number >= epoch.next);
        epoch.early.extend(news.map(|(number, observation)| (number, observation.clone())));
        while let Some(epoch) = self.epochs.get_mut(&batch.epoch)
            && let Some(observation) = epoch.early.remove(&epoch.next)
        {
            epoch.next += 1;
            self.read(batch.epoch, &observation)?;
        }
        Ok(())
    }

    fn read(&mut self, epoch: u64, observation: &Observation) -> Result<(), String> {
        let (told_at, at_last) = self.when(epoch, observation.at);
        match &observation.what {
            Observed::SyncStarted { sync, .. } => {
                if let Some(epoch) = self.epochs.get_mut(&epoch) {
                    epoch.began.insert(*sync, told_at);
                }
                Ok(())
            }
            Observed::SyncFinished { sync, outcome, .. } => {
                let began = self.epochs.get_mut(&epoch).and_then(|epoch| epoch.began.remove(sync));
                if *outcome != SyncOutcome::Succeeded {
                    return Ok(());
                }
                self.succeeded.insert(*sync);
                let began = began.ok_or_else(|| format!("sync {sync} ended and never began"))?;
                self.succeeds(*sync, (began, at_last))
            }
            Observed::HealthChanged { identity, status, .. } if is_deployment(identity) => {
                self.word(epoch, &identity.name, status);
                self.is_said(epoch, &identity.name, status)
            }
            // What is healthy from the start is no news.
            Observed::ObjectApplied { object, write: Write::Created, .. }
                if is_deployment(&object.identity) =>
            {
                self.word(epoch, &object.identity.name, HEALTHY);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What an applier before said may come later.
    fn word(&mut self, epoch: u64, name: &str, status: &str) {
        if self.words.get(name).is_none_or(|(other, _)| *other <= epoch) {
            self.words.insert(name.to_owned(), (epoch, status.to_owned()));
        }
    }

    /// When something was told at the earliest, behind what was told before it, and at the latest: when the agent's clock showed this.
    fn when(&mut self, epoch: u64, shown: Timestamp) -> (Duration, Duration) {
        let now = self.executor.now();
        let Some(epoch) = self.epochs.get_mut(&epoch) else { return (Duration::ZERO, now) };
        let life = self.instances.lock().get(&epoch.instance).copied();
        let told_at = life.and_then(|life| self.executor.when(life.node, shown.0, epoch.told_at));
        let (first, last) = told_at.unwrap_or((epoch.told_at, now));
        epoch.told_at = first;
        (first, last.min(now))
    }

    /// Each Deployment of its commit was there and available at some moment since it began; one that is as it was, at some moment since the
    /// agent saw it last.
    fn succeeds(&self, sync: SyncId, (began, ended): (Duration, Duration)) -> Result<(), String> {
        let Some((source, commit)) = self.syncs.get(&sync) else { return Ok(()) };
        let (Some(place), Some(number)) = (self.forge.place_of(commit), self.number_of(*source)) else {
            return Ok(());
        };
        let deployments = self.pushes.lock().deployments_at(number, place);
        let truth = self.truth.lock();
        let since = truth.seen_since(began);
        let wrong =
            deployments.iter().find(|(name, value)| !truth.was_available(name, *value, (since, ended)));
        wrong.map_or(Ok(()), |(name, value)| {
            Err(format!(
                "a wrong healthy: sync {sync} of commit {place} succeeded, and since {since:?}, before it began at {began:?}, until {ended:?}, {name} never was available as {value}: {}",
                truth.words(name)
            ))
        })
    }

    fn number_of(&self, source: SourceId) -> Option<u64> {
        (0..SOURCES).find(|number| SourceId::derive(self.agent, &format!("source-{number}")) == source)
    }

    /// What is said of a Deployment, one word after the other, was true in this order.
    fn is_said(&mut self, epoch: u64, name: &str, status: &str) -> Result<(), String> {
        let Some(known) = self.epochs.get_mut(&epoch) else { return Ok(()) };
        let truth = self.truth.lock();
        let from = known.reached.get(name).copied().unwrap_or_else(|| truth.at(name, known.named_at));
        let Some(moment) = truth.first(name, from, status == HEALTHY) else {
            let wrong = if status == HEALTHY { "a wrong healthy: " } else { "" };
            return Err(format!(
                "{wrong}{name} is said to be {status}, and never was since it was said otherwise"
            ));
        };
        known.reached.insert(name.to_owned(), moment);
        Ok(())
    }

    /// How what the log says last differs from what is true and wanted, once nothing is on its way any more.
    pub(crate) fn difference(&self, wanted: &BTreeMap<String, u64>, sources: &[u64]) -> Option<String> {
        let deployments = wanted.iter().filter(|(name, _)| crate::people::is_deployment(name));
        let wrong = deployments.clone().find_map(|(name, value)| {
            let becomes = !never_available(*value);
            if self.truth.lock().now(name) != Some((*value, becomes)) {
                return Some(format!("{name} is not yet what becomes of {value}"));
            }
            let word = self.words.get(name);
            let said = word.map_or(HEALTHY, |(_, word)| word);
            ((said == HEALTHY) != becomes)
                .then(|| format!("{name} is said to be {said}, and available is {becomes}"))
        });
        wrong.or_else(|| {
            sources.iter().find_map(|number| {
                let source = SourceId::derive(self.agent, &format!("source-{number}"));
                let mut own = deployments.clone().filter(|(name, _)| source_of(name) == Some(*number));
                let never = own.any(|(_, value)| never_available(*value));
                let outcome = if never { SyncOutcome::Unhealthy } else { SyncOutcome::Succeeded };
                let sync = self.wanted.get(&source).map(|wanted| wanted.sync);
                let ended = self.ended.get(&source).copied();
                (ended != sync.map(|sync| (sync, outcome)))
                    .then(|| format!("sync {sync:?} of source {number} is to end {outcome:?}: {ended:?}"))
            })
        })
    }
}

fn is_deployment(identity: &ObjectIdentity) -> bool {
    (identity.group.as_str(), identity.kind.as_str(), identity.namespace.as_str())
        == ("apps", "Deployment", NAMESPACE)
}
