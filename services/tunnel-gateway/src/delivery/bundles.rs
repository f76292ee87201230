//! Resolves a plan, which holds addresses of blobs, to the state that an agent is sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use events::bundle::{BundlePage, BundleRoot};
use events::desired::{DesiredPlan, DesiredSource, DesiredState, PlannedSource};
use events::{BlobDigest, OrganizationId, Sha256, SourceId};
use futures::future::{BoxFuture, FutureExt as _, Shared, try_join_all};
use parking_lot::Mutex;
use store::{BlobError, Blobs};
use tunnel::wire::MAXIMUM_OBJECT_BYTES;

const MAXIMUM_ROOTS: usize = 512;
const MAXIMUM_PAGES: usize = 8192;
/// Bytes of contents that are kept for the other agents that will want them.
const MAXIMUM_CONTENT_BYTES: usize = 4 * 1024 * 1024;

/// A bundle cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("a blob cannot be read")]
    Blob(#[from] BlobError),
    #[error("a blob has unexpected content: {0}")]
    Malformed(#[from] events::DecodeError),
    /// One page or object cannot be sent, now or later: the sources that have it are sent without bundle.
    #[error("{content} cannot be sent: {reason}")]
    Content { content: Sha256, reason: String },
}

impl ResolveError {
    fn of(content: Sha256, error: BlobError) -> Self {
        match error {
            BlobError::Missing { .. } | BlobError::Damaged { .. } => {
                Self::Content { content, reason: error.to_string() }
            }
            BlobError::NoKey { .. } | BlobError::Failed { .. } => Self::Blob(error),
        }
    }
}

/// Sources whose bundles cannot be sent, each with the reason for people.
pub(crate) type RefusedSources = BTreeMap<SourceId, String>;

/// What one organization has under a digest, which is another's only by chance.
type Of<Digest> = (OrganizationId, Digest);
type Reading = Shared<BoxFuture<'static, Result<Bytes, BlobError>>>;

/// A bounded cache of what was read of bundles. A push concerns many agents at the same moment: what all of them want is read once.
pub(crate) struct BundleCache {
    blobs: Arc<dyn Blobs>,
    roots: Mutex<Bounded<Of<BlobDigest>, Arc<[Sha256]>>>,
    pages: Mutex<Bounded<Of<Sha256>, Arc<[Sha256]>>>,
    contents: Mutex<Bounded<Of<Sha256>, Bytes>>,
    reading: Mutex<BTreeMap<Of<Sha256>, Reading>>,
}

/// Removes a reading when a caller that waits for it has it or gave up, so that none stays without a caller.
struct Waiting<'a> {
    reading: &'a Mutex<BTreeMap<Of<Sha256>, Reading>>,
    key: Of<Sha256>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.reading.lock().remove(&self.key);
    }
}

/// The state to send.
pub(crate) struct Resolved {
    pub(crate) desired: DesiredState,
    /// All pages of all sources, each once.
    pub(crate) pages: BTreeSet<Sha256>,
    /// A source whose bundle could not be read, and why. It is sent without bundle, so that the others are not stopped.
    pub(crate) broken: Option<ResolveError>,
}

impl BundleCache {
    pub(crate) fn new(blobs: Arc<dyn Blobs>) -> Self {
        Self {
            blobs,
            roots: Mutex::new(Bounded::new(MAXIMUM_ROOTS)),
            pages: Mutex::new(Bounded::new(MAXIMUM_PAGES)),
            contents: Mutex::new(Bounded::new(MAXIMUM_CONTENT_BYTES)),
            reading: Mutex::default(),
        }
    }

    pub(crate) async fn resolve(&self, mut plan: DesiredPlan, refused: &RefusedSources) -> Resolved {
        let mut pages = BTreeSet::new();
        let mut broken = None;
        let mut sources = Vec::with_capacity(plan.sources.len());
        for planned in std::mem::take(&mut plan.sources) {
            let head = planned.head.clone();
            let source = match refused.get(&head.source) {
                Some(reason) => DesiredSource::refused(head, reason.clone()),
                None => self.source(plan.organization, planned).await.unwrap_or_else(|error| {
                    tracing::error!(agent = %plan.agent, source = %head.source, %error, "bundle is not readable");
                    let reason = format!("its bundle cannot be read by the server: {error}");
                    broken = Some(error);
                    DesiredSource::refused(head, reason)
                }),
            };
            pages.extend(source.pages.iter().flatten().copied());
            sources.push(source);
        }
        Resolved { desired: plan.with_sources(sources), pages, broken }
    }

