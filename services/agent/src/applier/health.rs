//! Reading answers of the API server: what they show of an object, and why it is not well.

use std::sync::Arc;
use std::time::Duration;

use events::ObjectIdentity;
use events::object::ObjectKey;
use objects::health::{
    HealthOptions, HealthStatus, RuleSet, binds_on_first_use, evaluate, is_known_by_metadata,
    selector_of_pods, with_pods,
};
use serde::Deserialize;
use serde_json::Value;

use super::Shared;
use super::concurrent::concurrently;
use super::context::Context;
use crate::desired::View;
use crate::kubernetes::client::CONCURRENCY;
use crate::kubernetes::{Call, path};
use crate::model::book::{Judged, Sight};
use crate::model::finished::without_its_removal;
use crate::model::managed::touch_mark;
use crate::model::manifest::version_of;

/// Pods and events that are read to explain one object.
const EXPLAINING: usize = 100;

/// Kinds that have no health of their own: being there is all that can be asked of them. Their metadata is enough, so that the values
/// of Secrets and large contents are never fetched.
pub(super) fn has_health(identity: &ObjectIdentity) -> bool {
    !is_known_by_metadata(&identity.group, &identity.kind)
}

impl Shared {
    /// Judges by the rules of a state, unless those of a newer one are in force; objects that other rules judge now are looked at again.
    pub(super) fn follow_health_rules(&self, view: &View) {
        let mut revision = self.rules_of.lock();
        if view.revision <= *revision {
            return;
        }
        *revision = view.revision;
        if self.health.read().rules.is_of(&view.health.rules) {
            return;
        }
        let rules = Arc::new(RuleSet::new(&view.health.rules));
        let before = std::mem::replace(&mut self.health.write().rules, Arc::clone(&rules));
        let now = self.now();
        for book in self.books.lock().values_mut() {
            let is_covered =
                |key: &ObjectKey| before.covers(&key.group, &key.kind) || rules.covers(&key.group, &key.kind);
            book.judge_again(is_covered, now);
        }
        self.wakes.lock().values().for_each(|wake| wake.notify_one());
    }

    /// What a live object shows. `live` states its kind, or is metadata only where the kind tells no health.
    pub(super) fn sight(&self, live: &Value, identity: &ObjectIdentity) -> Sight {
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        Sight {
            uid,
            version: version_of(live),
            touch: touch_mark(live),
            health: Some(self.judge(live, identity)),
        }
    }

    fn judge(&self, live: &Value, identity: &ObjectIdentity) -> Judged {
        let options = self.health.read();
        let now_millis = self.world.clock.now_millis();
        if has_health(identity) {
            let as_it_ended = without_its_removal(live);
            let live = as_it_ended.as_ref().unwrap_or(live);
            let judged = Judged::from(evaluate(live, now_millis, &options));
            let open = is_open(live, &judged, &options);
            return Judged { open, ..judged };
        }
        // Only the deletion counts, which metadata tells.
        let mut bare = serde_json::json!({"apiVersion": identity.api_version(), "kind": identity.kind});
        if let (Some(bare), Some(metadata)) = (bare.as_object_mut(), live.get("metadata")) {
            let mut told = serde_json::Map::new();
            for key in ["deletionTimestamp", "finalizers"] {
                if let Some(value) = metadata.get(key) {
                    told.insert(key.to_owned(), value.clone());
                }
            }
            bare.insert("metadata".to_owned(), Value::Object(told));
        }
        Judged::from(evaluate(&bare, now_millis, &options))
    }
}

/// Whether others than the object know why it is not well.
fn is_open(live: &Value, judged: &Judged, options: &HealthOptions) -> bool {
    if !matches!(judged.status, Some(HealthStatus::Progressing | HealthStatus::Degraded)) {
        return false;
    }
    match class_of_pending_claim(live) {
        Some(class) => !options.first_consumer_classes.contains(class),
        None => selector_of_pods(live).is_some(),
    }
}

fn class_of_pending_claim(live: &Value) -> Option<&str> {
    let is_claim = live.get("kind").and_then(Value::as_str) == Some("PersistentVolumeClaim");
    let phase = live.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Pending");
    let class = live.pointer("/spec/storageClassName").and_then(Value::as_str);
    class.filter(|class| is_claim && phase == "Pending" && !class.is_empty())
}

