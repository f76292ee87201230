//! What the server wants: the newest desired state that is complete, and the contents that it names.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use events::bundle::{BundlePage, MAXIMUM_SOURCE_BYTES, OBJECT_BYTES};
use events::configuration::{HealthSettings, Mode, ObserveRules, ResourceRules, ServiceAccount};
use events::delivery::{PruneEntry, WantedObject};
use events::desired::{
    Applier, ConfigurationRejection, DesiredReply, DesiredSource, DesiredState, SourceHead,
};
use events::digest::Sha256;
use events::object::ObjectKey;
use events::{AgentId, ObjectIdentity, OrganizationId, SourceId};
use objects::ownership::OwnerMark;
use parking_lot::Mutex;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::watch;

use crate::model::manifest::{LiveMark, live_mark};
use crate::model::share::{over_share, share};
use crate::model::target::{Entry, has_key};

/// A complete desired state.
#[derive(Debug)]
pub struct View {
    /// The digest of the state as it was sent.
    pub digest: Sha256,
    /// Its revision.
    pub revision: u64,
    /// Whose.
    pub organization: OrganizationId,
    /// For whom.
    pub agent: AgentId,
    /// Who applies.
    pub applier: Option<Applier>,
    /// How far the agent reaches.
    pub mode: Mode,
    /// Kinds that it may manage.
    pub resources: ResourceRules,
    /// What it observes.
    pub observe: ObserveRules,
    /// How health is judged, beyond the built-in rules.
    pub health: HealthSettings,
    /// Each request must impersonate.
    pub lockdown: bool,
    /// Deleted agents whose name it has: what they applied is this agent's.
    pub replaces: Vec<AgentId>,
    /// Why its newest configuration is not in force.
    pub rejected: Option<ConfigurationRejection>,
    /// The sources.
    pub sources: Vec<Arc<SourceView>>,
}

/// One source of it.
#[derive(Debug)]
pub struct SourceView {
    /// What is said of it.
    pub head: SourceHead,
    /// Its objects; `None`: there never was a good bundle, or the source is removed.
    pub entries: Option<Vec<Arc<Entry>>>,
    /// Why its bundle was not taken; `entries` are those of the one before then.
    pub refused: Option<String>,
    /// What to delete.
    pub prune: Vec<PruneEntry>,
    /// Entries that other sources hold, as the manifests name them: neither applied nor deleted for this source.
    pub wanted: BTreeMap<ObjectKey, WantedObject>,
    /// Changes when anything changes that a sync depends on.
    pub fingerprint: Sha256,
}

impl View {
    /// A source by id.
    #[must_use]
    pub fn source(&self, id: SourceId) -> Option<&Arc<SourceView>> {
        self.sources.iter().find(|source| source.head.source == id)
    }

    /// The mark of a source's objects.
    #[must_use]
    pub fn owner(&self, source: SourceId) -> OwnerMark {
        OwnerMark {
            organization: self.organization.to_string(),
            agent: self.agent.to_string(),
            source: source.to_string(),
        }
    }

    /// The marks of a live object. One of an agent that this one replaces counts as this one's, of the source that has its
    /// source's name now.
    #[must_use]
    pub fn mark_of(&self, live: &Value, identity: &ObjectIdentity) -> LiveMark {
        let mut mark = live_mark(live, identity);
        if let Some(owner) = &mut mark.owner
            && owner.organization == self.organization.to_string()
            && let Some(former) = self.replaces.iter().find(|former| former.to_string() == owner.agent)
        {
            let same_name = self
                .sources
                .iter()
                .find(|source| SourceId::derive(*former, &source.head.name).to_string() == owner.source);
            owner.agent = self.agent.to_string();
            if let Some(source) = same_name {
                owner.source = source.head.source.to_string();
            }
        }
        mark
    }

    /// How many objects that a source may apply are in another one's bundle, too.
    #[must_use]
    pub fn contested(&self, source: &SourceView) -> usize {
        let others = self.sources.iter().filter(|other| other.head.source != source.head.source);
        let theirs: HashSet<_> = others.flat_map(|other| other.names()).collect();
        source.names().filter(|name| theirs.contains(name)).count()
    }

    /// Whether the source whose id has this text is to apply an object of this key.
    #[must_use]
    pub fn has_in_source(&self, source: &str, key: &ObjectKey) -> bool {
        self.sources
            .iter()
            .filter(|other| other.head.source.to_string() == source)
            .any(|other| other.entry(key).is_some_and(|entry| !other.is_wanted(entry)))
    }

    /// The name of the source whose id has this text; else the text.
    #[must_use]
    pub fn name_of<'a>(&'a self, source: &'a str) -> &'a str {
        let named = self.sources.iter().find(|other| other.head.source.to_string() == source);
        named.map_or(source, |named| &named.head.name)
    }
}

