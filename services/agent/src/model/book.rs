//! What is known of each object that a source owns: what was applied last, whether somebody touched it since, how it is doing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use events::ObjectIdentity;
use events::digest::Sha256;
use events::object::ObjectKey;
use events::observation::TakenField;
use objects::health::{Health, HealthStatus};

use super::backoff::{Fight, Pauses};
use super::target::{Entry, Target};

/// What makes an object not well is looked up this long after it is seen, so that what is well again by then costs nothing; then ever more
/// rarely.
const LOOK_FIRST: Duration = Duration::from_secs(1);
const LOOK_CAP: Duration = Duration::from_secs(30);

/// How an object is doing, as far as the agent keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Status; `None`: the object has no health.
    pub status: Option<HealthStatus>,
    /// Why.
    pub message: String,
    /// A wait may end.
    pub settled: bool,
    /// No wait brings it about.
    pub optional: bool,
    /// When to judge again although the object does not change, milliseconds since 1970.
    pub recheck_at: Option<i64>,
    /// Others have to be asked why it is not well: its pods, its class.
    pub open: bool,
    /// They were asked, and the message is theirs.
    pub explained: bool,
}

impl From<Option<Health>> for Judged {
    fn from(health: Option<Health>) -> Self {
        let settled = health.as_ref().is_none_or(Health::is_settled);
        let Some(health) = health else {
            return Self {
                status: None,
                message: String::new(),
                settled,
                optional: false,
                recheck_at: None,
                open: false,
                explained: false,
            };
        };
        let Health { status, message, optional, recheck_at, .. } = health;
        Self { status: Some(status), message, settled, optional, recheck_at, open: false, explained: false }
    }
}

impl Judged {
    /// The status in a word, as the log has it.
    #[must_use]
    pub fn word(&self) -> String {
        self.status.map_or_else(|| "none".to_owned(), |status| status.as_str().to_lowercase())
    }

    /// Another reason is worth a word.
    fn is_telling(&self) -> bool {
        self.explained || self.status == Some(HealthStatus::Degraded)
    }

    fn is_well(&self) -> bool {
        matches!(self.status, None | Some(HealthStatus::Healthy | HealthStatus::Suspended))
    }
}

/// When an object is looked at although nothing was seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Look {
    /// `None`: to be put off from the next moment at which somebody asks.
    at: Option<Duration>,
    /// How many were in vain.
    times: u32,
}

/// Somebody touched the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// It is gone.
    pub deleted: bool,
    /// Fields and who has them now.
    pub fields: Vec<TakenField>,
}

/// What is known of one object.
#[derive(Debug, Clone)]
pub struct Known {
    /// With namespace and version.
    pub identity: ObjectIdentity,
    /// Its UID.
    pub uid: String,
    /// The newest resource version seen.
    pub version: u64,
    /// Digest of the manifest that is applied; `None` when that is not certain.
    pub digest: Option<Sha256>,
    /// What was applied last, if this process knows it.
    pub applied: Option<Arc<Entry>>,
    /// See [`super::managed::touch_mark`].
    pub touch: Option<Sha256>,
    /// It existed before us.
    pub adopted: bool,
    /// What others added, and how much of it there is.
    pub extra: Vec<TakenField>,
    /// How it is doing; `None` until somebody told.
    pub health: Option<Judged>,
    /// What was said of its health before may not be so any more: the first that is seen is news.
    doubted: bool,
    /// It ran to its end under the manifest that was applied: it may be gone, and is not made again.
    finished: bool,
    /// Somebody touched it.
    pub drift: Option<Drift>,
    /// When the drift may be corrected, by the monotonic clock.
    pub correct_at: Duration,
    pauses: Pauses,
    look: Option<Look>,
}

impl Known {
    /// Nothing but its name is known yet.
    fn new(identity: &ObjectIdentity, doubted: bool, fight: Option<Fight>) -> Self {
        Self {
            identity: identity.clone(),
            uid: String::new(),
            version: 0,
            digest: None,
            applied: None,
            touch: None,
            adopted: false,
            extra: Vec::new(),
            health: None,
            doubted,
            finished: false,
            drift: None,
            correct_at: Duration::ZERO,
            pauses: Pauses::after(fight),
            look: None,
        }
    }

    /// Somebody changes it back again and again, and its next correction has to wait: a sync that does not change it leaves it alone.
    fn is_fought_over(&self, now: Duration) -> bool {
        self.drift.is_some() && self.pauses.is_fight() && now < self.correct_at
    }
}

/// What an object looked like in an answer or a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub version: u64,
    /// See [`super::managed::touch_mark`].
    pub touch: Option<Sha256>,
    /// How it is doing, where its kind tells.
    pub health: Option<Judged>,
}

