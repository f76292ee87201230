//! The fold: records of the log into [`DeliveryState`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use events::configuration::{ConfigurationChanged, ConfigurationEvent, ConfigurationRejected};
use events::delivery::{DeliveryEvent, SyncOutcome};
use events::desired::ConfigurationRejection;
use events::directory::DirectoryEvent;
use events::object::{GroupKind, ObjectKey};
use events::observation::{Observation, ObservationBatch, Observed, OwnedObject, Write};
use events::position::Stream;
use events::repository::RepositoryEvent;
use events::requests::delivery::RejectedBundle;
use events::{AgentId, AggregateKind, Commit, Event, EventId, OrganizationId, SourceId, SyncId, Timestamp};
use store::{Committed, Fact, Projection, ReadFilter};

use super::seen::{owned, written_before};
use super::status::rejection;
use super::{
    AgentState, Bundle, Cause, DeliveryState, Desired, Held, Owned, Recorded, Removal, SourceState, SyncEnd,
    SyncObserved,
};

mod inventory;
mod subject;
mod syncs;

use subject::source_of;
use syncs::{apply_desired, apply_end, apply_requested, apply_started};

/// The first version that kept how objects and agents stand. Version 6 had no warnings of bundles either.
const KEEPS_HOW_OBJECTS_STAND: u32 = 9;
/// Letters that are kept of why a configuration was rejected.
const REASON: usize = 500;
/// Syncs of a source that are remembered while none of them is recorded: an agent that is away for long runs the newest.
const AWAITED: usize = 64;

impl Projection for DeliveryState {
    const NAME: &'static str = "delivery";
    const FOLD_VERSION: u32 = 12;
    const SNAPSHOT_EVERY: u64 = 5_000;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[
            AggregateKind::Agent,
            AggregateKind::Configuration,
            AggregateKind::Ref,
            AggregateKind::Source,
            AggregateKind::Applier,
        ])
        .and(Stream::Observations)
    }

    fn start() -> Self {
        Self::default()
    }

    /// A new projection treats every record as unseen.
    fn restore(fold_version: u32, bytes: &[u8]) -> Option<Self> {
        let readable = (6..=Self::FOLD_VERSION).contains(&fold_version);
        let mut state: Self = readable.then(|| events::decode(bytes).ok()).flatten()?;
        if fold_version < KEEPS_HOW_OBJECTS_STAND {
            state.clear_objects();
        }
        let Self { agents, sources, news, .. } = &mut state;
        sources.keys().for_each(|source| news.touch(*source));
        agents.keys().for_each(|agent| news.desired_changed(*agent));
        Some(state)
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        match fact {
            Fact::Commit(committed) => self.apply_commit(committed),
            Fact::Batch(batch) => {
                if let Some(batch) = batch.observations() {
                    self.apply_batch(&batch);
                }
            }
        }
    }
}

impl DeliveryState {
    fn apply_commit(&mut self, committed: Committed<'_, Event>) {
        let Committed { commit, events, .. } = committed;
        let mut rebundled = BTreeSet::new();
        for (id, event) in events {
            rebundled.extend(self.agent_with_other_bundles(&event));
            match event {
                Event::Directory(event) => self.apply_directory(commit.organization, &event),
                Event::Configuration(ConfigurationEvent::ConfigurationChanged(changed)) => {
                    self.apply_configuration(commit.organization, changed);
                }
                Event::Configuration(ConfigurationEvent::ConfigurationRejected(rejected)) => {
                    self.apply_rejection(commit.organization, &rejected, commit.occurred_at);
                }
                Event::Repository(event) => self.apply_repository(commit, id, event),
                Event::Delivery(event) => self.apply_delivery(commit, id, event),
                Event::Environment(_) | Event::Subscription(_) => {}
            }
        }
        self.touch_siblings_in(&rebundled);
    }

