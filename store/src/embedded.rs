//! The log, the blobs, the key ring and snapshots of one node, in one folder.
//!
//! ```text
//! lock                          held by the process that has the folder
//! log/meta                      what is fixed for ever: format, partitions, salt, pinned root
//! log/<stream>/0000000001.seg   the truth
//! log/<stream>/checkpoints      counts and running hashes of partitions
//! log/<stream>/horizon          the first segment that is kept, once some have left
//! log/<stream>/end              the same where the stream ended when it was last closed
//! log/<stream>/torn-*           tails that were cut
//! blobs/0000000001.seg          blobs, encrypted
//! index/                        redb; can be deleted
//! keys/ring, keys/master        the key ring, and its master key unless that is given
//! snapshots/<name>              can be deleted
//! ```

mod answers;
mod blobs;
#[cfg(test)]
mod conforms;
mod copy;
mod database;
mod frame;
mod heads;
mod horizon;
mod index;
mod keyring;
mod log;
mod meta;
mod moment;
mod reader;
mod record;
mod recovery;
mod scan;
mod segments;
mod snapshots;
mod stream;
mod tally;
mod verify;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use events::position::Stream;
use parking_lot::Mutex;
use world::disk::FolderLock;
use world::{Disk, World};

pub use self::recovery::TornTail;

use self::answers::Answers;
use self::blobs::{BlobFiles, BlobParts, OpenBlobsError};
use self::database::{Database, IndexError};
use self::heads::AggregateHeads;
use self::index::{Entry, Index};
use self::keyring::KeyFile;
use self::log::{EmbeddedLog, Threads};
use self::meta::Meta;
use self::record::RecordHead;
use self::recovery::{Recovered, failed, recover};
use self::scan::{Broken, Scanner, Step};
use self::segments::{Cursor, Segments};
use self::snapshots::SnapshotFiles;
use self::stream::{ReadOnly, StreamCore};
use self::writer::{Shared, Writer};
use crate::Parts;
use crate::blobs::{BlobError, Blobs};
use crate::copy::{CopyMark, CopyMarkError, CopyOf};
use crate::keyring::{KeyName, KeyRing, KeyRingError};
use crate::log::{EventLog, PARTITIONS, ReadError};
use crate::root::{RootKey, RootKeyError};
use crate::seal::MasterKey;
use crate::snapshots::Snapshots;

