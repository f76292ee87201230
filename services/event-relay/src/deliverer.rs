//! Drives the subscriptions that are this replica's: each has a task, a reader of the exports and a cursor of its own.

mod index;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::Live;
use events::{OrganizationId, SubscriptionId, Timestamp};
use parking_lot::Mutex;
use store::{Following, SnapshotError};
use tokio::sync::watch;
use world::spawn::TaskHandle;

use crate::consumers::Consumers;
use crate::cursors::{self, Group, GroupProgress, NAMES, Progress, group_of};
use crate::driver::Deps;
use crate::ends::Ends;
use crate::metrics::Counts;
use crate::model::State;
use crate::readers::Readers;
use crate::sender::Sender;

/// Between two saves of cursors that moved.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Drives subscriptions.
pub(crate) struct Deliverer {
    pub(crate) deps: Deps,
    pub(crate) fold: Following<State>,
    pub(crate) counts: Counts,
    pub(crate) sender: Sender,
    pub(crate) consumers: Consumers,
    pub(crate) ends: Ends,
    pub(crate) readers: Readers,
    /// Where the web page is, for links in messages.
    pub(crate) page_url: Option<String>,
    /// For how many milliseconds an environment must stay degraded, or well again, before an alert is sent.
    pub(crate) alerts_after: i64,
    /// How far subscriptions are, of the groups that are this replica's.
    held: Mutex<BTreeMap<Group, GroupProgress>>,
    /// Groups of which something was not saved yet.
    unsaved: Mutex<BTreeSet<Group>>,
}

/// Tasks that end with their owner.
#[derive(Default)]
struct Tasks(BTreeMap<SubscriptionId, (Group, TaskHandle)>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.values().for_each(|(_, task)| task.abort());
    }
}

