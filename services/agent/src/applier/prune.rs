//! Deleting what the server listed, if it is still ours.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use events::delivery::{ObjectFailure, PruneEntry};
use events::observation::Observed;
use events::{ObjectIdentity, SyncId};
use objects::order::delete_key;
use serde_json::Value;

use super::concurrent::concurrently;
use super::context::Context;
use super::inventory::{Listed, list};
use super::report::Report;
use super::stage::StageEnd;
use crate::kubernetes::client::CONCURRENCY;
use crate::kubernetes::discovery::Kinds;
use crate::kubernetes::{Accept, ApiError, Call, Resource, path};
use crate::model::manifest::live_mark;
use crate::model::prune::{Request, first_foreign, holds_others, keep_reason};
use crate::model::target::allowed;

/// So often, and so far apart, a kind is looked for before it counts as gone.
const LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What became of one entry of the list.
pub(super) enum Pruned {
    Deleted,
    Gone,
    Kept(String),
}

/// What is to become of one entry of the list, as the cluster is now.
pub(super) enum Fate {
    /// What lies there is to be deleted.
    Delete(String),
    /// Nothing is left to do.
    Settled(Pruned),
}

impl Context {
    /// Works the list off; entries done before (`done`, by UID) are skipped.
    pub(super) async fn prune_listed(&self, report: &mut Report, done: &mut BTreeSet<String>) -> StageEnd {
        let mut entries: Vec<&PruneEntry> =
            self.source.prune.iter().filter(|entry| !done.contains(&entry.uid)).collect();
        entries.sort_by(|left, right| delete_key(&left.identity).cmp(&delete_key(&right.identity)));
        let mut end = StageEnd::Done;
        for group in entries.chunk_by(|left, right| {
            left.identity.kind == right.identity.kind && left.identity.group == right.identity.group
        }) {
            if self.is_superseded() {
                return StageEnd::Superseded;
            }
            let prunes = group.iter().map(|entry| self.prune_and_tell(entry, report.sync)).collect();
            for (entry, result) in group.iter().zip(concurrently(prunes, CONCURRENCY).await) {
                match result {
                    Ok(pruned) => {
                        done.insert(entry.uid.clone());
                        report.counts.pruned += u32::from(matches!(pruned, Pruned::Deleted));
                    }
                    Err(ApiError::NotHolding) => end = StageEnd::Lost,
                    Err(error) => {
                        let failure = ObjectFailure {
                            identity: entry.identity.clone(),
                            file: String::new(),
                            line: 0,
                            message: format!("cannot be pruned: {error}"),
                        };
                        report.failed(failure, error.is_transient());
                        if end == StageEnd::Done {
                            end = StageEnd::Failed;
                        }
                    }
                }
            }
            if end == StageEnd::Lost {
                break;
            }
        }
        end
    }

    /// Told at once: this process may be asked to end while others of the group are still at it.
    async fn prune_and_tell(&self, entry: &PruneEntry, sync: SyncId) -> Result<Pruned, ApiError> {
        let pruned = self.prune(entry).await;
        let outcome = match &pruned {
            Ok(Pruned::Deleted) => "deleted",
            Ok(Pruned::Gone) => "gone",
            Ok(Pruned::Kept(_)) => "kept",
            Err(_) => "failed",
        };
        self.shared.counts.pruned_objects.with([outcome]).inc();
        let pruned = pruned?;
        self.shared.with_book(self.id(), |book| book.forget(&entry.identity.key()));
        self.shared.outbox.tell(Observed::ObjectPruned {
            sync: Some(sync),
            source: self.id(),
            identity: entry.identity.clone(),
            uid: entry.uid.clone(),
            kept: match &pruned {
                Pruned::Kept(reason) => Some(reason.clone()),
                Pruned::Deleted | Pruned::Gone => None,
            },
        });
        Ok(pruned)
    }

    async fn prune(&self, entry: &PruneEntry) -> Result<Pruned, ApiError> {
        match self.fate(entry).await? {
            Fate::Delete(path) => self.delete(path, entry).await,
            Fate::Settled(pruned) => Ok(pruned),
        }
    }

    /// Looks, and deletes nothing.
    pub(super) async fn fate(&self, entry: &PruneEntry) -> Result<Fate, ApiError> {
        let identity = &entry.identity;
        let key = identity.key();
        let kept = |reason: String| Ok(Fate::Settled(Pruned::Kept(reason)));
        if !allowed(&self.view.resources, identity) {
            return kept("the agent's configuration does not let it manage this kind".to_owned());
        }
        // Who only asks what would be has another bundle of this source than the view.
        let others = self.view.sources.iter().filter(|other| other.head.source != self.id());
        if self.source.has(&key) || others.into_iter().any(|other| other.has(&key)) {
            return kept("it is in a bundle".to_owned());
        }
        let gone = Ok(Fate::Settled(Pruned::Gone));
        let Some(resource) = self.resource_of(identity).await? else { return gone };
        let Some(path) = path::object(&resource, &identity.namespace, &identity.name) else { return gone };
        let call = Call::get(path.clone()).accept(Accept::Metadata).as_account(self.account());
        let live: Value = match self.shared.kube.read(call).await {
            Ok(answer) => answer.json()?,
            Err(error) if error.code() == 404 => return gone,
            Err(error) => return Err(error),
        };
        let mark = live_mark(&live, identity);
        let request = Request {
            uid: &entry.uid,
            owner: &self.owner,
            prune_adopted: self.source.head.policies.prune_adopted,
        };
        if let Some(reason) = keep_reason(request, &mark) {
            return kept(reason.to_owned());
        }
        if mark.terminating {
            return Ok(Fate::Settled(Pruned::Deleted));
        }
        if holds_others(identity)
            && let Some(reason) = self.foreign_inside(identity).await?
        {
            return kept(reason);
        }
        Ok(Fate::Delete(path))
    }

