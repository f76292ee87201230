//! What waits to be told of objects: of each object only its newest state, bounded in bytes; and what was sent, until it is durable.
//!
//! A sequence is given when something is sent for the first time. What covers others, such as the end of a list, keeps its place behind
//! them: a newer state takes the place of the one that waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use events::observation::{Gone, ObjectBody, Observation, Observed, ObservedKind};
use events::{ObjectIdentity, Sha256, Timestamp};
use tunnel::wire::{Acknowledged, Batch};

use super::known::Head;

/// Bytes that wait, or are sent and not durable, at most. Marks may exceed it.
pub const MAXIMUM_BYTES: usize = 16 << 20;
/// Below this there is room again for those who wait.
pub const ROOM_BYTES: usize = MAXIMUM_BYTES / 2;
/// While no more wait, the end of an object does not take the place of its last state, without which nobody would know what came and went.
const STATES_KEPT_BYTES: usize = MAXIMUM_BYTES / 4;
/// Bytes that are sent and not durable; above this, sending waits.
const UNACKNOWLEDGED_BYTES: usize = 4 << 20;
/// Observations in one batch.
const BATCH: usize = 200;
/// Approximate bytes in one batch, unless one alone has more: well below what a frame may have.
const BATCH_BYTES: usize = 192 << 10;
/// Largest body that travels in a frame; a larger one is fetched by its digest.
pub const LARGEST_BODY: usize = 384 << 10;
/// What an observation takes besides its texts.
const ENVELOPE_BYTES: usize = 200;

/// The queue. One epoch at a time.
#[derive(Debug, Default)]
pub struct ObjectQueue {
    epoch: u64,
    /// Sequence of the first in `sent`; everything before it is durable.
    first: u64,
    sent: VecDeque<Sent>,
    sent_bytes: usize,
    waiting: BTreeMap<Place, Waiting>,
    waiting_bytes: usize,
    next_number: u64,
    /// Where the newest state of an object waits, by its UID.
    places: BTreeMap<Arc<str>, Place>,
    /// Where the gap of a kind waits.
    gaps: BTreeMap<Arc<ObservedKind>, Place>,
    /// Where it waits that a kind was listed, or is blind; in their order.
    seen: BTreeMap<Arc<ObservedKind>, Vec<Place>>,
    /// Where it waits, or waited, that all kinds were told of.
    settled: Option<Place>,
}

/// Where something waits: by its number, a gap directly before what else has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    number: u64,
    is_behind_gap: bool,
}

/// What it holds is on the heap: thousands of places, of which few are taken most of the time, are small so.
#[derive(Debug)]
struct Sent {
    observation: Box<Observation>,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    /// None where it is about all kinds.
    of: Option<Arc<ObservedKind>>,
    uid: Option<Arc<str>>,
    observation: Box<Observation>,
    bytes: usize,
}

impl ObjectQueue {
    /// Starts an epoch, unless it is the one that it is at: then all goes on.
    pub fn begin(&mut self, epoch: u64) {
        if self.epoch != epoch {
            *self = Self { epoch, first: 1, ..Self::default() };
        }
    }

