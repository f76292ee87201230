//! Two sources of one agent that have the same object: which of them holds it. The other one is not to apply it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::delivery::{WantedList, WantedObject};
use events::object::ObjectKey;
use events::{BlobDigest, SourceId};
use serde::{Deserialize, Serialize};

use super::{BundleContents, DeliveryState, SourceState};

/// Lists of wanted objects by address.
pub type WantedLists = BTreeMap<BlobDigest, Arc<[WantedObject]>>;

/// What other sources hold of a source's bundle. Bundles are blobs, so that this is computed from more than the log holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// The objects; absent when there are none.
    pub list: Option<WantedList>,
    /// Whether they are others than the source's agent was told last.
    pub changed: bool,
}

/// A source that may have an object.
struct Contender<'a> {
    id: SourceId,
    state: &'a SourceState,
    default_namespace: &'a str,
    /// Its place in the agent's configuration.
    place: usize,
    candidate: Option<&'a dyn BundleContents>,
    desired: Option<&'a dyn BundleContents>,
    /// Objects of the desired bundle that it was not given, as its manifests name them.
    refused: BTreeSet<&'a ObjectKey>,
}

impl DeliveryState {
    /// Lists of wanted objects that [`Self::wanted`] needs for a source: its own and those of the agent's other sources.
    #[must_use]
    pub fn wanted_lists_needed(&self, source: SourceId) -> Vec<BlobDigest> {
        let Some(state) = self.sources.get(&source) else { return Vec::new() };
        let lists = self.sources_of(state.agent).filter_map(|(_, state)| state.wanted_list());
        lists.map(|list| list.list).collect()
    }

    /// Objects of a source's candidate bundle that other sources of its agent hold, in order. `contents` has all of
    /// [`Self::bundles_needed`], `lists` all of [`Self::wanted_lists_needed`]; `None` when one of them is missing.
    ///
    /// A source holds an object that it alone was given, else the one that has it in its inventory, else the one that stands first in
    /// the file. Bundles that are about to be delivered count too, and a bundle that is given up counts until another takes its place.
    #[must_use]
    pub fn wanted(
        &self,
        source: SourceId,
        contents: &BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
        lists: &WantedLists,
    ) -> Option<Vec<WantedObject>> {
        let state = self.sources.get(&source)?;
        if !state.configured || state.candidate().is_none() {
            return Some(Vec::new());
        }
        let mut others = Vec::new();
        let siblings = self.sources_of(state.agent);
        for (id, other) in siblings.filter(|(id, other)| *id != source && other.configured) {
            let other = self.contender(id, other, contents, lists)?;
            others.extend((other.candidate.is_some() || other.desired.is_some()).then_some(other));
        }
        if others.is_empty() {
            return Some(Vec::new());
        }
        let own = self.contender(source, state, contents, lists)?;
        let mut wanted: Vec<WantedObject> = own
            .candidate?
            .keys()
            .filter_map(|key| {
                let holder = holder_of(&own, &others, key)?;
                let holder_name = holder.state.configuration.as_ref()?.name.clone();
                Some(WantedObject { object: key.clone(), holder: holder.id, holder_name })
            })
            .collect();
        wanted.sort();
        Some(wanted)
    }

    /// Holders of wanted objects that are about to drop them: with another bundle that only has to be delivered.
    #[must_use]
    pub fn about_to_drop(
        &self,
        wanted: &[WantedObject],
        contents: &BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
    ) -> BTreeSet<SourceId> {
        let drops = |wanted: &&WantedObject| {
            let Some(holder) = self.sources.get(&wanted.holder) else { return false };
            let Some(next) = holder.candidate().filter(|next| !holder.is_desired(next)) else { return false };
            let has =
                contents.get(&next.digest).is_none_or(|next| !next.namesakes(&wanted.object).is_empty());
            holder.suspended.is_none() && holder.held().is_none() && !has
        };
        wanted.iter().filter(drops).map(|wanted| wanted.holder).collect()
    }

