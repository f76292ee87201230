//! Decisions on [`DeliveryState`]. Pure: ids and the contents of bundles are passed in.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::configuration::{OnRemoval, SourceConfiguration};
use events::delivery::{
    BundleConfirmed, DeliveryEvent, HoldReason, PruneEntry, SourcePinned, SourceResumed, SourceSuspended,
    SourceUnpinned, SyncFinished, SyncOutcome, SyncRequested, SyncStarted,
};
use events::object::ObjectKey;
use events::{AgentId, BlobDigest, Refusal, RefusalKind, Sha256, SourceId, SyncId};

use serde::{Deserialize, Serialize};

use super::{
    Bundle, Cause, DeliveryState, Desired, Held, Owned, PruneSummary, SourceState, Wanted, WantedLists,
};

/// A prune of more objects than this is looked at twice.
const SMALL_PRUNE: u32 = 10;

/// Which objects a bundle has.
pub trait BundleContents: Send + Sync {
    /// Whether the bundle has the object. A manifest without a namespace means one in `default_namespace`, or a cluster-scoped one.
    fn has(&self, key: &ObjectKey, default_namespace: &str) -> bool;

    /// Every object, as its manifest names it; in no order.
    fn keys(&self) -> Box<dyn Iterator<Item = &ObjectKey> + '_>;

    /// The objects of this one's group, kind and name, in whichever namespace their manifests have.
    fn namesakes(&self, key: &ObjectKey) -> Vec<&ObjectKey>;
}

/// What is to be done about a source now.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Nothing.
    Nothing,
    /// The agent is to have this bundle and to delete these objects.
    Deliver {
        /// The Git commit.
        commit: String,
        /// The bundle.
        bundle: BlobDigest,
        /// How many objects it has.
        objects: u32,
        /// What to delete.
        prune: Vec<PruneEntry>,
        /// How many more left the source, and are not deleted yet: another one that was not read yet may have them.
        withheld: u32,
        /// Which files the bundle was made of, where that was said.
        selection: Option<Sha256>,
        /// The chain.
        cause: Cause,
    },
    /// A person must confirm first.
    Hold {
        /// The Git commit.
        commit: String,
        /// The bundle.
        bundle: BlobDigest,
        /// How many objects it has.
        objects: u32,
        /// Why.
        reason: HoldReason,
        /// The chain.
        cause: Cause,
    },
    /// The source left the configuration.
    Remove {
        /// What to delete; nothing where the objects are to stay.
        prune: Vec<PruneEntry>,
    },
}

/// What a person asks of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Check each object again.
    Sync {
        /// Id of the sync that does it.
        sync: SyncId,
    },
    /// Deliver nothing for now.
    Suspend {
        /// Why.
        reason: String,
    },
    /// Go on.
    Resume,
    /// Stay at a commit.
    Pin {
        /// The full commit.
        commit: String,
        /// Its bundle.
        bundle: BlobDigest,
        /// How many objects it has.
        objects: u32,
    },
    /// Follow the ref again.
    Unpin,
    /// Delete all objects that it owns, and apply none until it is unpinned. The caller has seen the list, so this also confirms it.
    Withdraw {
        /// The bundle without objects.
        bundle: BlobDigest,
    },
    /// Let the held bundle through.
    Confirm {
        /// The commit that was seen; any when not given.
        commit: Option<String>,
    },
}

impl DeliveryState {
    /// Bundles whose contents [`Self::verdict`] needs for a source: its candidate and all that the agent's other sources have
    /// or are about to have; beside those, what it has itself.
    #[must_use]
    pub fn bundles_needed(&self, source: SourceId) -> Vec<BlobDigest> {
        let Some(state) = self.sources.get(&source) else { return Vec::new() };
        let own =
            state.candidate().map(|bundle| bundle.digest).or(state.desired.as_ref().map(|own| own.bundle));
        let mut needed: Vec<BlobDigest> =
            self.other_bundles(source, state).map(|(digest, _)| digest).collect();
        if !needed.is_empty() {
            needed.extend(state.desired.as_ref().map(|own| own.bundle));
        }
        needed.extend(own);
        needed
    }

