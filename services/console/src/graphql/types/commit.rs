//! The commits of a source and the outcome of each, read from the log once delivery has said that the caller may see the source.

use std::collections::BTreeMap;

use async_graphql::{ID, SimpleObject};
use events::configuration::FileFinding;
use events::delivery::{BundleDesired, DeliveryEvent, SyncFinished};
use events::repository::RepositoryEvent;
use events::{Actor, CorrelationId, Envelope, Event, SourceId, SyncId, Timestamp};
use store::Record;

use super::scalar::Time;
use super::source::{SyncCounts, SyncFailure, SyncOutcome, in_words};

/// Findings of a rejected commit that an answer holds.
const FINDINGS: usize = 100;
/// Syncs of one commit that an answer holds: the newest.
const SYNCS: usize = 10;

/// Something wrong or odd in a file.
#[derive(Debug, Clone, SimpleObject)]
pub struct Finding {
    /// Path from the repository's root; empty where no file is meant.
    file: String,
    /// Line, from 1; 0 when the file as a whole is meant.
    line: u32,
    /// Column, from 1; 0 when the line as a whole is meant.
    column: u32,
    /// The field, such as `sources[0].ref`; empty when none is meant.
    field: String,
    /// What is wrong, and what is allowed.
    message: String,
}

impl From<FileFinding> for Finding {
    fn from(finding: FileFinding) -> Self {
        let FileFinding { file, line, column, field, message } = finding;
        Self { file, line, column, field, message }
    }
}

/// A commit of a source, and what became of it.
#[derive(Debug, Clone, SimpleObject)]
pub struct SourceCommit {
    /// The Git commit.
    commit: String,
    /// When it was read, or, where that was not for this source, first named.
    at: Time,
    /// The chain of what followed, as the log has it.
    chain: ID,
    /// How many objects it has; null for one that was rejected.
    objects: Option<u32>,
    /// When it was rejected, if it was.
    rejected_at: Option<Time>,
    /// What was wrong with it.
    findings: Vec<Finding>,
    /// How many findings were left out.
    more_findings: u32,
    /// When it began to wait for confirmation, if it did.
    held_at: Option<Time>,
    /// Why it waited.
    held_reason: Option<String>,
    /// When somebody confirmed it.
    confirmed_at: Option<Time>,
    /// Who did.
    confirmed_by: Option<String>,
    /// When somebody pinned the source to it last.
    pinned_at: Option<Time>,
    /// Who did.
    pinned_by: Option<String>,
    /// When it last became what the agent is to have.
    desired_at: Option<Time>,
    /// How many objects were to be pruned with it.
    prunes: u32,
    /// Its syncs, the newest first.
    syncs: Vec<CommitSync>,
}

/// A sync that brought a commit.
#[derive(Debug, Clone, SimpleObject)]
pub struct CommitSync {
    /// Its id.
    id: ID,
    /// When its last run began in the cluster.
    started_at: Option<Time>,
    /// When that ended.
    finished_at: Option<Time>,
    /// How it ended.
    outcome: Option<SyncOutcome>,
    /// Its last run, from 1.
    run: u32,
    /// Its objects in numbers.
    counts: SyncCounts,
    /// The first failures.
    failures: Vec<SyncFailure>,
}

/// Something that a person did with a source as a whole.
#[derive(Debug, Clone, SimpleObject)]
pub struct SourceDeed {
    /// When.
    at: Time,
    /// What: `suspended`, `resumed`, `pinned`, `unpinned`, `confirmed` or `sync requested`.
    what: String,
    /// Who: a login name if you may see it, else what kind of actor.
    by: String,
    /// The reason that they gave, or the commit.
    detail: Option<String>,
    /// The chain of what followed, as the log has it.
    chain: ID,
}

/// The history of one source, as the log has it.
#[derive(Debug, Default)]
pub(in crate::graphql) struct SourceHistory {
    commits: BTreeMap<String, SourceCommit>,
    /// Which commit a sync brings.
    syncs: BTreeMap<SyncId, String>,
    deeds: Vec<SourceDeed>,
    names: BTreeMap<Actor, String>,
}

