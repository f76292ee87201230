//! What agents and gateways said of how things stand: which objects are not well, which instances are connected, what the applier sees.
//!
//! Folded from observations alone, and no decision looks at it: a status is made of it, see [`super::status`].

use std::collections::{BTreeMap, BTreeSet};

use events::delivery::{ObjectFailure, SyncOutcome};
use events::object::ObjectKey;
use events::observation::{
    BrokenWatch, MissingRight, Observation, ObservationBatch, Observed, OwnedObject, TakenField, Write,
};
use events::{AgentId, InstanceId, ObjectIdentity, SourceId, SyncId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{DeliveryState, Owned, SourceState};

/// Fields of a drift, or of what others added, that are kept.
const FIELDS: usize = 10;
/// Watches that do not work which are kept.
const WATCHES: usize = 10;
/// Missing rights of a source that are kept.
const RIGHTS: usize = 20;
/// Gateways that are remembered without a tunnel: one that restarts is another one.
const GATEWAYS: usize = 1_000;

/// What was said of one source's objects.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Objects of which something is not as it should be.
    pub(crate) objects: BTreeMap<ObjectKey, ObjectSeen>,
    /// The first of the runs that failed since one did not.
    pub(crate) failed_since: Option<Timestamp>,
    /// The first of the runs that left out objects of kinds that are not served, since one did not.
    #[serde(default)]
    pub(crate) awaiting_since: Option<Timestamp>,
    /// The first watches that do not work, and how many there are.
    pub(crate) broken_watches: (Vec<BrokenWatch>, u32),
    /// What others added to objects.
    pub(crate) extra: BTreeMap<ObjectKey, Vec<TakenField>>,
    /// When the sync that the agent should be at was decided.
    pub(crate) desired_at: Option<Timestamp>,
    /// The first rights for want of which the sync is blocked.
    #[serde(default)]
    pub(crate) missing_rights: Vec<MissingRight>,
}

/// What is not as it should be of one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ObjectSeen {
    pub(crate) identity: ObjectIdentity,
    pub(crate) health: Option<HealthSeen>,
    pub(crate) drift: Option<DriftSeen>,
    pub(crate) failure: Option<FailureSeen>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HealthSeen {
    pub(crate) status: String,
    pub(crate) message: String,
    pub(crate) optional: bool,
    pub(crate) since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DriftSeen {
    pub(crate) since: Timestamp,
    pub(crate) deleted: bool,
    pub(crate) fields: Vec<TakenField>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FailureSeen {
    pub(crate) since: Timestamp,
    pub(crate) failure: ObjectFailure,
    pub(crate) retry_at: Option<Timestamp>,
    /// The run of a sync that it is of; absent: it is of a correction.
    pub(crate) run: Option<(SyncId, u32)>,
}

/// What was said of an agent as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct AgentSeen {
    pub(crate) tunnels: Vec<TunnelSeen>,
    /// When a tunnel closed last.
    pub(crate) closed_at: Option<Timestamp>,
    /// When it said something last.
    pub(crate) heard_at: Option<Timestamp>,
    /// The epoch whose applier stated all that it found.
    pub(crate) stated: u64,
    /// Observations were left out, and nothing was stated since.
    pub(crate) lost_at: Option<Timestamp>,
    /// The applier does not reach its API server: since when, and why.
    pub(crate) api_server_lost: Option<(Timestamp, String)>,
}

/// Tunnels of one instance at one gateway. A tunnel that takes another one's place may be told of before that one's end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TunnelSeen {
    pub(crate) gateway: InstanceId,
    pub(crate) instance: InstanceId,
    pub(crate) since: Timestamp,
    pub(crate) version: String,
    pub(crate) count: u32,
}

impl ObjectSeen {
    fn of(identity: &ObjectIdentity) -> Self {
        Self { identity: identity.clone(), health: None, drift: None, failure: None }
    }

    const fn is_well(&self) -> bool {
        self.health.is_none() && self.drift.is_none() && self.failure.is_none()
    }
}