    /// The prune list that the source's agent has now, by address.
    #[must_use]
    pub fn prune_list_of(&self, source: SourceId) -> Option<BlobDigest> {
        let state = self.sources.get(&source)?;
        match &state.removal {
            Some(removal) => removal.prune,
            None => state.desired.as_ref()?.prune,
        }
    }

    /// What is to be done about a source. `contents` has all of [`Self::bundles_needed`]; `listed` is the present prune list.
    #[must_use]
    pub fn verdict(
        &self,
        source: SourceId,
        contents: &BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
        listed: &[PruneEntry],
        lists: &WantedLists,
    ) -> Verdict {
        let wanted = self.wanted(source, contents, lists).unwrap_or_default();
        let wanted = Wanted { changed: self.wanted_differs(source, &wanted, lists), list: None };
        self.verdict_with_surplus(source, contents, listed, &wanted).0
    }

    /// As [`Self::verdict`], with what of the contents it depends on.
    pub(crate) fn verdict_with_surplus(
        &self,
        source: SourceId,
        contents: &BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
        listed: &[PruneEntry],
        wanted: &Wanted,
    ) -> (Verdict, Option<PruneSummary>) {
        let gone = self.surplus(source, contents);
        let kept = |gone: &[PruneEntry]| self.sources.get(&source).map_or(0, |state| state.kept_of(gone));
        let surplus = gone.as_ref().map(|PruneCandidates { prune, withheld }| PruneSummary {
            kept: kept(prune),
            withheld: *withheld,
            ..PruneSummary::of(prune, listed)
        });
        let mut verdict = self.judge(source, surplus, wanted);
        if let Verdict::Deliver { prune, .. } | Verdict::Remove { prune } = &mut verdict {
            *prune = gone.map(|gone| gone.prune).unwrap_or_default();
        }
        (verdict, surplus)
    }

    /// Objects that the source owns and no bundle of its agent has. `None` when a bundle's contents are not known.
    fn surplus(
        &self,
        source: SourceId,
        contents: &BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
    ) -> Option<PruneCandidates> {
        let state = self.sources.get(&source)?;
        if state.configured {
            return self.prune_for(source, state, Some(state.candidate()?.digest), contents);
        }
        let prunes = state.configuration.as_ref()?.policies.on_removal == OnRemoval::Prune;
        if prunes { self.prune_for(source, state, None, contents) } else { Some(PruneCandidates::default()) }
    }

    /// What is to be done about a source, given what its bundles leave over and what other sources hold of it. The prune list is left
    /// to the caller.
    #[must_use]
    pub fn judge(&self, source: SourceId, surplus: Option<PruneSummary>, wanted: &Wanted) -> Verdict {
        let (Some(state), Some(surplus)) = (self.sources.get(&source), surplus) else {
            return Verdict::Nothing;
        };
        if self.agents.get(&state.agent).is_none_or(|agent| agent.deleted) {
            return Verdict::Nothing;
        }
        if !state.configured {
            return state.removal_verdict(surplus);
        }
        let Some(candidate) = state.candidate() else { return Verdict::Nothing };
        if state.suspended.is_some() {
            return Verdict::Nothing;
        }
        let is_desired = state.is_desired(candidate);
        let ended = state.desired.as_ref().is_some_and(|desired| state.sync_ended(desired.sync));
        if is_desired && !(surplus.unlisted && ended) && !wanted.changed {
            return Verdict::Nothing;
        }
        let Bundle { commit, digest: bundle, objects, cause, selection } = candidate.clone();
        let withheld = surplus.withheld;
        match state.reason_to_hold(candidate, surplus.objects.saturating_sub(surplus.kept)) {
            Some(reason)
                if state
                    .held
                    .as_ref()
                    .is_some_and(|held| (held.bundle, &held.reason) == (bundle, &reason)) =>
            {
                Verdict::Nothing
            }
            Some(reason) => Verdict::Hold { commit, bundle, objects, reason, cause },
            None => {
                Verdict::Deliver { commit, bundle, objects, prune: Vec::new(), withheld, selection, cause }
            }
        }
    }

