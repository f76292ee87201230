//! Drift: seen by a watch, told with its author, corrected with back-off.

use std::sync::Arc;
use std::time::Duration;

use events::ObjectIdentity;
use events::Timestamp;
use events::object::ObjectKey;
use events::observation::{Observed, TakenField};
use serde_json::Value;

use super::concurrent::concurrently;
use super::context::Context;
use super::health::has_health;
use crate::kubernetes::client::CONCURRENCY;
use crate::kubernetes::{Accept, ApiError, Call, path};
use crate::model::book::{Drift, Judged, Seen};
use crate::model::extra::{TOLD, extra_fields, unwanted};
use crate::model::managed::lost_fields;
use crate::model::manifest::{prepare, version_of};
use crate::model::target::{Entry, Target, target_of};
use crate::model::verdict::is_for_want_of_a_namespace;

/// A namespace that comes back is noticed by a watch. Without the right to watch namespaces, objects in it are tried again so often.
pub(super) const NAMESPACE_WAIT: Duration = Duration::from_secs(60);

impl Context {
    /// Corrects what is due; gives the moment at which more will be.
    pub(super) async fn correct_due(&self) -> Option<Duration> {
        let head = &self.source.head;
        if head.suspended || !head.policies.correct_drift || self.locked().is_some() {
            return None;
        }
        let (due, next) = self.shared.with_book(self.id(), |book| book.corrections(self.shared.now()));
        if due.is_empty() {
            return next;
        }
        let those = self.to_correct(&due);
        concurrently(those.iter().map(|target| self.correct(target)).collect(), CONCURRENCY).await;
        self.shared.with_book(self.id(), |book| book.corrections(self.shared.now())).1
    }

    /// What is put right: as it was applied last, which may be another manifest than that of a bundle that is not applied yet.
    fn to_correct(&self, due: &[ObjectKey]) -> Vec<Target> {
        let resolution = self.resolve();
        let default = &self.source.head.default_namespace;
        let now = self.shared.now();
        let mut those = Vec::new();
        for key in due {
            let is_awaited = resolution.awaited.iter().any(|awaited| awaited.is(key, default));
            let is_wanted = is_awaited || resolution.targets.iter().any(|target| target.key == *key);
            self.shared.with_book(self.id(), |book| {
                let known = book.get(key);
                match known.and_then(|known| Some((known.identity.clone(), known.applied.clone()?))) {
                    // Its kind is not served; it is applied as soon as that comes back.
                    _ if is_awaited => book.correction_failed(key, now, NAMESPACE_WAIT),
                    Some((identity, applied)) if is_wanted => {
                        match target_of(identity, applied, &self.shared.discovery.kinds()) {
                            Some(target) => those.push(target),
                            None => book.correction_failed(key, now, NAMESPACE_WAIT),
                        }
                    }
                    // It left the bundle, and its end is up to a prune list; or how it was is not known, and the next run of a sync
                    // puts it right.
                    _ => book.forget(key),
                }
            });
        }
        those
    }

    async fn correct(&self, target: &Target) {
        let result = match self.check(target).await {
            Ok(checked) => self.apply(target, &checked, None).await.map(|_| ()),
            Err(failed) => Err(failed),
        };
        let Err(failed) = result else { return };
        let now = self.shared.now();
        let is_noticed = self.shared.signalled.follows_namespaces();
        let is_polled = !is_noticed && is_for_want_of_a_namespace(failed.error.as_ref());
        let longest = if is_polled { NAMESPACE_WAIT } else { Duration::MAX };
        let wait = self.shared.with_book(self.id(), |book| {
            book.correction_failed(&target.key, now, longest);
            book.get(&target.key).map(|known| known.correct_at.saturating_sub(now)).unwrap_or_default()
        });
        if failed.is_loss_of_lease() {
            return;
        }
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        self.shared.outbox.report(Observed::CorrectionFailed {
            source: self.id(),
            failure: failed.failure,
            retry_at: Some(Timestamp(self.shared.world.clock.now_millis()).plus_millis(millis)),
        });
    }

    /// A watch or a list showed an object that is in one of this source's books.
    pub(super) fn saw(&self, identity: &ObjectIdentity, live: &Value) {
        let key = identity.key();
        self.note_end(identity, live);
        let sight = self.shared.sight(live, identity);
        match self.shared.with_book(self.id(), |book| book.sighted(&key, sight)) {
            Seen::Nothing => {}
            Seen::Touched => self.drifted(&key, live),
            Seen::Deleted => {}
            Seen::Health(health) => {
                self.report_health(identity, health);
                self.shared.wake(self.id());
            }
        }
        self.check_extra(identity, live);
    }

