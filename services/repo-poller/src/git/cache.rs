//! The objects of one remote repository that were fetched. A cache: it may be thrown away at any moment.

use std::io::{self, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::{Buf, Bytes};
use gix::odb::store::init::{Options, Slots};
use tokio::sync::mpsc;
use world::World;

use crate::git::objects::Objects;
use crate::git::{GitError, ObjectId};

/// Packs that one cache may hold before it begins anew: each look for an object goes through them.
const MAXIMUM_PACKS: usize = 200;

/// Objects on disk.
pub struct Cache {
    world: World,
    folder: PathBuf,
    store: Arc<gix::odb::Store>,
}

impl Cache {
    /// Opens the cache in a folder, making it if there is none. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(world: World, folder: PathBuf) -> Result<Self, GitError> {
        let store = open_store(&world, &folder)?;
        Ok(Self { world, folder, store })
    }

    /// Reads from it.
    #[must_use]
    pub fn objects(&self) -> Objects {
        Objects::new(Arc::clone(&self.store))
    }

    /// Whether it holds so many packs that it had better begin anew.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.world.disk.list(&self.packs()).is_ok_and(|names| {
            names.iter().filter(|name| name.extension().is_some_and(|end| end == "idx")).count() >= MAXIMUM_PACKS
        })
    }

    /// Which of these commits are there.
    #[must_use]
    pub fn known(&self, ids: &[ObjectId]) -> Vec<ObjectId> {
        let reader = self.objects().reader();
        ids.iter().filter(|id| reader.contains(id)).copied().collect()
    }

    /// Throws everything away. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn clear(&mut self) -> Result<(), GitError> {
        let packs = self.packs();
        for name in self.world.disk.list(&packs).map_err(|error| disk(&error))? {
            self.world.disk.remove(&packs.join(name)).map_err(|error| disk(&error))?;
        }
        self.store = open_store(&self.world, &self.folder)?;
        Ok(())
    }

    fn packs(&self) -> PathBuf {
        self.folder.join("pack")
    }

    /// Stores a pack as it comes; deltas against objects that are here already are completed. Blocks.
    ///
    /// # Errors
    /// When the pack is damaged or cannot be stored.
    pub fn store_pack(folder: &std::path::Path, objects: &Objects, pack: mpsc::Receiver<Bytes>) -> Result<(), GitError> {
        let mut pack = BufReader::with_capacity(64 * 1024, PackReader { chunks: pack, current: Bytes::new() });
        let options = gix_pack::bundle::write::Options {
            thread_limit: Some(1),
            iteration_mode: gix_pack::data::input::Mode::Verify,
            ..Default::default()
        };
        gix_pack::Bundle::write_to_directory(
            &mut pack,
            Some(&folder.join("pack")),
            &mut gix::progress::Discard,
            &AtomicBool::new(false),
            Some(objects.finder()),
            gix::hash::Kind::Sha1,
            options,
        )
        .map_err(|error| GitError::broken(format!("the server's pack cannot be stored: {error}")))?;
        Ok(())
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

fn open_store(world: &World, folder: &std::path::Path) -> Result<Arc<gix::odb::Store>, GitError> {
    world.disk.create_folder(&folder.join("pack")).map_err(|error| disk(&error))?;
    // Twice what is let in, so that a refresh always finds a free slot.
    let slots = Slots::Given(u16::try_from(MAXIMUM_PACKS * 2).unwrap_or(u16::MAX));
    let options = Options { slots, use_multi_pack_index: false, ..Default::default() };
    let store = gix::odb::Store::at_opts(folder.to_owned(), gix::hash::Kind::Sha1, &mut std::iter::empty(), options);
    store.map(Arc::new).map_err(|error| disk(&error))
}

fn disk(error: &io::Error) -> GitError {
    GitError::broken(format!("the folder of repositories cannot be used: {error}"))
}

/// Reads on a blocking thread what an async task receives.
struct PackReader {
    chunks: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Read for PackReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.current.has_remaining() {
            match self.chunks.blocking_recv() {
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