    /// The resource of an object that was there once; `None` when its kind is gone for good.
    async fn resource_of(&self, identity: &ObjectIdentity) -> Result<Option<Arc<Resource>>, ApiError> {
        if let Some(resource) = self.shared.discovery.kinds().find_any(identity) {
            return Ok(Some(resource));
        }
        let found = self.served(&identity.group, |kinds| kinds.find_any(identity).into_iter().collect());
        Ok(found.await?.pop())
    }

    /// Asks afresh for what is served, more than once: while definitions come and go the API server's own list of kinds lacks
    /// others of their group for a moment, and what is not in it would count as gone.
    async fn served(
        &self,
        group: &str,
        wanted: impl Fn(&Kinds) -> Vec<Arc<Resource>> + Send,
    ) -> Result<Vec<Arc<Resource>>, ApiError> {
        let mut looks = 0;
        loop {
            let kinds = self.shared.discovery.refresh(&self.shared.kube).await?;
            let found = wanted(&kinds);
            looks += 1;
            if !found.is_empty() {
                return Ok(found);
            }
            if looks == LOOKS {
                return match kinds.silent_groups().any(|silent| silent == group) {
                    true => Err(ApiError::Unreachable { detail: format!("{group} is not served now") }),
                    false => Ok(found),
                };
            }
            self.shared.world.clock.sleep(LOOK_AGAIN).await;
        }
    }

    async fn delete(&self, path: String, entry: &PruneEntry) -> Result<Pruned, ApiError> {
        let key = entry.identity.key();
        self.shared.with_book(self.id(), |book| book.write_begins(&key));
        let call = Call::delete(path, &entry.uid).as_account(self.account());
        let result = self.shared.kube.write(call, &self.shared.holding).await;
        match result {
            Ok(_) => Ok(Pruned::Deleted),
            Err(error) if error.code() == 404 => Ok(Pruned::Gone),
            Err(error)
                if error.code() == 409
                    && error.status().is_some_and(|status| status.message.contains("UID")) =>
            {
                Ok(Pruned::Kept("another object has this name now".to_owned()))
            }
            Err(error) => {
                self.shared.with_book(self.id(), |book| book.write_failed(&key));
                Err(error)
            }
        }
    }

    /// Why a namespace or a definition cannot go: something in it is not ours, or cannot be read. Always asks afresh.
    async fn foreign_inside(&self, identity: &ObjectIdentity) -> Result<Option<String>, ApiError> {
        let (resources, namespace): (Vec<_>, &str) = if identity.kind == "Namespace" {
            let kinds = self.shared.discovery.refresh(&self.shared.kube).await?;
            if let Some(silent) = kinds.silent_groups().next() {
                let detail =
                    format!("what is in it is not known while the API group {silent} does not answer");
                return Err(ApiError::Impossible { detail });
            }
            let inside = kinds.preferred().filter(|resource| resource.namespaced && resource.listable);
            (inside.cloned().collect(), &identity.name)
        } else {
            let (plural, group) = identity.name.split_once('.').unwrap_or((&identity.name, ""));
            let defined = |kinds: &Kinds| {
                let served = kinds.preferred();
                served.filter(|one| one.plural == plural && one.group == group).cloned().collect()
            };
            (self.served(group, defined).await?, "")
        };
        if resources.is_empty() {
            return Ok(Some("what is in it cannot be listed".to_owned()));
        }
        let account = self.account();
        let lists = resources
            .iter()
            .map(|resource| list(&self.shared.kube, account, resource, namespace, ""))
            .collect();
        let mut found = Vec::new();
        for (resource, listed) in resources.iter().zip(concurrently(lists, 16).await) {
            match listed? {
                Listed::Items(items) => {
                    found.extend(items.into_iter().map(|live| (listed_identity(resource, &live), live)))
                }
                Listed::Absent => {}
                Listed::Forbidden(message) => {
                    return Ok(Some(format!("{} in it cannot be read: {message}", resource.plural)));
                }
            }
        }
        let gone: BTreeSet<&str> = self.source.prune.iter().map(|entry| entry.uid.as_str()).collect();
        Ok(first_foreign(&found, &self.owner, &gone)
            .map(|foreign| format!("something in it is not ours: {foreign}")))
    }
}

/// The identity of an item of a list answer.
pub(super) fn listed_identity(resource: &Resource, live: &Value) -> ObjectIdentity {
    let text = |key: &str| live.pointer(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    ObjectIdentity {
        group: resource.group.clone(),
        version: resource.version.clone(),
        kind: resource.kind.clone(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    }
}
