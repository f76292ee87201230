//! One run of a sync: apply, wait for health, prune.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use events::delivery::{ObjectFailure, SyncOutcome};
use events::object::ObjectKey;
use events::observation::Observed;
use objects::order::Stage;
use tokio::sync::Notify;
use tracing::Instrument as _;

use super::concurrent::concurrently;
use super::context::Context;
use super::health::has_health;
use super::prune::Progress;
use super::report::Report;
use super::stage::{StageEnd, of_stage};
use crate::kubernetes::{Accept, Call, path};
use crate::model::book::Drift;
use crate::model::target::{Resolution, Target, Unserved};

/// Kinds that a set defines are served a moment after their definitions are established; what is not served then waits by name.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// While a sync waits, objects that a watch may have missed are read again after this long.
const REFRESH_AFTER: Duration = Duration::from_secs(10);
/// What is not followed when a sync would end gets so long to be, before its objects are looked at one by one.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(1);
/// Objects that are read at once.
const OBJECTS_PER_REFRESH: usize = 32;
/// Two hundred objects that become healthy one after the other are not worth two hundred words.
const WAIT_TOLD_EVERY: Duration = Duration::from_secs(1);

/// The reason that a wait reported last, and when.
#[derive(Default)]
struct ReportedReason(Option<(String, Duration)>);

impl ReportedReason {
    /// Reports a new reason, or gives the time when it may be reported.
    fn report(&mut self, reason: String, now: Duration, report: impl FnOnce(String)) -> Option<Duration> {
        match &self.0 {
            Some((last, _)) if *last == reason => None,
            Some((_, at)) if now < *at + WAIT_TOLD_EVERY => Some(*at + WAIT_TOLD_EVERY),
            _ => {
                self.0 = Some((reason.clone(), now));
                report(reason);
                None
            }
        }
    }
}

impl Context {
    /// Runs the sync; `None`: this instance may not write any more, and the next applier tells how it ended.
    pub(super) async fn run(&self, pruned: &mut Progress, wake: &Notify) -> (Option<SyncOutcome>, Report) {
        let head = &self.source.head;
        let mut report = Report::new(head.sync);
        let correlation_id = head.correlation_id;
        self.shared.outbox.report(Observed::SyncStarted {
            source: self.id(),
            sync: head.sync,
            correlation_id,
        });
        let outcome = self.attempt(&mut report, pruned, wake).await;
        if outcome.is_some_and(|outcome| outcome != SyncOutcome::Superseded) {
            self.shared.note_lacking(self.id(), &report);
        }
        let outcome = outcome.map(|outcome| self.without_wanted(outcome, &mut report));
        (outcome, report)
    }

    /// What other sources hold was left out: that stops nothing else, but not all of the bundle is applied.
    fn without_wanted(&self, outcome: SyncOutcome, report: &mut Report) -> SyncOutcome {
        let resolution = self.resolution_of(report);
        if outcome == SyncOutcome::Superseded || (resolution.wanted.is_empty() && !report.contested) {
            return outcome;
        }
        report.is_decided = outcome != SyncOutcome::Failed && !report.contested;
        for failure in &resolution.wanted {
            report.failed(failure.clone(), false);
        }
        SyncOutcome::Failed
    }

    async fn attempt(
        &self,
        report: &mut Report,
        pruned: &mut Progress,
        wake: &Notify,
    ) -> Option<SyncOutcome> {
        if let Some(reason) = self.blocked() {
            let missing = Vec::new();
            self.shared.outbox.report(Observed::SourceBlocked { source: self.id(), reason, missing });
            return Some(SyncOutcome::Failed);
        }
        let mut outcome = SyncOutcome::Succeeded;
        if self.source.entries.is_some() {
            self.shared.note(self.id(), "applying");
            match self.apply_bundle(report).await {
                StageEnd::Done => {}
                StageEnd::Failed => return Some(self.failed(report)),
                StageEnd::Superseded => return Some(SyncOutcome::Superseded),
                StageEnd::Lost => return None,
            }
            self.shared.note(self.id(), "waiting for health");
            let waiting = tracing::info_span!("agent.wait-for-health");
            match self.wait_for_health(report, wake).instrument(waiting).await {
                WaitEnd::Settled => {}
                WaitEnd::Expired => outcome = SyncOutcome::Unhealthy,
                WaitEnd::Superseded => return Some(SyncOutcome::Superseded),
                WaitEnd::Lost => return None,
            }
        }
        self.shared.note(self.id(), "pruning");
        // What waits for its kind may take the place of what would be pruned.
        if self.source.prune.is_empty() || report.counts.waiting > 0 {
            return Some(outcome);
        }
        let pruning = tracing::info_span!("agent.prune", objects = self.source.prune.len());
        match self.prune_listed(report, pruned).instrument(pruning).await {
            StageEnd::Done => Some(outcome),
            StageEnd::Failed => Some(SyncOutcome::Failed),
            StageEnd::Superseded => Some(SyncOutcome::Superseded),
            StageEnd::Lost => None,
        }
    }

