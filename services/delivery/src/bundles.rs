//! Contents of bundles, read from the blobs page by page and kept while somebody needs them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use events::bundle::{BundlePage, BundleRoot, page_of_key};
use events::delivery::{PruneEntry, WantedObject};
use events::object::ObjectKey;
use events::{BlobDigest, OrganizationId, Sha256};
use parking_lot::Mutex;
use store::{BlobError, Blobs};

use crate::model::{BundleContents, WantedLists};

/// A bundle could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleError {
    #[error("bundle {digest} cannot be read")]
    Blob {
        digest: BlobDigest,
        #[source]
        source: BlobError,
    },
    #[error("bundle {digest} is malformed: {detail}")]
    Malformed { digest: BlobDigest, detail: String },
}

/// Reads bundles; pages that two bundles share are read once.
pub(crate) struct Bundles {
    blobs: Arc<dyn Blobs>,
    bundles: Mutex<HashMap<BlobDigest, Arc<Contents>>>,
    pages: Mutex<HashMap<Sha256, Weak<Page>>>,
}

type Page = HashSet<ObjectKey>;

/// The keys of one bundle, by page.
pub(crate) struct Contents {
    pages: Vec<Arc<Page>>,
    /// A hash of each object's group, kind and name, with its page, in order; made when somebody first looks by name.
    names: OnceLock<Vec<(u64, usize)>>,
}

impl BundleContents for Contents {
    fn has(&self, key: &ObjectKey, default_namespace: &str) -> bool {
        let stands = |key: &ObjectKey| {
            self.pages.get(page_of_key(key, self.pages.len())).is_some_and(|page| page.contains(key))
        };
        stands(key)
            || (key.namespace == default_namespace
                && stands(&ObjectKey { namespace: String::new(), ..key.clone() }))
            || (key.namespace.is_empty() && self.has_with_namespace(key))
    }

    fn keys(&self) -> Box<dyn Iterator<Item = &ObjectKey> + '_> {
        Box::new(self.pages.iter().flat_map(|page| page.iter()))
    }

    fn namesakes(&self, key: &ObjectKey) -> Vec<&ObjectKey> {
        let names = self.names();
        let hash = name_hash(key);
        let first = names.partition_point(|(other, _)| *other < hash);
        let places: BTreeSet<usize> = names
            .iter()
            .skip(first)
            .take_while(|(other, _)| *other == hash)
            .map(|(_, place)| *place)
            .collect();
        let pages = places.into_iter().filter_map(|place| self.pages.get(place));
        let mut found: Vec<_> =
            pages.flat_map(|page| page.iter()).filter(|own| is_namesake(own, key)).collect();
        found.sort_unstable();
        found
    }
}

fn is_namesake(own: &ObjectKey, key: &ObjectKey) -> bool {
    own.name == key.name && own.kind == key.kind && own.group == key.group
}

fn name_hash(key: &ObjectKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&key.group, &key.kind, &key.name).hash(&mut hasher);
    hasher.finish()
}

impl Contents {
    /// A cluster-scoped object's manifest may name a namespace all the same, which means nothing to the API server.
    fn has_with_namespace(&self, key: &ObjectKey) -> bool {
        !self.namesakes(key).is_empty()
    }

    fn names(&self) -> &[(u64, usize)] {
        self.names.get_or_init(|| {
            let pages = self.pages.iter().enumerate();
            let mut names: Vec<_> =
                pages.flat_map(|(place, page)| page.iter().map(move |key| (name_hash(key), place))).collect();
            names.sort_unstable();
            names
        })
    }
}

impl Bundles {
    pub(crate) fn new(blobs: Arc<dyn Blobs>) -> Self {
        Self { blobs, bundles: Mutex::default(), pages: Mutex::default() }
    }

    /// The contents of all `wanted` bundles.
    pub(crate) async fn contents(
        &self,
        organization: OrganizationId,
        wanted: &[BlobDigest],
    ) -> Result<BTreeMap<BlobDigest, Arc<dyn BundleContents>>, BundleError> {
        let mut found = BTreeMap::new();
        for digest in wanted {
            let contents: Arc<dyn BundleContents> = self.bundle(organization, *digest).await?;
            found.insert(*digest, contents);
        }
        Ok(found)
    }