impl SourceHistory {
    /// With names of people, for those that are known.
    pub(in crate::graphql) fn with(names: BTreeMap<Actor, String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Takes the events of a record that are of the source.
    pub(in crate::graphql) fn take(&mut self, record: &Record, source: SourceId) {
        let envelopes = record.commit().into_iter().flat_map(|commit| commit.envelopes());
        for envelope in envelopes {
            match Event::decode(&envelope.body) {
                Ok(Event::Repository(event)) => self.read(&envelope, event, source),
                Ok(Event::Delivery(event)) => self.delivered(&envelope, event),
                // Events of newer servers are left out.
                _ => {}
            }
        }
    }

    /// The newest commits, the newest first.
    pub(in crate::graphql) fn commits(self, first: usize) -> Vec<SourceCommit> {
        let mut commits: Vec<SourceCommit> = self.commits.into_values().collect();
        commits.sort_by(|one, other| other.at.0.cmp(&one.at.0).then_with(|| one.commit.cmp(&other.commit)));
        commits.truncate(first);
        for commit in &mut commits {
            commit.syncs.reverse();
            commit.syncs.truncate(SYNCS);
        }
        commits
    }

    /// What people did last, the newest first.
    pub(in crate::graphql) fn deeds(mut self, first: usize) -> Vec<SourceDeed> {
        self.deeds.reverse();
        self.deeds.truncate(first);
        self.deeds
    }

    fn read(&mut self, envelope: &Envelope, event: RepositoryEvent, source: SourceId) {
        match event {
            RepositoryEvent::SourceAdvanced(advanced) if advanced.source == source => {
                let commit = self.commit(envelope, &advanced.commit);
                commit.objects = Some(advanced.objects);
                commit.rejected_at = None;
            }
            RepositoryEvent::BundleRejected(rejected) if rejected.source == source => {
                let left_out =
                    u32::try_from(rejected.findings.len().saturating_sub(FINDINGS)).unwrap_or(u32::MAX);
                let commit = self.commit(envelope, &rejected.commit);
                commit.rejected_at = Some(Time(envelope.occurred_at));
                commit.more_findings = rejected.more.saturating_add(left_out);
                commit.findings = rejected.findings.into_iter().take(FINDINGS).map(Finding::from).collect();
            }
            _ => {}
        }
    }

    fn delivered(&mut self, envelope: &Envelope, event: DeliveryEvent) {
        let at = Some(Time(envelope.occurred_at));
        match event {
            DeliveryEvent::BundleDesired(desired) => self.desired(envelope, &desired),
            DeliveryEvent::BundleHeld(held) => {
                let commit = self.commit(envelope, &held.commit);
                (commit.held_at, commit.held_reason) = (at, Some(in_words(&held.reason)));
            }
            DeliveryEvent::BundleConfirmed(confirmed) => {
                let by = self.deed(envelope, "confirmed", Some(confirmed.commit.clone()));
                let commit = self.commit(envelope, &confirmed.commit);
                (commit.confirmed_at, commit.confirmed_by) = (at, Some(by));
            }
            DeliveryEvent::SourcePinned(pinned) => {
                let by = self.deed(envelope, "pinned", Some(pinned.commit.clone()));
                let commit = self.commit(envelope, &pinned.commit);
                (commit.pinned_at, commit.pinned_by) = (at, Some(by));
                commit.objects = Some(pinned.objects);
            }
            DeliveryEvent::SourceUnpinned(_) => drop(self.deed(envelope, "unpinned", None)),
            DeliveryEvent::SourceSuspended(suspended) => {
                let reason = Some(suspended.reason).filter(|reason| !reason.is_empty());
                self.deed(envelope, "suspended", reason);
            }
            DeliveryEvent::SourceResumed(_) => drop(self.deed(envelope, "resumed", None)),
            DeliveryEvent::SyncRequested(requested) => {
                self.deed(envelope, "sync requested", None);
                // It brings what the sync before it brought.
                let last = self.commits.values().max_by_key(|commit| commit.desired_at.map(|at| at.0));
                if let Some(commit) = last.map(|commit| commit.commit.clone()) {
                    self.begin(requested.sync, &commit);
                }
            }
            DeliveryEvent::SyncStarted(started) => {
                if let Some(sync) = self.sync(started.sync) {
                    (sync.started_at, sync.run) = (at, started.run);
                    (sync.finished_at, sync.outcome) = (None, None);
                }
            }
            DeliveryEvent::SyncFinished(finished) => self.finished(envelope.occurred_at, finished),
            DeliveryEvent::SourceRemoved(_) | DeliveryEvent::ApplierNamed(_) => {}
        }
    }

    fn desired(&mut self, envelope: &Envelope, desired: &BundleDesired) {
        let commit = self.commit(envelope, &desired.commit);
        commit.desired_at = Some(Time(envelope.occurred_at));
        commit.objects = Some(desired.objects);
        commit.prunes = desired.prunes;
        self.begin(desired.sync, &desired.commit);
    }

    fn begin(&mut self, id: SyncId, commit: &str) {
        self.syncs.insert(id, commit.to_owned());
        if let Some(commit) = self.commits.get_mut(commit) {
            commit.syncs.push(CommitSync {
                id: id.to_string().into(),
                started_at: None,
                finished_at: None,
                outcome: None,
                run: 0,
                counts: SyncCounts::default(),
                failures: Vec::new(),
            });
        }
    }

    fn finished(&mut self, at: Timestamp, finished: SyncFinished) {
        if let Some(sync) = self.sync(finished.sync) {
            sync.finished_at = Some(Time(at));
            sync.outcome = Some(finished.outcome.into());
            sync.run = finished.run;
            sync.counts = finished.counts.into();
            sync.failures = finished.failures.into_iter().map(SyncFailure::from).collect();
        }
    }

    fn sync(&mut self, id: SyncId) -> Option<&mut CommitSync> {
        let commit = self.commits.get_mut(self.syncs.get(&id)?)?;
        let id = ID::from(id.to_string());
        commit.syncs.iter_mut().rev().find(|sync| sync.id == id)
    }

    fn deed(&mut self, envelope: &Envelope, what: &str, detail: Option<String>) -> String {
        let by = self.names.get(&envelope.actor).cloned().unwrap_or_else(|| kind_of(&envelope.actor));
        self.deeds.push(SourceDeed {
            at: Time(envelope.occurred_at),
            what: what.to_owned(),
            by: by.clone(),
            detail,
            chain: chain(envelope.correlation_id),
        });
        by
    }

    fn commit(&mut self, envelope: &Envelope, commit: &str) -> &mut SourceCommit {
        self.commits.entry(commit.to_owned()).or_insert_with(|| SourceCommit {
            commit: commit.to_owned(),
            at: Time(envelope.occurred_at),
            chain: chain(envelope.correlation_id),
            objects: None,
            rejected_at: None,
            findings: Vec::new(),
            more_findings: 0,
            held_at: None,
            held_reason: None,
            confirmed_at: None,
            confirmed_by: None,
            pinned_at: None,
            pinned_by: None,
            desired_at: None,
            prunes: 0,
            syncs: Vec::new(),
        })
    }
}

/// People in records of a source, so that their names can be asked for.
pub(in crate::graphql) fn people(records: &[Record]) -> impl Iterator<Item = Actor> + '_ {
    let actors = records.iter().rev().filter_map(|record| record.commit()).map(|commit| commit.actor.clone());
    actors.filter(|actor| matches!(actor, Actor::User(_)))
}

fn kind_of(actor: &Actor) -> String {
    match actor {
        Actor::User(_) => "a user".to_owned(),
        Actor::Agent(_) => "an agent".to_owned(),
        Actor::Job(_) => "a CI job".to_owned(),
        Actor::Service(name) => name.clone(),
    }
}

fn chain(id: CorrelationId) -> ID {
    id.to_string().into()
}