    /// Objects of the inventory that no current bundle of the agent has. `None` when a bundle's contents are not known:
    /// then nothing may be said, and nothing is pruned.
    pub(super) fn prune_for(
        &self,
        source: SourceId,
        state: &SourceState,
        own: Option<BlobDigest>,
        contents: &BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
    ) -> Option<PruneCandidates> {
        let configuration = state.configuration.as_ref()?;
        let current = self.current_bundles(source, state, own, contents)?;
        if !configuration.policies.prune {
            return Some(PruneCandidates::default());
        }
        let may_go = |owned: &Owned| configuration.policies.prune_adopted || !owned.adopted;
        let prune: Vec<PruneEntry> = state
            .inventory
            .iter()
            .filter(|(key, owned)| may_go(owned) && current.lacks(key))
            .map(|(_, owned)| PruneEntry { identity: owned.identity.clone(), uid: owned.uid.clone() })
            .collect();
        if self.is_withheld(state) {
            let withheld = u32::try_from(prune.len()).unwrap_or(u32::MAX);
            return Some(PruneCandidates { prune: Vec::new(), withheld });
        }
        Some(PruneCandidates { prune, withheld: 0 })
    }

    /// The bundles that an agent has or is about to have, with this one of the source's. `None` when one's contents are not known.
    pub(super) fn current_bundles<'a>(
        &'a self,
        source: SourceId,
        state: &'a SourceState,
        own: Option<BlobDigest>,
        contents: &'a BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
    ) -> Option<CurrentBundles<'a>> {
        let configuration = state.configuration.as_ref()?;
        let own = own.map(|digest| (digest, configuration.default_namespace.as_str()));
        let all = own.into_iter().chain(self.other_bundles(source, state));
        let all = all.map(|(digest, namespace)| Some((&**contents.get(&digest)?, namespace)));
        Some(CurrentBundles(all.collect::<Option<_>>()?))
    }

    /// Whether what left a source may turn out to be another one's, so that it is not pruned yet.
    pub(super) fn is_withheld(&self, state: &SourceState) -> bool {
        state.may_have_handed_over() && self.awaits_reading(state.agent)
    }

    /// Whether a source of the agent was not read yet as its configuration has it now: nobody knows what it has.
    fn awaits_reading(&self, agent: AgentId) -> bool {
        self.sources_of(agent).any(|(_, state)| state.configured && !state.is_read())
    }

    /// Bundles that the agent's other sources have or are about to have, each with its default namespace.
    fn other_bundles<'a>(
        &'a self,
        source: SourceId,
        state: &'a SourceState,
    ) -> impl Iterator<Item = (BlobDigest, &'a str)> {
        self.sources_of(state.agent).filter(move |(id, other)| *id != source && other.configured).flat_map(
            |(_, other)| {
                let namespace = other.configuration.as_ref().map_or("", |c| c.default_namespace.as_str());
                let candidate = other.candidate().map(|bundle| bundle.digest);
                let desired = other.desired.as_ref().map(|desired| desired.bundle);
                candidate.into_iter().chain(desired).map(move |digest| (digest, namespace))
            },
        )
    }

    /// Events that record the beginning and end of the source's sync, where the log does not have them yet.
    #[must_use]
    pub fn sync_records(&self, source: SourceId) -> Vec<DeliveryEvent> {
        let Some(state) = self.sources.get(&source) else { return Vec::new() };
        // Of two streams one may be read later: a sync before the recorded one was over already.
        let observed = state.observed.as_ref().filter(|observed| state.awaited.contains(&observed.sync));
        let Some(observed) = observed else { return Vec::new() };
        let known = if state.recorded.sync == Some(observed.sync) {
            state.recorded
        } else {
            super::Recorded::default()
        };
        let (sync, run, epoch) = (observed.sync, observed.run, observed.epoch);
        let mut events = Vec::new();
        if known.started < run {
            events.push(DeliveryEvent::SyncStarted(SyncStarted { source, sync, run, epoch }));
        }
        let newest_epoch = self.agents.get(&state.agent).map_or(0, |agent| agent.seen.0);
        let end = match &observed.finished {
            Some(end) => Some((end.outcome, end.counts, end.failures.clone())),
            None if epoch < newest_epoch => Some((SyncOutcome::Interrupted, Default::default(), Vec::new())),
            None => None,
        };
        if let (Some((outcome, counts, failures)), true) = (end, known.finished < run) {
            events.push(DeliveryEvent::SyncFinished(SyncFinished {
                source,
                sync,
                run,
                outcome,
                counts,
                failures,
            }));
        }
        events
    }

    /// The chain that a source's sync belongs to.
    #[must_use]
    pub fn cause_of(&self, source: SourceId) -> Option<Cause> {
        self.sources.get(&source)?.desired.as_ref().map(|desired| desired.cause.clone())
    }

    /// Decides a person's command on a source.
    ///
    /// # Errors
    /// When the source's state does not allow it; the message says what to do.
    pub fn decide(&self, source: SourceId, command: Command) -> Result<Vec<DeliveryEvent>, Refusal> {
        let state = self
            .sources
            .get(&source)
            .filter(|state| state.configured)
            .ok_or_else(|| Refusal::not_found(format!("source {source}")))?;
        match command {
            Command::Sync { sync } => state.decide_sync(source, sync),
            Command::Suspend { reason } if state.suspended.as_ref() == Some(&reason) => Ok(Vec::new()),
            Command::Suspend { reason } => {
                Ok(vec![DeliveryEvent::SourceSuspended(SourceSuspended { source, reason })])
            }
            Command::Resume if state.suspended.is_none() => Ok(Vec::new()),
            Command::Resume => Ok(vec![DeliveryEvent::SourceResumed(SourceResumed { source })]),
            Command::Pin { commit, .. }
                if state.pinned.as_ref().is_some_and(|pinned| pinned.commit == commit) =>
            {
                Ok(Vec::new())
            }
            Command::Pin { commit, bundle, objects } => {
                Ok(vec![DeliveryEvent::SourcePinned(SourcePinned { source, commit, bundle, objects })])
            }
            Command::Unpin if state.pinned.is_none() => Ok(Vec::new()),
            Command::Unpin => Ok(vec![DeliveryEvent::SourceUnpinned(SourceUnpinned { source })]),
            Command::Withdraw { bundle } => Ok(state.decide_withdraw(source, bundle)),
            Command::Confirm { commit } => state.decide_confirm(source, commit),
        }
    }
}