    /// Forgets bundles that are not in `needed`, and pages that only those had.
    pub(crate) fn keep_only(&self, needed: &HashSet<BlobDigest>) {
        self.bundles.lock().retain(|digest, _| needed.contains(digest));
        self.pages.lock().retain(|_, page| page.strong_count() > 0);
    }

    /// How many bundles are kept.
    pub(crate) fn kept(&self) -> usize {
        self.bundles.lock().len()
    }

    async fn bundle(
        &self,
        organization: OrganizationId,
        digest: BlobDigest,
    ) -> Result<Arc<Contents>, BundleError> {
        if let Some(known) = self.bundles.lock().get(&digest) {
            return Ok(Arc::clone(known));
        }
        let root: BundleRoot = decode(digest, &self.get(organization, digest).await?)?;
        let mut pages = Vec::with_capacity(root.pages.len());
        for page in root.pages {
            pages.push(self.page(organization, digest, page).await?);
        }
        let contents = Arc::new(Contents { pages, names: OnceLock::new() });
        self.bundles.lock().insert(digest, Arc::clone(&contents));
        Ok(contents)
    }

    async fn page(
        &self,
        organization: OrganizationId,
        bundle: BlobDigest,
        page: Sha256,
    ) -> Result<Arc<Page>, BundleError> {
        if let Some(known) = self.pages.lock().get(&page).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let address = self
            .blobs
            .address(organization, page)
            .await
            .map_err(|source| BundleError::Blob { digest: bundle, source })?;
        let read: BundlePage = decode(bundle, &self.get(organization, address).await?)?;
        let keys: Arc<Page> = Arc::new(read.entries.into_iter().map(|entry| entry.identity.key()).collect());
        self.pages.lock().insert(page, Arc::downgrade(&keys));
        Ok(keys)
    }

    /// The prune list at an address.
    pub(crate) async fn prune_list(
        &self,
        organization: OrganizationId,
        list: Option<BlobDigest>,
    ) -> Result<Vec<PruneEntry>, BundleError> {
        match list {
            Some(digest) => decode(digest, &self.get(organization, digest).await?),
            None => Ok(Vec::new()),
        }
    }

    /// Lists of wanted objects by address.
    pub(crate) async fn wanted_lists(
        &self,
        organization: OrganizationId,
        wanted: &[BlobDigest],
    ) -> Result<WantedLists, BundleError> {
        let mut lists = WantedLists::new();
        for digest in wanted {
            let list: Vec<WantedObject> = decode(*digest, &self.get(organization, *digest).await?)?;
            lists.insert(*digest, list.into());
        }
        Ok(lists)
    }

    async fn get(&self, organization: OrganizationId, digest: BlobDigest) -> Result<Bytes, BundleError> {
        self.blobs.get(organization, digest).await.map_err(|source| BundleError::Blob { digest, source })
    }
}

fn decode<T: serde::de::DeserializeOwned>(digest: BlobDigest, bytes: &[u8]) -> Result<T, BundleError> {
    events::decode(bytes).map_err(|error| BundleError::Malformed { digest, detail: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &str, namespace: &str, name: &str) -> ObjectKey {
        let [group, kind, namespace, name] = ["", kind, namespace, name].map(str::to_owned);
        ObjectKey { group, kind, namespace, name }
    }

    #[test]
    fn objects_are_found_by_name_in_whichever_namespace() {
        let all = [
            key("ConfigMap", "", "a"),
            key("ConfigMap", "z", "a"),
            key("Secret", "", "a"),
            key("ConfigMap", "", "b"),
        ];
        let mut pages = vec![Page::new(), Page::new()];
        for key in &all {
            let page = page_of_key(key, pages.len());
            pages[page].insert(key.clone());
        }
        let pages = pages.into_iter().map(Arc::new).collect();
        let contents = Contents { pages, names: OnceLock::new() };
        assert_eq!(contents.namesakes(&key("ConfigMap", "elsewhere", "a")), [&all[0], &all[1]]);
        assert_eq!(contents.namesakes(&key("Secret", "", "b")), [&all[0]; 0]);
        assert_eq!(contents.keys().count(), 4);
        assert!(contents.has(&key("ConfigMap", "", "b"), "shop"), "a cluster-scoped object");
        assert!(!contents.has(&key("ConfigMap", "y", "a"), "shop"));
    }
}