impl SourceView {
    /// Whether its bundle has an object of this key, also one that another source holds.
    #[must_use]
    pub fn has(&self, key: &ObjectKey) -> bool {
        self.entry(key).is_some()
    }

    /// Whether an object of its bundle is in this namespace.
    #[must_use]
    pub fn uses_namespace(&self, name: &str) -> bool {
        self.names().any(|[_, _, namespace, _]| namespace == name)
    }

    /// The bundle's entry of an object.
    #[must_use]
    pub fn entry(&self, key: &ObjectKey) -> Option<&Arc<Entry>> {
        let is_it =
            |entry: &&Arc<Entry>| has_key(std::slice::from_ref(entry), &self.head.default_namespace, key);
        self.entries.as_deref()?.iter().find(is_it)
    }

    /// Whether another source holds the object of an entry.
    #[must_use]
    pub fn is_wanted(&self, entry: &Entry) -> bool {
        !self.wanted.is_empty() && self.wanted.contains_key(&entry.identity.key())
    }

    /// Group, kind, namespace and name of each object that it may apply, without asking whether its kind has namespaces.
    fn names(&self) -> impl Iterator<Item = [&str; 4]> {
        self.entries.iter().flatten().filter(|entry| !self.is_wanted(entry)).map(|entry| {
            let identity = &entry.identity;
            let namespace = match identity.namespace.as_str() {
                "" => self.head.default_namespace.as_str(),
                namespace => namespace,
            };
            [&identity.group, &identity.kind, namespace, &identity.name]
        })
    }

    /// Its objects, to be asked for many.
    #[must_use]
    pub fn keys(&self) -> Keys<'_> {
        let names: HashSet<[&str; 4]> = self.names().collect();
        let anywhere = names.iter().map(|[group, kind, _, name]| [*group, *kind, *name]).collect();
        Keys { names, anywhere }
    }

    /// Whom its requests impersonate.
    #[must_use]
    pub const fn account(&self) -> Option<&ServiceAccount> {
        self.head.service_account.as_ref()
    }
}

/// The objects of a source.
#[derive(Debug)]
pub struct Keys<'a> {
    names: HashSet<[&'a str; 4]>,
    /// Without namespace, which cluster-scoped objects do not have, whatever their manifests say.
    anywhere: HashSet<[&'a str; 3]>,
}

impl Keys<'_> {
    /// As [`SourceView::has`].
    #[must_use]
    pub fn has(&self, key: &ObjectKey) -> bool {
        let ObjectKey { group, kind, namespace, name } = key;
        if namespace.is_empty() {
            return self.anywhere.contains(&[group.as_str(), kind, name]);
        }
        self.names.contains(&[group.as_str(), kind, namespace, name])
    }
}

/// A desired state was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PutError {
    /// The agent has a newer one.
    #[error("revision {revision} is known already")]
    Stale {
        /// That one's revision.
        revision: u64,
    },
    /// A source is over its share.
    #[error("{reason}")]
    TooLarge {
        /// How far, and what to do.
        reason: String,
    },
    /// The server could not send a source's bundle.
    #[error("{reason}")]
    NotSent {
        /// Why.
        reason: String,
    },
    /// A page is no page.
    #[error("page {digest} cannot be read: {detail}")]
    Page {
        /// Which.
        digest: Sha256,
        /// Why.
        detail: String,
    },
}

/// Holder of both. Shared.
#[derive(Debug)]
pub struct Desired {
    /// Bytes for the objects of all sources, and as much again for those that no desired state names yet: each half of what the agent's
    /// pod may use. One source alone may fill it.
    capacity: AtomicUsize,
    contents: Mutex<Contents>,
    views: watch::Sender<Option<Arc<View>>>,
}

#[derive(Debug, Default)]
struct Contents {
    bytes: HashMap<Sha256, Bytes>,
    /// Those that the view names.
    named: BTreeSet<Sha256>,
    /// Bytes of the others.
    loose: usize,
    /// Sizes of what came beyond the capacity.
    turned_away: HashMap<Sha256, usize>,
    /// Sources that were over their share: their pages, and how large they are at least.
    too_large: BTreeMap<SourceId, (Vec<Sha256>, usize)>,
}

/// What the agent has of one source's bundle.
#[derive(Default)]
struct Assembly {
    entries: Option<Vec<Arc<Entry>>>,
    missing: BTreeSet<Sha256>,
    used: BTreeSet<Sha256>,
    /// All pages are there.
    has_pages: bool,
    /// How large it is at least.
    size: usize,
}

