//! One repository, wherever it is: what its refs name, and the objects behind them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use world::World;

use crate::git::cache::Cache;
use crate::git::http::HttpClient;
use crate::git::local::Local;
use crate::git::remote::{Login, NOT_TAKEN, Remote};
use crate::git::{GitError, Location, ObjectId, Objects};

/// Chunks of a pack between network and disk.
const PACK_QUEUE: usize = 64;

/// What the operator allows, and how much.
#[derive(Debug, Clone)]
pub struct GitLimits {
    /// Repositories in folders of this machine.
    pub local_paths_allowed: bool,
    /// Largest pack, in bytes.
    pub pack_bytes: u64,
}

/// One repository. Not shared: whoever watches it owns it.
pub enum Repository {
    /// Behind HTTP(S), with a cache here.
    Remote(Box<RemoteRepository>),
    /// In a folder of this machine.
    Local(Box<Local>),
}

/// A repository behind HTTP(S), with a cache here.
pub struct RemoteRepository {
    remote: Remote,
    cache: Arc<Mutex<Cache>>,
    limits: GitLimits,
}

impl Repository {
    /// Opens a repository; says nothing to its server yet.
    ///
    /// # Errors
    /// `Refused` for what the operator does not allow; `NotFound` for a local path without one.
    pub async fn open(
        world: &World,
        http: &HttpClient,
        limits: &GitLimits,
        location: Location,
        login: Option<Login>,
        cache_folder: PathBuf,
    ) -> Result<Self, GitError> {
        match location {
            Location::Local(_) if !limits.local_paths_allowed => Err(GitError::refused(
                "repositories in folders of the server are not allowed; the operator may allow them (--allow-local-paths)",
            )),
            Location::Local(path) => blocking(move || Local::open(&path)).await.map(|local| Self::Local(Box::new(local))),
            Location::Remote(url) => {
                let remote = Remote::new(http.clone(), url, login)?;
                let world = world.clone();
                let cache = blocking(move || Cache::open(world, cache_folder)).await?;
                let cache = Arc::new(Mutex::new(cache));
                Ok(Self::Remote(Box::new(RemoteRepository { remote, cache, limits: limits.clone() })))
            }
        }
    }

    /// What full refs name now, tags peeled. Refs that do not exist are left out.
    ///
    /// # Errors
    /// See [`Remote::references`].
    pub async fn references(&mut self, names: &[String]) -> Result<BTreeMap<String, ObjectId>, GitError> {
        match self {
            Self::Remote(repository) => repository.remote.references(names).await,
            Self::Local(local) => {
                let (local, names) = (local.clone(), names.to_vec());
                blocking(move || local.references(&names)).await
            }
        }
    }

    /// Makes the trees of these commits readable here. `haves` are commits that were fetched earlier.
    ///
    /// # Errors
    /// See [`Remote::fetch`].
    pub async fn ensure(&mut self, wants: &[ObjectId], haves: &[ObjectId]) -> Result<(), GitError> {
        let Self::Remote(repository) = self else { return Ok(()) };
        let cache = Arc::clone(&repository.cache);
        let (asked, offered) = (wants.to_vec(), haves.to_vec());
        let (missing, known) = blocking(move || {
            let mut cache = cache.lock();
            let known = cache.known(&asked);
            let missing: Vec<ObjectId> = asked.into_iter().filter(|id| !known.contains(id)).collect();
            if !missing.is_empty() && cache.is_crowded() {
                cache.clear()?;
            }
            let known = cache.known(&offered);
            Ok((missing, known))
        })
        .await?;
        if missing.is_empty() { Ok(()) } else { repository.fetch(&missing, &known).await }
    }

    /// The one commit whose id begins with `prefix`, among those that are here and those before `tips`.
    ///
    /// # Errors
    /// `NotFound` when there is none, or more than one; as [`Remote::history`].
    pub async fn find_commit(&mut self, prefix: &str, tips: &[ObjectId]) -> Result<ObjectId, GitError> {
        let (objects, text) = (self.objects(), prefix.to_owned());
        if let Some(found) = blocking(move || Ok(objects.reader().find_commit(&text))).await? {
            return Ok(found);
        }
        let found = match self {
            Self::Remote(repository) if !tips.is_empty() => repository.find_in_history(prefix, tips).await?,
            _ => None,
        };
        found.ok_or_else(|| GitError::not_found(format!("no commit begins with {prefix}, or more than one does")))
    }

    /// Throws away what was fetched, so that the next fetch brings everything.
    ///
    /// # Errors
    /// When the cache's folder cannot be used.
    pub async fn forget(&mut self) -> Result<(), GitError> {
        let Self::Remote(repository) = self else { return Ok(()) };
        let cache = Arc::clone(&repository.cache);
        blocking(move || cache.lock().clear()).await
    }

    /// Reads what is here.
    #[must_use]
    pub fn objects(&self) -> Objects {
        match self {
            Self::Remote(repository) => repository.cache.lock().objects(),
            Self::Local(local) => local.objects(),
        }
    }

    /// Whether objects have to be fetched before they can be read.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }
}

impl RemoteRepository {
    async fn fetch(&mut self, wants: &[ObjectId], haves: &[ObjectId]) -> Result<(), GitError> {
        let (sink, chunks) = mpsc::channel(PACK_QUEUE);
        let storing = storing(&self.cache.lock(), chunks);
        let receiving = self.remote.fetch(wants, haves, self.limits.pack_bytes, sink);
        let (received, stored) = tokio::join!(receiving, storing);
        both(received, stored)
    }

    /// Looks through commits that are fetched beside the cache, which must stay complete, and thrown away afterwards.
    async fn find_in_history(&mut self, prefix: &str, tips: &[ObjectId]) -> Result<Option<ObjectId>, GitError> {
        let (world, folder) = {
            let cache = self.cache.lock();
            (cache.world().clone(), cache.folder().join("history"))
        };
        let mut history = blocking(move || Cache::open(world, folder)).await?;
        let (sink, chunks) = mpsc::channel(PACK_QUEUE);
        let storing = storing(&history, chunks);
        let receiving = self.remote.history(tips, self.limits.pack_bytes, sink);
        let (received, stored) = tokio::join!(receiving, storing);
        let prefix = prefix.to_owned();
        blocking(move || {
            let found = both(received, stored).map(|()| history.objects().reader().find_commit(&prefix));
            history.clear()?;
            found
        })
        .await
    }
}

fn storing(cache: &Cache, chunks: mpsc::Receiver<Bytes>) -> impl Future<Output = Result<(), GitError>> + use<> {
    let (folder, objects) = (cache.folder(), cache.objects());
    blocking(move || Cache::store_pack(&folder, &objects, chunks))
}

/// When storing failed, receiving merely notices that nobody takes the pack any more.
fn both(received: Result<(), GitError>, stored: Result<(), GitError>) -> Result<(), GitError> {
    match (received, stored) {
        (Ok(()), stored) => stored,
        (Err(received), Err(stored)) if received.message == NOT_TAKEN => Err(stored),
        (Err(received), _) => Err(received),
    }
}

/// Runs on a thread that may block.
///
/// # Errors
/// What the work gives; `Broken` when it panicked.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    spawn_blocking(work).await.unwrap_or_else(|_| Err(GitError::broken("reading the repository ended unexpectedly")))
}