    fn contender<'a>(
        &'a self,
        id: SourceId,
        state: &'a SourceState,
        contents: &'a BTreeMap<BlobDigest, Arc<dyn BundleContents>>,
        lists: &'a WantedLists,
    ) -> Option<Contender<'a>> {
        let bundle = |digest: BlobDigest| contents.get(&digest).map(|contents| &**contents);
        let candidate = state.candidate().map(|candidate| candidate.digest);
        let desired = state.desired.as_ref().map(|desired| desired.bundle);
        let refused = match state.wanted_list() {
            Some(wanted) => lists.get(&wanted.list)?.iter().map(|wanted| &wanted.object).collect(),
            None => BTreeSet::new(),
        };
        let configuration = self.agents.get(&state.agent)?.configuration.as_ref()?;
        let place = configuration.sources.iter().position(|source| source.id == id);
        Some(Contender {
            id,
            state,
            default_namespace: state.configuration.as_ref().map_or("", |one| one.default_namespace.as_str()),
            place: place.unwrap_or(usize::MAX),
            candidate: candidate.map(|digest| bundle(digest).ok_or(())).transpose().ok()?,
            desired: desired.map(|digest| bundle(digest).ok_or(())).transpose().ok()?,
            refused,
        })
    }

    /// Whether a source's agent was told of other wanted objects than these. `lists` has its present one.
    #[must_use]
    pub fn wanted_differs(&self, source: SourceId, wanted: &[WantedObject], lists: &WantedLists) -> bool {
        let told = self.sources.get(&source).and_then(SourceState::wanted_list);
        let told = told.and_then(|told| lists.get(&told.list)).map_or(&[][..], |told| &**told);
        told != wanted
    }
}

impl SourceState {
    fn wanted_list(&self) -> Option<&WantedList> {
        self.desired.as_ref()?.wanted.as_ref()
    }
}

impl<'a> Contender<'a> {
    /// The object as one of these bundles names it.
    fn named_in(
        &self,
        bundle: Option<&'a dyn BundleContents>,
        key: &ObjectKey,
        namespace: Option<&str>,
    ) -> Option<&'a ObjectKey> {
        let is_it = |own: &&ObjectKey| namespace.is_none_or(|namespace| self.namespace_of(own) == namespace);
        bundle?.namesakes(key).into_iter().find(is_it)
    }

    /// Its agent was told to have the object there for this source.
    fn was_given(&self, key: &ObjectKey, namespace: Option<&str>) -> bool {
        self.named_in(self.desired, key, namespace).is_some_and(|own| !self.refused.contains(own))
    }

    fn wants(&self, key: &ObjectKey, namespace: Option<&str>) -> bool {
        self.named_in(self.candidate, key, namespace)
            .or_else(|| self.named_in(self.desired, key, namespace))
            .is_some()
    }

    fn namespace_of<'k>(&'k self, key: &'k ObjectKey) -> &'k str {
        if key.namespace.is_empty() { self.default_namespace } else { &key.namespace }
    }

    fn has_in_inventory(&self, key: &ObjectKey, namespace: Option<&str>) -> bool {
        let namespace = namespace.unwrap_or_default().to_owned();
        self.state.inventory.contains_key(&ObjectKey { namespace, ..key.clone() })
    }
}

/// Who holds an object of a source's bundle, if it is another one.
fn holder_of<'c, 'a>(
    own: &'c Contender<'a>,
    others: &'c [Contender<'a>],
    key: &ObjectKey,
) -> Option<&'c Contender<'a>> {
    if others.iter().all(|other| {
        let has = |bundle: Option<&dyn BundleContents>| {
            bundle.is_some_and(|bundle| !bundle.namesakes(key).is_empty())
        };
        !has(other.candidate) && !has(other.desired)
    }) {
        return None;
    }
    let all = || others.iter().chain([own]);
    // An object that has no namespace is the same one whatever default a source has.
    let is_cluster_scoped = objects::kinds::is_cluster_scoped(&key.group, &key.kind)
        .unwrap_or_else(|| all().any(|one| one.has_in_inventory(key, None)));
    let namespace = (!is_cluster_scoped).then(|| own.namespace_of(key));
    let rivals: Vec<&Contender<'a>> =
        others.iter().filter(|other| other.wants(key, namespace)).chain([own]).collect();
    if rivals.len() == 1 {
        return None;
    }
    let given: Vec<&Contender<'a>> =
        rivals.iter().copied().filter(|one| one.was_given(key, namespace)).collect();
    let holder = match given.as_slice() {
        [only] => *only,
        _ => {
            let among = if given.is_empty() { &rivals } else { &given };
            let holds = |one: &&&Contender<'a>| one.has_in_inventory(key, namespace);
            let first = || among.iter().min_by_key(|one| (one.place, one.id));
            *among.iter().find(holds).or_else(first)?
        }
    };
    (holder.id != own.id).then_some(holder)
}
