//! Follows the log, keeps memory and database at one state, and judges again what changes with time alone.

mod asking;
mod bodies;
mod folding;
mod grouping;
mod mending;
mod upkeep;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use bus::{Bus, Live, Presence};
use events::position::Stream;
use events::{AggregateKind, Position, Refusal, RefusalKind, Timestamp};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use world::World;

use ::store::{Blobs, EventLog, FollowReader, ReadError, ReadFilter};

use crate::clusters::Clusters;
use crate::imported::Imported;
use crate::metrics::Counts;
use crate::model::{Directory, Fold, Tunnels};
use crate::past::Moments;
use crate::rights::RightsCache;
use crate::store::{Reader, Standing, Store, StoreError};

/// Under what gateways tell each other, and this service, that they live.
const GATEWAYS: &str = "tunnel-gateway";
/// The name under which it tells the log what it has folded.
const PROJECTION: &str = "resource-indexer";
/// Records that are folded in one transaction.
const AT_ONCE: usize = 256;
/// Between two looks at what is due: a sync, a verdict, what leaves.
const UPKEEP: Duration = Duration::from_secs(1);
/// How long a request waits for the index to cover the position that it names.
const COVERED_WITHIN: Duration = Duration::from_secs(5);

/// Streams that are followed.
pub(crate) const STREAMS: [Stream; 3] = [Stream::Decisions, Stream::Observations, Stream::Objects];
/// Decisions that are followed: names of agents, what changes who may use them, and what groups objects.
const DECISIONS: &[AggregateKind] = &[
    AggregateKind::Organization,
    AggregateKind::Group,
    AggregateKind::Project,
    AggregateKind::User,
    AggregateKind::Agent,
    AggregateKind::Configuration,
    AggregateKind::Environment,
    AggregateKind::Deployment,
];

/// Settings of the resource indexer.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Folder for the index of objects. Without it the index is in memory, and made anew from the log at each start.
    #[arg(long = "index", env = "KASBAH_INDEX", value_name = "FOLDER")]
    pub index: Option<PathBuf>,
}

/// What the resource indexer works with.
#[derive(Clone)]
pub struct Deps {
    /// Clock, tasks.
    pub world: World,
    /// The event log.
    pub log: Arc<dyn EventLog>,
    /// Bodies that are too large for a record.
    pub blobs: Arc<dyn Blobs>,
    /// The other services.
    pub bus: Arc<dyn Bus>,
    /// Says when this service is ready.
    pub readiness: chassis::Readiness,
    /// The process's metrics.
    pub metrics: chassis::Metrics,
}

/// Runs until shutdown.
///
/// # Errors
/// When the log cannot be read, the database does not work, or the bus is away at the start.
pub async fn run(args: Args, deps: Deps, shutdown: chassis::Shutdown) -> anyhow::Result<()> {
    let ready = deps.readiness.register("resource-indexer");
    let driver = Arc::new(Driver::open(&args, deps)?);
    let following = async {
        let followed = driver.follow(&shutdown).await;
        driver.ended.send_replace(true);
        followed.context("the resource indexer cannot follow the log")
    };
    let serving = async {
        let mut caught_up = driver.caught_up.subscribe();
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            _ = caught_up.wait_for(|caught_up| *caught_up) => {}
        }
        let gateways = Presence::join(&driver.deps.bus, &driver.deps.world, GATEWAYS).await?;
        driver.gateways.get_or_init(|| gateways.live());
        let _serving = crate::handlers::serve(&driver).await?;
        ready.set(true);
        shutdown.requested().await;
        Ok(())
    };
    let (environments, imported) = (driver.follow_environments(&shutdown), driver.follow_imported(&shutdown));
    tokio::try_join!(following, serving, environments, imported).map(|_| ())
}

