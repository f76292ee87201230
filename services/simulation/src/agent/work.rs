//! Making the cluster match.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use events::bundle::{BundleEntry, BundlePage};
use events::delivery::{SyncCounts, SyncOutcome};
use events::desired::{DesiredSource, DesiredState};
use events::observation::{Observed, OwnedObject, Write};
use events::{ObjectIdentity, SourceId, SyncId, Timestamp};

use super::Instance;
use crate::cluster::ApiError;

const AGAIN: Duration = Duration::from_secs(2);

/// Why a sync did not come to its end.
enum Stopped {
    /// Another state is wanted, or another instance applies.
    Superseded,
    Failed,
}

impl From<ApiError> for Stopped {
    fn from(_: ApiError) -> Self {
        Self::Failed
    }
}

impl Instance {
    fn tell(&self, what: Observed) {
        self.state.outbox.tell(Timestamp(self.world.clock.now_millis()), what);
    }

    /// The epoch in which this instance may write now.
    fn epoch(&self, desired: &DesiredState, before: u64) -> Option<u64> {
        let named =
            desired.applier.filter(|applier| applier.instance == self.id).map(|applier| applier.epoch);
        if self.ignores_epochs && before > 0 {
            return Some(named.unwrap_or(before));
        }
        named.filter(|_| *self.state.holding.borrow())
    }

    pub(super) async fn work(&self) {
        let (mut states, mut holding) = (self.state.desired.subscribe(), self.state.holding.subscribe());
        let mut epoch = 0;
        let mut done: BTreeMap<SourceId, SyncId> = BTreeMap::new();
        loop {
            let desired = states.borrow_and_update().clone();
            holding.mark_unchanged();
            let mut all_done = true;
            if let Some(desired) = desired
                && let Some(now) = self.epoch(&desired, epoch)
            {
                if now != epoch {
                    done.clear();
                }
                all_done = self.reconcile(&desired, &mut epoch, now, &mut done).await.is_ok();
            }
            let again = if all_done { Duration::from_secs(60) } else { AGAIN };
            tokio::select! {
                biased;
                _ = states.changed() => {}
                _ = holding.changed() => {}
                () = self.world.clock.sleep(again) => {}
            }
        }
    }

    async fn reconcile(
        &self,
        desired: &Arc<DesiredState>,
        epoch: &mut u64,
        now: u64,
        done: &mut BTreeMap<SourceId, SyncId>,
    ) -> Result<(), ApiError> {
        if now != *epoch {
            let objects = self.cluster.owned().await?;
            if self.epoch(desired, *epoch) != Some(now) {
                return Ok(());
            }
            *epoch = now;
            self.state.outbox.begin(now);
            self.tell(Observed::InventoryStated { objects, last: true, unlisted: Vec::new() });
        }
        let mut outcome = Ok(());
        for source in &desired.sources {
            let head = &source.head;
            let is_done = done.get(&head.source) == Some(&head.sync);
            if head.suspended || is_done || (source.pages.is_none() && source.prune.is_empty()) {
                continue;
            }
            match self.sync(desired, source, now).await {
                Ok(()) => {
                    done.insert(head.source, head.sync);
                }
                Err(Stopped::Superseded) => return Ok(()),
                Err(Stopped::Failed) => outcome = Err(ApiError),
            }
        }
        outcome
    }

    /// Whether this state is still the one that is wanted of this instance.
    fn is_wanted(&self, desired: &Arc<DesiredState>, epoch: u64) -> bool {
        let newest = self.state.desired.borrow().clone();
        let same = newest.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, desired));
        newest.is_some_and(|newest| self.epoch(&newest, epoch) == Some(epoch)) && same
    }

    async fn sync(
        &self,
        desired: &Arc<DesiredState>,
        source: &DesiredSource,
        epoch: u64,
    ) -> Result<(), Stopped> {
        let head = &source.head;
        let (id, sync) = (head.source, head.sync);
        self.tell(Observed::SyncStarted { source: id, sync, correlation_id: head.correlation_id });
        let mut counts = SyncCounts::default();
        let synced = self.make_match(desired, source, epoch, &mut counts).await;
        let outcome = match &synced {
            Ok(()) => SyncOutcome::Succeeded,
            Err(Stopped::Superseded) => SyncOutcome::Superseded,
            Err(Stopped::Failed) => SyncOutcome::Failed,
        };
        self.tell(Observed::SyncFinished { source: id, sync, outcome, counts, failures: Vec::new() });
        synced
    }

    async fn make_match(
        &self,
        desired: &Arc<DesiredState>,
        source: &DesiredSource,
        epoch: u64,
        counts: &mut SyncCounts,
    ) -> Result<(), Stopped> {
        let head = &source.head;
        let place = self.forge.place_of(&head.commit);
        for entry in self.entries(source).into_iter().filter(|_| !head.removed) {
            if !self.is_wanted(desired, epoch) {
                return Err(Stopped::Superseded);
            }
            let identity = placed(&entry.identity, &head.default_namespace);
            let content = self.state.objects.lock().get(&entry.digest).cloned().unwrap_or_default();
            let content: Arc<str> = String::from_utf8_lossy(&content).into();
            let applied =
                self.cluster.apply(epoch, head.source, place, identity.clone(), entry.digest, content);
            let (uid, write) = applied.await?;
            match write {
                Write::Created => counts.created += 1,
                Write::Unchanged => counts.unchanged += 1,
                Write::Changed | Write::Replaced => counts.changed += 1,
            }
            let object = OwnedObject {
                source: head.source,
                identity,
                uid,
                digest: Some(entry.digest),
                adopted: false,
            };
            let sync = Some(head.sync);
            self.tell(Observed::ObjectApplied { sync, object, write, taken_over: Vec::new() });
        }
        for entry in &source.prune {
            if !self.is_wanted(desired, epoch) {
                return Err(Stopped::Superseded);
            }
            let (identity, uid) = (entry.identity.clone(), entry.uid.clone());
            self.cluster.delete(epoch, head.source, identity.clone(), uid.clone()).await?;
            counts.pruned += 1;
            let (sync, source) = (Some(head.sync), head.source);
            self.tell(Observed::ObjectPruned { sync, source, identity, uid, kept: None });
        }
        Ok(())
    }

    fn entries(&self, source: &DesiredSource) -> Vec<BundleEntry> {
        let objects = self.state.objects.lock();
        let pages = source.pages.iter().flatten().filter_map(|page| objects.get(page));
        pages
            .filter_map(|page| events::decode::<BundlePage>(page).ok())
            .flat_map(|page| page.entries)
            .collect()
    }
}

fn placed(identity: &ObjectIdentity, namespace: &str) -> ObjectIdentity {
    let mut identity = identity.clone();
    if identity.namespace.is_empty() {
        namespace.clone_into(&mut identity.namespace);
    }
    identity
}
