//! Keeps one watcher for each repository that a source wants, and wakes it when there is a reason.

mod fetch;
mod losses;
mod publish;
mod shared;
mod watcher;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::{Bus, Live, Presence, Received, Subscription};
use events::Notice;
use events::configuration::GitReference;
use events::requests::repository::RepositoryPushed;
use events::subject::Subject;
use events::{AgentId, ProjectId, Timestamp};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use store::{Blobs, EventLog, Following, KeyRing, Snapshots};
use tokio::sync::{Notify, Semaphore, watch};
use uuid::Uuid;
use world::World;
use world::spawn::blocking;

use crate::SERVICE;
use crate::args::Args;
use crate::git::{GitError, Repositories};
use crate::metrics::Counts;
use crate::model::{Interest, Readers, State};
pub(crate) use shared::{Job, Shared, Status};
use watcher::Watcher;

/// How often the wanted repositories are worked out anew without any event, at least.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// How many times as long as it took to arrange the watchers they are left as they are: where thousands of agents are registered one
/// after another, arranging all of them after each would be most of the work.
const RESTS: u32 = 9;

/// Builds that run at once, over all repositories: they cost processor and memory, while fetching mostly waits.
const BUILDS: usize = 4;

/// What repo-poller works with.
#[derive(Clone)]
pub struct Deps {
    /// Clock, ids, network, disk.
    pub world: World,
    /// The event log.
    pub log: Arc<dyn EventLog>,
    /// Where bundles go.
    pub blobs: Arc<dyn Blobs>,
    /// Git credentials.
    pub keys: Arc<dyn KeyRing>,
    /// Snapshots of the fold.
    pub snapshots: Arc<dyn Snapshots>,
    /// The way to Git.
    pub repositories: Arc<dyn Repositories>,
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
/// When the log cannot be read, or the bus is away at the start.
pub async fn run(args: Args, deps: Deps, shutdown: chassis::Shutdown) -> anyhow::Result<()> {
    let ready = deps.readiness.register("repo-poller");
    let fold = store::follow_projection::<State>(
        Arc::clone(&deps.log),
        Arc::clone(&deps.snapshots),
        deps.world.clone(),
    );
    let ended = shutdown.clone();
    let folding = fold.clone().drive(async move { ended.requested().await });
    let watching = async {
        fold.caught_up().await?;
        let presence = Presence::join(&deps.bus, &deps.world, SERVICE).await?;
        let poller = Arc::new(Poller {
            args,
            fold,
            replicas: presence.live(),
            counts: Counts::register(&deps.metrics),
            deps,
            building: Semaphore::new(BUILDS),
            watched: Mutex::default(),
            readers: Mutex::default(),
            wanted: Notify::new(),
        });
        poller.show_counts();
        let pushes = poller.deps.bus.subscribe(&Subject::notice(RepositoryPushed::NAME)).await?;
        let mut watchers = FuturesUnordered::new();
        let assignment = poller.reassign(&mut watchers);
        let _serving = crate::requests::serve(&poller).await?;
        ready.set(true);
        tokio::select! {
            biased;
            () = shutdown.requested() => Ok(()),
            result = poller.run_watchers(pushes, watchers, assignment) => result,
        }
    };
    let folding = async { folding.await.context("repo-poller cannot follow the log") };
    tokio::try_join!(folding, watching).map(|_| ())
}

/// Running watchers; each gives its project when it ends.
type Watchers = FuturesUnordered<BoxFuture<'static, ProjectId>>;

/// Everything that watchers and request handlers share.
pub(crate) struct Poller {
    pub(crate) args: Args,
    pub(crate) deps: Deps,
    pub(crate) fold: Following<State>,
    /// The replicas that watch.
    replicas: watch::Receiver<Live>,
    /// Builds that run at once.
    building: Semaphore,
    counts: Counts,
    watched: Mutex<BTreeMap<ProjectId, Watched>>,
    /// For whom files are read of refs that nothing else may want.
    readers: Mutex<Readers>,
    /// There is a new one.
    wanted: Notify,
}

/// What the watchers were started and changed for.
struct Assignment {
    revision: u64,
    /// When a token ends by itself, or a reader is forgotten.
    until: Option<Timestamp>,
}

impl Assignment {
    fn holds(&self, revision: u64, now: Timestamp) -> bool {
        self.revision == revision && self.until.is_none_or(|until| until > now)
    }
}

/// A running watcher, from outside. Dropping it ends the watcher.
struct Watched {
    interest: watch::Sender<Arc<Interest>>,
    shared: Arc<Shared>,
}

impl Poller {
    /// Does work on a thread that may block.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        let done = blocking(&*self.deps.world.spawner, "repository", work).await;
        done.unwrap_or_else(|_| Err(GitError::broken("reading the repository ended unexpectedly")))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.deps.world.clock.now_millis())
    }

    /// Shows how many repositories can be read.
    fn show_counts(self: &Arc<Self>) {
        let shown = Arc::downgrade(self);
        self.deps.metrics.before_shown(move || {
            let Some(poller) = shown.upgrade() else { return };
            let watched = poller.watched.lock();
            let failing =
                watched.values().filter(|one| !one.shared.status.borrow().failures.is_empty()).count();
            for (state, count) in [("failing", failing), ("readable", watched.len() - failing)] {
                poller.counts.repositories.with([state]).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        });
    }

    /// The watcher of a project's repository, if a source wants it now.
    pub(crate) fn watcher_of(&self, project: ProjectId) -> Option<Arc<Shared>> {
        self.watched.lock().get(&project).map(|watched| Arc::clone(&watched.shared))
    }

    /// A file of a ref was read for an agent, which may want more of it until then.
    pub(crate) fn want(
        &self,
        project: ProjectId,
        reference: &GitReference,
        agent: AgentId,
        until: Timestamp,
    ) {
        if self.readers.lock().want((project, reference.clone()), agent, until) {
            self.wanted.notify_one();
        }
    }

    /// The other replica that watches a repository, if it is not this one.
    pub(crate) fn owner_elsewhere(&self, project: ProjectId) -> Option<Uuid> {
        let replicas = self.replicas.borrow();
        Some(replicas.owner(project.0.as_bytes())).filter(|owner| *owner != replicas.me())
    }

    /// This replica's own id, under which the others ask it.
    pub(crate) fn replica(&self) -> Uuid {
        self.replicas.borrow().me()
    }

    async fn run_watchers(
        self: &Arc<Self>,
        mut pushes: Subscription,
        mut watchers: Watchers,
        assignment: Assignment,
    ) -> anyhow::Result<()> {
        let (mut changes, mut replicas) = (self.fold.changes(), self.replicas.clone());
        let mut assignment = Some(assignment);
        let mut rest = Duration::ZERO;
        loop {
            let (now, began) = (self.now(), self.deps.world.clock.monotonic());
            let revision = self.fold.read(State::revision);
            let holds = |assignment: &Assignment| assignment.holds(revision, now);
            if !assignment.as_ref().is_some_and(holds) && began >= rest {
                assignment = Some(self.reassign(&mut watchers));
                let ended = self.deps.world.clock.monotonic();
                rest = ended + ended.saturating_sub(began) * RESTS;
            }
            let pause = match assignment.as_ref().filter(|assignment| holds(assignment)) {
                None => rest.saturating_sub(began),
                Some(Assignment { until: Some(at), .. }) => {
                    Duration::from_millis(u64::try_from(at.millis_since(now)).unwrap_or(0).saturating_add(1))
                }
                Some(_) => LONGEST_PAUSE,
            };
            tokio::select! {
                biased;
                Some(_) = watchers.next(), if !watchers.is_empty() => {}
                // What was another replica's is looked at at once: that one may have died with a push.
                changed = replicas.changed() => {
                    changed.context("the replicas of repo-poller are no longer known")?;
                    assignment = None;
                }
                () = self.wanted.notified() => assignment = None,
                changed = changes.changed() => changed.context("the fold of repo-poller ended")?,
                notice = pushes.receiver.recv() => self.handle_push(notice.context("the bus ended the notices of pushes")?),
                () = self.deps.world.clock.sleep(pause.min(LONGEST_PAUSE)) => assignment = None,
            }
        }
    }

    /// Starts, changes and ends watchers, so that exactly the wanted repositories are watched.
    fn reassign(self: &Arc<Self>, watchers: &mut Watchers) -> Assignment {
        let now = self.now();
        let readers = {
            let mut readers = self.readers.lock();
            readers.keep_wanted(now);
            readers.clone()
        };
        let (assignment, mut interests) = self.fold.read(|state| {
            let until = state.next_expiry(now).into_iter().chain(readers.next_end()).min();
            (Assignment { revision: state.revision(), until }, state.interests(&readers, now))
        });
        interests.retain(|project, _| self.owner_elsewhere(*project).is_none());
        let mut watched = self.watched.lock();
        watched.retain(|project, _| interests.contains_key(project));
        for (project, interest) in interests {
            let interest = Arc::new(interest);
            if let Some(running) = watched.get(&project) {
                running.interest.send_if_modified(|current| {
                    let changed = *current != interest;
                    if changed {
                        *current = interest;
                    }
                    changed
                });
                continue;
            }
            let (sender, receiver) = watch::channel(interest);
            let (shared, jobs) = Shared::new();
            let shared = Arc::new(shared);
            let watcher = Watcher::new(Arc::clone(self), project, receiver, Arc::clone(&shared), jobs);
            watchers.push(Box::pin(async move {
                watcher.run().await;
                project
            }));
            watched.insert(project, Watched { interest: sender, shared });
        }
        assignment
    }

    fn handle_push(&self, heard: Received) {
        let watched = self.watched.lock();
        let Received::Message(bytes) = heard else {
            // What was lost is unknown: check every repository.
            for watched in watched.values() {
                watched.shared.wake(None);
            }
            return;
        };
        match events::decode::<RepositoryPushed>(&bytes) {
            Ok(pushed) => {
                let Some(found) = watched.get(&pushed.project) else { return };
                let interest = found.interest.borrow();
                let concerned = pushed.reference.as_deref().is_none_or(|name| {
                    let settings = &interest.settings;
                    interest
                        .refs
                        .keys()
                        .any(|reference| fetch::ref_name(reference, settings).as_deref() == Some(name))
                });
                if concerned {
                    found.shared.wake(Some(pushed));
                }
            }
            Err(error) => tracing::warn!(%error, "notice of a push cannot be read"),
        }
    }
}
