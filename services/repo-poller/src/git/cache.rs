//! The objects of one remote repository that were fetched. A cache: it may be thrown away at any moment.
//!
//! Large fetches become packs on disk; small ones stay in memory ([`Overlay`]). Both are complete: whatever a commit that is
//! here needs is here as well, and what a pack on disk needs is on disk.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::{Buf, Bytes};
use gix::odb::store::init::{Options, Slots};
use tokio::sync::mpsc;
use world::World;

use crate::git::objects::Objects;
use crate::git::overlay::{Overlay, Unpacked};
use crate::git::{GitError, ObjectId, parse_id};

/// Packs that one cache may hold before it begins anew: each look for an object goes through them.
const MAXIMUM_PACKS: usize = 200;
/// Bytes in memory before everything is fetched to disk.
const OVERLAY_LIMIT: usize = 1024 * 1024;
/// Largest single allocation for the sake of one object, in bytes.
const OBJECT_LIMIT: usize = 512 * 1024 * 1024;
/// Commits whose trees are on disk, that are remembered for the server to leave out.
const REMEMBERED: usize = 32;
/// The file that lists them.
const COMMITS: &str = "commits";

/// Objects on disk, and in memory.
pub struct Cache {
    world: World,
    folder: PathBuf,
    store: Arc<gix::odb::Store>,
    overlay: Arc<Overlay>,
    /// Commits whose trees are on disk, oldest first.
    commits: Vec<ObjectId>,
}

/// What is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Commits to ask for; none when everything is here.
    pub wants: Vec<ObjectId>,
    /// Commits to leave out.
    pub haves: Vec<ObjectId>,
    /// It goes to disk however small it is.
    pub to_disk: bool,
}

impl Cache {
    /// Opens the cache in a folder, making it if there is none. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(world: World, folder: PathBuf) -> Result<Self, GitError> {
        let store = open_store(&world, &folder)?;
        let mut cache = Self { world, folder, store, overlay: Arc::default(), commits: Vec::new() };
        if let Ok(list) = cache.world.disk.read(&cache.folder.join(COMMITS)) {
            let listed: Vec<ObjectId> = String::from_utf8_lossy(&list).lines().filter_map(parse_id).collect();
            cache.commits = cache.here(&listed);
        }
        Ok(cache)
    }

    /// Reads from it as it is now.
    #[must_use]
    pub fn objects(&self) -> Objects {
        Objects::with(Arc::clone(&self.store), Arc::clone(&self.overlay))
    }

    /// What to fetch, so that `wants` are here while `tips` stay. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn plan(&mut self, wants: &[ObjectId], tips: &[ObjectId]) -> Result<Plan, GitError> {
        let here = self.here(wants);
        if wants.iter().all(|want| here.contains(want)) {
            return Ok(Plan { wants: Vec::new(), haves: Vec::new(), to_disk: false });
        }
        self.overlay = Arc::new(self.overlay.reachable(tips));
        if self.overlay.bytes() > OVERLAY_LIMIT || self.is_crowded() {
            return self.plan_for_disk(wants, tips);
        }
        let mut haves = self.here(tips);
        haves.extend(self.commits.iter().filter(|commit| !tips.contains(commit)));
        let wants = wants.iter().filter(|want| !here.contains(want)).copied().collect();
        Ok(Plan { wants, to_disk: haves.is_empty(), haves })
    }

    /// What to fetch, so that `wants` and `tips` are on disk. What was in memory is dropped. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn plan_for_disk(&mut self, wants: &[ObjectId], tips: &[ObjectId]) -> Result<Plan, GitError> {
        if self.is_crowded() {
            self.clear()?;
        }
        self.overlay = Arc::default();
        let mut all = [wants, tips].concat();
        all.sort();
        all.dedup();
        let here = self.here(&all);
        all.retain(|id| !here.contains(id));
        Ok(Plan { wants: all, haves: self.commits.clone(), to_disk: true })
    }

    /// Whether something is in memory only.
    #[must_use]
    pub fn has_overlay(&self) -> bool {
        !self.overlay.is_empty()
    }

    /// These objects were fetched, too.
    pub fn add(&mut self, objects: Unpacked) {
        self.overlay = Arc::new(self.overlay.with(objects));
    }

    /// The trees of these commits are on disk. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn remember(&mut self, commits: &[ObjectId]) -> Result<(), GitError> {
        self.commits.retain(|known| !commits.contains(known));
        self.commits.extend(commits);
        let excess = self.commits.len().saturating_sub(REMEMBERED);
        self.commits.drain(..excess);
        let list: String = self.commits.iter().map(|commit| format!("{commit}\n")).collect();
        let path = self.folder.join(COMMITS);
        self.world.disk.replace(&path, list.as_bytes(), false).map_err(|error| disk(&error))
    }

    /// Throws everything away. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn clear(&mut self) -> Result<(), GitError> {
        self.overlay = Arc::default();
        self.remember(&[])?;
        self.commits.clear();
        let packs = self.folder.join("pack");
        for name in self.world.disk.list(&packs).map_err(|error| disk(&error))? {
            self.world.disk.remove(&packs.join(name)).map_err(|error| disk(&error))?;
        }
        self.store = open_store(&self.world, &self.folder)?;
        Ok(())
    }

    /// Which of these commits are here.
    fn here(&self, ids: &[ObjectId]) -> Vec<ObjectId> {
        let reader = self.objects().reader();
        ids.iter().filter(|id| reader.contains(id)).copied().collect()
    }

    fn is_crowded(&self) -> bool {
        self.world.disk.list(&self.folder.join("pack")).is_ok_and(|names| {
            names.iter().filter(|name| name.extension().is_some_and(|end| end == "idx")).count()
                >= MAXIMUM_PACKS
        })
    }

    /// The world it lies in.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Where it lies.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

