//! One repository, wherever it is: what its refs name, and the objects behind them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use world::World;

use crate::args::Args;
use crate::git::cache::{Cache, Plan, store_pack};
use crate::git::http::{Allowed, HttpClient};
use crate::git::local::Local;
use crate::git::overlay::unpack;
use crate::git::remote::{Login, NOT_TAKEN, Remote};
use crate::git::{GitError, Location, ObjectId, Objects};

/// Chunks of a pack between network and disk.
const PACK_QUEUE: usize = 64;

/// Largest pack that stays in memory, in bytes.
const SMALL_PACK: usize = 256 * 1024;

/// What the operator allows, and how much.
#[derive(Debug, Clone)]
pub(crate) struct GitLimits {
    /// Repositories in folders of this machine.
    pub(crate) local_paths_allowed: bool,
    /// Largest pack, in bytes.
    pub(crate) pack_bytes: u64,
}

/// Where repositories are opened: the one way to Git.
#[async_trait]
pub trait Repositories: Send + Sync {
    /// Opens a repository; says nothing to its server yet. `cache_folder` is where what is fetched may be kept.
    ///
    /// # Errors
    /// `Refused` for what the operator does not allow; `NotFound` for a local path without one.
    async fn open(
        &self,
        location: Location,
        login: Option<Login>,
        cache_folder: PathBuf,
    ) -> Result<Box<dyn Repository>, GitError>;
}

/// One repository. Not shared: whoever watches it owns it.
#[async_trait]
pub trait Repository: Send + Sync {
    /// What full refs name now, tags peeled. Refs that do not exist are left out.
    ///
    /// # Errors
    /// When it cannot be asked.
    async fn references(&mut self, names: &[String]) -> Result<BTreeMap<String, ObjectId>, GitError>;

    /// Makes the trees of `wants` readable here, while those of `tips`, which are in use, stay.
    ///
    /// # Errors
    /// When they cannot be fetched.
    async fn ensure(&mut self, wants: &[ObjectId], tips: &[ObjectId]) -> Result<(), GitError>;

    /// Throws away what was fetched, and fetches these commits anew.
    ///
    /// # Errors
    /// When they cannot be fetched.
    async fn fetch_anew(&mut self, wants: &[ObjectId]) -> Result<(), GitError>;

    /// The one commit whose id begins with `prefix`, among those that are here and those before `tips`.
    ///
    /// # Errors
    /// `NotFound` when there is none, or more than one; also when it cannot be asked.
    async fn find_commit(&mut self, prefix: &str, tips: &[ObjectId]) -> Result<ObjectId, GitError>;

    /// Reads what is here.
    fn objects(&self) -> Objects;
}

/// Repositories behind HTTP(S), and in folders of this machine.
pub struct RealRepositories {
    world: World,
    http: HttpClient,
    limits: GitLimits,
}

impl RealRepositories {
    /// As the settings want it.
    ///
    /// # Errors
    /// When a file that the settings name cannot be read or is of no use: the message names the setting.
    pub fn new(args: &Args, world: &World) -> anyhow::Result<Self> {
        let authorities = match &args.git_ca_file {
            Some(path) => Some(
                world
                    .disk
                    .read(path)
                    .with_context(|| format!("--git-ca-file {} cannot be read", path.display()))?,
            ),
            None => None,
        };
        let http = HttpClient::new(world, Allowed::by(args), authorities.as_deref())
            .context("--git-ca-file is not usable")?;
        Ok(Self { world: world.clone(), http, limits: args.git_limits() })
    }
}

enum RealRepository {
    /// Behind HTTP(S), with a cache here.
    Remote(Box<RemoteRepository>),
    /// In a folder of this machine.
    Local(Box<Local>),
}

/// A repository behind HTTP(S), with a cache here.
struct RemoteRepository {
    remote: Remote,
    cache: Arc<Mutex<Cache>>,
    limits: GitLimits,
}

#[async_trait]
impl Repositories for RealRepositories {
    async fn open(
        &self,
        location: Location,
        login: Option<Login>,
        cache_folder: PathBuf,
    ) -> Result<Box<dyn Repository>, GitError> {
        let Self { world, http, limits } = self;
        let opened = match location {
            Location::Local(_) if !limits.local_paths_allowed => Err(GitError::refused(
                "repositories in folders of the server are not allowed; the operator may allow them (--allow-local-paths)",
            )),
            Location::Local(path) => {
                blocking(move || Local::open(&path)).await.map(|local| RealRepository::Local(Box::new(local)))
            }
            Location::Remote(url) => {
                let remote = Remote::new(http.clone(), url, login);
                let world = world.clone();
                let cache = blocking(move || Cache::open(world, cache_folder)).await?;
                let cache = Arc::new(Mutex::new(cache));
                let limits = limits.clone();
                Ok(RealRepository::Remote(Box::new(RemoteRepository { remote, cache, limits })))
            }
        };
        opened.map(|repository| Box::new(repository) as Box<dyn Repository>)
    }
}

#[async_trait]
impl Repository for RealRepository {
    async fn references(&mut self, names: &[String]) -> Result<BTreeMap<String, ObjectId>, GitError> {
        match self {
            Self::Remote(repository) => repository.remote.references(names).await,
            Self::Local(local) => {
                let (local, names) = (local.clone(), names.to_vec());
                blocking(move || local.references(&names)).await
            }
        }
    }