    pub(crate) async fn source(
        &self,
        organization: OrganizationId,
        PlannedSource { bundle, prune, wanted, head }: PlannedSource,
    ) -> Result<DesiredSource, ResolveError> {
        let pages = match bundle {
            Some(bundle) => Some(self.root(organization, bundle).await?.to_vec()),
            None => None,
        };
        let prune = match prune {
            Some(prune) => events::decode(&self.blobs.get(organization, prune).await?)?,
            None => Vec::new(),
        };
        let wanted = match wanted {
            Some(wanted) => events::decode(&self.blobs.get(organization, wanted).await?)?,
            None => Vec::new(),
        };
        Ok(DesiredSource { pages, prune, wanted, head, refused: None })
    }

    /// The sources that have a page or an object.
    pub(crate) async fn sources_with(
        &self,
        desired: &DesiredState,
        content: Sha256,
    ) -> Result<BTreeSet<SourceId>, ResolveError> {
        let mut sources = BTreeSet::new();
        for source in &desired.sources {
            for page in source.pages.iter().flatten() {
                let has = *page == content
                    || match self.objects_of(desired.organization, [*page]).await {
                        Ok(objects) => objects.iter().any(|(_, objects)| objects.contains(&content)),
                        Err(ResolveError::Content { .. }) => false,
                        Err(error) => return Err(error),
                    };
                if has {
                    sources.insert(source.head.source);
                    break;
                }
            }
        }
        Ok(sources)
    }

    async fn root(
        &self,
        organization: OrganizationId,
        bundle: BlobDigest,
    ) -> Result<Arc<[Sha256]>, ResolveError> {
        if let Some(pages) = self.roots.lock().get(&(organization, bundle)) {
            return Ok(pages);
        }
        let root: BundleRoot = events::decode(&self.blobs.get(organization, bundle).await?)?;
        let pages: Arc<[Sha256]> = root.pages.into();
        self.roots.lock().put((organization, bundle), Arc::clone(&pages), 1);
        Ok(pages)
    }

    /// The objects of each of these pages.
    pub(crate) async fn objects_of(
        &self,
        organization: OrganizationId,
        pages: impl IntoIterator<Item = Sha256>,
    ) -> Result<Vec<(Sha256, Arc<[Sha256]>)>, ResolveError> {
        try_join_all(pages.into_iter().map(|page| async move {
            if let Some(objects) = self.pages.lock().get(&(organization, page)) {
                return Ok((page, objects));
            }
            let malformed = |error: events::DecodeError| ResolveError::Content {
                content: page,
                reason: error.to_string(),
            };
            let content: BundlePage =
                events::decode(&self.sendable(organization, page).await?).map_err(malformed)?;
            let objects: Arc<[Sha256]> = content.entries.iter().map(|entry| entry.digest).collect();
            self.pages.lock().put((organization, page), Arc::clone(&objects), 1);
            Ok((page, objects))
        }))
        .await
    }

    /// The bytes of a page or an object, if the link carries so many.
    pub(crate) async fn sendable(
        &self,
        organization: OrganizationId,
        digest: Sha256,
    ) -> Result<Bytes, ResolveError> {
        let content = self.content(organization, digest).await;
        let content = content.map_err(|error| ResolveError::of(digest, error))?;
        if content.len() > MAXIMUM_OBJECT_BYTES {
            let bytes = content.len();
            let reason = format!("it has {bytes} bytes, more than the maximum of {MAXIMUM_OBJECT_BYTES}");
            return Err(ResolveError::Content { content: digest, reason });
        }
        Ok(content)
    }

    /// The bytes of a page or an object.
    async fn content(&self, organization: OrganizationId, digest: Sha256) -> Result<Bytes, BlobError> {
        let key = (organization, digest);
        if let Some(content) = self.contents.lock().get(&key) {
            return Ok(content);
        }
        let reading =
            self.reading.lock().entry(key).or_insert_with(|| self.read(organization, digest)).clone();
        let _waiting = Waiting { reading: &self.reading, key };
        let content = reading.await;
        if let Ok(content) = &content {
            self.contents.lock().put(key, content.clone(), content.len());
        }
        content
    }

