//! One transaction: some records of the log into memory and database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::directory::DirectoryEvent;
use events::observation::{BatchHead, ObjectBody, Observation, ObservationBatch, Observed};
use events::position::Stream;
use events::{AgentId, AggregateKind, Event, InstanceId, OrganizationId, Position};

use ::store::{Followed, ReadError, Record};

use super::{Driver, FollowError, PROJECTION, STREAMS, State};
use crate::model::{
    Bodies, Decided, DecidedAt, Declared, Folded, FormerDeclared, RecordedAt, Slot, asks_pods, claims_beside,
    verdict_with_pods, workloads_above,
};
use crate::store::{Batch, Memory, Standing};

/// Bytes of records that are folded in one transaction, but for the last of them.
const BYTES_AT_ONCE: usize = 32 * 1024 * 1024;

/// How an observation is written that tells of an applied object.
const APPLIED: &[u8] = b"object-applied";

/// What one record holds, as far as it is folded.
enum Content {
    Objects(AgentId, ObservationBatch),
    Gateway(InstanceId, ObservationBatch),
    /// What an agent's applier did.
    Applier(AgentId, ObservationBatch),
    Decision(OrganizationId, Vec<Event>),
    /// Something about environments, which delivery is asked for.
    Environment(OrganizationId),
    /// Nothing for this fold.
    Other,
}

impl Driver {
    /// Folds what came, all of it or nothing; a record that cannot be read is passed over and told.
    pub(super) async fn fold_messages(
        &self,
        messages: Vec<Result<Followed, ReadError>>,
    ) -> Result<(), FollowError> {
        let (mut records, mut bytes) = (Vec::new(), 0_usize);
        let (mut passed, mut caught_up) = (Vec::new(), false);
        for message in messages {
            match message? {
                Followed::Record(record) => {
                    bytes = bytes.saturating_add(record.bytes.len());
                    let content = content_of(&record);
                    if let Content::Objects(agent, batch) = &content
                        && self.may_want_bodies(*agent, batch)
                    {
                        // What it needs depends on what is folded before it.
                        self.fold_records(std::mem::take(&mut records), &[])?;
                        let bodies = self.bodies_of(record.organization, *agent, batch).await;
                        self.fold_records(vec![(record, content, bodies)], &[])?;
                        bytes = 0;
                        continue;
                    }
                    records.push((record, content, Bodies::default()));
                    if bytes >= BYTES_AT_ONCE {
                        self.fold_records(std::mem::take(&mut records), &[])?;
                        bytes = 0;
                    }
                }
                Followed::Passed(position) => passed.push(position),
                Followed::CaughtUp(position) => {
                    passed.push(position);
                    caught_up = true;
                }
            }
        }
        self.fold_records(records, &passed)?;
        if caught_up {
            self.environments.add(self.state.read().directory.organizations());
            self.caught_up.send_replace(true);
        }
        Ok(())
    }

    /// One transaction.
    fn fold_records(
        &self,
        records: Vec<(Record, Content, Bodies)>,
        passed: &[Position],
    ) -> Result<(), FollowError> {
        if records.is_empty() && passed.is_empty() {
            return Ok(());
        }
        let position = {
            let mut state = self.state.write();
            let mut batch = Batch::default();
            self.counts.records.inc_by(u64::try_from(records.len()).unwrap_or(0));
            for (record, content, bodies) in records {
                self.fold_record(&mut state, &record, (content, bodies), &mut batch);
                state.standing.position.advance(record.shard, record.sequence);
            }
            passed.iter().for_each(|position| state.standing.position.merge(position));
            self.commit(&mut state, &batch)?;
            state.standing.position.clone()
        };
        self.deps.log.folded(PROJECTION, &STREAMS, &position);
        self.position.send_replace(position);
        Ok(())
    }

    /// Writes what changed, and lets memory and database meet again.
    fn commit(&self, state: &mut State, batch: &Batch) -> Result<(), FollowError> {
        for change in &batch.changes {
            self.counts.changes.with([change.what.as_str()]).inc();
        }
        self.write(state, batch)?;
        let slots = batch.records.iter().filter_map(|(agent, uid)| state.fold.index.by_uid(*agent, uid));
        let changed: Vec<Slot> = slots.collect();
        self.note_rights(state, &batch.agents, &changed);
        let now = self.now();
        for claim in claims_beside(&state.fold.index, &changed) {
            self.judge_again(state, claim, now);
        }
        self.judge_workloads(state, changed);
        if state.fold.index.is_asking() {
            self.asking.notify_one();
        }
        self.counts.objects.set(i64::try_from(state.fold.index.len()).unwrap_or(i64::MAX));
        Ok(())
    }