    async fn ensure(&mut self, wants: &[ObjectId], tips: &[ObjectId]) -> Result<(), GitError> {
        let Self::Remote(repository) = self else { return Ok(()) };
        let (asked, used) = (wants.to_vec(), tips.to_vec());
        let plan = repository.plan(move |cache| cache.plan(&asked, &used)).await?;
        if let Fetched::NotForMemory = repository.fetch(&plan).await? {
            let (asked, used) = (wants.to_vec(), tips.to_vec());
            let plan = repository.plan(move |cache| cache.plan_for_disk(&asked, &used)).await?;
            repository.fetch(&plan).await?;
        }
        Ok(())
    }

    async fn fetch_anew(&mut self, wants: &[ObjectId]) -> Result<(), GitError> {
        let Self::Remote(repository) = self else { return Ok(()) };
        let wants = wants.to_vec();
        let plan = repository.plan(move |cache| {
            cache.clear()?;
            cache.plan_for_disk(&wants, &[])
        });
        let plan = plan.await?;
        repository.fetch(&plan).await.map(|_| ())
    }

    async fn find_commit(&mut self, prefix: &str, tips: &[ObjectId]) -> Result<ObjectId, GitError> {
        let (objects, text) = (self.objects(), prefix.to_owned());
        if let Some(found) = blocking(move || Ok(objects.reader().find_commit(&text))).await? {
            return Ok(found);
        }
        let found = match self {
            Self::Remote(repository) if !tips.is_empty() => repository.find_in_history(prefix, tips).await?,
            _ => None,
        };
        found.ok_or_else(|| {
            GitError::not_found(format!("no commit begins with {prefix}, or more than one does"))
        })
    }

    fn objects(&self) -> Objects {
        match self {
            Self::Remote(repository) => repository.cache.lock().objects(),
            Self::Local(local) => local.objects(),
        }
    }
}

/// How a fetch went.
#[derive(Debug, PartialEq, Eq)]
enum Fetched {
    /// It is here.
    Done,
    /// It is too much for memory, and was asked for on top of what is in memory only: it has to be asked for again.
    NotForMemory,
}

impl RemoteRepository {
    async fn plan(
        &self,
        plan: impl FnOnce(&mut Cache) -> Result<Plan, GitError> + Send + 'static,
    ) -> Result<Plan, GitError> {
        let cache = Arc::clone(&self.cache);
        blocking(move || plan(&mut cache.lock())).await
    }

    async fn fetch(&mut self, plan: &Plan) -> Result<Fetched, GitError> {
        if plan.wants.is_empty() {
            return Ok(Fetched::Done);
        }
        let (sink, chunks) = mpsc::channel(PACK_QUEUE);
        let cache = Arc::clone(&self.cache);
        let storing = keep(cache, plan.clone(), chunks);
        let receiving = self.remote.fetch(&plan.wants, &plan.haves, self.limits.pack_bytes, sink);
        let (received, stored) = tokio::join!(receiving, storing);
        match stored {
            Ok(Fetched::NotForMemory) => Ok(Fetched::NotForMemory),
            stored => both(received, stored),
        }
    }

    /// Looks through commits that are fetched beside the cache, which must stay complete, and thrown away afterwards.
    async fn find_in_history(
        &mut self,
        prefix: &str,
        tips: &[ObjectId],
    ) -> Result<Option<ObjectId>, GitError> {
        let (world, folder) = {
            let cache = self.cache.lock();
            (cache.world().clone(), cache.folder().join("history"))
        };
        let mut history = blocking(move || Cache::open(world, folder)).await?;
        let (sink, chunks) = mpsc::channel(PACK_QUEUE);
        let (folder, objects) = (history.folder(), history.objects());
        let storing = blocking(move || store_pack(&folder, &objects, Vec::new(), chunks));
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

/// Keeps a pack as it comes: in memory while it is small, on disk otherwise.
async fn keep(
    cache: Arc<Mutex<Cache>>,
    plan: Plan,
    mut chunks: mpsc::Receiver<Bytes>,
) -> Result<Fetched, GitError> {
    let mut first = Vec::new();
    let mut size = 0;
    while !plan.to_disk && size <= SMALL_PACK {
        let Some(chunk) = chunks.recv().await else {
            return blocking(move || {
                let objects = cache.lock().objects();
                let unpacked = unpack(&first, &objects)?;
                cache.lock().add(unpacked);
                Ok(Fetched::Done)
            })
            .await;
        };
        size += chunk.len();
        first.push(chunk);
    }
    blocking(move || {
        let (folder, objects) = {
            let cache = cache.lock();
            if !plan.to_disk && cache.has_overlay() {
                return Ok(Fetched::NotForMemory);
            }
            (cache.folder(), cache.objects())
        };
        store_pack(&folder, &objects, first, chunks)?;
        cache.lock().remember(&plan.wants)?;
        Ok(Fetched::Done)
    })
    .await
}

/// When storing failed, receiving merely notices that nobody takes the pack any more; when receiving failed, what came is cut.
fn both<T>(received: Result<(), GitError>, stored: Result<T, GitError>) -> Result<T, GitError> {
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
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(GitError::broken("reading the repository ended unexpectedly")))
}