    /// The agent whose sources have other bundles from this event on.
    fn agent_with_other_bundles(&self, event: &Event) -> Option<AgentId> {
        match event {
            Event::Configuration(ConfigurationEvent::ConfigurationChanged(changed)) => Some(changed.agent),
            Event::Repository(RepositoryEvent::SourceAdvanced(advanced)) => {
                let newest = self.sources.get(&advanced.source).and_then(|state| state.newest.as_ref());
                let is_other = newest.is_none_or(|newest| {
                    (newest.digest, newest.selection) != (advanced.bundle, advanced.selection)
                });
                is_other.then_some(advanced.agent)
            }
            Event::Delivery(DeliveryEvent::BundleDesired(desired)) => {
                let state = self.sources.get(&desired.source)?;
                let is_other = state.desired.as_ref().is_none_or(|before| {
                    (before.bundle, &before.wanted) != (desired.bundle, &desired.wanted)
                });
                is_other.then_some(state.agent)
            }
            Event::Delivery(
                event @ (DeliveryEvent::SourcePinned(_)
                | DeliveryEvent::SourceUnpinned(_)
                | DeliveryEvent::SourceRemoved(_)),
            ) => self.sources.get(&source_of(event)?).map(|state| state.agent),
            _ => None,
        }
    }

    /// What a source may not delete or apply because another one's bundle has it, it may once that bundle is another.
    fn touch_siblings_in(&mut self, agents: &BTreeSet<AgentId>) {
        let sources = agents.iter().flat_map(|agent| self.sources_of(*agent));
        let affected =
            sources.filter(|(_, state)| !state.inventory.is_empty() || state.candidate().is_some());
        for source in affected.map(|(id, _)| id).collect::<Vec<_>>() {
            self.touch(source);
        }
    }

    fn apply_directory(&mut self, organization: OrganizationId, event: &DirectoryEvent) {
        match event {
            DirectoryEvent::AgentRegistered(registered) => {
                let agent = self.agent(organization, registered.agent);
                agent.name.clone_from(&registered.name);
                agent.replaces.clone_from(&registered.replaces);
            }
            DirectoryEvent::AgentDeleted(deleted) => {
                self.agent(organization, deleted.agent).deleted = true;
                self.desired_changed(deleted.agent);
            }
            _ => {}
        }
    }

    /// The agent is to know it, too.
    fn apply_rejection(
        &mut self,
        organization: OrganizationId,
        rejected: &ConfigurationRejected,
        at: Timestamp,
    ) {
        let agent = self.agent(organization, rejected.agent);
        let since = agent.rejected.as_ref().map_or(at, |before| before.since);
        let reason = rejection(rejected.commit.as_deref(), &rejected.findings, rejected.findings.len());
        let reason = reason.chars().take(REASON).collect();
        agent.rejected = Some(ConfigurationRejection { since, reason });
        self.desired_changed(rejected.agent);
    }

    fn apply_configuration(&mut self, organization: OrganizationId, changed: ConfigurationChanged) {
        let agent_id = changed.agent;
        let named: BTreeSet<SourceId> =
            changed.configuration.sources.iter().map(|source| source.id).collect();
        for source in &changed.configuration.sources {
            let state = self.source(organization, agent_id, source.id);
            if (state.organization, state.agent) != (organization, agent_id) {
                *state = SourceState::new(organization, agent_id);
            }
            if state.configuration.as_ref().is_none_or(|before| {
                (&before.default_namespace, &before.policies) != (&source.default_namespace, &source.policies)
            }) {
                // The same bundle may delete something else now.
                state.confirmed_bundle = None;
            }
            state.configuration = Some(source.clone());
            if !std::mem::replace(&mut state.configured, true) {
                // One that comes back is read anew: what it had when it left may be another's by now.
                state.newest = None;
            }
            state.removal = None;
        }
        let left: Vec<SourceId> = self
            .sources_of(agent_id)
            .filter(|(id, state)| state.configured && !named.contains(id))
            .map(|(id, _)| id)
            .collect();
        for id in left {
            self.source(organization, agent_id, id).configured = false;
        }
        let agent = self.agent(organization, agent_id);
        (agent.configuration, agent.rejected) = (Some(changed.configuration), None);
        self.desired_changed(agent_id);
    }

    fn apply_repository(&mut self, commit: &Commit, id: EventId, event: RepositoryEvent) {
        match event {
            RepositoryEvent::SourceAdvanced(advanced) => {
                let state = self.source(commit.organization, advanced.agent, advanced.source);
                state.rejected = None;
                state.fetch_failure = None;
                state.warnings = advanced.warnings;
                state.takes_no_file = advanced.takes_no_file;
                state.newest = Some(Bundle {
                    commit: advanced.commit,
                    digest: advanced.bundle,
                    objects: advanced.objects,
                    cause: cause(commit, id),
                    selection: advanced.selection,
                });
            }
            RepositoryEvent::BundleRejected(rejected) => {
                let state = self.source(commit.organization, rejected.agent, rejected.source);
                state.fetch_failure = None;
                state.rejected = Some(RejectedBundle {
                    commit: rejected.commit,
                    findings: rejected.findings,
                    more: rejected.more,
                    warnings: rejected.warnings,
                });
            }
            RepositoryEvent::FetchFailed(failed) => {
                for source in failed.sources {
                    self.known_source(source, |state| state.fetch_failure = Some(failed.message.clone()));
                }
            }
            RepositoryEvent::FetchRecovered(recovered) => {
                for source in recovered.sources {
                    self.known_source(source, |state| state.fetch_failure = None);
                }
            }
        }
    }