impl Context {
    /// Looks at objects that are not well, and asks others why; gives the moment at which more are to be looked at.
    pub(super) async fn check_below(&self) -> Option<Duration> {
        let looks = || {
            let (now, now_millis) = (self.shared.now(), self.shared.world.clock.now_millis());
            self.shared.with_book(self.id(), |book| book.due_checks(now, now_millis))
        };
        let (due, next) = looks();
        if due.is_empty() {
            return next;
        }
        for some in due.chunks(CONCURRENCY) {
            concurrently(some.iter().map(|identity| self.explain(identity)).collect(), CONCURRENCY).await;
        }
        looks().1
    }

    async fn explain(&self, identity: &ObjectIdentity) {
        // What is gone is for a watch to say.
        let Ok(Some(live)) = self.get(identity).await else { return };
        if let Some(class) = class_of_pending_claim(&live) {
            self.learn_class(class, &live).await;
        }
        let mut sight = self.shared.sight(&live, identity);
        let plain = sight.health.take();
        let Some(plain) = plain else { return };
        sight.health = Some(if plain.open { self.explained(&live, plain).await } else { plain });
        if let Some(health) = self.shared.with_book(self.id(), |book| book.observed(&identity.key(), sight)) {
            self.report_health(identity, health);
            self.shared.wake(self.id());
        }
    }

    async fn explained(&self, live: &Value, plain: Judged) -> Judged {
        let Some(labels) = selector_of_pods(live) else { return plain };
        let text = |path: &str| live.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let namespace = text("/metadata/namespace");
        let pods = self
            .listed(namespace, "pods", &format!("labelSelector={}", path::escape(&selector.join(","))))
            .await;
        let fields = format!("involvedObject.uid={},type=Warning", text("/metadata/uid"));
        let warnings =
            self.listed(namespace, "events", &format!("fieldSelector={}", path::escape(&fields))).await;
        let now_millis = self.shared.world.clock.now_millis();
        let options = self.shared.health.read();
        let Some(health) = evaluate(live, now_millis, &options) else { return plain };
        let health = with_pods(live, health, &pods, &warnings, now_millis, &options);
        let explained = health.message != plain.message;
        Judged { open: plain.open, explained, ..Judged::from(Some(health)) }
    }

    /// What may not be listed explains nothing.
    async fn listed(&self, namespace: &str, plural: &str, query: &str) -> Vec<Value> {
        let Some(namespace) = path::segment(namespace) else { return Vec::new() };
        let call = Call::get(format!("/api/v1/namespaces/{namespace}/{plural}?limit={EXPLAINING}&{query}"));
        match self.shared.kube.read(call.as_account(self.account())).await {
            Ok(answer) => answer.json::<Listing>().map(|listing| listing.items).unwrap_or_default(),
            Err(error) => {
                tracing::debug!(plural, error = %error, "cannot read why an object is unhealthy");
                Vec::new()
            }
        }
    }

    /// Learns whether a storage class binds a volume only when its first consumer is placed: from the class, or from what the controller
    /// says at the claim, which may be read where the class may not.
    async fn learn_class(&self, class: &str, claim: &Value) {
        let Some(name) = path::segment(class) else { return };
        let call = Call::get(format!("/apis/storage.k8s.io/v1/storageclasses/{name}"));
        let binds_late = match self.shared.kube.read(call.as_account(self.account())).await {
            Ok(answer) => answer.json::<Value>().is_ok_and(|class| binds_on_first_use(&class)),
            Err(_) => {
                let text = |path: &str| claim.pointer(path).and_then(Value::as_str).unwrap_or_default();
                let fields =
                    format!("involvedObject.uid={},reason=WaitForFirstConsumer", text("/metadata/uid"));
                let query = format!("fieldSelector={}", path::escape(&fields));
                !self.listed(text("/metadata/namespace"), "events", &query).await.is_empty()
            }
        };
        let classes = &mut self.shared.health.write().first_consumer_classes;
        if binds_late {
            classes.insert(class.to_owned());
        } else {
            classes.remove(class);
        }
    }
}

#[derive(Deserialize)]
struct Listing {
    #[serde(default)]
    items: Vec<Value>,
}