/// Memory and database at one state.
pub(crate) struct State {
    pub(crate) fold: Fold,
    pub(crate) directory: Directory,
    pub(crate) tunnels: Tunnels,
    pub(crate) standing: Standing,
    /// The database as it was when memory was as it is.
    pub(crate) reader: Arc<Reader>,
}

pub(crate) struct Driver {
    pub(crate) deps: Deps,
    pub(crate) counts: Counts,
    pub(crate) state: RwLock<State>,
    pub(crate) rights: RightsCache,
    environments: grouping::Environments,
    pub(crate) imported: Imported,
    /// Moments of the past that were asked for lately.
    pub(crate) moments: Moments,
    /// Objects wait for their imported rules.
    asking: Notify,
    pub(crate) clusters: Clusters,
    store: RwLock<Arc<Store>>,
    folder: Option<PathBuf>,
    faults: Mutex<mending::Faults>,
    position: watch::Sender<Position>,
    caught_up: watch::Sender<bool>,
    ended: watch::Sender<bool>,
    /// Which gateways live: a tunnel of one that died is none any more, and nobody says so in the log.
    pub(crate) gateways: OnceLock<watch::Receiver<Live>>,
}

/// The index cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    #[error("the log cannot be read")]
    Read(#[from] ReadError),
    #[error("the log ended while it was followed")]
    LogEnded,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the index cannot be synced")]
    Sync(#[from] world::spawn::TaskFailed),
}

impl Driver {
    fn open(args: &Args, deps: Deps) -> anyhow::Result<Self> {
        let partitions = deps.log.partitions();
        let store = match &args.index {
            Some(folder) => Store::open(folder, deps.log.id(), partitions)?,
            None => Store::in_memory(partitions)?,
        };
        let (store, state) = match (State::load(&store), &args.index) {
            (Ok(state), _) => (store, state),
            (Err(error), Some(folder)) => {
                tracing::error!(%error, "index is damaged and is rebuilt");
                let store = Store::make(folder, deps.log.id(), partitions)?;
                let state = State::load(&store)?;
                (store, state)
            }
            (Err(error), None) => return Err(error.into()),
        };
        let position = state.standing.position.clone();
        Ok(Self {
            counts: Counts::register(&deps.metrics),
            imported: Imported::new(&deps.world),
            moments: Moments::default(),
            deps,
            state: RwLock::new(state),
            rights: RightsCache::default(),
            environments: grouping::Environments::default(),
            asking: Notify::new(),
            clusters: Clusters::default(),
            store: RwLock::new(Arc::new(store)),
            folder: args.index.clone(),
            faults: Mutex::default(),
            position: watch::Sender::new(position),
            caught_up: watch::Sender::new(false),
            ended: watch::Sender::new(false),
            gateways: OnceLock::new(),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.deps.world.clock.now_millis())
    }

    /// Follows until shutdown, or until the log ends. A database that does not work is made anew, and so is one behind which the log's
    /// horizon moved.
    async fn follow(&self, shutdown: &chassis::Shutdown) -> Result<(), FollowError> {
        let mut times = 0;
        loop {
            let fault = match self.follow_once(shutdown).await {
                Err(FollowError::Store(error)) => error,
                Err(FollowError::Sync(error)) => StoreError::Broken(error.to_string()),
                // What was to be folded next has left meanwhile; a new beginning finds that out.
                Err(FollowError::Read(ReadError::Left { .. })) => {
                    self.caught_up.send_replace(false);
                    self.deps.world.clock.sleep(UPKEEP).await;
                    continue;
                }
                ended => return ended,
            };
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                () = self.make_anew(&fault, times) => {}
            }
            times = times.saturating_add(1);
        }
    }

    async fn follow_once(&self, shutdown: &chassis::Shutdown) -> Result<(), FollowError> {
        let world = &self.deps.world;
        let begun = tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            begun = self.begin() => begun,
        };
        let mut records = begun?;
        let mut upkeep = upkeep::Upkeep::new(world.clock.monotonic());
        loop {
            let mut messages = Vec::with_capacity(AT_ONCE);
            tokio::select! {
                biased;
                () = shutdown.requested() => break,
                count = records.recv_many(&mut messages, AT_ONCE) => {
                    if count == 0 {
                        return Err(FollowError::LogEnded);
                    }
                }
                () = world.clock.sleep(UPKEEP) => {}
            }
            tokio::select! {
                biased;
                // What is not folded by then is folded after the next start.
                () = shutdown.requested() => break,
                folded = self.fold_messages(messages) => folded?,
            }
            if upkeep.is_due(world.clock.monotonic()) {
                self.keep_up(&mut upkeep).await?;
            }
        }
        self.sync().await
    }

    /// Begins where the database stands; one that does not go with the log is made anew.
    async fn begin(&self) -> Result<FollowReader, FollowError> {
        let (world, log) = (&self.deps.world, &self.deps.log);
        let ends =
            || async { Ok((log.position(&STREAMS).await?, log.retained(Stream::Objects).await?.horizon)) };
        let (end, horizon) = ::store::retry_until_ready(world, PROJECTION, ends).await?;
        let position = self.state.read().standing.position.clone();
        // Behind a hole in the changes nobody could say what is missing.
        let goes_on = position == Position::start() || (end.covers(&position) && position.covers(&horizon));
        if !goes_on {
            tracing::warn!("index does not reach the log's horizon, or is ahead of the log, and is rebuilt");
            self.clear()?;
        }
        self.judge_loaded();
        let position = self.state.read().standing.position.clone();
        if position == Position::start() {
            let mut state = self.state.write();
            (state.standing.began, state.standing.base) = (horizon.clone(), horizon);
        }
        let filter = ReadFilter { kinds: DECISIONS.to_vec(), ..ReadFilter::streams(&STREAMS) };
        let begin = || log.follow(&position, &filter);
        Ok(::store::retry_until_ready(world, PROJECTION, begin).await?)
    }

    fn clear(&self) -> Result<(), StoreError> {
        let store = self.store();
        store.clear()?;
        self.state.write().replace(State::load(&store)?);
        self.position.send_replace(Position::start());
        Ok(())
    }

    /// Refuses as long as the index is being made anew: what is folded by then is not all.
    pub(crate) fn is_whole(&self) -> Result<(), Refusal> {
        if *self.caught_up.borrow() {
            return Ok(());
        }
        Err(Refusal::new(RefusalKind::Unavailable, "the index is being made anew from the log; retry later"))
    }

    /// Returns once `position` is folded.
    pub(crate) async fn covers(&self, position: &Position) -> Result<(), Refusal> {
        let wanted = position.in_streams(&STREAMS);
        let mut folded = self.position.subscribe();
        let mut ended = self.ended.subscribe();
        let late = |what: &str| {
            Refusal::new(
                RefusalKind::Unavailable,
                format!("the index {what}: it does not cover {wanted}; retry"),
            )
        };
        tokio::select! {
            biased;
            reached = folded.wait_for(|reached| reached.covers(&wanted)) => {
                reached.map(|_| ()).map_err(|_| late("has stopped"))
            }
            _ = ended.wait_for(|ended| *ended) => Err(late("has stopped")),
            () = self.deps.world.clock.sleep(COVERED_WITHIN) => Err(late("is behind")),
        }
    }
}

impl State {
    fn load(store: &Store) -> Result<Self, StoreError> {
        let reader = store.reader()?;
        let crate::store::Loaded { fold, directory, tunnels, standing } = reader.load()?;
        Ok(Self { fold, directory, tunnels, standing, reader: Arc::new(reader) })
    }

    /// Takes what an empty database says; the environments stay, as they are in none.
    fn replace(&mut self, mut empty: Self) {
        empty.fold.index.set_groups(Arc::clone(self.fold.index.groups()));
        *self = empty;
    }
}