/// Stores a pack as it comes; deltas against objects that are on disk already are completed. Blocks.
///
/// # Errors
/// When the pack is damaged or cannot be stored.
pub fn store_pack(
    folder: &Path,
    objects: &Objects,
    first: Vec<Bytes>,
    rest: mpsc::Receiver<Bytes>,
) -> Result<(), GitError> {
    let mut pack =
        BufReader::with_capacity(64 * 1024, PackReader { first: first.into(), rest, current: Bytes::new() });
    let options = gix_pack::bundle::write::Options {
        thread_limit: Some(1),
        iteration_mode: gix_pack::data::input::Mode::Verify,
        alloc_limit_bytes: Some(OBJECT_LIMIT),
        ..Default::default()
    };
    gix_pack::Bundle::write_to_directory(
        &mut pack,
        Some(&folder.join("pack")),
        &mut gix::progress::Discard,
        &AtomicBool::new(false),
        objects.finder(),
        gix::hash::Kind::Sha1,
        options,
    )
    .map_err(|error| GitError::broken(format!("the server's pack cannot be stored: {error}")))?;
    Ok(())
}

fn open_store(world: &World, folder: &Path) -> Result<Arc<gix::odb::Store>, GitError> {
    world.disk.create_folder(&folder.join("pack")).map_err(|error| disk(&error))?;
    // Twice what is let in, so that a refresh always finds a free slot.
    let slots = Slots::Given(u16::try_from(MAXIMUM_PACKS * 2).unwrap_or(u16::MAX));
    let limit = Some(OBJECT_LIMIT);
    let options =
        Options { slots, use_multi_pack_index: false, alloc_limit_bytes: limit, ..Default::default() };
    let store =
        gix::odb::Store::at_opts(folder.to_owned(), gix::hash::Kind::Sha1, &mut std::iter::empty(), options);
    store.map(Arc::new).map_err(|error| disk(&error))
}

fn disk(error: &io::Error) -> GitError {
    GitError::broken(format!("the folder of repositories cannot be used: {error}"))
}

/// Reads on a blocking thread what an async task receives.
struct PackReader {
    first: VecDeque<Bytes>,
    rest: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Read for PackReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.current.has_remaining() {
            match self.first.pop_front().or_else(|| self.rest.blocking_recv()) {
                Some(chunk) => self.current = chunk,
                None => return Ok(0),
            }
        }
        let count = self.current.len().min(buffer.len());
        let (target, _) = buffer.split_at_mut(count);
        self.current.copy_to_slice(target);
        Ok(count)
    }
}
