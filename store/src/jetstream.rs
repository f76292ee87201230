//! The log, the blobs, the key ring and snapshots of many nodes, on NATS JetStream.
//!
//! ```text
//! kasbah-meta                       what is fixed for ever: format, partitions, pinned root
//! kasbah-<stream>-<partition>       the truth: one message a record, one subject an aggregate
//! kasbah-checkpoints                count and running hash of each partition
//! kasbah-blobs                      blobs, encrypted
//! kasbah-keys                       the key ring, wrapped under the master key
//! kasbah-snapshots                  can be emptied
//! ```
//! Everything but `nats` runs over the trait `Server` (in `server`), which is all that it may expect of NATS.

mod blobs;
mod checkpoints;
#[cfg(test)]
mod conforms;
mod consumers;
mod copy;
mod ends;
mod follow;
mod heads;
mod keyring;
mod log;
mod meta;
mod moment;
mod nats;
mod pages;
mod permissions;
mod records;
mod server;
mod shared_reading;
#[cfg(feature = "simulation")]
pub mod simulated;
mod snapshots;
mod tail;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use events::position::Stream;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use world::World;

#[cfg(test)]
pub(crate) use self::conforms::options as options_of_tests;
pub use self::consumers::ConsumerSubjects;
pub use self::nats::Difference;
pub use self::permissions::{copier, permissions};

use self::blobs::BlobStream;
use self::checkpoints::Checkpoints;
use self::consumers::JetStreamConsumers;
use self::ends::Ends;
use self::heads::AggregateHeads;
use self::keyring::KeyStream;
use self::log::JetStreamLog;
use self::meta::Meta;
use self::nats::{Link, Promise, Wanted, ensure, not_made};
use self::records::{STORED, stream_name, subjects, token};
use self::server::{Server, ServerError};
use self::shared_reading::SharedReading;
use self::snapshots::SnapshotStream;
use self::tail::Tail;
use crate::Parts;
use crate::copy::{CopyMark, CopyMarkError, CopyOf};
use crate::keyring::{KeyName, KeyRing, KeyRingError};
use crate::log::{PARTITIONS, check_has_retention};
use crate::root::{RootKey, RootKeyError};
use crate::seal::MasterKey;

/// Settings of a store on JetStream.
#[derive(Debug, Clone)]
pub struct Options {
    /// Servers, such as `nats://nats-0:4222`; those of a cluster tell of one another.
    pub servers: Vec<String>,
    /// How the servers' monitoring names this process.
    pub name: String,
    /// What kind of process it is, such as `delivery`: it gets answers under `_INBOX.<process>.>` only.
    pub process: String,
    /// Certificate authorities to trust, PEM, for servers named `tls://…`; those that the machine trusts if not given.
    pub ca_file: Option<PathBuf>,
    /// Whether this process makes what is not there. One that does not waits for one that does.
    pub makes_log: bool,
    /// The 32 bytes that wrap the key ring: the one setting that all replicas share.
    pub master_key: MasterKey,
    /// Partitions of each stream; fixed for ever when the log is made. `None`: 16 for a new log, whatever an old one has.
    pub partitions: Option<u16>,
    /// Takes servers that acknowledge before they sync, or do not say when they do.
    pub accept_weak_durability: bool,
    /// Who makes the log, such as `kasbah 0.1.0`; for people.
    pub created_by: String,
}

/// Replicas of each stream where there are as many servers: two would gain nothing over one.
const REPLICAS: usize = 3;
/// What a server must take: the largest record or part, and its headers.
const LARGEST_MESSAGE: usize = 768 * 1024;
/// How long servers may take to answer when they are started at the same time as we are.
const START_TIME: Duration = Duration::from_secs(60);
const START_PAUSE: Duration = Duration::from_secs(1);
/// Streams that are made or looked at at once.
const STREAMS_AT_ONCE: usize = 8;

