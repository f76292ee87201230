//! Which watches run: one per kind in use, narrowed to the sources that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::SourceId;
use events::configuration::{Mode, ServiceAccount};
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
