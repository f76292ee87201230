//! What is known of an agent's word beside the objects: up to where it was folded, which kinds it lists, which it does not see.

use std::collections::BTreeMap;

use events::observation::{MissingRight, Observation, ObservedKind};
use events::{OrganizationId, Timestamp};
use serde::{Deserialize, Serialize};

use super::change::RecordedAt;

/// Batches behind a gap in their sequence that are kept until what is missing comes.
const EARLY: usize = 256;
/// Kinds of one agent that are kept, each namespace that is listed by itself counted apart.
const KINDS: usize = 20_000;

/// One agent, as its batches tell of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Whose it is.
    pub organization: OrganizationId,
    /// Epoch and sequence of the last observation that was folded.
    pub seen: (u64, u64),
    /// Batches of this epoch behind a gap.
    pub(crate) early: BTreeMap<u64, Vec<Observation>>,
    /// When its last batch was recorded.
    pub heard_at: Timestamp,
    /// The newest gap in all that it tells: an epoch ended, batches were lost, or the log began behind its first ones.
    pub gap: Option<Gap>,
    /// More objects of it are there than are kept.
    pub is_full: bool,
    /// What it lists, and what it does not see.
    pub kinds: BTreeMap<KindPlace, KindState>,
}

/// A kind in one namespace or in all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KindPlace {
    /// API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace, empty for all.
    pub namespace: String,
}

/// What is known of a kind that an agent observes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindState {
    /// The resource, such as `deployments`.
    pub plural: String,
    /// Its objects are in namespaces.
    pub namespaced: bool,
    /// When all of it was listed last.
    pub listed_at: Option<Timestamp>,
    /// When the agent had listed all of it last: by its own clock, or the log's where that is earlier.
    pub known_at: Option<Timestamp>,
    /// In which epoch that was.
    pub listed_in: Option<u64>,
    /// In which epoch it was listed or said to be blind last.
    pub told_in: Option<u64>,
    /// Why it is not seen.
    pub blind: Option<Blind>,
    /// The newest gap in what was seen of it.
    pub gap: Option<Gap>,
}

/// A kind is not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blind {
    /// Why, in the API server's words.
    pub reason: String,
    /// The right that is missing.
    pub missing: Option<MissingRight>,
    /// Since when.
    pub since: Timestamp,
}

/// Some states of objects were not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// When, as the agent claims.
    pub seen_at: Timestamp,
    /// When that was recorded.
    pub recorded_at: Timestamp,
    /// In which record of the log.
    pub sequence: u64,
    /// Epoch and sequence behind which states are missing: what was reported later is known to be so.
    pub stated: (u64, u64),
}

impl Gap {
    pub(crate) const fn at(at: RecordedAt, stated: (u64, u64), seen_at: Timestamp) -> Self {
        Self { seen_at, recorded_at: at.recorded_at, sequence: at.sequence, stated }
    }
}

impl KindPlace {
    /// What a feed is about.
    #[must_use]
    pub fn of(kind: &ObservedKind) -> Self {
        let ObservedKind { group, kind, namespace, .. } = kind.clone();
        Self { group, kind, namespace }
    }

    /// Whether it is a place of that kind, whichever.
    fn is_of(&self, of: &ObservedKind) -> bool {
        (&self.group, &self.kind) == (&of.group, &of.kind)
    }
}

impl Observed {
    /// Nothing was heard of it.
    #[must_use]
    pub const fn new(organization: OrganizationId) -> Self {
        Self {
            organization,
            seen: (0, 0),
            early: BTreeMap::new(),
            heard_at: Timestamp(0),
            gap: None,
            is_full: false,
            kinds: BTreeMap::new(),
        }
    }

