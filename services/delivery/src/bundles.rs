//! Contents of bundles, read from the blobs page by page and kept while somebody needs them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use events::bundle::{BundlePage, BundleRoot, page_of_key};
use events::delivery::PruneEntry;
use events::object::ObjectKey;
use events::{BlobDigest, OrganizationId, Sha256};
use parking_lot::Mutex;
use store::{BlobError, Blobs};

use crate::model::BundleContents;

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
}

impl Contents {
    /// A cluster-scoped object's manifest may name a namespace all the same, which means nothing to the API server.
    fn has_with_namespace(&self, key: &ObjectKey) -> bool {
        let is_it = |own: &ObjectKey| own.group == key.group && own.kind == key.kind && own.name == key.name;
        self.pages.iter().any(|page| page.iter().any(is_it))
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
        let contents = Arc::new(Contents { pages });
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

    async fn get(&self, organization: OrganizationId, digest: BlobDigest) -> Result<Bytes, BundleError> {
        self.blobs.get(organization, digest).await.map_err(|source| BundleError::Blob { digest, source })
    }
}

fn decode<T: serde::de::DeserializeOwned>(digest: BlobDigest, bytes: &[u8]) -> Result<T, BundleError> {
    events::decode(bytes).map_err(|error| BundleError::Malformed { digest, detail: error.to_string() })
}