    /// Tells what others added. Where the source is strict, additions by hand are drift.
    pub(super) fn check_extra(&self, identity: &ObjectIdentity, live: &Value) {
        let extra = extra_fields(live);
        let key = identity.key();
        if !self.shared.with_book(self.id(), |book| book.added(&key, version_of(live), &extra)) {
            return;
        }
        let policies = &self.source.head.policies;
        let unwanted: Vec<TakenField> =
            unwanted(&extra, &policies.strict_managers).filter(|_| policies.strict).cloned().collect();
        self.shared.outbox.report(Observed::ExtraSeen {
            source: self.id(),
            identity: identity.clone(),
            all: u32::try_from(extra.len()).unwrap_or(u32::MAX),
            fields: extra.into_iter().take(TOLD).collect(),
        });
        let is_drifted = || {
            self.shared.with_book(self.id(), |book| book.get(&key).is_some_and(|known| known.drift.is_some()))
        };
        if !unwanted.is_empty() && !is_drifted() {
            self.note_drift(&key, Drift { deleted: false, fields: unwanted });
        }
    }

    pub(super) fn report_health(&self, identity: &ObjectIdentity, health: Judged) {
        self.shared.outbox.report(Observed::HealthChanged {
            source: self.id(),
            sync: Some(self.source.head.sync),
            identity: identity.clone(),
            status: health.word(),
            message: health.message,
            optional: health.optional,
        });
    }

    /// A watch or a list says that an object is gone, or lost the label by which it is found: which of both has to be asked.
    pub(super) async fn missed(&self, identity: &ObjectIdentity, version: u64) {
        let key = identity.key();
        if self.shared.with_book(self.id(), |book| book.vanished(&key, version)) != Seen::Deleted {
            return;
        }
        match self.get(identity).await {
            Ok(Some(live)) if live.pointer("/metadata/deletionTimestamp").is_none() => {
                self.drifted(&key, &live)
            }
            Ok(_) => self.note_drift(&key, Drift { deleted: true, fields: Vec::new() }),
            // What cannot be asked is put right without being explained.
            Err(_) => self.note_drift(&key, Drift { deleted: false, fields: Vec::new() }),
        }
    }

    /// A watch showed something newer than what a write of ours gave.
    pub(super) async fn recheck(&self, identity: &ObjectIdentity) {
        match self.get(identity).await {
            Ok(Some(live)) => self.saw(identity, &live),
            Ok(None) => self.note_drift(&identity.key(), Drift { deleted: true, fields: Vec::new() }),
            Err(_) => self.note_drift(&identity.key(), Drift { deleted: false, fields: Vec::new() }),
        }
    }

    /// The object as it is now; `None`: it is not there.
    pub(super) async fn get(&self, identity: &ObjectIdentity) -> Result<Option<Value>, ApiError> {
        let kinds = self.shared.discovery.kinds();
        let Some(resource) = kinds.find_any(identity) else { return Ok(None) };
        let Some(path) = path::object(&resource, &identity.namespace, &identity.name) else {
            return Ok(None);
        };
        let accept = if has_health(identity) { Accept::Whole } else { Accept::Metadata };
        match self.shared.kube.read(Call::get(path).accept(accept).as_account(self.account())).await {
            Ok(answer) => answer.json().map(Some),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn drifted(&self, key: &ObjectKey, live: &Value) {
        let fields = self
            .shared
            .with_book(self.id(), |book| {
                book.get(key).map(|known| (known.identity.clone(), known.applied.clone(), known.adopted))
            })
            .and_then(|(identity, applied, adopted)| {
                let entry = applied.or_else(|| self.entry(key).map(|(entry, _)| Arc::clone(entry)))?;
                prepare(&entry.manifest, &identity, entry.digest, &self.owner, adopted).ok()
            })
            .map(|prepared| lost_fields(live, &prepared.object))
            .unwrap_or_default();
        self.note_drift(key, Drift { deleted: false, fields });
    }

    pub(super) fn note_drift(&self, key: &ObjectKey, drift: Drift) {
        let Some((_, identity)) = self.entry(key) else {
            // Not in the bundle any more: nothing to be corrected, and nothing to be believed when it comes back.
            self.shared.with_book(self.id(), |book| book.forget(key));
            return;
        };
        let now = self.shared.now();
        if self.shared.with_book(self.id(), |book| book.drifted(key, drift.clone(), now)) {
            let Drift { deleted, fields } = drift;
            self.shared.outbox.report(Observed::DriftSeen { source: self.id(), identity, fields, deleted });
        }
        self.shared.wake(self.id());
    }

    /// The bundle's entry of a key that no other source holds, and its identity in the cluster.
    fn entry(&self, key: &ObjectKey) -> Option<(&Arc<Entry>, ObjectIdentity)> {
        let entry = self.source.entry(key).filter(|entry| !self.source.is_wanted(entry))?;
        let identity = ObjectIdentity { namespace: key.namespace.clone(), ..entry.identity.clone() };
        Some((entry, identity))
    }
}