    /// A failure of rights as a whole is the source's, not only the objects'.
    fn failed(&self, report: &Report) -> SyncOutcome {
        if let Some(reason) = report.forbidden.clone() {
            let missing = report.missing.clone();
            self.shared.outbox.report(Observed::SourceBlocked { source: self.id(), reason, missing });
        }
        SyncOutcome::Failed
    }

    async fn apply_bundle(&self, report: &mut Report) -> StageEnd {
        let mut resolution = self.resolve();
        if !resolution.failures.is_empty() || !resolution.awaited.is_empty() {
            // Somebody else may have installed a definition since the last look.
            if let Err(error) = self.shared.look_up_kinds().await {
                tracing::warn!(error = %error, "cannot discover kinds");
            }
            resolution = self.resolve();
        }
        self.wait_by_name(&resolution, report);
        if !resolution.failures.is_empty() {
            return give_up(resolution.failures.clone(), report);
        }
        let changed = self.changed(&resolution.targets);
        let foundation = of_stage(&changed, Stage::Foundation);
        let founded: Vec<Target> = foundation.iter().map(|target| (*target).clone()).collect();
        if !founded.is_empty() {
            match self.stage(&foundation, &[], report).await {
                StageEnd::Done => {}
                other => return other,
            }
            match self.wait_for_definitions(&foundation, report).await {
                StageEnd::Done => {}
                other => return other,
            }
        }
        if resolution.awaits_its_own() {
            let end = self.shared.now() + SERVED_WITHIN;
            match self.wait_for_kinds(end).await {
                StageEnd::Done => {}
                other => return other,
            }
            resolution = self.resolve();
            self.wait_by_name(&resolution, report);
            if !resolution.failures.is_empty() {
                return give_up(resolution.failures.clone(), report);
            }
        }
        let changed = self.changed(&resolution.targets);
        let rest = of_stage(&changed, Stage::Rest);
        let skipped = resolution.targets.len().saturating_sub(rest.len()).saturating_sub(founded.len());
        let skipped = skipped.saturating_sub(self.left_alone(&resolution.targets));
        report.counts.unchanged =
            report.counts.unchanged.saturating_add(u32::try_from(skipped).unwrap_or(u32::MAX));
        if self.is_superseded() {
            return StageEnd::Superseded;
        }
        self.stage(&rest, &founded, report).await
    }

