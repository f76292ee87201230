//! What the server wants: the newest desired state that is complete, and the contents that it names.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use events::bundle::BundlePage;
use events::configuration::{Mode, ResourceRules, ServiceAccount};
use events::delivery::PruneEntry;
use events::desired::{Applier, DesiredReply, DesiredSource, DesiredState, SourceHead};
use events::digest::Sha256;
use events::object::ObjectKey;
use events::{AgentId, OrganizationId, SourceId};
use objects::ownership::OwnerMark;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::watch;

use crate::model::target::{Entry, has_key};

/// Bytes of contents that no desired state named yet: half of what the agent's pod may use.
const LOOSE_MAXIMUM: usize = 128 << 20;

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
    /// Each request must impersonate.
    pub lockdown: bool,
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
    /// What to delete.
    pub prune: Vec<PruneEntry>,
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

    /// How many objects of a source are in another one's bundle, too.
    #[must_use]
    pub fn contested(&self, source: &SourceView) -> usize {
        let others = self.sources.iter().filter(|other| other.head.source != source.head.source);
        let theirs: HashSet<_> = others.flat_map(|other| other.names()).collect();
        source.names().filter(|name| theirs.contains(name)).count()
    }

    /// Another source than `but`, whose id has this text, that has an object of this key in its bundle.
    #[must_use]
    pub fn has_in_source(&self, source: &str, key: &ObjectKey) -> bool {
        self.sources
            .iter()
            .filter(|other| other.head.source.to_string() == source)
            .any(|other| other.has(key))
    }
}

impl SourceView {
    /// Whether its bundle has an object of this key.
    #[must_use]
    pub fn has(&self, key: &ObjectKey) -> bool {
        self.entries.as_deref().is_some_and(|entries| has_key(entries, &self.head.default_namespace, key))
    }

    /// Group, kind, namespace and name of each object, without asking whether its kind has namespaces.
    fn names(&self) -> impl Iterator<Item = [&str; 4]> {
        self.entries.iter().flatten().map(|entry| {
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
    /// A page is no page.
    #[error("page {digest} cannot be read: {detail}")]
    Page {
        /// Which.
        digest: Sha256,
        /// Why.
        detail: String,
    },
}

/// Contents were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a state that adds more than {} MiB of manifests at once cannot be taken", LOOSE_MAXIMUM >> 20)]
pub struct TooMuch;

/// Holder of both. Shared.
#[derive(Debug)]
pub struct Desired {
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
}

impl Default for Desired {
    fn default() -> Self {
        Self { contents: Mutex::default(), views: watch::Sender::new(None) }
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

    /// Keeps pages and objects.
    ///
    /// # Errors
    /// When too many are kept that nothing names; those before the first one for which there is no room are kept.
    pub fn put_contents(&self, those: impl IntoIterator<Item = Bytes>) -> Result<(), TooMuch> {
        let digested: Vec<(Sha256, Bytes)> =
            those.into_iter().map(|bytes| (Sha256::of(&bytes), bytes)).collect();
        let mut contents = self.contents.lock();
        for (digest, bytes) in digested {
            if contents.bytes.contains_key(&digest) {
                continue;
            }
            if contents.loose.saturating_add(bytes.len()) > LOOSE_MAXIMUM {
                return Err(TooMuch);
            }
            contents.loose += bytes.len();
            contents.bytes.insert(digest, bytes);
        }
        Ok(())
    }

    /// Takes a state over, or says what it lacks. `digest` is of the state as it was sent.
    ///
    /// # Errors
    /// When a newer one is known, or a page is broken.
    pub fn put(&self, state: DesiredState, digest: Sha256) -> Result<DesiredReply, PutError> {
        let known = self.view().map_or(0, |view| view.revision);
        if state.revision < known {
            return Err(PutError::Stale { revision: known });
        }
        let mut contents = self.contents.lock();
        let mut missing = BTreeSet::new();
        let mut used = BTreeSet::new();
        let mut files = BTreeMap::new();
        let mut sources = Vec::new();
        for source in &state.sources {
            let entries = contents.entries(source, &mut missing, &mut used, &mut files)?;
            sources.push(Arc::new(SourceView {
                head: source.head.clone(),
                entries: entries.filter(|_| !source.head.removed),
                prune: source.prune.clone(),
                fingerprint: fingerprint(&state, source),
            }));
        }
        if !missing.is_empty() {
            contents.make_room(&state.sources, &used);
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
            lockdown: state.lockdown,
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
        let (mut missing, mut used, mut files) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let mut contents = self.contents.lock();
        let entries = contents.entries(&next, &mut missing, &mut used, &mut files)?;
        if !missing.is_empty() {
            contents.make_room(std::slice::from_ref(&next), &used);
            return Ok(Err(DesiredReply { missing: missing.into_iter().collect() }));
        }
        let DesiredSource { head, prune, .. } = next;
        Ok(Ok(SourceView { head, entries, prune, fingerprint: now.fingerprint }))
    }
}

impl Contents {
    /// Before more is sent: drops what comparisons and superseded states left, once it is much and known to be of no more use.
    fn make_room(&mut self, sources: &[DesiredSource], used: &BTreeSet<Sha256>) {
        let mut pages = sources.iter().flat_map(|source| source.pages.iter().flatten());
        if self.loose > LOOSE_MAXIMUM / 2 && pages.all(|page| self.bytes.contains_key(page)) {
            self.keep(used);
        }
    }

    /// Keeps these and those that the view names.
    fn keep(&mut self, used: &BTreeSet<Sha256>) {
        let Self { bytes, named, loose } = self;
        bytes.retain(|digest, _| used.contains(digest) || named.contains(digest));
        bytes.shrink_to_fit();
        let of_loose = bytes.iter().filter(|(digest, _)| !named.contains(digest));
        *loose = of_loose.map(|(_, bytes)| bytes.len()).sum();
    }

    /// The entries of a source; what is lacking goes into `missing`.
    fn entries(
        &self,
        source: &DesiredSource,
        missing: &mut BTreeSet<Sha256>,
        used: &mut BTreeSet<Sha256>,
        files: &mut BTreeMap<String, Arc<str>>,
    ) -> Result<Option<Vec<Arc<Entry>>>, PutError> {
        let Some(pages) = &source.pages else { return Ok(None) };
        let mut entries = Vec::new();
        for digest in pages {
            used.insert(*digest);
            let Some(page) = self.bytes.get(digest) else {
                missing.insert(*digest);
                continue;
            };
            let page: BundlePage = events::decode(page)
                .map_err(|error| PutError::Page { digest: *digest, detail: error.to_string() })?;
            for entry in page.entries {
                used.insert(entry.digest);
                let Some(manifest) = self.bytes.get(&entry.digest) else {
                    missing.insert(entry.digest);
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
        Ok(Some(entries))
    }
}

/// A digest over everything that a sync of this source depends on.
fn fingerprint(state: &DesiredState, source: &DesiredSource) -> Sha256 {
    let head =
        SourceHead { suspended: false, traceparent: None, finished: Vec::new(), ..source.head.clone() };
    let parts = (&source.pages, &source.prune, head, state.mode, &state.resources, state.lockdown);
    // These types always encode; were it not so, each state would simply count as a new one.
    let bytes = events::encode(&parts).unwrap_or_else(|_| state.revision.to_be_bytes().to_vec());
    Sha256::of(&bytes)
}

#[cfg(test)]
mod tests;