/// What was before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// The object existed before us.
    pub adopted: bool,
    /// It existed, and its health may have been told: by an applier before, or before it left the book.
    pub judged: bool,
}

/// What a sight means for the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nothing new.
    Nothing,
    /// A field of ours was touched: ask [`super::managed::lost_fields`] and tell [`Book::drifted`].
    Touched,
    /// It is gone.
    Deleted,
    /// Its health changed.
    Health(Judged),
}

/// All objects of one source.
#[derive(Debug, Clone, Default)]
pub struct Book {
    known: BTreeMap<ObjectKey, Known>,
    /// Objects that are being written, and the newest version that watches showed meanwhile.
    writing: BTreeMap<ObjectKey, u64>,
    /// Fights over objects that are not known yet, from before this book was begun.
    past: BTreeMap<ObjectKey, Fight>,
}

/// What the end of a write brings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settled {
    /// The new health, where it changed.
    pub health: Option<Judged>,
    /// A drift ended.
    pub corrected: bool,
    /// Watches showed something newer meanwhile, which has to be looked at.
    pub overheard: bool,
}

/// What the end of a run brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The manifest that ran.
    pub digest: Sha256,
    /// A drift was noted, which is not corrected any more.
    pub drifted: bool,
}

impl Book {
    /// An empty book that remembers the fights of a former one.
    #[must_use]
    pub fn remembering(past: BTreeMap<ObjectKey, Fight>) -> Self {
        Self { past, ..Self::default() }
    }

    /// Fights of a former book, over objects that are not known yet.
    pub fn remember(&mut self, past: BTreeMap<ObjectKey, Fight>) {
        self.past = past;
    }

    /// Fights that are not over, for the next book.
    pub fn fights(&self, now: Duration) -> impl Iterator<Item = (&ObjectKey, Fight)> {
        let known = self.known.iter().filter_map(|(key, known)| Some((key, known.pauses.fight()?)));
        known
            .chain(self.past.iter().map(|(key, fight)| (key, *fight)))
            .filter(move |(_, fight)| !fight.is_over(now))
    }