    fn read(&self, organization: OrganizationId, digest: Sha256) -> Reading {
        let blobs = Arc::clone(&self.blobs);
        let reading =
            async move { blobs.get(organization, blobs.address(organization, digest).await?).await };
        reading.boxed().shared()
    }
}

/// A map that forgets its oldest entries when all of them weigh too much.
struct Bounded<K, V> {
    entries: BTreeMap<K, V>,
    order: VecDeque<(K, usize)>,
    weight: usize,
    maximum: usize,
}

impl<K: Ord + Copy, V: Clone> Bounded<K, V> {
    const fn new(maximum: usize) -> Self {
        Self { entries: BTreeMap::new(), order: VecDeque::new(), weight: 0, maximum }
    }

    fn get(&self, key: &K) -> Option<V> {
        self.entries.get(key).cloned()
    }

    fn put(&mut self, key: K, value: V, weight: usize) {
        if self.entries.insert(key, value).is_none() {
            self.order.push_back((key, weight));
            self.weight += weight;
        }
        while self.weight > self.maximum {
            let Some((oldest, weight)) = self.order.pop_front() else { return };
            self.entries.remove(&oldest);
            self.weight -= weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use store::{Addresses, KeyName};
    use world::World;

    use super::*;

    /// Counts what is read.
    struct Counted {
        inner: Arc<dyn Blobs>,
        reads: AtomicUsize,
    }

    #[async_trait::async_trait]
    impl Blobs for Counted {
        async fn put(
            &self,
            whose: OrganizationId,
            contents: Vec<Bytes>,
        ) -> Result<Vec<BlobDigest>, BlobError> {
            self.inner.put(whose, contents).await
        }

        async fn get(&self, whose: OrganizationId, digest: BlobDigest) -> Result<Bytes, BlobError> {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.inner.get(whose, digest).await
        }

        async fn addresses(&self, whose: OrganizationId) -> Result<Addresses, BlobError> {
            self.inner.addresses(whose).await
        }

        async fn contains(&self, whose: OrganizationId, digest: BlobDigest) -> Result<bool, BlobError> {
            self.inner.contains(whose, digest).await
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_many_want_at_once_is_read_once_and_what_was_missing_is_looked_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let options = store::embedded::Options::default();
        let store = store::embedded::open(&World::real(), folder.path(), options).unwrap();
        let [whose, other] = [1, 2].map(|number| OrganizationId(uuid::Uuid::from_u128(number)));
        for organization in [whose, other] {
            store.keys.get_or_create(KeyName::Organization(organization)).await.unwrap();
        }
        let blobs = Arc::new(Counted { inner: Arc::clone(&store.blobs), reads: AtomicUsize::new(0) });
        let cache = BundleCache::new(Arc::<Counted>::clone(&blobs));
        let content = Bytes::from_static(b"kind: ConfigMap");
        let digest = Sha256::of(&content);
        let reads = || blobs.reads.swap(0, Ordering::SeqCst);
        let all = || join_all((0..100).map(|_| cache.content(whose, digest)));

        assert!(matches!(cache.content(whose, digest).await, Err(BlobError::Missing { .. })));
        assert_eq!(reads(), 1);
        store.blobs.put(whose, vec![content.clone()]).await.unwrap();
        for expected in [1, 0] {
            assert!(all().await.iter().all(|read| read.as_ref() == Ok(&content)));
            assert_eq!(reads(), expected);
        }
        assert!(cache.content(other, digest).await.is_err(), "what one organization has is not another's");
        drop(cache.content(other, digest).now_or_never());
        assert!(cache.reading.lock().is_empty(), "a reading stayed that nobody waits for");
    }

    #[test]
    fn a_full_cache_forgets_its_oldest() {
        let mut cache = Bounded::new(5);
        for (key, weight) in [(1, 2), (2, 2), (2, 2), (3, 3)] {
            cache.put(key, key, weight);
        }
        assert_eq!([1, 2, 3].map(|key| cache.get(&key)), [None, Some(2), Some(3)]);
        cache.put(4, 4, 6);
        assert_eq!(
            [2, 3, 4].map(|key| cache.get(&key)),
            [None; 3],
            "a thing over the bound is not kept either"
        );
    }
}