    fn apply_delivery(&mut self, commit: &Commit, id: EventId, event: DeliveryEvent) {
        if let DeliveryEvent::ApplierNamed(named) = event {
            let agent = self.agent(commit.organization, named.agent);
            agent.applier = Some(named.instance);
            agent.epoch = commit.version;
            self.desired_changed(named.agent);
            return;
        }
        let Some(source) = source_of(&event) else { return };
        let changes_desired = !matches!(
            event,
            DeliveryEvent::SyncStarted(_) | DeliveryEvent::SyncFinished(_) | DeliveryEvent::BundleHeld(_)
        );
        let cause = cause(commit, id);
        let mut agent = None;
        self.known_source(source, |state| {
            state.version = commit.version;
            agent = Some(state.agent);
            apply_to_source(state, event, cause, commit.occurred_at);
        });
        if let (true, Some(agent)) = (changes_desired, agent) {
            self.desired_changed(agent);
        }
    }

    fn apply_batch(&mut self, batch: &ObservationBatch) {
        if let Some(gateway) = batch.writer.strip_prefix("gateway-").and_then(|id| id.parse().ok()) {
            self.see_gateway(gateway, batch);
            return;
        }
        let Some(agent) = ObservationBatch::agent_of_writer(&batch.writer) else { return };
        let state = self.agent(batch.organization, agent);
        if state.organization != batch.organization || batch.epoch < state.seen.0 {
            return;
        }
        if batch.epoch > state.seen.0 {
            state.seen = (batch.epoch, 0);
            state.early.clear();
            // Its writer is gone: what it stated is no part of what the new one states.
            (state.statement, state.statement_bytes) = (Vec::new(), 0);
        }
        // Of batches that were on their way at once, one that had to be sent again lies behind those after it.
        if batch.first > state.seen.1.saturating_add(1) {
            state.early.insert(batch.first, batch.observations.clone());
            return;
        }
        self.apply_run(batch.organization, agent, batch.first, &batch.observations);
        while let Some((first, observations)) = self.agent(batch.organization, agent).next_early() {
            self.apply_run(batch.organization, agent, first, &observations);
        }
    }

    /// Folds observations that leave no gap; those that were folded already are doubles.
    fn apply_run(
        &mut self,
        organization: OrganizationId,
        agent: AgentId,
        first: u64,
        observations: &[Observation],
    ) {
        for (sequence, observation) in (first..).zip(observations) {
            let state = self.agent(organization, agent);
            if sequence <= state.seen.1 {
                continue;
            }
            state.seen.1 = sequence;
            let epoch = state.seen.0;
            self.apply_observation(agent, epoch, observation);
            self.see(agent, epoch, observation);
        }
    }