    /// The epoch, 0 before the first one.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Bytes that wait, or are sent and not durable.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.sent_bytes + self.waiting_bytes
    }

    /// How many wait to be sent for the first time.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.waiting.len()
    }

    /// The sequence that comes next: what waits now, or comes later, has this one or a later one.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.first.saturating_add(self.sent.len() as u64)
    }

    /// Tells the newest state of an object, in the place of the one that waits. Its end comes behind its last state, while there is room.
    ///
    /// # Errors
    /// There is no room; it is given back.
    pub fn put(
        &mut self,
        of: &Arc<ObservedKind>,
        uid: &str,
        observation: Observation,
    ) -> Result<(), Box<Observed>> {
        let bytes = weight(&observation.what);
        let place = self.places.get(uid).copied();
        let waiting = place.and_then(|place| Some((place, self.waiting.get(&place)?)));
        let replaced = waiting.as_ref().map_or(0, |(_, waiting)| waiting.bytes);
        if self.epoch == 0 {
            return Ok(());
        }
        if self.bytes() - replaced + bytes > MAXIMUM_BYTES {
            return Err(Box::new(observation.what));
        }
        // The same object may be served as two kinds; each is reported.
        let keeps_state = self.bytes() + bytes <= STATES_KEPT_BYTES;
        let is_replaced = |(_, waiting): &(Place, &Waiting)| {
            let is_kept = keeps_state && is_end_of(&waiting.observation.what, &observation.what);
            waiting.of.as_ref() == Some(of) && !is_kept
        };
        let Some((place, former)) = waiting.filter(is_replaced) else {
            let uid = Arc::<str>::from(uid);
            let place = self.push(Some(of), Some(Arc::clone(&uid)), observation);
            self.places.insert(uid, place);
            return Ok(());
        };
        // What waits says that, and more.
        if matches!(observation.what, Observed::ObjectKept { .. }) {
            return Ok(());
        }
        let lost = lost_state(&former.observation.what, &observation.what);
        let at = observation.at;
        if let Some(waiting) = self.waiting.get_mut(&place) {
            (*waiting.observation, waiting.bytes) = (observation, bytes);
            self.waiting_bytes = self.waiting_bytes - replaced + bytes;
        }
        if let Some((from, to)) = lost {
            self.gap_before(place.number, of, Lost { from, to, dropped: 1 }, at);
        }
        Ok(())
    }

    /// Tells something of a kind, behind all that waits. That it is blind takes the place of why it was before, and that all of it was
    /// stated makes needless what waits of both.
    pub fn mark(&mut self, of: &Arc<ObservedKind>, observation: Observation) {
        if self.epoch == 0 {
            return;
        }
        match observation.what {
            Observed::KindBlind { .. } if self.is_told_blind(of, &observation) => {}
            Observed::KindBlind { .. } => {
                let place = self.push(Some(of), None, observation);
                self.seen.entry(Arc::clone(of)).or_default().push(place);
            }
            Observed::KindListed { .. } => {
                // What was reported before all kinds were has to stay before it.
                let since = self.settled;
                let needless = self.seen.get(of).into_iter().flatten().copied();
                let needless: Vec<Place> = needless.filter(|place| since < Some(*place)).collect();
                for place in needless {
                    self.take(place);
                }
                let place = self.push(Some(of), None, observation);
                self.seen.entry(Arc::clone(of)).or_default().push(place);
            }
            _ => drop(self.push(Some(of), None, observation)),
        }
    }

    /// Where the newest word of a kind waits and says that it is blind, it says so in these words from now on.
    fn is_told_blind(&mut self, of: &Arc<ObservedKind>, observation: &Observation) -> bool {
        let newest = self.seen.get(of).and_then(|places| places.last());
        let Some(waiting) = newest.and_then(|place| self.waiting.get_mut(place)) else { return false };
        if !matches!(waiting.observation.what, Observed::KindBlind { .. }) {
            return false;
        }
        let bytes = weight(&observation.what);
        self.waiting_bytes = self.waiting_bytes - waiting.bytes + bytes;
        (*waiting.observation, waiting.bytes) = (observation.clone(), bytes);
        true
    }

    /// Tells that all kinds were told of; one that waits moves behind what waits.
    pub fn settle(&mut self, observation: Observation) {
        if self.epoch == 0 {
            return;
        }
        if let Some(place) = self.settled {
            self.take(place);
        }
        self.settled = Some(self.push(None, None, observation));
    }

    /// Whether that was reported, or waits.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// States of a kind were left out, behind all that waits; one gap says so of all that are left out before it is sent, and stands before
    /// the first state that follows one. `dropped`: 0 if nobody knows how many.
    pub fn gap(&mut self, of: &Arc<ObservedKind>, from: &str, to: &str, dropped: u64, at: Timestamp) {
        let number = self.take_number();
        self.gap_before(number, of, Lost { from: from.to_owned(), to: to.to_owned(), dropped }, at);
    }

    fn gap_before(&mut self, number: u64, of: &Arc<ObservedKind>, lost: Lost, at: Timestamp) {
        if self.epoch == 0 {
            return;
        }
        let waiting = self.gaps.get(of).copied().and_then(|place| Some((place, self.take(place)?)));
        let (number, lost, at) = match waiting {
            Some((place, Waiting { observation, .. })) => {
                (number.min(place.number), lost.behind(observation.what), observation.at)
            }
            None => (number, lost, at),
        };
        let Lost { from, to, dropped } = lost;
        let what = Observed::ObjectsGap { of: ObservedKind::clone(of), from, to, dropped };
        let place = Place { number, is_behind_gap: false };
        self.insert(place, Some(of), None, Observation { at, what });
        self.gaps.insert(Arc::clone(of), place);
    }

    /// A kind is not observed any more: of what waits of it nothing is reported, and each object that was reported is gone.
    pub fn drop_kind(
        &mut self,
        of: &Arc<ObservedKind>,
        why: Gone,
        lost: impl Iterator<Item = Head>,
        at: Timestamp,
    ) {
        self.forget_kind(of);
        for head in lost {
            // The mark behind them says the same.
            if self.bytes() > MAXIMUM_BYTES {
                break;
            }
            self.mark(of, Observation { at, what: gone(of, head, why) });
        }
        let what = Observed::KindDropped { of: ObservedKind::clone(of), why };
        self.mark(of, Observation { at, what });
    }

    /// Of what waits of a kind nothing is reported: everything is stated anew.
    pub fn forget_kind(&mut self, of: &Arc<ObservedKind>) {
        let is_of_kind = |waiting: &Waiting| waiting.uid.is_some() && waiting.of.as_ref() == Some(of);
        let objects = self.waiting.iter().filter(|(_, waiting)| is_of_kind(waiting));
        let mut places: Vec<Place> = objects.map(|(place, _)| *place).collect();
        let words = self.seen.get(of).cloned().unwrap_or_default();
        // That all kinds were told of is not so any more where the word of this one was not sent.
        if let Some(settled) = self.settled
            && self.waiting.contains_key(&settled)
            && !words.is_empty()
        {
            self.take(settled);
            self.settled = None;
        }
        places.extend(words);
        for place in places {
            self.take(place);
        }
    }

    /// Durable up to here: forgets it. Another epoch's cursor changes nothing.
    pub fn acknowledge(&mut self, cursor: Acknowledged) {
        if cursor.epoch != self.epoch {
            return;
        }
        while self.first <= cursor.sequence
            && let Some(sent) = self.sent.pop_front()
        {
            self.first += 1;
            self.sent_bytes -= sent.bytes;
        }
    }

    /// The next batch for a response that gave everything up to `after`; `None`: nothing now.
    #[must_use]
    pub fn next(&mut self, after: Acknowledged) -> Option<Batch> {
        if self.epoch == 0 {
            return None;
        }
        let from = if after.epoch == self.epoch {
            after.sequence.saturating_add(1).max(self.first)
        } else {
            self.first
        };
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        self.send(skip.saturating_add(BATCH));
        let mut observations = Vec::new();
        let mut bytes = 0;
        for sent in self.sent.iter().skip(skip).take(BATCH) {
            bytes += sent.bytes;
            if bytes > BATCH_BYTES && !observations.is_empty() {
                break;
            }
            observations.push(Observation::clone(&sent.observation));
        }
        (!observations.is_empty()).then_some(Batch { epoch: self.epoch, first: from, observations })
    }

    /// Gives sequences until so many have one that is not durable.
    fn send(&mut self, until: usize) {
        while self.sent.len() < until && self.sent_bytes < UNACKNOWLEDGED_BYTES {
            let Some(place) = self.waiting.first_key_value().map(|(place, _)| *place) else { return };
            let Some(Waiting { observation, bytes, .. }) = self.take(place) else { return };
            self.sent_bytes += bytes;
            self.sent.push_back(Sent { observation, bytes });
        }
    }

    /// The object whose body of this digest was too large for a frame, while it is reported.
    #[must_use]
    pub fn large(&self, digest: &Sha256) -> Option<&ObjectIdentity> {
        let told = self.sent.iter().map(|sent| &sent.observation);
        let waiting = self.waiting.values().map(|waiting| &waiting.observation);
        told.chain(waiting).find_map(|observation| match &observation.what {
            Observed::ObjectSeen { object }
                if object.digest == *digest && matches!(object.body, ObjectBody::Blob { .. }) =>
            {
                Some(&object.identity)
            }
            _ => None,
        })
    }

    const fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    fn push(
        &mut self,
        of: Option<&Arc<ObservedKind>>,
        uid: Option<Arc<str>>,
        observation: Observation,
    ) -> Place {
        let place = Place { number: self.take_number(), is_behind_gap: true };
        self.insert(place, of, uid, observation);
        place
    }

    fn insert(
        &mut self,
        place: Place,
        of: Option<&Arc<ObservedKind>>,
        uid: Option<Arc<str>>,
        observation: Observation,
    ) {
        let bytes = weight(&observation.what);
        self.waiting_bytes += bytes;
        let observation = Box::new(observation);
        self.waiting.insert(place, Waiting { of: of.cloned(), uid, observation, bytes });
    }

    fn take(&mut self, place: Place) -> Option<Waiting> {
        let waiting = self.waiting.remove(&place)?;
        self.waiting_bytes -= waiting.bytes;
        if let Some(uid) = &waiting.uid
            && self.places.get(uid) == Some(&place)
        {
            self.places.remove(uid);
        }
        let Some(of) = &waiting.of else { return Some(waiting) };
        if self.gaps.get(of) == Some(&place) {
            self.gaps.remove(of);
        }
        if let Some(places) = self.seen.get_mut(of) {
            places.retain(|seen| *seen != place);
            if places.is_empty() {
                self.seen.remove(of);
            }
        }
        Some(waiting)
    }
}

