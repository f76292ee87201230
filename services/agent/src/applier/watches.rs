//! Which watches run: one per kind in use, narrowed to the sources that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::configuration::{Mode, ServiceAccount};
use events::observation::{BrokenWatch, MissingRight, Observed};
use events::{SourceId, Timestamp};
use parking_lot::Mutex;
use world::spawn::TaskHandle;

use super::Shared;
use super::watch::Watch;
use crate::desired::View;
use crate::kubernetes::connections::WATCHES_PER_LANE;
use crate::kubernetes::{ApiError, Resource};

/// Broken watches of one source that are told; of the rest only how many.
const BROKEN_TOLD: usize = 20;
/// Missing rights that are told at once.
pub(super) const RIGHTS_TOLD: usize = 20;
const REASON_MAXIMUM: usize = 500;

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

/// Watches that do not work, and what was told of them.
#[derive(Default)]
pub(super) struct BrokenWatches {
    broken: BTreeMap<WatchKey, Broken>,
    told: BTreeMap<SourceId, Vec<WatchKey>>,
}

struct Broken {
    sources: BTreeSet<SourceId>,
    reason: String,
    missing: Option<MissingRight>,
    since: Timestamp,
}

impl BrokenWatches {
    /// A watch failed again; whether that is news.
    pub(super) fn broke(
        &mut self,
        key: &WatchKey,
        sources: &BTreeSet<SourceId>,
        error: &ApiError,
        now: Timestamp,
    ) -> bool {
        let is_news = !self.broken.contains_key(key);
        let broken = self.broken.entry(key.clone()).or_insert_with(|| Broken {
            sources: sources.clone(),
            reason: String::new(),
            missing: None,
            since: now,
        });
        (broken.reason, broken.missing) = (error.to_string(), error.missing_right());
        is_news
    }

    /// A watch works; whether that is news.
    pub(super) fn works(&mut self, key: &WatchKey) -> bool {
        self.broken.remove(key).is_some()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// For each source of which something else is to be told: its broken watches, and how many there are.
    fn news(&mut self) -> Vec<(SourceId, Vec<BrokenWatch>, u32)> {
        let mut now: BTreeMap<SourceId, Vec<WatchKey>> = BTreeMap::new();
        for (key, broken) in &self.broken {
            broken.sources.iter().for_each(|source| now.entry(*source).or_default().push(key.clone()));
        }
        let mut news = Vec::new();
        let sources: BTreeSet<SourceId> = now.keys().chain(self.told.keys()).copied().collect();
        for source in sources {
            if now.get(&source) != self.told.get(&source) {
                let keys = now.get(&source).map(Vec::as_slice).unwrap_or_default();
                let told = keys.iter().take(BROKEN_TOLD).filter_map(|key| self.describe(key)).collect();
                news.push((source, told, u32::try_from(keys.len()).unwrap_or(u32::MAX)));
            }
        }
        self.told = now;
        news
    }

    fn describe(&self, key: &WatchKey) -> Option<BrokenWatch> {
        let broken = self.broken.get(key)?;
        Some(BrokenWatch {
            group: key.resource.group.clone(),
            kind: key.resource.kind.clone(),
            namespace: key.namespace.clone(),
            reason: broken.reason.chars().take(REASON_MAXIMUM).collect(),
            since: broken.since,
            missing: broken.missing.clone(),
        })
    }

    /// The rights for want of which watches do not work, each once, and since when one of them is missing.
    pub(super) fn missing_rights(&self) -> (BTreeSet<&MissingRight>, Option<Timestamp>) {
        let forbidden = || self.broken.values().filter_map(|broken| Some((broken.missing.as_ref()?, broken)));
        let since = forbidden().map(|(_, broken)| broken.since).min();
        (forbidden().map(|(right, _)| right).collect(), since)
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
        let mut broken = shared.broken.lock();
        broken.broken.retain(|key, broken| {
            self.running.get(key).is_some_and(|(sources, _)| *sources == broken.sources)
        });
        for (source, broken, all) in broken.news() {
            if view.source(source).is_some() {
                shared.outbox.report(Observed::WatchesBroken { source, broken, all });
            }
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
    use crate::kubernetes::ApiStatus;

    #[test]
    fn broken_watches_are_told_when_they_change_and_until_they_work() {
        let resource = Arc::new(Resource {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            plural: "deployments".to_owned(),
            namespaced: true,
            listable: true,
            watchable: true,
        });
        let key = WatchKey { account: None, resource, namespace: "shop".to_owned() };
        let [one, two] = [1, 2].map(|number| SourceId(uuid::Uuid::from_u128(number)));
        let mut broken = BrokenWatches::default();
        let forbidden = |words: &str| {
            let message = format!(
                "{words}: User \"ann\" cannot list resource \"deployments\" in API group \"apps\" in the namespace \"shop\""
            );
            ApiError::Refused(Box::new(ApiStatus { code: 403, message, ..ApiStatus::default() }))
        };
        assert!(broken.broke(&key, &BTreeSet::from([one, two]), &forbidden("no"), Timestamp(5)));
        assert!(!broken.broke(&key, &BTreeSet::from([one, two]), &forbidden("still"), Timestamp(6)));
        let (rights, since) = broken.missing_rights();
        assert_eq!((rights.len(), since), (1, Some(Timestamp(5))));
        let news = broken.news();
        assert_eq!(news.iter().map(|(source, ..)| *source).collect::<Vec<_>>(), [one, two]);
        let (_, told, all) = &news[0];
        assert_eq!((told[0].kind.as_str(), told[0].since, *all), ("Deployment", Timestamp(5), 1));
        assert!(told[0].reason.starts_with("still"), "{told:?}");
        let missing = told[0].missing.as_ref().map(ToString::to_string);
        assert_eq!(missing.as_deref(), Some("ann may not list deployments.apps in namespace shop"));
        assert!(broken.news().is_empty(), "once");
        assert!(broken.works(&key) && !broken.works(&key));
        assert_eq!(broken.news(), [(one, vec![], 0), (two, vec![], 0)]);
        assert!(broken.news().is_empty());
    }

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