/// Bundles of one agent, each with the default namespace of its source.
pub(super) struct CurrentBundles<'a>(Vec<(&'a dyn BundleContents, &'a str)>);

impl CurrentBundles<'_> {
    /// Whether none of them has an object.
    pub(super) fn lacks(&self, key: &ObjectKey) -> bool {
        !self.0.iter().any(|(bundle, namespace)| bundle.has(key, namespace))
    }
}

/// What a source owns and no bundle of its agent has.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct PruneCandidates {
    /// What is to be deleted.
    pub(super) prune: Vec<PruneEntry>,
    /// How many are not to be deleted as long as another source may turn out to have them.
    pub(super) withheld: u32,
}

impl SourceState {
    fn selection(&self) -> Option<Sha256> {
        self.configuration.as_ref().map(SourceConfiguration::selection)
    }

    /// Its newest bundle was made of the files that its configuration names now.
    fn is_read(&self) -> bool {
        self.newest
            .as_ref()
            .is_some_and(|newest| newest.selection.is_none() || newest.selection == self.selection())
    }

    /// A change of the configuration took files from it, which another source may have since: it left, or it names other files
    /// than those that its agent has.
    fn may_have_handed_over(&self) -> bool {
        let names_others = |desired: &Desired| {
            desired.withheld > 0 || (desired.selection.is_some() && desired.selection != self.selection())
        };
        !self.configured || self.desired.as_ref().is_none_or(names_others)
    }

    /// The bundle that the agent should have, held or not.
    pub(super) fn candidate(&self) -> Option<&Bundle> {
        self.pinned.as_ref().or(self.newest.as_ref())
    }

    /// Whether the agent was told of this bundle last.
    pub(super) fn is_desired(&self, bundle: &Bundle) -> bool {
        self.desired
            .as_ref()
            .is_some_and(|desired| (&desired.commit, desired.bundle) == (&bundle.commit, bundle.digest))
    }