    /// What clusters said of rights may not count any more.
    fn note_rights(&self, state: &State, agents: &BTreeSet<AgentId>, changed: &[Slot]) {
        let now = self.deps.world.clock.monotonic();
        let mut places: BTreeMap<AgentId, Vec<_>> = BTreeMap::new();
        for record in changed.iter().filter_map(|slot| state.fold.index.get(*slot)) {
            let is_namespace = record.kind.is("", "Namespace");
            let namespace = if is_namespace { &record.name } else { &record.namespace };
            places.entry(record.agent).or_default().push((&record.kind, namespace));
        }
        for agent in agents {
            match state.fold.observed.get(agent) {
                Some(observed) => {
                    let places = places.remove(agent).unwrap_or_default();
                    self.clusters.note(*agent, observed.kinds.len(), places.into_iter(), now);
                }
                None => self.clusters.remove(*agent),
            }
        }
    }

    /// Writes what is in memory, as far as a batch says that it is another.
    pub(super) fn write(&self, state: &mut State, batch: &Batch) -> Result<(), FollowError> {
        let memory = Memory {
            index: &state.fold.index,
            observed: &state.fold.observed,
            directory: &state.directory,
            tunnels: &state.tunnels,
            standing: &state.standing,
        };
        let store = self.store();
        store.write(batch, &memory)?;
        state.reader = Arc::new(store.reader()?);
        Ok(())
    }

    /// Judges workloads with their pods, after some objects changed.
    pub(super) fn judge_workloads(&self, state: &mut State, changed: Vec<Slot>) {
        let now = self.now();
        let State { fold, reader, .. } = state;
        for slot in workloads_above(&fold.index, changed) {
            let Some(record) = fold.index.get(slot) else { continue };
            if !asks_pods(record) && record.with_pods().is_none() {
                continue;
            }
            let body = |record: &crate::model::Record| {
                let body = reader.body(record.agent, &record.uid);
                let body = body.inspect_err(|error| self.suspect(error)).ok()??;
                serde_json::from_slice(&body).ok().map(Arc::new)
            };
            let verdict = verdict_with_pods(&fold.index, slot, now, &body);
            fold.index.judge_with_pods(slot, verdict);
        }
    }

    fn fold_record(
        &self,
        state: &mut State,
        record: &Record,
        (content, mut bodies): (Content, Bodies),
        batch: &mut Batch,
    ) {
        match content {
            Content::Objects(agent, observed) => {
                if state.directory.is_deleted(agent) {
                    return;
                }
                let at = self.recorded_at(&mut state.standing, record);
                let Folded { changes, stated, records, erased } =
                    state.fold.apply(at, agent, observed, &mut bodies);
                // What comes of an object behind its end is among the new ones.
                batch.changes.retain(|change| !erased.contains(&(change.agent, change.uid.clone())));
                batch.erased.extend(erased);
                batch.changes.extend(changes);
                batch.stated.extend(stated);
                batch.records.extend(records);
                batch.agents.insert(agent);
            }
            Content::Gateway(gateway, observed) => {
                state.tunnels.apply(gateway, &observed);
                batch.tunnels = true;
            }
            Content::Applier(agent, observed) => {
                let known = state.fold.observed.get(&agent);
                let is_foreign = known.is_some_and(|known| known.organization != observed.organization);
                if !is_foreign && !state.directory.is_deleted(agent) {
                    let changed = state.fold.applied(agent, &observed);
                    batch.records.extend(changed.into_iter().map(|uid| (agent, uid)));
                }
            }
            Content::Environment(organization) => self.environments.touch(organization),
            Content::Decision(organization, events) => {
                self.rights.forget(organization, record);
                if events.iter().any(touches_environments) {
                    self.environments.touch(organization);
                }
                batch.directory = true;
                let (recorded_at, (_, partition)) = (record.recorded_at, record.shard);
                let at = DecidedAt { recorded_at, partition, sequence: record.sequence };
                let Decided { deleted, declared } = state.directory.apply((organization, at), events);
                for agent in deleted {
                    forget(state, agent, batch);
                }
                for agent in declared {
                    self.follow_declarations(state, agent);
                }
            }
            Content::Other => {}
        }
    }

    /// Judges and relates an agent's objects as its configuration declares it from now on.
    pub(super) fn follow_declarations(&self, state: &mut State, agent: AgentId) {
        let Some((health, relations)) = state.directory.declared_of(agent) else { return };
        let known = state.fold.index.declaring().former.get(&agent);
        let former = state.directory.formerly_declared_of(agent).iter().map(|former| {
            let known = known.and_then(|known| known.iter().find(|known| known.until == former.until));
            known.cloned().unwrap_or_else(|| FormerDeclared {
                until: former.until,
                declared: Arc::new(Declared::new(&former.health, &former.relations)),
            })
        });
        let former = former.collect();
        state.fold.index.declare(agent, Declared::new(health, relations), self.now());
        state.fold.index.declared_before(agent, former);
    }