/// States that are never told.
struct Lost {
    from: String,
    to: String,
    dropped: u64,
}

impl Lost {
    /// Together with those that a gap told before.
    fn behind(self, gap: Observed) -> Self {
        let Observed::ObjectsGap { from, to, dropped, .. } = gap else { return self };
        let is_known = dropped != 0 && self.dropped != 0;
        Self {
            from: if is_older(&self.from, &from) { self.from } else { from },
            to: if is_older(&self.to, &to) { to } else { self.to },
            dropped: if is_known { dropped.saturating_add(self.dropped) } else { 0 },
        }
    }
}

/// Whether a version is older than another one, where both are numbers.
fn is_older(version: &str, other: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    matches!((number(version), number(other)), (Some(version), Some(other)) if version < other)
}

/// That an object is gone.
#[must_use]
pub fn gone(of: &ObservedKind, head: Head, why: Gone) -> Observed {
    let identity = ObjectIdentity {
        group: of.group.clone(),
        version: of.version.clone(),
        kind: of.kind.clone(),
        namespace: head.namespace,
        name: head.name,
    };
    Observed::ObjectGone { identity, uid: head.uid, resource_version: head.version, why }
}

/// Whether an object of which a state waits is gone.
const fn is_end_of(former: &Observed, next: &Observed) -> bool {
    matches!((former, next), (Observed::ObjectSeen { .. }, Observed::ObjectGone { .. }))
}

/// The versions of a state that is never told, and of what is reported in its place.
fn lost_state(former: &Observed, next: &Observed) -> Option<(String, String)> {
    let Observed::ObjectSeen { object: former } = former else { return None };
    match next {
        Observed::ObjectSeen { object } if object.digest != former.digest => {
            Some((former.resource_version.clone(), object.resource_version.clone()))
        }
        Observed::ObjectGone { resource_version, .. } => {
            Some((former.resource_version.clone(), resource_version.clone()))
        }
        _ => None,
    }
}

/// About how many bytes it takes.
fn weight(what: &Observed) -> usize {
    let identity = |identity: &ObjectIdentity| {
        identity.group.len() + identity.kind.len() + identity.namespace.len() + identity.name.len()
    };
    ENVELOPE_BYTES
        + match what {
            Observed::ObjectSeen { object } => {
                identity(&object.identity)
                    + match &object.body {
                        ObjectBody::Json(body) => body.len(),
                        ObjectBody::Blob { .. } => 0,
                    }
            }
            Observed::ObjectKept { identity: of, .. } | Observed::ObjectGone { identity: of, .. } => {
                identity(of)
            }
            Observed::KindBlind { reason, .. } => reason.len(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests;