    /// The state of a kind in one namespace, and then in all of them.
    pub fn kind_states<'a>(
        &'a self,
        group: &str,
        kind: &str,
        namespace: &str,
    ) -> impl Iterator<Item = &'a KindState> + use<'a> {
        let place = |namespace: &str| KindPlace {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
        };
        let own = (!namespace.is_empty()).then(|| place(namespace));
        [own, Some(place(""))].into_iter().flatten().filter_map(|place| self.kinds.get(&place))
    }

    /// Why a kind is not seen in a namespace. Where it is listed by itself it is seen, whatever is so of all namespaces together.
    #[must_use]
    pub fn blind(&self, group: &str, kind: &str, namespace: &str) -> Option<&Blind> {
        self.kind_states(group, kind, namespace).next().and_then(|state| state.blind.as_ref())
    }

    /// What is kept of a kind; `None` where no more kinds are.
    pub(crate) fn kind_mut(&mut self, of: &ObservedKind) -> Option<&mut KindState> {
        let place = KindPlace::of(of);
        if self.kinds.len() >= KINDS && !self.kinds.contains_key(&place) {
            return None;
        }
        Some(self.kinds.entry(place).or_insert_with(|| KindState {
            plural: of.plural.clone(),
            namespaced: of.namespaced,
            listed_at: None,
            known_at: None,
            listed_in: None,
            told_in: None,
            blind: None,
            gap: None,
        }))
    }

    /// All objects of a kind were listed: where that was in all namespaces, what was said of single ones does not count any more.
    pub(crate) fn listed(&mut self, of: &ObservedKind, at: Timestamp, seen_at: Timestamp) {
        if of.namespace.is_empty() {
            self.kinds.retain(|place, _| place.namespace.is_empty() || !place.is_of(of));
        }
        let epoch = self.seen.0;
        let Some(kind) = self.kind_mut(of) else { return };
        (kind.listed_at, kind.blind) = (Some(at), None);
        kind.known_at = Some(at.min(seen_at));
        (kind.listed_in, kind.told_in) = (Some(epoch), Some(epoch));
        kind.plural.clone_from(&of.plural);
        kind.namespaced = of.namespaced;
    }

    /// A kind cannot be seen.
    pub(crate) fn blinded(&mut self, of: &ObservedKind, why: Blind) {
        let epoch = self.seen.0;
        let Some(kind) = self.kind_mut(of) else { return };
        let since = kind.blind.as_ref().map_or(why.since, |blind| blind.since);
        kind.blind = Some(Blind { since, ..why });
        kind.told_in = Some(epoch);
    }

    /// A kind is not observed any more.
    pub(crate) fn dropped(&mut self, of: &ObservedKind) {
        let is_in = |place: &KindPlace| of.namespace.is_empty() || place.namespace == of.namespace;
        self.kinds.retain(|place, _| !place.is_of(of) || !is_in(place));
    }

    /// All kinds were reported in this epoch, but for those of groups that were silent: forgets the others. `false`, and nothing is
    /// forgotten, where more kinds may have been reported than are kept.
    pub(crate) fn settled(&mut self, silent: &[String]) -> bool {
        if self.kinds.len() >= KINDS {
            return false;
        }
        let epoch = self.seen.0;
        self.kinds.retain(|place, kind| kind.told_in == Some(epoch) || silent.contains(&place.group));
        true
    }

    /// Whether nothing of it was folded yet.
    pub(crate) fn is_new(&self) -> bool {
        self.seen == (0, 0)
    }

    /// A new epoch begins behind `seen`. The writer of the former one is gone, and what it had not sent died with it.
    pub(crate) fn begin_epoch(&mut self, seen: (u64, u64), at: RecordedAt) {
        if !self.is_new() || seen.1 > 0 {
            self.gap = Some(Gap::at(at, seen, at.recorded_at));
        }
        (self.seen, self.is_full) = (seen, false);
        self.early.clear();
    }

    /// Keeps a batch until what is missing before it comes. Where too many wait, what is missing counts as lost: the first of them is
    /// folded next, behind a gap, and its agent's next list makes the state exact.
    pub(crate) fn keep_early(&mut self, first: u64, batch: Vec<Observation>, at: RecordedAt) {
        self.early.insert(first, batch);
        if self.early.len() > EARLY
            && let Some(next) = self.early.keys().next()
        {
            self.seen.1 = next.saturating_sub(1);
            self.gap = Some(Gap::at(at, self.seen, at.recorded_at));
        }
    }

    /// Whether a batch that begins so would wait, too, so that nothing is folded.
    pub(crate) fn keeps_waiting(&self, epoch: u64, first: u64) -> bool {
        let is_behind_a_hole = epoch == self.seen.0 && first > self.seen.1.saturating_add(1);
        is_behind_a_hole && self.early.len() < EARLY
    }

    /// Whether one of the observations that wait is such.
    pub(crate) fn has_early(&self, is_such: impl Fn(&Observation) -> bool) -> bool {
        self.early.values().flatten().any(is_such)
    }

    /// The next batch that waited and does not any more.
    pub(crate) fn next_early(&mut self) -> Option<(u64, Vec<Observation>)> {
        let first = *self.early.keys().next()?;
        (first <= self.seen.1.saturating_add(1)).then(|| self.early.pop_first()).flatten()
    }
}