/// Settings of an embedded store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Partitions of each stream; fixed for ever when the log is made. `None`: 16 for a new log, whatever an old one has.
    pub partitions: Option<u16>,
    /// The 32 bytes that wrap the key ring. `None`: those of `keys/master`, made with the folder.
    pub master_key: Option<MasterKey>,
    /// A segment is ended when it is this long, in bytes.
    pub segment_bytes: u64,
    /// Memory that each of the two indexes may use for its cache, in bytes.
    pub index_cache_bytes: usize,
    /// Who makes the folder, such as `kasbah 0.1.0`; for people.
    pub created_by: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            partitions: None,
            master_key: None,
            segment_bytes: 64 * 1024 * 1024,
            index_cache_bytes: 1024 * 1024,
            created_by: concat!("kasbah ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// Everything that one node keeps. The folder is let go when all parts are dropped.
#[derive(Clone)]
pub struct EmbeddedStore {
    /// The event log.
    pub log: Arc<dyn EventLog>,
    /// The blobs.
    pub blobs: Arc<dyn Blobs>,
    /// The key ring.
    pub keys: Arc<dyn KeyRing>,
    /// Snapshots of projections.
    pub snapshots: Arc<dyn Snapshots>,
    /// Tails that were cut when it was opened, for people to know.
    pub torn: Vec<TornTail>,
    /// The Ed25519 public key that this log was made with, in standard base64.
    pub root_public_key: String,
    log_files: Arc<EmbeddedLog>,
    blob_files: Arc<BlobFiles>,
    key_file: Arc<KeyFile>,
    disk: Arc<dyn Disk>,
    log_folder: PathBuf,
    meta: Meta,
}

/// A store does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the folder.
    #[error("{} is in use by another process: stop it, or use another folder", folder.display())]
    InUse {
        /// Which folder.
        folder: PathBuf,
    },
    /// `log/meta` cannot be read.
    #[error("{} is not a log description that this version can read: {detail}", path.display())]
    Meta {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The partitions of a log are fixed.
    #[error("the log was created with {fixed} partitions, which cannot change to {wanted}")]
    Partitions {
        /// What it has.
        fixed: u16,
        /// What the settings want.
        wanted: u16,
    },
    /// The key ring is not the one that the log was made with.
    #[error(
        "the key ring's root key is not the one that the log pins: restore `keys` and `log` from the same backup"
    )]
    OtherRoot,
    /// A copy that was not finished is no log yet, and one that is another's is not gone on with.
    #[error(transparent)]
    Copy(#[from] CopyMarkError),
    /// The key ring does not open.
    #[error(transparent)]
    KeyRing(#[from] KeyRingError),
    /// The root key is malformed.
    #[error(transparent)]
    Root(#[from] RootKeyError),
    /// The log is damaged, or cannot be read.
    #[error(transparent)]
    Log(#[from] ReadError),
    /// The index can neither be opened nor made anew.
    #[error("cannot open the index: {0}")]
    Index(String),
    /// Input or output failed.
    #[error("cannot reach the folder")]
    Disk(#[source] io::Error),
}

impl From<IndexError> for OpenError {
    fn from(error: IndexError) -> Self {
        Self::Index(error.0)
    }
}

impl From<OpenBlobsError> for OpenError {
    fn from(error: OpenBlobsError) -> Self {
        match error {
            OpenBlobsError::Index(error) => error.into(),
            OpenBlobsError::Read(error) => Self::Log(error),
        }
    }
}

/// Opens the store in a folder, or makes it. Blocks; call it before anything is served, in a
/// runtime that outlives the store.
///
/// # Errors
/// When another process has the folder, the key ring does not open, or something recorded is damaged: then with segment and
/// offset. A torn tail is no error: it is cut, kept aside and reported.
pub fn open(world: &World, folder: impl AsRef<Path>, options: Options) -> Result<EmbeddedStore, OpenError> {
    open_as(world, folder.as_ref(), &options, None)
}

/// Makes a copy in a folder that has no log, or opens one to go on with it.
///
/// # Errors
/// As [`open`], and when the folder holds anything but a copy of the same.
pub fn open_copy(
    world: &World,
    folder: impl AsRef<Path>,
    options: Options,
    copy: &CopyOf,
) -> Result<EmbeddedStore, OpenError> {
    open_as(world, folder.as_ref(), &options, Some(copy))
}

fn open_as(
    world: &World,
    folder: &Path,
    options: &Options,
    copy: Option<&CopyOf>,
) -> Result<EmbeddedStore, OpenError> {
    let lock = take_folder(world, folder)?;
    let keys_folder = folder.join("keys");
    world.disk.create_folder(&keys_folder).map_err(OpenError::Disk)?;
    let master = match &options.master_key {
        Some(master) => master.clone(),
        None => keyring::master_key(world.disk.as_ref(), world.random.as_ref(), &keys_folder)?,
    };
    let (disk, random) = (Arc::clone(&world.disk), Arc::clone(&world.random));
    let keys = KeyFile::open(disk, random, &keys_folder, &master, Arc::clone(&lock))?;
    let meta = meta(world, folder, options, &keys, copy)?;
    let index = |name: &str| {
        let path = folder.join("index").join(name);
        Database::open(&path, &meta.log.to_string(), options.index_cache_bytes)
    };
    world.disk.create_folder(&folder.join("index")).map_err(OpenError::Disk)?;
    let (log, mut torn) = open_log(world, folder, options, &meta, index("decisions")?, &lock)?;
    let segments = segments(world, folder.join("blobs"), meta.salt)?;
    let (blobs, torn_blobs) = BlobFiles::open(BlobParts {
        segments,
        index: index("blobs")?,
        keys: keys.handle(),
        random: Arc::clone(&world.random),
        segment_bytes: options.segment_bytes,
        lock: Arc::clone(&lock),
    })?;
    torn.extend(torn_blobs);
    let snapshots = SnapshotFiles {
        disk: Arc::clone(&world.disk),
        folder: folder.join("snapshots"),
        log: meta.log,
        _lock: lock,
    };
    world.disk.create_folder(&snapshots.folder).map_err(OpenError::Disk)?;
    let (log_files, blob_files, key_file) = (Arc::new(log), Arc::new(blobs), Arc::new(keys));
    Ok(EmbeddedStore {
        log: Arc::clone(&log_files) as Arc<dyn EventLog>,
        blobs: Arc::clone(&blob_files) as Arc<dyn Blobs>,
        keys: Arc::clone(&key_file) as Arc<dyn KeyRing>,
        snapshots: Arc::new(snapshots),
        torn,
        root_public_key: meta.root_public_key.clone(),
        log_files,
        blob_files,
        key_file,
        disk: Arc::clone(&world.disk),
        log_folder: folder.join("log"),
        meta,
    })
}

impl EmbeddedStore {
    /// Log, blobs, keys and snapshots.
    #[must_use]
    pub fn parts(&self) -> Parts {
        Parts {
            log: Arc::clone(&self.log),
            blobs: Arc::clone(&self.blobs),
            keys: Arc::clone(&self.keys),
            snapshots: Arc::clone(&self.snapshots),
            consumers: None,
        }
    }

    /// Reads every blob's frame and opens those of organizations whose key is there; returns how many there are. Blocks. For
    /// the log there is [`EventLog::verify`].
    ///
    /// # Errors
    /// What is damaged first, with segment and offset.
    pub fn verify_blobs(&self) -> Result<u64, BlobError> {
        self.blob_files.verify()
    }

    /// Makes everything durable that waits, and ends the log's threads. Appends from now on are refused. Blocks.
    pub fn close(&self) {
        self.log_files.close();
    }
}

/// How often, and after what pause, a folder that is in use is tried again: a process that was just killed, or one that a
/// child of ours is just being made from, holds locks for a moment more.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

fn take_folder(world: &World, folder: &Path) -> Result<Arc<dyn FolderLock>, OpenError> {
    world.disk.create_folder(folder).map_err(OpenError::Disk)?;
    let mut attempts = 0;
    loop {
        match world.disk.lock(folder) {
            Ok(lock) => return Ok(Arc::from(lock)),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(OpenError::Disk(error)),
            Err(_) if attempts < LOCK_ATTEMPTS => {
                attempts += 1;
                thread::sleep(LOCK_PAUSE);
            }
            Err(_) => return Err(OpenError::InUse { folder: folder.to_owned() }),
        }
    }
}

fn segments(world: &World, folder: PathBuf, salt: u64) -> Result<Arc<Segments>, OpenError> {
    Segments::new(Arc::clone(&world.disk), folder, salt).map(Arc::new).map_err(OpenError::Disk)
}

/// Reads what is fixed for ever, or fixes it.
fn meta(
    world: &World,
    folder: &Path,
    options: &Options,
    keys: &KeyFile,
    copy: Option<&CopyOf>,
) -> Result<Meta, OpenError> {
    let folder = folder.join("log");
    world.disk.create_folder(&folder).map_err(OpenError::Disk)?;
    match Meta::read(world.disk.as_ref(), &folder)? {
        None => {
            let root = match copy.and_then(|copy| copy.root.clone()) {
                Some(root) => keys.key_or_put(KeyName::Root, root)?,
                None => keys.key_or_new(KeyName::Root)?,
            };
            let root = RootKey::from_pkcs8(&root)?;
            if copy.is_some_and(|copy| !copy.has_root(&root)) {
                return Err(OpenError::OtherRoot);
            }
            let partitions = options.partitions.unwrap_or(PARTITIONS).max(1);
            let (root, mark) = (root.public_key_base64(), copy.map(CopyOf::mark));
            Meta::create(world, &folder, partitions, &root, &options.created_by, mark)
        }
        Some(meta) => {
            CopyMark::check(meta.copy.as_ref(), copy)?;
            if let Some(wanted) = options.partitions.filter(|wanted| *wanted != meta.partitions) {
                return Err(OpenError::Partitions { fixed: meta.partitions, wanted });
            }
            let root = keys.key(KeyName::Root).ok_or(OpenError::OtherRoot)?;
            if RootKey::from_pkcs8(&root)?.public_key_base64() != meta.root_public_key {
                return Err(OpenError::OtherRoot);
            }
            Ok(meta)
        }
    }
}

/// A stream that was found, before its writer starts.
struct Opened {
    core: Arc<StreamCore>,
    recovered: Recovered,
}

fn open_log(
    world: &World,
    folder: &Path,
    options: &Options,
    meta: &Meta,
    index: Database,
    lock: &Arc<dyn FolderLock>,
) -> Result<(EmbeddedLog, Vec<TornTail>), OpenError> {
    let mut opened = Vec::new();
    let mut torn = Vec::new();
    for stream in Stream::ALL {
        let segments = segments(world, folder.join("log").join(stream.as_str()), meta.salt)?;
        let mut recovered = recover(&segments, meta.partitions)?;
        torn.extend(recovered.torn.take());
        let sequences = recovered.tally.sequences();
        let marks = std::mem::take(&mut recovered.marks);
        let core = StreamCore::new(*stream, segments, recovered.end, sequences, marks);
        opened.push(Opened { core: Arc::new(core), recovered });
    }
    let decisions = opened.iter().find(|opened| opened.core.stream == Stream::Decisions);
    let decisions = decisions.map(|opened| Arc::clone(&opened.core));
    let decisions = decisions.ok_or_else(|| OpenError::Index("no stream of decisions".to_owned()))?;
    let index = Arc::new(Index::open(index)?);
    let heads = Arc::new(AggregateHeads { index: Arc::clone(&index), core: Arc::clone(&decisions) });
    let mut threads = Threads::default();
    let running = Arc::clone(&index);
    threads.index = Some(start("log-index", move || running.run())?);
    catch_up(&index, &decisions)?;
    let (answers, answering) = Answers::pair();
    world.spawner.spawn("log-answers", answering);
    let shared = Shared {
        clock: Arc::clone(&world.clock),
        read_only: Arc::new(ReadOnly::new()),
        segment_bytes: options.segment_bytes,
        answers,
    };
    let mut streams = Vec::new();
    for Opened { core, recovered } in opened {
        streams.push(Arc::clone(&core));
        let heads = (core.stream == Stream::Decisions).then(|| Arc::clone(&heads));
        threads.writers.push(start_writer(core, recovered, heads, shared.clone())?);
    }
    let log = EmbeddedLog {
        id: meta.log,
        partitions: meta.partitions,
        spawner: Arc::clone(&world.spawner),
        streams,
        heads,
        read_only: shared.read_only,
        threads: Mutex::new(threads),
        _lock: Arc::clone(lock),
    };
    Ok((log, torn))
}

fn start_writer(
    core: Arc<StreamCore>,
    recovered: Recovered,
    heads: Option<Arc<AggregateHeads>>,
    shared: Shared,
) -> Result<thread::JoinHandle<()>, OpenError> {
    let file = core.segments.file(recovered.end.segment).map_err(OpenError::Disk)?;
    let length = file.length().map_err(OpenError::Disk)?;
    let writer = Writer {
        core,
        shared,
        heads,
        file,
        end: recovered.end,
        length,
        tally: recovered.tally,
        uncounted: recovered.uncounted,
        checkpoints: recovered.checkpoints,
        grown: false,
    };
    start("log-writer", move || writer.run())
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, OpenError> {
    thread::Builder::new().name(name.to_owned()).stack_size(512 * 1024).spawn(body).map_err(OpenError::Disk)
}

/// Brings the index up to the end of the decisions; makes it anew when it does not fit them.
fn catch_up(index: &Index, decisions: &StreamCore) -> Result<(), OpenError> {
    let covered = index.covered()?;
    if let Some(covered) = covered
        && covered <= decisions.end()
        && fill(index, decisions, covered)?.is_none()
    {
        return Ok(());
    }
    if covered.is_some() {
        tracing::warn!("index does not match the segments and is rebuilt");
    }
    index.clear()?;
    match fill(index, decisions, Cursor::START)? {
        None => Ok(()),
        Some(broken) => Err(broken.error(&decisions.segments).into()),
    }
}

/// Adds what lies behind a place to the index; returns what does not fit.
fn fill(index: &Index, decisions: &StreamCore, from: Cursor) -> Result<Option<Broken>, OpenError> {
    let mut scanner = Scanner::until(Arc::clone(&decisions.segments), from, decisions.end());
    loop {
        let (at, frame) = match scanner.next().map_err(failed)? {
            Step::Frame(at, frame) => (at, frame),
            Step::End => return Ok(None),
            Step::Broken(broken) => return Ok(Some(broken)),
        };
        if let Some(chained) = RecordHead::read(&frame).and_then(|head| head.chained) {
            let entry =
                Entry { key: chained.aggregate, version: chained.version, commit: chained.commit, at };
            index.add(&[entry], scanner.at());
        }
    }
}
