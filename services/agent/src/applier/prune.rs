//! Deleting what the server listed, if it is still ours, and in an order in which each object can end.
//!
//! Custom resources and their like go first and are waited for: their finalizers need the controller, its rights, the definition and
//! the namespace that may be listed with them. Namespaces and definitions go last, each only once nothing is left in it.

mod fate;
mod inside;
mod progress;

use std::time::Duration;

use events::delivery::{ObjectFailure, PruneEntry};
use events::observation::Observed;
use events::{ObjectIdentity, SyncId};
use objects::order::{delete_key, needs_controller_to_end};
use serde_json::Value;

pub(super) use self::fate::{Fate, Going, Pruned};
use self::inside::finalizers;
pub(super) use self::inside::listed_identity;
pub(super) use self::progress::Progress;
use super::Shared;
use super::concurrent::concurrently;
use super::context::Context;
use super::report::Report;
use super::stage::StageEnd;
use crate::kubernetes::client::CONCURRENCY;
use crate::kubernetes::{ApiError, Call};
use crate::model::prune::holds_others;

/// How long what was deleted may take to be gone, before what it may need is left for the next run.
const GONE_DEADLINE: Duration = Duration::from_secs(60);
/// An object that somebody changes each time before it is deleted is looked at so often.
const CHANGES: u32 = 8;
/// A look into one of these takes a list of each kind.
const HOLDERS_AT_ONCE: usize = 4;
/// What is gone after so long was not worth a word.
const WORTH_TELLING: Duration = Duration::from_millis(200);

/// An entry was not pruned.
#[derive(Debug)]
enum Unpruned {
    Api(ApiError),
    /// It was deleted, or what it waits for was, and that is not gone in time.
    NotGone(String),
}

impl From<ApiError> for Unpruned {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

/// How far the deletion of an entry is.
enum Step {
    Settled(Pruned),
    /// It was deleted and is there still, because of this.
    Ending(String),
    /// It can only be deleted once something else is gone.
    Waits(String),
}

impl Context {
    /// Works the list off; entries that are done are skipped.
    pub(super) async fn prune_listed(&self, report: &mut Report, progress: &mut Progress) -> StageEnd {
        let entries = self.source.prune.iter().filter(|entry| !progress.is_done(&entry.uid)).collect();
        self.prune_those(entries, report, progress).await
    }

    /// Whether a namespace or a definition stayed when it was looked at last.
    pub(super) fn has_kept_holders(&self, progress: &Progress) -> bool {
        self.kept_holders(progress).next().is_some()
    }

    fn kept_holders(&self, progress: &Progress) -> impl Iterator<Item = &PruneEntry> {
        let kept = |entry: &&PruneEntry| holds_others(&entry.identity) && progress.is_kept(&entry.uid);
        self.source.prune.iter().filter(kept)
    }

    /// Looks at those again: what was in them may be gone.
    pub(super) async fn prune_kept_holders(&self, progress: &mut Progress) {
        let entries: Vec<&PruneEntry> = self.kept_holders(progress).collect();
        let mut untold = Report::new(self.source.head.sync);
        self.prune_those(entries, &mut untold, progress).await;
    }

    async fn prune_those(
        &self,
        mut entries: Vec<&PruneEntry>,
        report: &mut Report,
        progress: &mut Progress,
    ) -> StageEnd {
        entries.sort_by(|left, right| delete_key(&left.identity).cmp(&delete_key(&right.identity)));
        let (first, rest): (Vec<&PruneEntry>, Vec<&PruneEntry>) =
            entries.into_iter().partition(|entry| needs_controller_to_end(&entry.identity));
        match self.prune_first(&first, report, progress).await {
            StageEnd::Done => {}
            other => return other,
        }
        let mut end = StageEnd::Done;
        for group in of_one_kind(&rest) {
            if self.is_superseded() {
                return StageEnd::Superseded;
            }
            let holders = group.first().is_some_and(|entry| holds_others(&entry.identity));
            let at_once = if holders { HOLDERS_AT_ONCE } else { CONCURRENCY };
            let prunes = group.iter().map(|entry| self.prune(entry, progress, report.sync)).collect();
            for (entry, result) in group.iter().zip(concurrently(prunes, at_once).await) {
                end = worse(end, self.settle(entry, result, report, progress));
            }
            if end == StageEnd::Lost {
                break;
            }
        }
        end
    }