impl Seen {
    fn at(&mut self, identity: &ObjectIdentity, change: impl FnOnce(&mut ObjectSeen)) {
        let key = identity.key();
        let object = self.objects.entry(key.clone()).or_insert_with(|| ObjectSeen::of(identity));
        change(object);
        if object.is_well() {
            self.objects.remove(&key);
        }
    }

    /// The same, where something is known of it.
    fn at_known(&mut self, key: &ObjectKey, change: impl FnOnce(&mut ObjectSeen)) {
        if let Some(object) = self.objects.get_mut(key) {
            change(object);
            if object.is_well() {
                self.objects.remove(key);
            }
        }
    }

    fn each(&mut self, change: impl Fn(&mut ObjectSeen)) {
        self.objects.retain(|_, object| {
            change(object);
            !object.is_well()
        });
    }

    /// A new applier has found these objects: what it sees of them it says itself.
    pub(crate) fn stated(&mut self, is_owned: impl Fn(&ObjectKey) -> bool) {
        self.broken_watches = (Vec::new(), 0);
        self.extra.clear();
        self.each(|object| {
            object.drift = None;
            object.failure.take_if(|failure| failure.run.is_none());
            if !is_owned(&object.identity.key()) {
                object.health = None;
            }
        });
    }
}

impl SourceState {
    /// The whole source cannot be worked on, perhaps for want of these rights.
    pub(super) fn is_blocked(&mut self, reason: &str, missing: &[MissingRight]) {
        self.blocked = Some(reason.to_owned());
        self.known.missing_rights = missing.iter().take(RIGHTS).cloned().collect();
    }
}

impl DeliveryState {
    /// The former version of the fold kept nothing of it: until each agent has stated all of it anew, nobody can say that all is well.
    pub(super) fn clear_objects(&mut self) {
        for agent in self.agents.values_mut() {
            agent.seen_of.lost_at = Some(Timestamp(0));
        }
    }

    /// An agent has to state anew what it finds, which it does when it is named again.
    #[must_use]
    pub fn needs_statement(&self, agent: AgentId) -> bool {
        self.agents.get(&agent).is_some_and(|state| state.seen_of.lost_at == Some(Timestamp(0)))
    }

    /// Folds a gateway's words. Each counts once: a batch that was stored twice is counted where it came first.
    pub(super) fn see_gateway(&mut self, gateway: InstanceId, batch: &ObservationBatch) {
        let newest = self.gateways.entry(gateway).or_insert(0);
        let before = *newest;
        let count = u64::try_from(batch.observations.len()).unwrap_or(u64::MAX);
        *newest = before.max(batch.first.saturating_add(count).saturating_sub(1));
        for (sequence, observation) in (batch.first..).zip(&batch.observations) {
            if sequence > before {
                self.see_tunnel(gateway, batch, observation);
            }
        }
        self.forget_old_gateways();
    }

    /// Keeps the newest gateways, by their identifiers, which are made in order of time, and those that have a tunnel. Which ones those are
    /// does not depend on the order in which the words of gateways are folded.
    fn forget_old_gateways(&mut self) {
        let surplus = self.gateways.len().saturating_sub(GATEWAYS);
        if surplus == 0 {
            return;
        }
        let tunnels = self.agents.values().flat_map(|agent| &agent.seen_of.tunnels);
        let open: BTreeSet<InstanceId> = tunnels.map(|tunnel| tunnel.gateway).collect();
        let oldest: BTreeSet<InstanceId> = self.gateways.keys().take(surplus).copied().collect();
        self.gateways.retain(|known, _| !oldest.contains(known) || open.contains(known));
    }