impl Tasks {
    /// Ends all but those that are wanted.
    fn keep(&mut self, wanted: impl Fn(SubscriptionId, Group) -> bool) {
        self.0.retain(|id, (group, task)| {
            let stays = wanted(*id, *group) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
    }
}

impl Deliverer {
    pub(crate) fn new(
        deps: Deps,
        fold: Following<State>,
        counts: Counts,
        sender: Sender,
        (page_url, alerts_after): (Option<String>, Duration),
    ) -> Self {
        let (held, unsaved) = (Mutex::default(), Mutex::default());
        let alerts_after = i64::try_from(alerts_after.as_millis()).unwrap_or(i64::MAX);
        let consumers = Consumers::new(deps.clone(), fold.clone());
        let (ends, readers) = (Ends::default(), Readers::default());
        Self { deps, fold, counts, sender, consumers, ends, readers, page_url, alerts_after, held, unsaved }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.deps.world.clock.now_millis())
    }

    pub(crate) async fn deliver_for_ever(
        self: &Arc<Self>,
        mut live: watch::Receiver<Live>,
    ) -> anyhow::Result<()> {
        let mut tasks = Tasks::default();
        let mut changes = self.fold.changes();
        let clock = &self.deps.world.clock;
        let mut due = clock.monotonic() + SAVE_EVERY;
        let mut seen = None;
        loop {
            let owned: BTreeSet<Group> = {
                let live = live.borrow_and_update();
                let owns = |(group, name): (usize, &&str)| {
                    live.owns(name.as_bytes()).then(|| u16::try_from(group).ok()).flatten()
                };
                NAMES.iter().enumerate().filter_map(owns).collect()
            };
            let revision = self.fold.read(State::revision);
            if seen.as_ref() != Some(&(revision, owned.clone())) && self.hold(&owned, &mut tasks).await {
                self.start(&mut tasks);
                seen = Some((revision, owned));
            }
            let wait = due.saturating_sub(clock.monotonic());
            tokio::select! {
                biased;
                () = clock.sleep(wait) => {
                    due = clock.monotonic() + SAVE_EVERY;
                    self.save().await;
                    self.measure();
                }
                changed = live.changed() => changed.context("replicas are no longer known")?,
                changed = changes.changed() => changed.context("the fold of event-relay ended")?,
            }
        }
    }

    /// Loads the groups that became this replica's, and lets go of the others. False when that has to be tried again.
    async fn hold(&self, owned: &BTreeSet<Group>, tasks: &mut Tasks) -> bool {
        tasks.keep(|_, group| owned.contains(&group));
        self.save().await;
        self.held.lock().retain(|group, _| owned.contains(group));
        let missing: Vec<Group> =
            owned.iter().copied().filter(|group| !self.held.lock().contains_key(group)).collect();
        let mut complete = true;
        for group in missing {
            match cursors::load(&*self.deps.snapshots, group).await {
                Ok(progress) => drop(self.held.lock().insert(group, progress)),
                Err(error) => {
                    tracing::warn!(%error, "cursors of subscriptions cannot be read");
                    complete = false;
                }
            }
        }
        complete
    }

    fn start(self: &Arc<Self>, tasks: &mut Tasks) {
        let all: BTreeMap<SubscriptionId, Group> = self.fold.read(|state| {
            let sent = state.subscriptions().filter(|(_, known)| known.webhook().is_some());
            sent.map(|(id, known)| (id, group_of(known.organization))).collect()
        });
        tasks.keep(|id, _| all.contains_key(&id));
        for (group, progress) in self.held.lock().iter_mut() {
            progress.retain(|id, _| all.get(id) == Some(group));
        }
        for (id, group) in all {
            if !self.held.lock().contains_key(&group) || tasks.0.contains_key(&id) {
                continue;
            }
            let deliverer = Arc::clone(self);
            let work = Box::pin(async move { deliverer.work(id, group).await });
            tasks.0.insert(id, (group, self.deps.world.spawner.spawn("subscription", work)));
        }
    }

    /// Looks at how far a subscription is.
    fn look<R>(&self, group: Group, id: SubscriptionId, look: impl FnOnce(&Progress) -> R) -> Option<R> {
        self.held.lock().get(&group).and_then(|progress| progress.get(&id)).map(look)
    }

    /// Whether the subscriptions of an organization are this replica's.
    pub(crate) fn holds(&self, organization: OrganizationId) -> bool {
        self.held.lock().contains_key(&group_of(organization))
    }

    /// Looks at how far each subscription is whose group is this replica's.
    pub(crate) fn look_at_all(&self, mut look: impl FnMut(SubscriptionId, &Progress)) {
        self.held.lock().values().flatten().for_each(|(id, progress)| look(*id, progress));
    }

    /// How far a subscription is.
    fn progress(&self, group: Group, id: SubscriptionId) -> Progress {
        let held = self.held.lock();
        held.get(&group).and_then(|progress| progress.get(&id)).cloned().unwrap_or_default()
    }

    /// Changes how far a subscription is. Nothing happens once its group is another replica's.
    fn update(&self, group: Group, id: SubscriptionId, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = self.held.lock().get_mut(&group) {
            change(progress.entry(id).or_default());
            self.unsaved.lock().insert(group);
        }
    }

    /// Saves what moved. The next owner of a group sends again what was not saved.
    pub(crate) async fn save(&self) {
        let groups = std::mem::take(&mut *self.unsaved.lock());
        for group in groups {
            let Some(progress) = self.held.lock().get(&group).cloned() else { continue };
            if let Err(error) = cursors::save(&*self.deps.snapshots, group, &progress).await {
                tracing::warn!(%error, "cursors of subscriptions are not saved");
                self.unsaved.lock().insert(group);
            }
        }
    }

    /// How far subscriptions of a group are, as far as this replica knows: its own word, or what another one saved last.
    pub(crate) async fn look_up(
        &self,
        group: Group,
        ids: &[SubscriptionId],
    ) -> Result<GroupProgress, SnapshotError> {
        let wanted = |progress: &GroupProgress| {
            ids.iter().map(|id| (*id, progress.get(id).cloned().unwrap_or_default())).collect()
        };
        let own = self.held.lock().get(&group).map(wanted);
        match own {
            Some(progress) => Ok(progress),
            None => cursors::load(&*self.deps.snapshots, group).await.map(|progress| wanted(&progress)),
        }
    }
}