    fn apply_observation(&mut self, agent: AgentId, epoch: u64, observation: &Observation) {
        match &observation.what {
            Observed::InventoryStated { objects, last, unlisted } => {
                self.apply_statement(agent, objects, last.then_some(unlisted));
            }
            Observed::ObjectApplied { object, write, .. } => {
                self.apply_applied(agent, object, (*write, observation.at));
            }
            Observed::ObjectPruned { source, identity, uid, kept, stays_owned, .. } => {
                let kept = kept.as_ref().filter(|_| *stays_owned);
                self.observed_source(agent, *source, |state| state.pruned(&identity.key(), uid, kept));
            }
            Observed::ObjectFinished { source, identity, uid, digest, failed } => {
                self.apply_finished(agent, *source, (&identity.key(), uid), *digest, failed.clone());
            }
            Observed::SyncStarted { source, sync, .. } => self.observed_source(agent, *source, |state| {
                let before = state.observed.take().filter(|before| before.sync == *sync);
                let run = before.as_ref().map_or(1, |before| before.run.saturating_add(1));
                let failed_before = before.and_then(|before| match before.finished {
                    Some(end) if end.outcome == SyncOutcome::Failed => Some(end),
                    _ => before.failed_before,
                });
                state.blocked = None;
                state.known.missing_rights.clear();
                state.observed = Some(SyncObserved {
                    sync: *sync,
                    epoch,
                    run,
                    started_at: observation.at,
                    waiting: None,
                    retry_at: None,
                    finished: None,
                    failed_before,
                });
            }),
            Observed::SyncWaiting { source, sync, reason } => {
                self.observed_sync(agent, *source, *sync, |observed| {
                    observed.waiting = Some(reason.clone());
                })
            }
            Observed::ObjectFailed { source, sync, retry_at, .. } => {
                self.observed_sync(agent, *source, *sync, |observed| observed.retry_at = *retry_at);
            }
            Observed::SyncFinished { source, sync, outcome, counts, failures } => {
                self.observed_sync(agent, *source, *sync, |observed| {
                    observed.waiting = None;
                    observed.finished = Some(SyncEnd {
                        at: observation.at,
                        outcome: *outcome,
                        counts: *counts,
                        failures: failures.clone(),
                    });
                });
            }
            Observed::SourceBlocked { source, reason, missing } => {
                self.observed_source(agent, *source, |state| state.is_blocked(reason, missing));
            }
            _ => {}
        }
    }

    fn apply_applied(&mut self, agent: AgentId, object: &OwnedObject, written: (Write, Timestamp)) {
        let key = object.identity.key();
        let others: Vec<SourceId> = self
            .sources_of(agent)
            .filter(|(id, state)| *id != object.source && state.inventory.contains_key(&key))
            .map(|(id, _)| id)
            .collect();
        for other in others {
            self.observed_source(agent, other, |state| {
                state.inventory.remove(&key);
            });
        }
        self.observed_source(agent, object.source, |state| {
            let before = written_before(&state.inventory, &key, &object.uid);
            let written =
                if written.0 == Write::Unchanged { before.or(Some(written)) } else { Some(written) };
            state.inventory.insert(key, Owned { written, ..owned(object) });
        });
    }

    /// A complete statement of what the agent owns takes the place of every inventory of its sources, but for kinds that it could
    /// not list, which come with the last part, and for objects that ran to their end and may be gone since.
    fn apply_statement(
        &mut self,
        agent: AgentId,
        objects: &[OwnedObject],
        unlisted: Option<&Vec<GroupKind>>,
    ) {
        let Some(state) = self.agents.get_mut(&agent) else { return };
        state.state(objects);
        let Some(unlisted) = unlisted else { return };
        let organization = state.organization;
        let Some(stated) = state.take_statement() else {
            tracing::error!(%agent, "statement of the inventory is too large: the inventory stays as it was");
            return;
        };
        let sources: Vec<SourceId> = self.sources_of(agent).map(|(id, _)| id).collect();
        let mut former = BTreeMap::new();
        for id in sources {
            let source = self.source(organization, agent, id);
            let stays = |(key, owned): &(ObjectKey, Owned)| {
                owned.finished.is_some() || unlisted.iter().any(|kind| key.is_of(kind))
            };
            let (stays, before) = std::mem::take(&mut source.inventory).into_iter().partition(stays);
            source.inventory = stays;
            former.insert(id, before);
        }
        let nothing = BTreeMap::new();
        for object in stated {
            let before = former.get(&object.source).unwrap_or(&nothing);
            self.observed_source(agent, object.source, |source| source.stated(&object, before));
        }
        for id in former.into_keys() {
            if let Some(source) = self.sources.get_mut(&id) {
                let SourceState { known, inventory, .. } = source;
                known.stated(|key| inventory.contains_key(key));
            }
        }
    }

    /// Folds into a source of that agent; what an agent says of another's source is dropped.
    pub(super) fn observed_source(
        &mut self,
        agent: AgentId,
        source: SourceId,
        fold: impl FnOnce(&mut SourceState),
    ) {
        let Some(organization) = self.agents.get(&agent).map(|state| state.organization) else { return };
        if self.sources.get(&source).is_none_or(|state| state.agent == agent) {
            fold(self.source(organization, agent, source));
        }
    }

    fn observed_sync(
        &mut self,
        agent: AgentId,
        source: SourceId,
        sync: SyncId,
        fold: impl FnOnce(&mut SyncObserved),
    ) {
        self.observed_source(agent, source, |state| {
            if let Some(observed) = state.observed.as_mut().filter(|observed| observed.sync == sync) {
                fold(observed);
            }
        });
    }