    fn see_tunnel(&mut self, gateway: InstanceId, batch: &ObservationBatch, observation: &Observation) {
        let at = observation.at;
        match &observation.what {
            Observed::TunnelOpened { agent, instance, version } => {
                let state = self.agent(batch.organization, *agent);
                if state.organization != batch.organization {
                    return;
                }
                let tunnels = &mut state.seen_of.tunnels;
                let place = |tunnel: &TunnelSeen| (tunnel.gateway, tunnel.instance);
                // In order of their names, as gateways are folded in any order.
                match tunnels.binary_search_by_key(&(gateway, *instance), place) {
                    Ok(known) => {
                        if let Some(tunnel) = tunnels.get_mut(known) {
                            (tunnel.since, tunnel.version) = (at, version.clone());
                            tunnel.count = tunnel.count.saturating_add(1);
                        }
                    }
                    Err(new) => {
                        let (instance, version) = (*instance, version.clone());
                        tunnels.insert(new, TunnelSeen { gateway, instance, since: at, version, count: 1 });
                    }
                }
            }
            Observed::TunnelClosed { agent, instance, .. } => {
                let state = self.agent(batch.organization, *agent);
                if state.organization != batch.organization {
                    return;
                }
                // The words of gateways are folded in any order.
                state.seen_of.closed_at = state.seen_of.closed_at.max(Some(at));
                state.seen_of.tunnels.retain_mut(|tunnel| {
                    if tunnel.gateway == gateway && tunnel.instance == *instance {
                        tunnel.count = tunnel.count.saturating_sub(1);
                    }
                    tunnel.count > 0
                });
            }
            _ => {}
        }
    }

    /// Folds what an agent said of itself and of its sources' objects. What it says of how its sources stand leads to no decision, so
    /// nobody has to look at them.
    pub(super) fn see(&mut self, agent: AgentId, epoch: u64, observation: &Observation) {
        let at = observation.at;
        let Some(state) = self.agents.get_mut(&agent) else { return };
        let own = &mut state.seen_of;
        own.heard_at = Some(at);
        match &observation.what {
            Observed::InventoryStated { last, .. } => {
                if *last {
                    (own.stated, own.lost_at) = (epoch, None);
                }
            }
            Observed::Gap { dropped } if *dropped > 0 => own.lost_at = Some(at),
            Observed::ApiServerLost { reason } => {
                own.api_server_lost.get_or_insert_with(|| (at, String::new())).1.clone_from(reason);
            }
            Observed::ApiServerReached {} => own.api_server_lost = None,
            what => {
                if let Some(source) = source_of(what) {
                    self.seen_source(agent, source, |state| see_object(state, at, what));
                }
            }
        }
    }

    fn seen_source(&mut self, agent: AgentId, source: SourceId, fold: impl FnOnce(&mut SourceState)) {
        match self.sources.get_mut(&source) {
            Some(state) if state.agent == agent => fold(state),
            Some(_) => {}
            None => self.observed_source(agent, source, fold),
        }
    }
}

const fn source_of(what: &Observed) -> Option<SourceId> {
    match what {
        Observed::ObjectApplied { object, .. } => Some(object.source),
        Observed::ObjectPruned { source, .. }
        | Observed::ObjectFailed { source, .. }
        | Observed::CorrectionFailed { source, .. }
        | Observed::WatchesBroken { source, .. }
        | Observed::ExtraSeen { source, .. }
        | Observed::SyncFinished { source, .. }
        | Observed::DriftSeen { source, .. }
        | Observed::DriftCorrected { source, .. }
        | Observed::HealthChanged { source, .. } => Some(*source),
        _ => None,
    }
}