impl Default for Desired {
    fn default() -> Self {
        let capacity = AtomicUsize::new(MAXIMUM_SOURCE_BYTES);
        Self { capacity, contents: Mutex::default(), views: watch::Sender::new(None) }
    }
}

impl Desired {
    /// The newest complete state, and each newer one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<View>>> {
        self.views.subscribe()
    }

    /// The newest complete state.
    #[must_use]
    pub fn view(&self) -> Option<Arc<View>> {
        self.views.borrow().clone()
    }

    /// Sets how many bytes the objects of all sources may take.
    pub fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Ordering::Relaxed);
    }

    fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Keeps pages and objects, up to the capacity; of the rest only the size is noted.
    pub fn put_contents(&self, those: impl IntoIterator<Item = Bytes>) {
        let digested: Vec<(Sha256, Bytes)> =
            those.into_iter().map(|bytes| (Sha256::of(&bytes), bytes)).collect();
        let mut contents = self.contents.lock();
        for (digest, bytes) in digested {
            if contents.bytes.contains_key(&digest) {
                continue;
            }
            if contents.loose.saturating_add(bytes.len()) > self.capacity() {
                contents.turned_away.insert(digest, bytes.len());
                continue;
            }
            contents.turned_away.remove(&digest);
            contents.loose += bytes.len();
            contents.bytes.insert(digest, bytes);
        }
    }

    /// Takes a state over, or says what it lacks. `digest` is of the state as it was sent. A source that cannot be taken, because it is over
    /// its share or broken, stays as it was and says why; the others are taken without it.
    ///
    /// # Errors
    /// When a newer one is known.
    pub fn put(&self, state: DesiredState, digest: Sha256) -> Result<DesiredReply, PutError> {
        let known = self.view();
        if let Some(known) = known.as_ref().filter(|known| state.revision < known.revision) {
            return Err(PutError::Stale { revision: known.revision });
        }
        let mut contents = self.contents.lock();
        let mut files = BTreeMap::new();
        let mut assembled: Vec<Result<Assembly, PutError>> =
            state.sources.iter().map(|source| contents.assemble(source, &mut files)).collect();
        contents.refuse(&state.sources, &mut assembled, self.capacity());
        let (mut missing, mut used, mut has_pages) = (BTreeSet::new(), BTreeSet::new(), true);
        let mut sources = Vec::new();
        for (source, assembly) in state.sources.iter().zip(assembled) {
            let (entries, refused) = match assembly {
                Ok(assembly) => {
                    missing.extend(assembly.missing);
                    used.extend(assembly.used);
                    has_pages &= assembly.has_pages;
                    (assembly.entries, None)
                }
                Err(error) => {
                    let former =
                        known.as_ref().and_then(|known| known.source(source.head.source)?.entries.clone());
                    used.extend(former.iter().flatten().map(|entry| entry.digest));
                    (former, Some(error.to_string()))
                }
            };
            sources.push(Arc::new(SourceView {
                head: source.head.clone(),
                entries: entries.filter(|_| !source.head.removed),
                prune: source.prune.clone(),
                wanted: by_key(&source.wanted),
                fingerprint: fingerprint(&state, source, refused.is_some()),
                refused,
            }));
        }
        if !missing.is_empty() {
            contents.evict_unused(has_pages, &used, self.capacity());
            return Ok(DesiredReply { missing: missing.into_iter().collect() });
        }
        contents.named = used;
        contents.keep(&BTreeSet::new());
        drop(contents);
        let view = View {
            digest,
            revision: state.revision,
            organization: state.organization,
            agent: state.agent,
            applier: state.applier,
            mode: state.mode,
            resources: state.resources,
            observe: state.observe,
            health: state.health,
            lockdown: state.lockdown,
            replaces: state.replaces,
            rejected: state.rejected,
            sources,
        };
        self.views.send_replace(Some(Arc::new(view)));
        Ok(DesiredReply::default())
    }

    /// A source as it would be, only to be looked at; else what is lacking for that.
    ///
    /// # Errors
    /// When a page is broken.
    pub fn look(
        &self,
        now: &SourceView,
        next: DesiredSource,
    ) -> Result<Result<SourceView, DesiredReply>, PutError> {
        let mut contents = self.contents.lock();
        let Assembly { entries, missing, used, has_pages, .. } =
            contents.assemble(&next, &mut BTreeMap::new())?;
        if !missing.is_empty() {
            contents.evict_unused(has_pages, &used, self.capacity());
            return Ok(Err(DesiredReply { missing: missing.into_iter().collect() }));
        }
        let DesiredSource { head, prune, wanted, .. } = next;
        let (wanted, fingerprint) = (by_key(&wanted), now.fingerprint);
        Ok(Ok(SourceView { head, entries, refused: None, prune, wanted, fingerprint }))
    }
}

