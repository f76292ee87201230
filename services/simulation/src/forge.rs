//! Git in memory: repositories with a history that only grows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use gix::objs::Kind;
use parking_lot::Mutex;
use repo_poller::git::overlay::Unpacked;
use repo_poller::git::{GitError, Location, Login, ObjectId, Objects, Repositories, Repository};

use crate::executor::Executor;

/// Files by their path.
pub type Files = BTreeMap<String, String>;

#[derive(Clone)]
struct StoredRepository {
    objects: Unpacked,
    snapshot: Objects,
    head: ObjectId,
    files: Files,
}

#[derive(Default)]
struct State {
    repositories: BTreeMap<String, StoredRepository>,
    places: BTreeMap<String, u64>,
    commits: u64,
    failing_until: Duration,
    failed: u64,
}

/// All repositories; cheap to clone.
#[derive(Clone)]
pub struct Forge {
    executor: Executor,
    state: Arc<Mutex<State>>,
}

impl Forge {
    /// Without repositories.
    #[must_use]
    pub fn new(executor: &Executor) -> Self {
        Self { executor: executor.clone(), state: Arc::default() }
    }

    /// Commits these files as all that a repository has; gives the commit.
    ///
    /// # Errors
    /// When an object cannot be hashed.
    pub fn push(&self, repository: &str, files: Files) -> anyhow::Result<String> {
        let mut state = self.state.lock();
        state.commits += 1;
        let number = state.commits;
        let before = state.repositories.get(repository);
        let mut objects = before.map(|kept| kept.objects.clone()).unwrap_or_default();
        let parent = before.map(|kept| format!("parent {}\n", kept.head)).unwrap_or_default();
        let entries: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let tree = write_tree(&mut objects, &entries)?;
        let who = format!("somebody <somebody@example.com> {} +0000", 1_900_000_000 + number);
        let content = format!("tree {tree}\n{parent}author {who}\ncommitter {who}\n\ncommit {number}\n");
        let head = write(&mut objects, Kind::Commit, content.into())?;
        state.places.insert(head.to_string(), number);
        let snapshot = Objects::in_memory(objects.clone());
        state.repositories.insert(repository.to_owned(), StoredRepository { objects, snapshot, head, files });
        Ok(head.to_string())
    }

    /// What a repository has now.
    #[must_use]
    pub fn files(&self, repository: &str) -> Files {
        self.state.lock().repositories.get(repository).map(|kept| kept.files.clone()).unwrap_or_default()
    }

    /// Which commit of all this one was.
    #[must_use]
    pub fn place_of(&self, commit: &str) -> Option<u64> {
        self.state.lock().places.get(commit).copied()
    }

    /// Nobody can reach a repository for a while.
    pub fn fail(&self, time: Duration) {
        self.state.lock().failing_until = self.executor.now() + time;
    }

    /// How often somebody could not.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.state.lock().failed
    }
}

fn write(objects: &mut Unpacked, kind: Kind, content: Bytes) -> anyhow::Result<ObjectId> {
    let id = gix::objs::compute_hash(gix::hash::Kind::Sha1, kind, &content)?;
    objects.insert(id, (kind, content));
    Ok(id)
}

/// Writes a folder; `files` are sorted by their path in it.
fn write_tree(objects: &mut Unpacked, files: &[(&str, &str)]) -> anyhow::Result<ObjectId> {
    // Git sorts a folder as if its name ended with a slash.
    let mut entries: BTreeMap<String, (&str, String, ObjectId)> = BTreeMap::new();
    let mut folders: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, text) in files {
        match path.split_once('/') {
            Some((folder, rest)) => folders.entry(folder).or_default().push((rest, text)),
            None => {
                let id = write(objects, Kind::Blob, Bytes::from((*text).to_owned()))?;
                entries.insert((*path).to_owned(), ("100644", (*path).to_owned(), id));
            }
        }
    }
    for (folder, files) in folders {
        let id = write_tree(objects, &files)?;
        entries.insert(format!("{folder}/"), ("40000", folder.to_owned(), id));
    }
    let mut content = Vec::new();
    for (mode, name, id) in entries.values() {
        content.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        content.extend_from_slice(id.as_slice());
    }
    write(objects, Kind::Tree, content.into())
}

struct Opened {
    forge: Forge,
    name: String,
    here: Objects,
}

#[async_trait]
impl Repositories for Forge {
    async fn open(
        &self,
        location: Location,
        _login: Option<Login>,
        _cache_folder: PathBuf,
    ) -> Result<Box<dyn Repository>, GitError> {
        let Location::Remote(url) = location else {
            return Err(GitError::refused("only repositories behind a URL are simulated"));
        };
        let name = url.endpoint("");
        Ok(Box::new(Opened { forge: self.clone(), name, here: Objects::in_memory(Unpacked::new()) }))
    }
}

impl Opened {
    /// Asks the server something.
    async fn ask<T>(&self, look: impl FnOnce(&StoredRepository) -> T + Send) -> Result<T, GitError> {
        let executor = &self.forge.executor;
        executor.sleep(Duration::from_micros(executor.roll(|dice| dice.between(500, 40_000)))).await;
        let seen = {
            let mut state = self.forge.state.lock();
            if state.failing_until > executor.now() {
                state.failed += 1;
                return Err(GitError::unreachable("the server does not answer"));
            }
            let kept = state.repositories.get(&self.name);
            kept.map(look).ok_or_else(|| GitError::not_found("there is no such repository"))
        };
        executor.sleep(Duration::from_micros(executor.roll(|dice| dice.between(500, 40_000)))).await;
        seen
    }
}

#[async_trait]
impl Repository for Opened {
    async fn references(&mut self, names: &[String]) -> Result<BTreeMap<String, ObjectId>, GitError> {
        let names = names.to_vec();
        let main = |kept: &StoredRepository| {
            let wanted = names.into_iter().filter(|name| name == "refs/heads/main");
            wanted.map(|name| (name, kept.head)).collect()
        };
        self.ask(main).await
    }

    async fn ensure(&mut self, wants: &[ObjectId], _tips: &[ObjectId]) -> Result<(), GitError> {
        let missing = wants.iter().any(|id| !self.here.reader().contains(id));
        if missing {
            self.here = self.ask(|kept| kept.snapshot.clone()).await?;
        }
        Ok(())
    }

    async fn fetch_anew(&mut self, wants: &[ObjectId]) -> Result<(), GitError> {
        self.here = Objects::in_memory(Unpacked::new());
        self.ensure(wants, &[]).await
    }

    async fn find_commit(&mut self, prefix: &str, _tips: &[ObjectId]) -> Result<ObjectId, GitError> {
        let found = self.here.reader().find_commit(prefix);
        found.ok_or_else(|| {
            GitError::not_found(format!("no commit begins with {prefix}, or more than one does"))
        })
    }

    fn objects(&self) -> Objects {
        self.here.clone()
    }
}