fn see_object(state: &mut SourceState, at: Timestamp, what: &Observed) {
    match what {
        Observed::ObjectApplied { object, .. } => state.known.at_known(&object.identity.key(), |seen| {
            (seen.drift, seen.failure) = (None, None);
        }),
        Observed::DriftCorrected { identity, .. } => state.known.at_known(&identity.key(), |seen| {
            seen.drift = None;
            seen.failure.take_if(|failure| failure.run.is_none());
        }),
        Observed::ObjectPruned { identity, .. } => {
            state.known.objects.remove(&identity.key());
            state.known.extra.remove(&identity.key());
        }
        Observed::WatchesBroken { broken, all, .. } => {
            state.known.broken_watches = (broken.iter().take(WATCHES).cloned().collect(), *all);
        }
        Observed::ExtraSeen { identity, fields, .. } if fields.is_empty() => {
            state.known.extra.remove(&identity.key());
        }
        Observed::ExtraSeen { identity, fields, .. } => {
            let fields = fields.iter().take(FIELDS).cloned().collect();
            state.known.extra.insert(identity.key(), fields);
        }
        Observed::DriftSeen { identity, fields, deleted, .. } => state.known.at(identity, |seen| {
            let since = seen.drift.as_ref().map_or(at, |drift| drift.since);
            let fields = fields.iter().take(FIELDS).cloned().collect();
            seen.drift = Some(DriftSeen { since, deleted: *deleted, fields });
        }),
        Observed::HealthChanged { identity, status, .. } if matches!(status.as_str(), "healthy" | "none") => {
            state.known.at_known(&identity.key(), |seen| seen.health = None);
        }
        Observed::HealthChanged { identity, status, message, optional, .. } => {
            state.known.at(identity, |seen| {
                let since = seen.health.as_ref().filter(|health| health.status == *status);
                let since = since.map_or(at, |health| health.since);
                let (status, message, optional) = (status.clone(), message.clone(), *optional);
                seen.health = Some(HealthSeen { status, message, optional, since });
            });
        }
        Observed::CorrectionFailed { failure, retry_at, .. } => {
            failed(
                &mut state.known,
                failure,
                FailureSeen { since: at, failure: failure.clone(), retry_at: *retry_at, run: None },
            );
        }
        Observed::ObjectFailed { sync, failure, retry_at, .. } => {
            object_failed(state, at, *sync, failure, *retry_at);
        }
        Observed::SyncFinished { sync, outcome, counts, .. } => {
            sync_finished(state, at, *sync, (*outcome, counts.waiting));
        }
        _ => {}
    }
}

fn object_failed(
    state: &mut SourceState,
    at: Timestamp,
    sync: SyncId,
    failure: &ObjectFailure,
    retry_at: Option<Timestamp>,
) {
    // What an agent says of a sync that has ended is of a correction: those from before corrections had a word of their own say so.
    let run = state.observed.as_ref().filter(|observed| observed.sync == sync);
    let run = run.filter(|observed| observed.finished.is_none()).map(|observed| (sync, observed.run));
    failed(&mut state.known, failure, FailureSeen { since: at, failure: failure.clone(), retry_at, run });
}

fn sync_finished(
    state: &mut SourceState,
    at: Timestamp,
    sync: SyncId,
    (outcome, waiting): (SyncOutcome, u32),
) {
    let run = state.observed.as_ref().filter(|observed| observed.sync == sync);
    let Some(run) = run.map(|observed| (sync, observed.run)) else { return };
    let is_failed = outcome == SyncOutcome::Failed;
    match outcome {
        SyncOutcome::Failed => drop(state.known.failed_since.get_or_insert(at)),
        SyncOutcome::Succeeded | SyncOutcome::Unhealthy => state.known.failed_since = None,
        SyncOutcome::Superseded | SyncOutcome::Interrupted => return,
    }
    state.known.awaiting_since = (waiting > 0).then(|| state.known.awaiting_since.unwrap_or(at));
    // What failed in an earlier run and not in this one does not fail any more.
    state.known.each(|object| {
        object.failure.take_if(|failure| failure.run.is_some_and(|of| of != run || !is_failed));
    });
}

fn failed(seen: &mut Seen, of: &ObjectFailure, failure: FailureSeen) {
    seen.at(&of.identity, |seen| {
        let since = seen.failure.as_ref().map_or(failure.since, |before| before.since);
        seen.failure = Some(FailureSeen { since, ..failure });
    });
}

/// An object as it is owned from now on; nothing was written of it yet.
pub(super) fn owned(object: &OwnedObject) -> Owned {
    Owned {
        identity: object.identity.clone(),
        uid: object.uid.clone(),
        adopted: object.adopted,
        kept: None,
        finished: None,
        written: None,
    }
}

/// The last write to an object that is still the same one.
pub(super) fn written_before(
    inventory: &BTreeMap<ObjectKey, Owned>,
    key: &ObjectKey,
    uid: &str,
) -> Option<(Write, Timestamp)> {
    inventory.get(key).filter(|owned| owned.uid == uid)?.written
}
