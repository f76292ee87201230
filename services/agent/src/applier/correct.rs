//! Drift: seen by a watch, told with its author, corrected with back-off.

use std::sync::Arc;
use std::time::Duration;

use events::ObjectIdentity;
use events::Timestamp;
use events::object::ObjectKey;
use events::observation::Observed;
use serde_json::Value;

use super::concurrent::concurrently;
use super::context::Context;
use super::health::tells_health;
use crate::kubernetes::client::CONCURRENCY;
use crate::kubernetes::{Accept, ApiError, Call, path};
use crate::model::book::{Drift, Judged, Seen};
use crate::model::managed::lost_fields;
use crate::model::manifest::prepare;
use crate::model::target::{Entry, Target};

impl Context {
    /// Corrects what is due; gives the moment at which more will be.
    pub(super) async fn correct_due(&self) -> Option<Duration> {
        let head = &self.source.head;
        if head.suspended || !head.policies.correct_drift || self.blocked().is_some() {
            return None;
        }
        let (due, next) = self.shared.with_book(self.id(), |book| book.corrections(self.shared.now()));
        if due.is_empty() {
            return next;
        }
        let resolution = self.resolve();
        let targets = &resolution.targets;
        let those: Vec<&Target> = targets.iter().filter(|target| due.contains(&target.key)).collect();
        for key in due.iter().filter(|key| !those.iter().any(|target| target.key == **key)) {
            // It left the bundle; its end is up to a prune list.
            self.shared.with_book(self.id(), |book| book.forget(key));
        }
        concurrently(those.into_iter().map(|target| self.correct(target)).collect(), CONCURRENCY).await;
        self.shared.with_book(self.id(), |book| book.corrections(self.shared.now())).1
    }

    async fn correct(&self, target: &Target) {
        let result = match self.check(target).await {
            Ok(checked) => self.apply(target, &checked, None).await.map(|_| ()),
            Err(failed) => Err(failed),
        };
        let Err(failed) = result else { return };
        let now = self.shared.now();
        let wait = self.shared.with_book(self.id(), |book| {
            book.correction_failed(&target.key, now);
            book.get(&target.key).map(|known| known.correct_at.saturating_sub(now)).unwrap_or_default()
        });
        if failed.is_loss_of_lease() {
            return;
        }
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        self.shared.outbox.tell(Observed::ObjectFailed {
            sync: self.source.head.sync,
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
                self.tell_health(identity, health);
                self.shared.wake(self.id());
            }
        }
    }

    pub(super) fn tell_health(&self, identity: &ObjectIdentity, health: Judged) {
        self.shared.outbox.tell(Observed::HealthChanged {
            source: self.id(),
            sync: Some(self.source.head.sync),
            identity: identity.clone(),
            status: health.word(),
            message: health.message,
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
    pub(super) async fn look_again(&self, identity: &ObjectIdentity) {
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
        let accept = if tells_health(identity) { Accept::Whole } else { Accept::Metadata };
        match self.shared.kube.read(Call::get(path).accept(accept).as_account(self.account())).await {
            Ok(answer) => answer.json().map(Some),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn drifted(&self, key: &ObjectKey, live: &Value) {
        let fields = self
            .entry(key)
            .and_then(|(entry, identity)| {
                let adopted =
                    self.shared.with_book(self.id(), |book| book.get(key).is_some_and(|known| known.adopted));
                prepare(&entry.manifest, &identity, entry.digest, &self.owner, adopted).ok()
            })
            .map(|prepared| lost_fields(live, &prepared.object))
            .unwrap_or_default();
        self.note_drift(key, Drift { deleted: false, fields });
    }

    fn note_drift(&self, key: &ObjectKey, drift: Drift) {
        let Some((_, identity)) = self.entry(key) else {
            // Not in the bundle any more: nothing to be corrected, and nothing to be believed when it comes back.
            self.shared.with_book(self.id(), |book| book.forget(key));
            return;
        };
        let now = self.shared.now();
        if self.shared.with_book(self.id(), |book| book.drifted(key, drift.clone(), now)) {
            let Drift { deleted, fields } = drift;
            self.shared.outbox.tell(Observed::DriftSeen { source: self.id(), identity, fields, deleted });
        }
        self.shared.wake(self.id());
    }

    /// The bundle's entry of a key, and its identity in the cluster.
    fn entry(&self, key: &ObjectKey) -> Option<(&Arc<Entry>, ObjectIdentity)> {
        let entries = self.source.entries.as_deref()?;
        let default = &self.source.head.default_namespace;
        let entry = entries
            .iter()
            .find(|entry| crate::model::target::has_key(std::slice::from_ref(entry), default, key))?;
        let identity = ObjectIdentity { namespace: key.namespace.clone(), ..entry.identity.clone() };
        Some((entry, identity))
    }
}