    /// Deletes what a controller may have to finalize, and waits until it is gone. Where that does not come about, nothing else is
    /// deleted: it may be needed for it.
    async fn prune_first(
        &self,
        entries: &[&PruneEntry],
        report: &mut Report,
        progress: &mut Progress,
    ) -> StageEnd {
        let mut end = StageEnd::Done;
        let mut ending = Vec::new();
        for group in of_one_kind(entries) {
            if self.is_superseded() {
                return StageEnd::Superseded;
            }
            let steps = group.iter().map(|entry| self.step(entry, progress)).collect();
            for (entry, step) in group.iter().zip(concurrently(steps, CONCURRENCY).await) {
                let result = match step {
                    Ok(Step::Settled(pruned)) => Ok(self.tell_pruned(entry, pruned, progress, report.sync)),
                    Ok(Step::Ending(reason) | Step::Waits(reason)) => {
                        ending.push((*entry, reason));
                        continue;
                    }
                    Err(error) => Err(error),
                };
                end = worse(end, self.settle(entry, result, report, progress));
            }
        }
        if end == StageEnd::Lost {
            return end;
        }
        match self.wait_until_gone(ending, report, progress).await {
            StageEnd::Done => end,
            other => other,
        }
    }

    async fn wait_until_gone(
        &self,
        mut ending: Vec<(&PruneEntry, String)>,
        report: &mut Report,
        progress: &mut Progress,
    ) -> StageEnd {
        let mut waiting = Waiting::new(self, Duration::from_secs(1));
        while let Some((entry, reason)) = ending.first() {
            match waiting.pause(self, || format!("{}: {reason}", entry.identity)).await {
                Pause::Over => {}
                Pause::Superseded => return StageEnd::Superseded,
                Pause::Lost => return StageEnd::Lost,
                Pause::Expired => {
                    for (entry, reason) in ending {
                        let reason = format!(
                            "{reason}; the other removed objects stay until then, because they may be needed for that"
                        );
                        self.settle(entry, Err(Unpruned::NotGone(reason)), report, progress);
                    }
                    return StageEnd::Failed;
                }
            }
            let steps = ending.iter().map(|(entry, _)| self.step(entry, progress)).collect();
            let steps = concurrently(steps, CONCURRENCY).await;
            for ((entry, before), step) in std::mem::take(&mut ending).into_iter().zip(steps) {
                match step {
                    Ok(Step::Settled(pruned)) => {
                        // By us, a moment ago.
                        let pruned = if pruned == Pruned::Gone { Pruned::Deleted } else { pruned };
                        let pruned = self.tell_pruned(entry, pruned, progress, report.sync);
                        self.settle(entry, Ok(pruned), report, progress);
                    }
                    Ok(Step::Ending(reason) | Step::Waits(reason)) => ending.push((entry, reason)),
                    Err(Unpruned::Api(ApiError::NotHolding)) => return StageEnd::Lost,
                    // It is asked again until the end.
                    Err(_) => ending.push((entry, before)),
                }
            }
        }
        StageEnd::Done
    }

    /// Deletes an entry, and tells it at once: this process may be asked to end while others of the group are still at it.
    async fn prune(&self, entry: &PruneEntry, progress: &Progress, sync: SyncId) -> Result<Pruned, Unpruned> {
        // Each look takes a list of each kind.
        let mut waiting = Waiting::new(self, Duration::from_secs(5));
        let pruned = loop {
            let reason = match self.step(entry, progress).await {
                Ok(Step::Settled(pruned)) => break pruned,
                Ok(Step::Ending(_)) => break Pruned::Deleted,
                Ok(Step::Waits(reason)) => reason,
                Err(error) => return Err(error),
            };
            match waiting.pause(self, || format!("{}: {reason}", entry.identity)).await {
                Pause::Over => {}
                Pause::Lost => return Err(ApiError::NotHolding.into()),
                Pause::Superseded | Pause::Expired => return Err(Unpruned::NotGone(reason)),
            }
        };
        Ok(self.tell_pruned(entry, pruned, progress, sync))
    }

    fn tell_pruned(&self, entry: &PruneEntry, pruned: Pruned, progress: &Progress, sync: SyncId) -> Pruned {
        let (outcome, kept, stays_owned) = match &pruned {
            Pruned::Deleted => ("deleted", None, false),
            Pruned::Gone => ("gone", None, false),
            Pruned::Kept(reason) => ("kept", Some(reason.clone()), true),
            Pruned::NotOurs(reason) => ("kept", Some(reason.clone()), false),
        };
        if progress.is_reported(&entry.uid, &pruned) {
            return pruned;
        }
        self.shared.counts.pruned_objects.with([outcome]).inc();
        if !stays_owned {
            self.shared.forget_object(&entry.identity.key(), &entry.uid);
        }
        self.shared.outbox.report(Observed::ObjectPruned {
            sync: Some(sync),
            source: self.id(),
            identity: entry.identity.clone(),
            uid: entry.uid.clone(),
            kept,
            stays_owned,
        });
        pruned
    }

