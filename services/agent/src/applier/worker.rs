//! One source: runs its syncs, tries again what failed, corrects drift.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chassis::traces;
use events::delivery::{SyncCounts, SyncOutcome};
use events::digest::Sha256;
use events::observation::Observed;
use events::{SourceId, Timestamp};
use tokio::sync::Notify;
use tracing::{Instrument as _, Span};

use super::Shared;
use super::context::Context;
use super::prune::Progress;
use super::report::Report;
use crate::kubernetes::discovery::Kinds;
use crate::metrics::outcome_name;
use crate::model::backoff::Backoff;
use crate::model::target::Resolution;

/// Waits between runs of a sync that failed: short while the API server is in trouble, long where somebody has to change something.
const TRANSIENT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
const LASTING: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(600));

/// Waits between looks for kinds that nothing defines yet. A watch over definitions wakes earlier, where the agent may have one.
const KINDS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// Failures told of a run that failed by itself and is tried again soon.
const OUTAGE_FAILURES: usize = 20;

pub(super) struct Worker {
    shared: Arc<Shared>,
    source: SourceId,
    wake: Arc<Notify>,
    /// The state that was run last.
    ran: Option<Sha256>,
    /// That run ended with objects that were not healthy.
    unhealthy: bool,
    retry_at: Option<Duration>,
    /// That run failed for want of a namespace.
    wants_namespace: bool,
    /// Objects that another source had as well when that run failed.
    contested: usize,
    transient: Backoff,
    lasting: Backoff,
    /// How far this state's prune list is.
    pruned: Progress,
    /// When to look again at what was kept because of what is in it.
    kept_at: Option<Duration>,
    kept: Backoff,
    /// Objects that waited for their kinds when it was run last.
    awaited: BTreeSet<String>,
    /// What the API server served then.
    kinds: Arc<Kinds>,
    /// When kinds are looked for again although nobody told of any.
    look_at: Option<Duration>,
    looks: Backoff,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, source: SourceId) -> Self {
        let wake = shared.wake_of(source);
        Self {
            shared,
            source,
            wake,
            ran: None,
            unhealthy: false,
            retry_at: None,
            wants_namespace: false,
            contested: 0,
            transient: Backoff::new(TRANSIENT.0, TRANSIENT.1),
            lasting: Backoff::new(LASTING.0, LASTING.1),
            pruned: Progress::default(),
            kept_at: None,
            kept: Backoff::new(LASTING.0, LASTING.1),
            awaited: BTreeSet::new(),
            kinds: Arc::default(),
            look_at: None,
            looks: Backoff::new(KINDS.0, KINDS.1),
        }
    }

    pub(super) async fn run(mut self) {
        let mut views = self.shared.desired.subscribe();
        loop {
            let Some(view) = views.borrow_and_update().clone() else { return };
            let Some(source) = view.source(self.source) else { return };
            let context = Context::new(&self.shared, &view, source);
            let next = self.step(&context).await;
            drop((context, view));
            let clock = Arc::clone(&self.shared.world.clock);
            let wait = next.map(|at| at.saturating_sub(self.shared.now()));
            tokio::select! {
                biased;
                changed = views.changed() => if changed.is_err() { return },
                () = self.wake.notified() => {}
                () = async { match wait { Some(wait) => clock.sleep(wait).await, None => std::future::pending().await } } => {}
            }
        }
    }

    /// Does what is due; gives the moment at which more will be.
    async fn step(&mut self, context: &Context) -> Option<Duration> {
        let head = &context.source.head;
        self.shared.follow_health_rules(&context.view);
        let check_below = context.check_below().await;
        if head.suspended {
            self.shared.note(self.source, "suspended");
            return check_below;
        }
        let source = &context.source;
        if source.entries.is_none() && source.prune.is_empty() && source.refused.is_none() {
            self.ran = Some(context.source.fingerprint);
            self.shared.note(self.source, "nothing to do");
            return check_below;
        }
        let now = self.shared.now();
        let is_new = self.ran != Some(context.source.fingerprint);
        if is_new {
            self.transient.reset();
            self.lasting.reset();
            // Another state may keep other objects, or fewer.
            self.pruned.clear();
            self.kept.reset();
            context.forget_what_left();
        }
        let is_hopeful = self.shared.hopeful.lock().remove(&self.source) && self.wants_namespace;
        if is_hopeful && self.retry_at.is_some() {
            self.retry_at = Some(now);
            self.lasting.reset();
            self.transient.reset();
        }
        let is_due = self.retry_at.is_some_and(|at| at <= now);
        let is_to_look = self.look_at.is_some_and(|at| at <= now);
        if (is_due || is_to_look)
            && let Err(error) = self.shared.look_up_kinds().await
        {
            tracing::debug!(error = %error, "cannot discover kinds");
        }
        // Who became healthy too late for its sync makes it good.
        let recovered = self.unhealthy && context.is_settled();
        // What another source gave up is this one's at once, not only when it tries again.
        let freed = self.contested > 0 && context.view.contested(&context.source) < self.contested;
        if is_new || is_due || recovered || freed || self.is_served_otherwise(context) {
            self.sync(context).await;
        } else if is_to_look {
            self.look_at = Some(self.shared.now() + self.looks.next(self.shared.world.random.as_ref()));
        }
        self.shared.note(self.source, self.doing());
        if self.retry_at.is_none() && self.kept_at.is_some_and(|at| at <= now) {
            context.prune_kept_holders(&mut self.pruned).await;
            self.kept_at = self.look_again_at(context);
        }
        // Also while something fails: what was applied before stays as it was.
        let correction = context.correct_due().await;
        // The run may have made more of them.
        let check_below = context.check_below().await;
        let kept_at = self.kept_at.filter(|_| self.retry_at.is_none());
        [self.retry_at, correction, self.look_at, check_below, kept_at].into_iter().flatten().min()
    }

    /// A namespace that was kept because of another source's objects may be empty a moment later.
    fn look_again_at(&mut self, context: &Context) -> Option<Duration> {
        if !context.has_kept_holders(&self.pruned) {
            return None;
        }
        Some(self.shared.now() + self.kept.next(self.shared.world.random.as_ref()))
    }

    fn doing(&self) -> &'static str {
        match (self.retry_at, self.look_at) {
            (Some(_), _) => "waiting for the next attempt",
            (None, Some(_)) => "waiting for kinds that are not served",
            (None, None) => "in sync",
        }
    }

    /// Kinds came, or went.
    fn is_served_otherwise(&mut self, context: &Context) -> bool {
        let kinds = self.shared.discovery.kinds();
        let before = std::mem::replace(&mut self.kinds, Arc::clone(&kinds));
        !Arc::ptr_eq(&before, &kinds) && self.awaited != awaited(&context.resolve())
    }

    /// Notes what waits for its kind after a run.
    fn wait_for_kinds(&mut self, context: &Context, report: &Report) {
        let awaited = awaited(&context.resolution_of(report));
        if self.awaited != awaited {
            self.looks.reset();
        }
        self.look_at = (!awaited.is_empty())
            .then(|| self.shared.now() + self.looks.next(self.shared.world.random.as_ref()));
        self.awaited = awaited;
    }

    async fn sync(&mut self, context: &Context) {
        self.ran = Some(context.source.fingerprint);
        self.retry_at = None;
        let span = self.span(context);
        let (outcome, report) = context.run(&mut self.pruned, &self.wake).instrument(span.clone()).await;
        if let Some(outcome) = outcome {
            span.record("outcome", tracing::field::debug(outcome));
        }
        if outcome.is_none_or(|outcome| outcome == SyncOutcome::Failed) {
            traces::failed(&span);
        }
        self.wait_for_kinds(context, &report);
        let Some(outcome) = outcome else {
            // The Lease is lost: nothing is told, and the run counts as not made.
            self.ran = None;
            return;
        };
        self.shared.counts.synced(outcome);
        self.wants_namespace = report.wants_namespace;
        self.unhealthy = outcome == SyncOutcome::Unhealthy;
        if outcome == SyncOutcome::Superseded {
            // By a newer state, or by a suspension that ends with this same state.
            self.ran = None;
        }
        let retry_at = (outcome == SyncOutcome::Failed && !report.is_decided).then(|| self.retry(&report));
        self.kept_at = self.look_again_at(context);
        self.contested = retry_at.map_or(0, |_| context.view.contested(&context.source));
        // An outage fails all objects alike; a few of them say it.
        let told = if report.transient { OUTAGE_FAILURES } else { usize::MAX };
        for failure in report.failures.iter().filter(|_| outcome == SyncOutcome::Failed).take(told) {
            self.shared.outbox.report(Observed::ObjectFailed {
                sync: report.sync,
                source: self.source,
                failure: failure.clone(),
                retry_at,
            });
        }
        self.shared.outbox.report(Observed::SyncFinished {
            source: self.source,
            sync: report.sync,
            outcome,
            counts: report.counts,
            failures: report.first_failures(),
        });
        let SyncCounts { unchanged, created, changed, pruned, failed, unhealthy, .. } = report.counts;
        let outcome = outcome_name(outcome);
        tracing::info!(source = %self.source, outcome, unchanged, created, changed, pruned, failed, unhealthy, "sync ended");
    }

    /// A run is part of the trace that led to its state.
    fn span(&self, context: &Context) -> Span {
        let head = &context.source.head;
        let span = tracing::info_span!(
            "agent.sync",
            otel.kind = "consumer",
            otel.status_code = tracing::field::Empty,
            source = %self.source,
            sync = %head.sync,
            commit = head.commit,
            outcome = tracing::field::Empty,
        );
        let now = Timestamp(self.shared.world.clock.now_millis());
        let age = Duration::from_millis(head.sync.age_millis(now).unwrap_or(0));
        traces::set_cause(&span, head.traceparent.as_deref(), age);
        span
    }

    fn retry(&mut self, report: &Report) -> Timestamp {
        let random = self.shared.world.random.as_ref();
        let wait = if report.transient { self.transient.next(random) } else { self.lasting.next(random) };
        self.retry_at = Some(self.shared.now() + wait);
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.shared.world.clock.now_millis()).plus_millis(millis)
    }
}

fn awaited(resolution: &Resolution) -> BTreeSet<String> {
    resolution.awaited.iter().map(|awaited| awaited.entry.identity.to_string()).collect()
}