    fn changed<'a>(&self, targets: &'a [Target]) -> Vec<&'a Target> {
        let (check_all, now) = (self.source.head.check_all, self.shared.now());
        self.recall_finished(targets);
        self.shared.with_book(self.id(), |book| {
            targets.iter().filter(|target| book.needs_apply(target, check_all, now)).collect()
        })
    }

    /// How many are as somebody else wants them, until their next correction.
    fn left_alone(&self, targets: &[Target]) -> usize {
        let (check_all, now) = (self.source.head.check_all, self.shared.now());
        self.shared.with_book(self.id(), |book| {
            targets.iter().filter(|target| book.is_left_alone(target, check_all, now)).count()
        })
    }

    /// Objects whose kinds are not served are named, and keep nothing else back. Those that were there went with their kind.
    fn wait_by_name(&self, resolution: &Arc<Resolution>, report: &mut Report) {
        report.goes_by(resolution);
        let default = &self.source.head.default_namespace;
        let gone: Vec<ObjectKey> = self.shared.with_book(self.id(), |book| {
            let known =
                book.iter().filter(|(_, known)| known.drift.as_ref().is_none_or(|drift| !drift.deleted));
            known
                .map(|(key, _)| key)
                .filter(|key| {
                    let mut awaited = resolution.awaited.iter();
                    awaited.any(|awaited| awaited.why != Unserved::Silent && awaited.is(key, default))
                })
                .cloned()
                .collect()
        });
        for key in gone {
            self.note_drift(&key, Drift { deleted: true, fields: Vec::new() });
        }
    }

    async fn wait_for_health(&self, report: &mut Report, wake: &Notify) -> WaitEnd {
        let clock = &self.shared.world.clock;
        let resolution = self.resolution_of(report);
        let targets = &resolution.targets;
        let timeout = Duration::from_secs(u64::from(self.source.head.policies.health_timeout_seconds));
        let end = self.shared.now() + timeout;
        let mut views = self.shared.desired.subscribe();
        let mut reported = ReportedReason::default();
        let mut refresh = HealthRefresh::new(self.shared.now());
        loop {
            views.mark_unchanged();
            if !self.shared.holding.may_write() {
                return WaitEnd::Lost;
            }
            let look_below_at = self.check_below().await.unwrap_or(end);
            let mut unsettled = self.unsettled(targets);
            let all_seem_settled = unsettled.is_empty();
            if all_seem_settled {
                unsettled = self.unseen(targets, &refresh.seen);
            }
            let Some((first, reason)) = unsettled.first() else { return WaitEnd::Settled };
            if self.is_superseded() {
                return WaitEnd::Superseded;
            }
            if self.shared.now() >= end {
                return expired(&unsettled, timeout, report);
            }
            let refresh_at = refresh.due(all_seem_settled, self.shared.now());
            if self.shared.now() >= refresh_at {
                let those: Vec<&Target> =
                    unsettled.iter().map(|(target, _)| *target).take(OBJECTS_PER_REFRESH).collect();
                let seen = self.look_at_health(&those).await;
                refresh.made(all_seem_settled, self.shared.now(), seen);
                continue;
            }
            // What will be seen in a moment is not worth a word.
            let worth_telling = !all_seem_settled || refresh.in_vain;
            let tell_at = worth_telling
                .then(|| {
                    let reason = waiting_reason(first, reason, unsettled.len());
                    let sync = report.sync;
                    reported.report(reason, self.shared.now(), |reason| {
                        self.shared.outbox.report(Observed::SyncWaiting { source: self.id(), sync, reason });
                    })
                })
                .flatten();
            let correct_at = self.correct_due().await.unwrap_or(end);
            let next = [correct_at, refresh_at, look_below_at, tell_at.unwrap_or(end)]
                .into_iter()
                .fold(end, Duration::min);
            tokio::select! {
                biased;
                () = wake.notified() => {}
                _ = views.changed() => {}
                () = clock.sleep(next.saturating_sub(self.shared.now())) => {}
            }
        }
    }

    /// No object's health lets a sync wait.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled(&self.resolve().targets).is_empty()
    }

    /// Objects whose health does not let a wait end, and why.
    fn unsettled<'a>(&self, targets: &'a [Target]) -> Vec<(&'a Target, String)> {
        self.shared.with_book(self.id(), |book| {
            targets
                .iter()
                .filter_map(|target| match book.get(&target.key).map(|known| known.health.as_ref()) {
                    Some(Some(health)) if health.settled => None,
                    Some(Some(health)) if health.message.is_empty() => Some((target, health.word())),
                    Some(Some(health)) => Some((target, health.message.clone())),
                    Some(None) | None if !has_health(&target.identity) => None,
                    Some(None) | None => Some((target, "not seen yet".to_owned())),
                })
                .collect()
        })
    }

    /// Objects that nobody would tell of if they were not well any more, and that were not looked at since; and why that is.
    fn unseen<'a>(&self, targets: &'a [Target], seen: &BTreeSet<ObjectKey>) -> Vec<(&'a Target, String)> {
        let followed = self.shared.followed.by(self.account());
        let is_followed = |target: &Target| {
            let within =
                |namespace: &str| followed.contains(&(Arc::clone(&target.resource), namespace.to_owned()));
            within("") || within(&target.identity.namespace)
        };
        let is_finished = |target: &Target| self.shared.with_book(self.id(), |book| book.is_finished(target));
        let those = targets.iter().filter(|target| {
            has_health(&target.identity)
                && !seen.contains(&target.key)
                && !is_followed(target)
                && !is_finished(target)
        });
        those
            .map(|target| (target, "its kind is not watched now, and it was not read yet".to_owned()))
            .collect()
    }

    /// Gives those that were there to be looked at.
    async fn look_at_health(&self, targets: &[&Target]) -> BTreeSet<ObjectKey> {
        let reads = targets.iter().map(|target| self.look_at_one(target)).collect();
        concurrently(reads, 8).await.into_iter().flatten().collect()
    }

    async fn look_at_one(&self, target: &Target) -> Option<ObjectKey> {
        let path = path::object(&target.resource, &target.identity.namespace, &target.identity.name)?;
        let accept = if has_health(&target.identity) { Accept::Whole } else { Accept::Metadata };
        let call = Call::get(path).accept(accept).as_account(self.account());
        let live = self.shared.kube.read(call).await.ok()?.json().ok()?;
        let sight = self.shared.sight(&live, &target.identity);
        if let Some(health) = self.shared.with_book(self.id(), |book| book.observed(&target.key, sight)) {
            self.report_health(&target.identity, health);
        }
        self.note_end(&target.identity, &live);
        Some(target.key.clone())
    }
}