    /// The bundle that is held, while it is the one that the agent should have, and the commit that brings it now.
    pub(super) fn held(&self) -> Option<(&str, &Held)> {
        let candidate = self.candidate()?;
        let held = self.held.as_ref().filter(|held| held.bundle == candidate.digest)?;
        Some((&candidate.commit, held))
    }

    /// A person confirmed this bundle.
    pub(super) fn is_confirmed(&self, candidate: &Bundle) -> bool {
        if self.confirmed_bundle == Some(candidate.digest) {
            return true;
        }
        // An older event names a commit only: it stands for the bundle that was held or desired at that commit.
        let is_of = |bundle: Option<BlobDigest>| bundle == Some(candidate.digest);
        self.confirmed.as_ref() == Some(&candidate.commit)
            && (is_of(self.held.as_ref().map(|held| held.bundle))
                || is_of(self.desired.as_ref().map(|desired| desired.bundle)))
    }

    fn sync_ended(&self, sync: SyncId) -> bool {
        self.observed.as_ref().is_some_and(|observed| observed.sync == sync && observed.finished.is_some())
    }

    fn removal_verdict(&self, surplus: PruneSummary) -> Verdict {
        // What was under way when the source left is heard of later.
        let is_new = match &self.removal {
            None => true,
            Some(removal) => surplus.unlisted && removal.sync.is_none_or(|sync| self.sync_ended(sync)),
        };
        if is_new { Verdict::Remove { prune: Vec::new() } } else { Verdict::Nothing }
    }

    /// How many of these the agent kept when it was asked to delete them: to ask again is nothing new.
    fn kept_of(&self, gone: &[PruneEntry]) -> u32 {
        let is_kept = |entry: &&PruneEntry| {
            self.inventory.get(&entry.identity.key()).is_some_and(|owned| owned.kept.is_some())
        };
        u32::try_from(gone.iter().filter(is_kept).count()).unwrap_or(u32::MAX)
    }

    fn reason_to_hold(&self, candidate: &Bundle, prunes: u32) -> Option<HoldReason> {
        if prunes == 0 || self.is_confirmed(candidate) {
            return None;
        }
        if candidate.objects == 0 {
            return Some(HoldReason::Empty);
        }
        let inventory = u32::try_from(self.inventory.len()).unwrap_or(u32::MAX);
        (prunes > SMALL_PRUNE && u64::from(prunes) * 2 > u64::from(inventory))
            .then_some(HoldReason::LargePrune { prunes, inventory })
    }

    fn decide_sync(&self, source: SourceId, sync: SyncId) -> Result<Vec<DeliveryEvent>, Refusal> {
        if self.suspended.is_some() {
            return Err(Refusal::new(RefusalKind::Conflict, "the source is suspended: resume it first"));
        }
        if self.desired.is_none() {
            return Err(Refusal::new(
                RefusalKind::Conflict,
                "the source has no bundle yet: nothing can be synced",
            ));
        }
        Ok(vec![DeliveryEvent::SyncRequested(SyncRequested { source, sync })])
    }

    fn decide_confirm(&self, source: SourceId, seen: Option<String>) -> Result<Vec<DeliveryEvent>, Refusal> {
        let (commit, held) = self
            .held()
            .ok_or_else(|| Refusal::new(RefusalKind::Conflict, "nothing of this source is held"))?;
        // A later commit may have brought the same bundle: either commit names it.
        let is_seen =
            |seen: &String| [held.commit.as_str(), commit].iter().any(|own| own.starts_with(seen.as_str()));
        if let Some(seen) = seen.filter(|seen| !is_seen(seen)) {
            let message = format!("commit {commit} is held, not {seen}: review it and confirm that commit");
            return Err(Refusal {
                field: Some("commit".to_owned()),
                ..Refusal::new(RefusalKind::Conflict, message)
            });
        }
        let (commit, bundle) = (commit.to_owned(), Some(held.bundle));
        Ok(vec![DeliveryEvent::BundleConfirmed(BundleConfirmed { source, commit, bundle })])
    }
}
