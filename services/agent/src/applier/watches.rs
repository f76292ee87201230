//! Which watches run: one per kind in use, narrowed to the sources that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::SourceId;
use events::configuration::{Mode, ServiceAccount};
use parking_lot::Mutex;
use world::spawn::TaskHandle;

use super::Shared;
use super::watch::Watch;
use crate::desired::View;
use crate::kubernetes::Resource;
use crate::kubernetes::connections::WATCHES_PER_LANE;

/// A kind that a service account may not list over all namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Forbidden {
    pub(super) account: Option<ServiceAccount>,
    pub(super) resource: Arc<Resource>,
}

/// What one watch is over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WatchKey {
    pub(super) account: Option<ServiceAccount>,
    pub(super) resource: Arc<Resource>,
    /// Empty: all namespaces.
    pub(super) namespace: String,
}

/// What is followed right now, so that whatever happens to it is known a moment later.
#[derive(Default)]
pub(super) struct Followed(Mutex<BTreeMap<WatchKey, usize>>);

/// Something is followed until this is dropped.
pub(super) struct Following<'a> {
    followed: &'a Followed,
    key: &'a WatchKey,
}

impl Followed {
    pub(super) fn begin<'a>(&'a self, key: &'a WatchKey) -> Following<'a> {
        *self.0.lock().entry(key.clone()).or_default() += 1;
        Following { followed: self, key }
    }

    /// Of which kinds, and in which namespaces, an account's objects are followed; an empty namespace is all of them.
    pub(super) fn by(&self, account: Option<&ServiceAccount>) -> BTreeSet<(Arc<Resource>, String)> {
        let followed = self.0.lock();
        let own = followed.keys().filter(|key| key.account.as_ref() == account);
        own.map(|key| (Arc::clone(&key.resource), key.namespace.clone())).collect()
    }
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        let mut followed = self.followed.0.lock();
        // The watch that follows an ended one may have begun before that one's end.
        if let Some(count) = followed.get_mut(self.key) {
            *count -= 1;
            if *count == 0 {
                followed.remove(self.key);
            }
        }
    }
}

/// Those that run.
#[derive(Default)]
pub(super) struct Watches {
    running: BTreeMap<WatchKey, (BTreeSet<SourceId>, TaskHandle)>,
}

impl Watches {
    /// Starts what is needed and ends what is not.
    pub(super) fn lay_out(&mut self, shared: &Arc<Shared>, view: &Arc<View>) {
        let mut wanted = needed(shared, view);
        self.running.retain(|key, (sources, task)| {
            let keep = wanted.get(key) == Some(sources) && !task.is_finished();
            if keep {
                wanted.remove(key);
            } else {
                task.abort();
            }
            keep
        });
        for (key, sources) in wanted {
            let lane = self.running.len() / WATCHES_PER_LANE;
            let watch = Watch::new(Arc::clone(shared), key.clone(), sources.clone(), lane);
            let task = shared.world.spawner.spawn("agent watch", Box::pin(watch.run()));
            self.running.insert(key, (sources, task));
        }
    }

    pub(super) fn stop(&mut self) {
        for (_, task) in self.running.values() {
            task.abort();
        }
        self.running.clear();
    }
}

fn needed(shared: &Shared, view: &View) -> BTreeMap<WatchKey, BTreeSet<SourceId>> {
    let kinds = shared.discovery.kinds();
    let forbidden = shared.forbidden.lock();
    let mut needed: BTreeMap<WatchKey, BTreeSet<SourceId>> = BTreeMap::new();
    for source in &view.sources {
        if view.lockdown && source.account().is_none() {
            continue;
        }
        let mut seen = BTreeSet::new();
        for entry in source.entries.iter().flatten() {
            let identity = &entry.identity;
            if !seen.insert((&identity.group, &identity.version, &identity.kind, &identity.namespace)) {
                continue;
            }
            let Some(resource) = kinds.find(identity).filter(|resource| resource.watchable) else { continue };
            let account = source.account().cloned();
            let narrow = view.mode == Mode::Namespaced
                || forbidden
                    .contains(&Forbidden { account: account.clone(), resource: Arc::clone(&resource) });
            let namespace = match (narrow && resource.namespaced, identity.namespace.is_empty()) {
                (false, _) => String::new(),
                (true, true) => source.head.default_namespace.clone(),
                (true, false) => identity.namespace.clone(),
            };
            needed.entry(WatchKey { account, resource, namespace }).or_default().insert(source.head.source);
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_followed_twice_is_followed_until_both_end() {
        let resource = Arc::new(Resource {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            plural: "deployments".to_owned(),
            namespaced: true,
            listable: true,
            watchable: true,
        });
        let namespace = "shop".to_owned();
        let key = WatchKey { account: None, resource: Arc::clone(&resource), namespace: namespace.clone() };
        let followed = Followed::default();
        let former = followed.begin(&key);
        let newer = followed.begin(&key);
        drop(former);
        assert_eq!(followed.by(None), BTreeSet::from([(resource, namespace)]));
        let account = ServiceAccount { namespace: "shop".to_owned(), name: "deployer".to_owned() };
        assert_eq!(followed.by(Some(&account)), BTreeSet::new());
        drop(newer);
        assert_eq!(followed.by(None), BTreeSet::new());
    }
}