impl Contents {
    /// Refuses sources that are over their share.
    fn refuse(
        &mut self,
        sources: &[DesiredSource],
        assembled: &mut [Result<Assembly, PutError>],
        capacity: usize,
    ) {
        let sizes: Vec<usize> = sources
            .iter()
            .zip(assembled.iter())
            .map(|(source, assembly)| {
                let now = assembly.as_ref().map_or(0, |assembly| assembly.size);
                let before = self.too_large.get(&source.head.source);
                let same = before.filter(|(pages, _)| Some(pages) == source.pages.as_ref());
                same.map_or(now, |(_, size)| now.max(*size))
            })
            .collect();
        let share = share(&sizes, capacity);
        self.too_large.clear();
        for ((source, assembly), size) in sources.iter().zip(assembled).zip(sizes) {
            if size > share && assembly.is_ok() {
                *assembly = Err(PutError::TooLarge { reason: over_share(size, share, capacity) });
                let pages = source.pages.clone().unwrap_or_default();
                self.too_large.insert(source.head.source, (pages, size));
            }
        }
    }

    /// Before more is sent: drops what comparisons and superseded states left, once it is much and known to be of no more use, or something
    /// had to be turned away for its sake.
    fn evict_unused(&mut self, has_pages: bool, used: &BTreeSet<Sha256>, capacity: usize) {
        let is_full = !self.turned_away.is_empty();
        if is_full || (self.loose > capacity / 2 && has_pages) {
            self.keep(used);
        }
    }

    /// Keeps these and those that the view names.
    fn keep(&mut self, used: &BTreeSet<Sha256>) {
        let Self { bytes, named, loose, turned_away, .. } = self;
        bytes.retain(|digest, _| used.contains(digest) || named.contains(digest));
        bytes.shrink_to_fit();
        turned_away.clear();
        let of_loose = bytes.iter().filter(|(digest, _)| !named.contains(digest));
        *loose = of_loose.map(|(_, bytes)| bytes.len()).sum();
    }

    /// What there is of a source.
    fn assemble(
        &self,
        source: &DesiredSource,
        files: &mut BTreeMap<String, Arc<str>>,
    ) -> Result<Assembly, PutError> {
        if let Some(reason) = source.refused.clone() {
            return Err(PutError::NotSent { reason });
        }
        let mut assembly = Assembly { has_pages: true, ..Assembly::default() };
        let Some(pages) = &source.pages else { return Ok(assembly) };
        let mut entries = Vec::new();
        for digest in pages {
            assembly.used.insert(*digest);
            let Some(page) = self.bytes.get(digest) else {
                assembly.size += self.turned_away.get(digest).copied().unwrap_or(0);
                assembly.missing.insert(*digest);
                assembly.has_pages = false;
                continue;
            };
            assembly.size += page.len();
            let page: BundlePage = events::decode(page)
                .map_err(|error| PutError::Page { digest: *digest, detail: error.to_string() })?;
            for entry in page.entries {
                assembly.used.insert(entry.digest);
                let manifest = self.bytes.get(&entry.digest);
                let turned_away = || self.turned_away.get(&entry.digest).copied().unwrap_or(0);
                assembly.size += OBJECT_BYTES + manifest.map_or_else(turned_away, Bytes::len);
                let Some(manifest) = manifest else {
                    assembly.missing.insert(entry.digest);
                    continue;
                };
                let file = files.entry(entry.file.clone()).or_insert_with(|| Arc::from(entry.file.as_str()));
                entries.push(Arc::new(Entry {
                    identity: entry.identity,
                    digest: entry.digest,
                    file: Arc::clone(file),
                    line: entry.line,
                    manifest: manifest.clone(),
                }));
            }
        }
        assembly.entries = Some(entries);
        Ok(assembly)
    }
}

fn by_key(wanted: &[WantedObject]) -> BTreeMap<ObjectKey, WantedObject> {
    wanted.iter().map(|wanted| (wanted.object.clone(), wanted.clone())).collect()
}

/// A digest over everything that a sync of this source depends on.
fn fingerprint(state: &DesiredState, source: &DesiredSource, is_refused: bool) -> Sha256 {
    let head =
        SourceHead { suspended: false, traceparent: None, finished: Vec::new(), ..source.head.clone() };
    let lists = (&source.pages, &source.prune, &source.wanted);
    let parts = (lists, head, state.mode, &state.resources, state.lockdown, is_refused);
    // These types always encode; were it not so, each state would simply count as a new one.
    let bytes = events::encode(&parts).unwrap_or_else(|_| state.revision.to_be_bytes().to_vec());
    Sha256::of(&bytes)
}

#[cfg(test)]
pub(crate) mod tests;