/// When a wait reads objects whose watch shows nothing new.
struct HealthRefresh {
    /// At those that are not well as far as is known.
    unsettled_at: Duration,
    /// At those that seem to be well and are not followed, once nothing else is waited for.
    unseen_at: Option<Duration>,
    /// None of them answered.
    in_vain: bool,
    /// Those that were there when they were looked at.
    seen: BTreeSet<ObjectKey>,
}

impl HealthRefresh {
    fn new(now: Duration) -> Self {
        Self { unsettled_at: now + REFRESH_AFTER, unseen_at: None, in_vain: false, seen: BTreeSet::new() }
    }

    fn due(&mut self, all_seem_settled: bool, now: Duration) -> Duration {
        if all_seem_settled {
            *self.unseen_at.get_or_insert(now + FOLLOWED_WITHIN)
        } else {
            self.unsettled_at
        }
    }

    fn made(&mut self, all_seem_settled: bool, now: Duration, seen: BTreeSet<ObjectKey>) {
        if !all_seem_settled {
            self.unsettled_at = now + REFRESH_AFTER;
        } else if seen.is_empty() {
            self.unseen_at = Some(now + REFRESH_AFTER);
            self.in_vain = true;
        }
        self.seen.extend(seen);
    }
}

enum WaitEnd {
    Settled,
    Expired,
    Superseded,
    Lost,
}

fn expired(unsettled: &[(&Target, String)], timeout: Duration, report: &mut Report) -> WaitEnd {
    report.counts.unhealthy = u32::try_from(unsettled.len()).unwrap_or(u32::MAX);
    let failures = unsettled
        .iter()
        .take(10)
        .map(|(target, reason)| target.failure(format!("not healthy within {}: {reason}", seconds(timeout))));
    report.failures.extend(failures);
    WaitEnd::Expired
}

fn give_up(failures: Vec<ObjectFailure>, report: &mut Report) -> StageEnd {
    for failure in failures {
        report.failed(failure, false);
    }
    StageEnd::Failed
}

fn waiting_reason(target: &Target, reason: &str, all: usize) -> String {
    let identity = &target.identity;
    let place =
        if identity.namespace.is_empty() { String::new() } else { format!("{}/", identity.namespace) };
    let more = if all > 1 { format!(" (and {} more)", all - 1) } else { String::new() };
    format!("{} {place}{}: {reason}{more}", identity.kind, identity.name)
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_says_the_newest_reason_once_a_second_at_most() {
        let mut reported = ReportedReason::default();
        let mut said = Vec::new();
        let mut tell = |millis, reason: &str| {
            let now = Duration::from_millis(millis);
            reported.report(reason.to_owned(), now, |reason| said.push(reason)).map(|at| at.as_millis())
        };
        assert_eq!(tell(100, "a"), None);
        assert_eq!(tell(200, "a"), None);
        assert_eq!(tell(300, "b"), Some(1_100));
        assert_eq!(tell(400, "c"), Some(1_100));
        assert_eq!(tell(1_100, "c"), None);
        assert_eq!(tell(1_200, "a"), Some(2_100));
        assert_eq!(said, ["a", "c"]);
    }

    #[test]
    fn what_is_not_followed_is_looked_at_after_a_second_and_again_only_where_that_brings_something() {
        let second = Duration::from_secs;
        let mut refresh = HealthRefresh::new(second(0));
        assert_eq!((refresh.due(false, second(0)), refresh.due(true, second(3))), (REFRESH_AFTER, second(4)));
        let [group, kind, namespace, name] = ["apps", "Deployment", "shop", "web"].map(str::to_owned);
        let key = ObjectKey { group, kind, namespace, name };
        refresh.made(true, second(4), BTreeSet::from([key.clone()]));
        assert_eq!((refresh.due(true, second(4)), refresh.in_vain), (second(4), false));
        refresh.made(true, second(5), BTreeSet::new());
        assert_eq!((refresh.due(true, second(5)), refresh.in_vain), (second(5) + REFRESH_AFTER, true));
        refresh.made(false, second(10), BTreeSet::new());
        assert_eq!(refresh.due(false, second(10)), second(10) + REFRESH_AFTER);
        assert_eq!(refresh.seen, BTreeSet::from([key]));
    }
}