/// A store does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The servers cannot be reached, or do not answer.
    #[error("cannot reach the log on NATS: {detail}")]
    Away {
        /// What happened.
        detail: String,
    },
    /// The servers take smaller messages only.
    #[error(
        "the servers accept messages of at most {limit} bytes, and {LARGEST_MESSAGE} are needed: raise max_payload"
    )]
    SmallMessages {
        /// Their limit.
        limit: usize,
    },
    /// What the servers acknowledge may be lost.
    #[error(
        "the servers guarantee less durability than the log needs: {detail}. Set `sync_interval: always` in their jetstream block (deploy/nats has a whole configuration), or accept it with --nats-accept-weak-durability"
    )]
    WeakDurability {
        /// What they promise.
        detail: String,
    },
    /// A stream is there that is not ours, or was changed.
    #[error("streams differ from the required configuration, and stay unchanged: {}", list(.0))]
    OtherStreams(Vec<Difference>),
    /// The log's description cannot be read.
    #[error("{} holds no description of a log that this version reads: {detail}", meta::STREAM)]
    Meta {
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
    #[error("the key ring's root key is not the one that the log pins: restore both from the same backup")]
    OtherRoot,
    /// A copy that was not finished is no log yet, and one that is another's is not gone on with.
    #[error(transparent)]
    Copy(#[from] CopyMarkError),
    /// The key ring does not open.
    #[error(transparent)]
    KeyRing(KeyRingError),
    /// The root key is malformed.
    #[error(transparent)]
    Root(#[from] RootKeyError),
}

fn list(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl From<ServerError> for OpenError {
    fn from(error: ServerError) -> Self {
        Self::Away { detail: error.0 }
    }
}

impl From<KeyRingError> for OpenError {
    fn from(error: KeyRingError) -> Self {
        match error {
            // Its stream may have no leader yet.
            KeyRingError::Failed { detail } => Self::Away { detail },
            other => Self::KeyRing(other),
        }
    }
}

/// What many nodes keep together.
#[derive(Clone)]
pub struct JetStreamStore {
    /// Log, blobs, keys and snapshots.
    pub parts: Parts,
    /// The Ed25519 public key that this log was made with, in standard base64.
    pub root_public_key: String,
    /// How often each record is kept.
    pub replicas: usize,
    /// How it stands with the servers.
    pub connection: Connection,
    server: Arc<dyn Server>,
    checkpoints: Arc<Checkpoints>,
    world: World,
}

/// The connection of a store, for whoever watches over it.
#[derive(Clone)]
pub struct Connection(Arc<Link>);

impl Connection {
    /// Whether a server is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.connected()
    }

    /// How often a connection was made: one more than it had to be made again.
    #[must_use]
    pub fn connects(&self) -> u64 {
        self.0.connects()
    }
}

/// Opens the store, or makes it.
///
/// # Errors
/// When the servers cannot be reached or promise too little, a stream is there that is none of ours, or the key ring does not
/// open.
pub async fn open(world: &World, options: Options) -> Result<JetStreamStore, OpenError> {
    open_as(world, &options, None).await
}

/// Makes a copy where there is no log, or opens one to go on with it.
///
/// # Errors
/// As [`open`], and when there is anything but a copy of the same.
pub async fn open_copy(world: &World, options: Options, copy: &CopyOf) -> Result<JetStreamStore, OpenError> {
    open_as(world, &options, Some(copy)).await
}

async fn open_as(
    world: &World,
    options: &Options,
    copy: Option<&CopyOf>,
) -> Result<JetStreamStore, OpenError> {
    let began = world.clock.monotonic();
    loop {
        match open_once(world, options, copy).await {
            Err(OpenError::Away { detail }) if world.clock.monotonic().saturating_sub(began) < START_TIME => {
                tracing::warn!(detail, "waiting for the log on NATS");
                world.clock.sleep(START_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

async fn open_once(
    world: &World,
    options: &Options,
    copy: Option<&CopyOf>,
) -> Result<JetStreamStore, OpenError> {
    let link = Link::connect(world, options).await?;
    let limit = link.largest_message();
    if limit < LARGEST_MESSAGE {
        return Err(OpenError::SmallMessages { limit });
    }
    let replicas = replicas(&link, options.accept_weak_durability).await?;
    let makes = options.makes_log;
    make(&link, replicas, makes, &[meta_stream(), keys_stream()]).await?;
    // Where there are several replicas, what their leader sends them is synced together as it is.
    let link = Arc::new(if replicas == 1 { link.grouping() } else { link });
    let server: Arc<dyn Server> = Arc::clone(&link) as Arc<dyn Server>;
    let keys = KeyStream::open(Arc::clone(&server), world, &options.master_key).await?;
    let meta = meta(world, &server, options, &keys, copy).await?;
    make(&link, replicas, makes, &further_streams(meta.partitions)).await?;
    let checkpoints = Checkpoints::new(Arc::clone(&server), world.clone(), meta.partitions);
    if makes {
        checkpoints.keep_up();
    }
    let mut parts = parts(world, &server, keys, &meta, &checkpoints);
    let consumers = JetStreamConsumers { link: Arc::clone(&link), partitions: meta.partitions };
    parts.consumers = Some(Arc::new(consumers));
    let connection = Connection(link);
    Ok(JetStreamStore {
        parts,
        root_public_key: meta.root_public_key,
        replicas,
        connection,
        server,
        checkpoints,
        world: world.clone(),
    })
}

fn parts(
    world: &World,
    server: &Arc<dyn Server>,
    keys: KeyStream,
    meta: &Meta,
    checkpoints: &Arc<Checkpoints>,
) -> Parts {
    let (server, world) = (Arc::clone(server), world.clone());
    let log = JetStreamLog {
        id: meta.log,
        checkpoints: Arc::clone(checkpoints),
        server: Arc::clone(&server),
        world: world.clone(),
        partitions: meta.partitions,
        heads: AggregateHeads::default(),
        ends: Ends::new(meta.partitions),
        tail: Tail::new(Arc::clone(&server), world.clone(), meta.partitions),
        shared: SharedReading::new(Arc::clone(&server), world.clone()),
    };
    let keys: Arc<dyn KeyRing> = Arc::new(keys);
    let blobs = BlobStream { server: Arc::clone(&server), keys: Arc::clone(&keys), world: world.clone() };
    let snapshots = SnapshotStream { server, world, log: meta.log };
    Parts {
        log: Arc::new(log),
        blobs: Arc::new(blobs),
        keys,
        snapshots: Arc::new(snapshots),
        consumers: None,
    }
}

/// How often each record is to be kept; an error where the servers promise too little.
async fn replicas(link: &Link, accept_weak_durability: bool) -> Result<usize, OpenError> {
    let promise = Promise::of(link).await?;
    let weak = match &promise {
        None => Some("they do not report whether they sync before they acknowledge".to_owned()),
        Some(promise) => (!promise.late.is_empty()).then(|| promise.late.join(", ")),
    };
    match weak {
        Some(detail) if !accept_weak_durability => return Err(OpenError::WeakDurability { detail }),
        Some(detail) => tracing::warn!(detail, "acknowledged facts may be lost when a machine stops"),
        None => {}
    }
    Ok(if promise.is_some_and(|promise| promise.servers >= REPLICAS) { REPLICAS } else { 1 })
}

/// Looks whether streams are what they must be; makes those that are not there, or waits for them.
async fn make(link: &Link, replicas: usize, makes: bool, streams: &[Wanted]) -> Result<(), OpenError> {
    let asked: Vec<_> = streams.iter().map(|wanted| ensure(link, wanted, replicas, makes)).collect();
    let made: Vec<Option<Difference>> =
        futures::stream::iter(asked).buffered(STREAMS_AT_ONCE).try_collect().await?;
    let differences: Vec<Difference> = made.into_iter().flatten().collect();
    if differences.is_empty() { Ok(()) } else { Err(OpenError::OtherStreams(differences)) }
}

/// Reads what is fixed for ever, or fixes it.
async fn meta(
    world: &World,
    server: &Arc<dyn Server>,
    options: &Options,
    keys: &KeyStream,
    copy: Option<&CopyOf>,
) -> Result<Meta, OpenError> {
    let meta = match Meta::read(server).await? {
        Some(meta) => meta,
        None if !options.makes_log => return Err(not_made(meta::STREAM).into()),
        None => {
            let root = match copy.and_then(|copy| copy.root.clone()) {
                Some(root) => keys.put_new(KeyName::Root, root).await?,
                None => keys.get_or_create(KeyName::Root).await?,
            };
            let root = RootKey::from_pkcs8(&root)?;
            if copy.is_some_and(|copy| !copy.has_root(&root)) {
                return Err(OpenError::OtherRoot);
            }
            let partitions = options.partitions.unwrap_or(PARTITIONS).max(1);
            let (root, mark) = (root.public_key_base64(), copy.map(CopyOf::mark));
            Meta::new(world, partitions, root, options.created_by.clone(), mark).fix(server).await?
        }
    };
    CopyMark::check(meta.copy.as_ref(), copy)?;
    if let Some(wanted) = options.partitions.filter(|wanted| *wanted != meta.partitions) {
        return Err(OpenError::Partitions { fixed: meta.partitions, wanted });
    }
    let root = keys.get(KeyName::Root).await?.ok_or(OpenError::OtherRoot)?;
    if RootKey::from_pkcs8(&root)?.public_key_base64() != meta.root_public_key {
        return Err(OpenError::OtherRoot);
    }
    Ok(meta)
}

/// A stream's settings: kept for good, deleted by nobody, answered by each replica.
fn wanted(name: &str, subject: &str, further: Value) -> Wanted {
    let mut settings = json!({
        "subjects": [subject],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "max_consumers": -1,
        "deny_delete": true,
        "deny_purge": true,
        "allow_direct": true,
        "allow_atomic": true,
        "duplicate_window": 120_000_000_000_u64,
    });
    if let (Value::Object(settings), Value::Object(further)) = (&mut settings, further) {
        settings.extend(further);
    }
    let settings = settings.as_object().cloned().unwrap_or_default();
    Wanted { name: name.to_owned(), settings }
}

/// All streams but those that are needed to know how many there are.
fn further_streams(partitions: u16) -> Vec<Wanted> {
    let shards = Stream::ALL.iter().flat_map(|stream| (0..partitions).map(|partition| (*stream, partition)));
    shards.map(log_stream).chain([blobs_stream(), snapshots_stream(), checkpoints_stream()]).collect()
}

fn log_stream(shard: events::position::Shard) -> Wanted {
    let subjects = subjects(shard);
    let again = format!("{STORED}.{}.{}.>", token(shard.0), shard.1);
    let stays = check_has_retention(shard.0).is_err();
    let further = json!({ "republish": { "src": subjects, "dest": again }, "deny_purge": stays });
    wanted(&stream_name(shard), &subjects, further)
}

fn meta_stream() -> Wanted {
    wanted(meta::STREAM, meta::SUBJECT, json!({}))
}

fn keys_stream() -> Wanted {
    let subjects = format!("kasbah.{}.>", keyring::TOKEN);
    let again = format!("{STORED}.{}.>", keyring::TOKEN);
    let republish = json!({ "src": subjects, "dest": again, "headers_only": true });
    wanted(
        keyring::STREAM,
        &subjects,
        json!({ "max_msgs_per_subject": 1, "discard": "old", "republish": republish }),
    )
}

fn checkpoints_stream() -> Wanted {
    wanted(checkpoints::STREAM, checkpoints::SUBJECTS, json!({ "max_msgs_per_subject": 1, "discard": "old" }))
}

fn blobs_stream() -> Wanted {
    wanted(blobs::STREAM, blobs::SUBJECTS, json!({ "deny_purge": false }))
}

fn snapshots_stream() -> Wanted {
    let further = json!({ "max_msgs_per_subject": 1, "discard": "old", "deny_purge": false });
    wanted(snapshots::STREAM, snapshots::SUBJECTS, further)
}