    /// Looks at an entry and deletes it where that is its fate; again where somebody changed it in between, as it may have
    /// become another's, or be wanted to stay.
    async fn step(&self, entry: &PruneEntry, progress: &Progress) -> Result<Step, Unpruned> {
        let mut wait = Duration::from_millis(10);
        for _ in 0..CHANGES {
            let (path, version) = match self.fate(entry, Going { progress, imagined: false }).await? {
                Fate::Settled(pruned) => return Ok(Step::Settled(pruned)),
                Fate::Ending(reason) => return Ok(Step::Ending(reason)),
                Fate::Waits(reason) => return Ok(Step::Waits(reason)),
                Fate::Delete { path, version } => (path, version),
            };
            match self.delete(path, &version, entry).await? {
                Some(step) => return Ok(step),
                None => self.shared.world.clock.sleep(wait).await,
            }
            wait *= 2;
        }
        Err(Unpruned::NotGone("another client keeps changing it".to_owned()))
    }

    /// `None`: it is not what it was when it was looked at.
    async fn delete(
        &self,
        path: String,
        version: &str,
        entry: &PruneEntry,
    ) -> Result<Option<Step>, ApiError> {
        let key = entry.identity.key();
        self.shared.with_book(self.id(), |book| book.write_begins(&key));
        let call = Call::delete_version(path, &entry.uid, version).as_account(self.account());
        let result = self.shared.kube.write(call, &self.shared.holding).await;
        self.shared.with_book(self.id(), |book| book.write_failed(&key));
        match result {
            Ok(answer) => {
                // What waits for nobody is answered with a status, or as it was.
                let live = answer.json::<Value>().unwrap_or_default();
                let is_ending = live.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
                Ok(Some(if is_ending {
                    Step::Ending(finalizers(&live))
                } else {
                    Step::Settled(Pruned::Deleted)
                }))
            }
            Err(error) if error.code() == 404 => Ok(Some(Step::Settled(Pruned::Gone))),
            Err(error) if error.code() == 409 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts what became of an entry.
    fn settle(
        &self,
        entry: &PruneEntry,
        result: Result<Pruned, Unpruned>,
        report: &mut Report,
        progress: &mut Progress,
    ) -> StageEnd {
        let (reason, transient) = match result {
            Ok(pruned) => {
                report.counts.pruned += u32::from(pruned == Pruned::Deleted);
                progress.note(&entry.uid, pruned);
                return StageEnd::Done;
            }
            Err(Unpruned::Api(ApiError::NotHolding)) => return StageEnd::Lost,
            Err(Unpruned::Api(error)) => (error.to_string(), error.is_transient()),
            Err(Unpruned::NotGone(reason)) => (reason, true),
        };
        self.shared.counts.pruned_objects.with(["failed"]).inc();
        let failure = ObjectFailure {
            identity: entry.identity.clone(),
            file: String::new(),
            line: 0,
            message: format!("cannot be pruned: {reason}"),
        };
        report.failed(failure, transient);
        StageEnd::Failed
    }
}

fn worse(left: StageEnd, right: StageEnd) -> StageEnd {
    match (left, right) {
        (StageEnd::Lost, _) | (_, StageEnd::Lost) => StageEnd::Lost,
        (StageEnd::Done, other) => other,
        (other, _) => other,
    }
}

fn of_one_kind<'a, 'b>(entries: &'b [&'a PruneEntry]) -> impl Iterator<Item = &'b [&'a PruneEntry]> {
    let kind = |identity: &'b ObjectIdentity| (&identity.group, &identity.kind);
    entries.chunk_by(move |left, right| kind(&left.identity) == kind(&right.identity))
}

/// A wait for the end of what was deleted.
struct Waiting {
    end: Duration,
    wait: Duration,
    longest: Duration,
    told: String,
}

enum Pause {
    /// It is time for another look.
    Over,
    Superseded,
    Lost,
    Expired,
}

impl Waiting {
    fn new(context: &Context, longest: Duration) -> Self {
        let (end, wait) = (context.shared.now() + GONE_DEADLINE, Duration::from_millis(20));
        Self { end, wait, longest, told: String::new() }
    }

    async fn pause(&mut self, context: &Context, reason: impl FnOnce() -> String) -> Pause {
        let Shared { desired, holding, outbox, world, .. } = &*context.shared;
        let mut views = desired.subscribe();
        if context.is_superseded() {
            return Pause::Superseded;
        }
        if !holding.may_write() {
            return Pause::Lost;
        }
        if context.shared.now() >= self.end {
            return Pause::Expired;
        }
        if self.wait > WORTH_TELLING {
            let reason = reason();
            if self.told != reason {
                self.told.clone_from(&reason);
                let (source, sync) = (context.id(), context.source.head.sync);
                outbox.report(Observed::SyncWaiting { source, sync, reason });
            }
        }
        tokio::select! {
            biased;
            _ = views.changed() => {}
            () = world.clock.sleep(self.wait) => {}
        }
        self.wait = (self.wait * 2).min(self.longest);
        Pause::Over
    }
}