    fn known_source(&mut self, source: SourceId, fold: impl FnOnce(&mut SourceState)) {
        let Some(state) = self.sources.get_mut(&source) else { return };
        fold(state);
        self.touch(source);
    }

    fn source(&mut self, organization: OrganizationId, agent: AgentId, source: SourceId) -> &mut SourceState {
        if let Entry::Vacant(vacant) = self.sources.entry(source) {
            vacant.insert(SourceState::new(organization, agent));
            self.of_agents.entry(agent).or_default().insert(source);
        }
        self.touch(source);
        self.sources.entry(source).or_insert_with(|| SourceState::new(organization, agent))
    }

    fn touch(&mut self, source: SourceId) {
        if self.sources.contains_key(&source) {
            self.news.touch(source);
        }
    }

    fn desired_changed(&mut self, agent: AgentId) {
        if let Some(state) = self.agents.get_mut(&agent) {
            state.revision += 1;
            self.news.desired_changed(agent);
        }
    }

    pub(super) fn agent(&mut self, organization: OrganizationId, agent: AgentId) -> &mut AgentState {
        self.agents.entry(agent).or_insert_with(|| AgentState {
            organization,
            name: String::new(),
            configuration: None,
            rejected: None,
            applier: None,
            epoch: 0,
            deleted: false,
            replaces: Vec::new(),
            revision: 0,
            seen: (0, 0),
            early: BTreeMap::new(),
            statement: Vec::new(),
            statement_bytes: 0,
            seen_of: super::AgentSeen::default(),
        })
    }
}

impl AgentState {
    /// The first of what came early, once nothing is missing before it.
    fn next_early(&mut self) -> Option<(u64, Vec<Observation>)> {
        let first = self.early.first_entry()?;
        (*first.key() <= self.seen.1.saturating_add(1)).then(|| first.remove_entry())
    }
}

impl SourceState {
    fn awaits(&mut self, sync: SyncId) {
        self.awaited.push(sync);
        let surplus = self.awaited.len().saturating_sub(AWAITED);
        self.awaited.drain(..surplus);
    }

    /// The log has something of this sync: nothing is recorded of those before it any more.
    fn comes_to(&mut self, sync: SyncId) {
        let place = self.awaited.iter().position(|awaited| *awaited == sync).unwrap_or(0);
        self.awaited.drain(..place);
    }
}

fn apply_to_source(state: &mut SourceState, event: DeliveryEvent, cause: Cause, at: Timestamp) {
    match event {
        DeliveryEvent::BundleDesired(desired) => apply_desired(state, desired, cause, at),
        DeliveryEvent::BundleHeld(held) => {
            state.held = Some(Held { commit: held.commit, bundle: held.bundle, reason: held.reason });
        }
        DeliveryEvent::BundleConfirmed(confirmed) => {
            state.confirmed_bundle = confirmed.bundle;
            state.confirmed = confirmed.bundle.is_none().then_some(confirmed.commit);
            if confirmed.bundle.is_some() {
                state.held = None;
            }
        }
        DeliveryEvent::SourceSuspended(suspended) => state.suspended = Some(suspended.reason),
        DeliveryEvent::SourceResumed(_) => state.suspended = None,
        DeliveryEvent::SourcePinned(pinned) => {
            state.pinned = Some(Bundle {
                commit: pinned.commit,
                digest: pinned.bundle,
                objects: pinned.objects,
                cause,
                selection: None,
            });
        }
        DeliveryEvent::SourceUnpinned(_) => state.pinned = None,
        DeliveryEvent::SourceRemoved(removed) => {
            state.awaits(removed.sync.unwrap_or(SyncId(removed.source.0)));
            state.removal = Some(Removal { sync: removed.sync, prune: removed.prune });
            state.desired = None;
            state.held = None;
            state.confirmed_bundle = None;
        }
        DeliveryEvent::SyncRequested(requested) => apply_requested(state, &requested, cause, at),
        DeliveryEvent::SyncStarted(started) => apply_started(state, &started, at),
        DeliveryEvent::SyncFinished(finished) => apply_end(state, &finished, at),
        DeliveryEvent::ApplierNamed(_) => {}
    }
}

fn cause(commit: &Commit, id: EventId) -> Cause {
    Cause {
        correlation_id: commit.correlation_id,
        causation_id: Some(id),
        traceparent: commit.traceparent.clone(),
    }
}