    /// Where a record of objects lies. The first one behind what had left the log when the fold began makes the horizon.
    fn recorded_at(&self, standing: &mut Standing, record: &Record) -> RecordedAt {
        let (sequence, recorded_at) = (record.sequence, record.recorded_at);
        let began = standing.began.sequence(record.shard);
        let misses_beginning = began > 0;
        if misses_beginning && standing.position.sequence(record.shard) <= began {
            standing.horizon = standing.horizon.max(Some(recorded_at));
        }
        RecordedAt { sequence, recorded_at, now: self.now(), misses_beginning }
    }

    /// Whether a batch, or what waits for it, names a body beside its record.
    fn may_want_bodies(&self, agent: AgentId, batch: &ObservationBatch) -> bool {
        let names_one = |observation: &Observation| match &observation.what {
            Observed::ObjectSeen { object } => matches!(object.body, ObjectBody::Blob { blob: Some(_), .. }),
            _ => false,
        };
        let waits = || self.state.read().fold.observed.get(&agent).is_some_and(|of| of.has_early(names_one));
        batch.observations.iter().any(names_one) || waits()
    }
}

fn content_of(record: &Record) -> Content {
    let (stream, partition) = record.shard;
    let read = match stream {
        Stream::Objects => objects_of(record),
        Stream::Observations => observations_of(record),
        Stream::Decisions => Ok(decision_of(record)),
        _ => Ok(Content::Other),
    };
    read.unwrap_or_else(|error| {
        let sequence = record.sequence;
        tracing::error!(stream = stream.as_str(), partition, sequence, %error, "record is not readable by this version");
        Content::Other
    })
}

fn objects_of(record: &Record) -> Result<Content, events::DecodeError> {
    let batch: ObservationBatch = events::decode(&record.bytes)?;
    let agent = ObservationBatch::agent_of_writer(&batch.writer);
    Ok(agent.map_or(Content::Other, |agent| Content::Objects(agent, batch)))
}

/// A project may be called otherwise in labels from now on, or be gone with its environments.
const fn touches_environments(event: &Event) -> bool {
    matches!(
        event,
        Event::Directory(
            DirectoryEvent::ProjectCreated(_)
                | DirectoryEvent::ProjectChanged(_)
                | DirectoryEvent::ProjectDeleted(_)
        )
    )
}

/// Takes an agent that was deleted out of memory and database.
fn forget(state: &mut State, agent: AgentId, batch: &mut Batch) {
    state.fold.index.remove_agent(agent);
    state.fold.index.forget_declared(agent);
    state.fold.observed.remove(&agent);
    state.tunnels.forget(agent);
    batch.changes.retain(|change| change.agent != agent);
    batch.records.retain(|(of, _)| *of != agent);
    batch.stated.retain(|(of, _)| *of != agent);
    batch.erased.retain(|(of, _)| *of != agent);
    batch.agents.insert(agent);
    batch.tunnels = true;
    // Its rows leave bit by bit.
    state.standing.leaving.insert(agent);
}

/// Of agents' observations only what tells of applied objects is wanted, and nothing else is decoded.
fn observations_of(record: &Record) -> Result<Content, events::DecodeError> {
    let head = BatchHead::read(&record.bytes)?;
    if let Some(agent) = ObservationBatch::agent_of_writer(&head.writer) {
        let tells = record.bytes.windows(APPLIED.len()).any(|part| part == APPLIED);
        return Ok(if tells {
            Content::Applier(agent, events::decode(&record.bytes)?)
        } else {
            Content::Other
        });
    }
    let gateway = head.writer.strip_prefix("gateway-").and_then(|id| id.parse().ok());
    let Some(gateway) = gateway else { return Ok(Content::Other) };
    Ok(Content::Gateway(gateway, events::decode(&record.bytes)?))
}

/// What is not known here of a decision gives an agent no name, and no right to anybody: those come from authz.
fn decision_of(record: &Record) -> Content {
    let Some(commit) = record.commit() else { return Content::Decision(record.organization, Vec::new()) };
    if matches!(commit.aggregate.kind, AggregateKind::Environment | AggregateKind::Deployment) {
        return Content::Environment(commit.organization);
    }
    let events = commit.events.iter().filter_map(|event| Event::decode(&event.body).ok()).collect();
    Content::Decision(commit.organization, events)
}