    /// What is known of an object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Known> {
        self.known.get(key)
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Known)> {
        self.known.iter()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Forgets an object that is not ours any more.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.writing.remove(key);
        self.known.remove(key);
        self.past.remove(key);
    }

    /// Forgets all others.
    pub fn retain(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.known.retain(|key, _| keep(key));
    }

    /// Forgets all but what ran to its end, of which the cluster may tell nothing any more.
    pub fn keep_finished(&mut self) {
        self.writing.clear();
        self.known.retain(|_, known| known.finished);
    }

    /// The object with this UID ran to its end; what that brings, if it is news.
    pub fn finished(&mut self, key: &ObjectKey, uid: &str) -> Option<Finished> {
        let known = self.known.get_mut(key).filter(|known| !known.finished && known.uid == uid)?;
        let digest = known.digest?;
        known.finished = true;
        Some(Finished { digest, drifted: known.drift.take().is_some() })
    }

    /// Enters that a target ran to its end before this applier began, and why it failed if it did. What this applier did since is newer.
    pub fn recall_finished(&mut self, target: &Target, failed: Option<&str>) {
        let known =
            self.known.entry(target.key.clone()).or_insert_with(|| Known::new(&target.identity, false, None));
        let digest = Some(target.entry.digest);
        if !known.finished && known.digest.is_some() && known.digest != digest {
            return;
        }
        if known.digest != digest {
            known.health = None;
        }
        known.finished = true;
        known.digest = digest;
        let status = if failed.is_some() { HealthStatus::Degraded } else { HealthStatus::Healthy };
        known.health.get_or_insert_with(|| Judged {
            status: Some(status),
            message: failed.unwrap_or_default().to_owned(),
            settled: failed.is_none(),
            optional: false,
            recheck_at: None,
            open: false,
            explained: false,
        });
    }

    /// Whether a target ran to its end under the very manifest that is wanted.
    #[must_use]
    pub fn is_finished(&self, target: &Target) -> bool {
        self.known
            .get(&target.key)
            .is_some_and(|known| known.finished && known.digest == Some(target.entry.digest))
    }

    /// Whether a target has to be dry-run and applied: its manifest is another than the applied one, it was touched, or all are to
    /// be checked.
    #[must_use]
    pub fn needs_apply(&self, target: &Target, check_all: bool, now: Duration) -> bool {
        !self.is_finished(target)
            && (check_all
                || self.known.get(&target.key).is_none_or(|known| {
                    known.digest != Some(target.entry.digest)
                        || (known.drift.is_some() && !known.is_fought_over(now))
                        || known.identity.version != target.identity.version
                }))
    }

    /// Whether a sync leaves a touched target to its next correction, because somebody fights over it.
    #[must_use]
    pub fn is_left_alone(&self, target: &Target, check_all: bool, now: Duration) -> bool {
        !self.needs_apply(target, check_all, now)
            && self.known.get(&target.key).is_some_and(|known| known.drift.is_some())
    }

    /// A write is under way: what watches say of the object waits for its answer.
    pub fn write_begins(&mut self, key: &ObjectKey) {
        self.writing.insert(key.clone(), 0);
    }

    /// A write ended without an answer; whether watches showed something meanwhile, which has to be looked at.
    pub fn write_failed(&mut self, key: &ObjectKey) -> bool {
        self.writing.remove(key).is_some_and(|overheard| overheard > 0)
    }

    /// Notes what a watch showed of an object that is being written.
    fn overhear(&mut self, key: &ObjectKey, version: u64) -> bool {
        match self.writing.get_mut(key) {
            Some(newest) => {
                *newest = version.max(*newest);
                true
            }
            None => false,
        }
    }

    /// The object is as it should be: after a write, or found so.
    pub fn settled(&mut self, target: &Target, sight: Sight, before: Before, now: Duration) -> Settled {
        let Before { adopted, judged } = before;
        let overheard = self.writing.remove(&target.key).is_some_and(|newest| newest > sight.version);
        let past = self.past.remove(&target.key);
        let known = self
            .known
            .entry(target.key.clone())
            .or_insert_with(|| Known::new(&target.identity, judged, past));
        known.identity = target.identity.clone();
        known.digest = Some(target.entry.digest);
        known.applied = Some(Arc::clone(&target.entry));
        known.touch = sight.touch;
        known.uid = sight.uid;
        known.version = sight.version;
        known.adopted = adopted;
        known.finished = false;
        let corrected = known.drift.take().is_some();
        if corrected {
            known.pauses.corrected(now);
        }
        Settled { health: new_health(known, sight.health), corrected, overheard }
    }

    /// An object that carries our mark, found in the cluster by a new applier. `applied`: the manifest that it has, where that is
    /// certain.
    pub fn found(
        &mut self,
        identity: &ObjectIdentity,
        sight: Sight,
        applied: Option<Arc<Entry>>,
        adopted: bool,
    ) {
        let key = identity.key();
        let fresh = Known::new(identity, sight.health.is_none(), self.past.remove(&key));
        let digest = applied.as_ref().map(|entry| entry.digest);
        let finished = self.known.get(&key).is_some_and(|before| {
            before.finished && before.uid == sight.uid && digest.is_some() && before.digest == digest
        });
        self.known.insert(
            key,
            Known {
                finished,
                uid: sight.uid,
                version: sight.version,
                digest,
                applied,
                touch: sight.touch,
                adopted,
                health: sight.health,
                ..fresh
            },
        );
    }

    /// A watch or a list showed an object.
    pub fn sighted(&mut self, key: &ObjectKey, sight: Sight) -> Seen {
        if self.overhear(key, sight.version) {
            return Seen::Nothing;
        }
        let Some(known) = self.known.get_mut(key) else { return Seen::Nothing };
        if sight.version < known.version || (sight.version == known.version && known.health.is_some()) {
            return Seen::Nothing;
        }

        known.version = sight.version;
        if known.digest.is_some() && (sight.touch != known.touch || sight.uid != known.uid) {
            return Seen::Touched;
        }
        new_health(known, sight.health).map_or(Seen::Nothing, Seen::Health)
    }

    /// Notes what others added as of a version; whether that is news.
    pub fn added(&mut self, key: &ObjectKey, version: u64, extra: &[TakenField]) -> bool {
        let Some(known) = self.known.get_mut(key).filter(|known| version >= known.version) else {
            return false;
        };
        let is_news = known.extra != extra;
        if is_news {
            known.extra = extra.to_vec();
        }
        is_news
    }

    /// The object was asked for because nobody told of it: its health counts although its version is known. Whether somebody touched it is
    /// for a watch to say, to which this version is news then.
    pub fn observed(&mut self, key: &ObjectKey, sight: Sight) -> Option<Judged> {
        let known = self.known.get_mut(key).filter(|known| sight.version >= known.version)?;
        if sight.touch == known.touch {
            known.version = sight.version;
        }
        new_health(known, sight.health)
    }

    /// A watch or a list says that an object is gone as of `version`.
    pub fn vanished(&mut self, key: &ObjectKey, version: u64) -> Seen {
        if self.overhear(key, version) {
            return Seen::Nothing;
        }
        match self.known.get_mut(key) {
            Some(known) if known.version <= version => {
                known.version = version;
                if known.finished { Seen::Nothing } else { Seen::Deleted }
            }
            _ => Seen::Nothing,
        }
    }

    /// Notes a drift; `false` when it was known already. The next correction of the object waits longer the more often it drifted.
    pub fn drifted(&mut self, key: &ObjectKey, drift: Drift, now: Duration) -> bool {
        let Some(known) = self.known.get_mut(key).filter(|known| !known.finished) else { return false };
        known.health =
            if drift.deleted { Some(Judged::from(Some(Health::missing()))) } else { known.health.take() };
        let news = known.drift.as_ref() != Some(&drift);
        if known.drift.is_none() {
            known.correct_at = now + known.pauses.before_correction(now);
        } else if drift.deleted {
            // What was in the way of the correction, such as a deletion that had begun, may be over with that.
            known.correct_at = known.correct_at.min(now + known.pauses.without_failures(now));
        }
        known.drift = Some(drift);
        news
    }

    /// Objects to be looked at now although nothing was seen of them, `now` by the monotonic clock and `now_millis` since 1970; and when the
    /// next ones will be.
    pub fn due_checks(&mut self, now: Duration, now_millis: i64) -> (Vec<ObjectIdentity>, Option<Duration>) {
        let mut due = Vec::new();
        let mut next: Option<Duration> = None;
        for known in self.known.values_mut() {
            let (Some(look), Some(health)) = (&mut known.look, &known.health) else { continue };
            let at = *look.at.get_or_insert_with(|| {
                let wait = LOOK_FIRST.saturating_mul(1_u32.checked_shl(look.times).unwrap_or(u32::MAX));
                let open = health.open.then_some(wait.min(LOOK_CAP));
                let judged_at = health.recheck_at.map(|at| {
                    Duration::from_millis(u64::try_from(at.saturating_sub(now_millis)).unwrap_or(0))
                });
                now + open.into_iter().chain(judged_at).min().unwrap_or(LOOK_CAP)
            });
            if at <= now {
                *look = Look { at: None, times: look.times.saturating_add(1) };
                due.push(known.identity.clone());
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        (due, next)
    }

    /// Objects are judged by other rules from now on: they are looked at again at once.
    pub fn judge_again(&mut self, which: impl Fn(&ObjectKey) -> bool, now: Duration) {
        for (_, known) in self.known.iter_mut().filter(|(key, known)| known.health.is_some() && which(key)) {
            known.look = Some(Look { at: Some(now), times: 0 });
        }
    }

    /// Postpones a correction that failed, by no more than `longest`.
    pub fn correction_failed(&mut self, key: &ObjectKey, now: Duration, longest: Duration) {
        if let Some(known) = self.known.get_mut(key) {
            known.correct_at = now + known.pauses.after_failure().min(longest);
        }
    }

    /// What these objects waited for may have come: corrections of theirs that failed are due again. Whether there are any.
    pub fn unblock(&mut self, which: impl Fn(&ObjectKey) -> bool, now: Duration) -> bool {
        let mut any = false;
        for (_, known) in self.known.iter_mut().filter(|(key, known)| known.drift.is_some() && which(key)) {
            if known.pauses.has_failures() {
                known.correct_at = now + known.pauses.without_failures(now);
                any = true;
            }
        }
        any
    }

    /// Drifted objects whose correction is due, and when the next one will be.
    #[must_use]
    pub fn corrections(&self, now: Duration) -> (Vec<ObjectKey>, Option<Duration>) {
        let drifted = self.known.iter().filter(|(_, known)| known.drift.is_some());
        let mut due = Vec::new();
        let mut next: Option<Duration> = None;
        for (key, known) in drifted {
            if known.correct_at <= now {
                due.push(key.clone());
            } else {
                next = Some(next.map_or(known.correct_at, |next| next.min(known.correct_at)));
            }
        }
        (due, next)
    }
}

/// Keeps a health; gives it back where a person would want to hear of it.
fn new_health(known: &mut Known, health: Option<Judged>) -> Option<Judged> {
    let health = health?;
    let look = known.look.take();
    if health.open || health.recheck_at.is_some() {
        known.look = Some(look.unwrap_or_default());
    }
    if health.open && !health.explained && known.health.as_ref().is_some_and(|before| before.explained) {
        // What was found out holds until it is looked at again, which is soon: a status that changes tells less.
        known.look = Some(Look::default());
        return None;
    }
    let before = known.health.replace(health.clone());
    let doubted = std::mem::take(&mut known.doubted);
    let changed = match &before {
        None if doubted => true,
        // What is healthy from the start is no news.
        None => !matches!(health.status, None | Some(HealthStatus::Healthy)),
        Some(before) => {
            before.status != health.status
                || before.optional != health.optional
                || (!health.is_well() && before.message != health.message && health.is_telling())
        }
    };
    changed.then_some(health)
}

#[cfg(test)]
mod tests;
