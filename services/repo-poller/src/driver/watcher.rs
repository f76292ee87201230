//! Watches one repository: checks its refs when that is due or requested, builds what changed, publishes what is new.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chassis::traces;
use events::configuration::GitReference;
use events::directory::ProjectSettings;
use events::repository::FetchFailure;
use events::requests::authz::{DecideFetch, FetchDecision};
use events::{AgentId, CorrelationId, OrganizationId, ProjectId, SourceId, Timestamp};
use futures::future::join_all;
use tokio::sync::{mpsc, watch};
use tracing::{Instrument as _, Span};

use super::Poller;
use super::fetch::{Opened, Tip};
use super::publish::RefCheck;
use super::shared::{Cause, Job, Shared};
use crate::bundle::{FileCache, RefBuild};
use crate::git::{GitError, ObjectId};
use crate::model::{Interest, RefInterest};

/// Seconds between checks for the sake of a configuration file.
const CONFIGURATION_INTERVAL: u32 = 60;
/// Shortest interval, in seconds, whatever a source asks for.
const SHORTEST_INTERVAL: u32 = 5;
/// First and longest pause after a failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(5);
const LONGEST_BACKOFF: Duration = Duration::from_secs(120);

pub(super) struct Watcher {
    pub(super) poller: Arc<Poller>,
    pub(super) project: ProjectId,
    interest: watch::Receiver<Arc<Interest>>,
    pub(super) shared: Arc<Shared>,
    jobs: mpsc::Receiver<Job>,
    pub(super) opened: Option<Opened>,
    /// What was built of each ref.
    pub(super) done: BTreeMap<GitReference, Done>,
    /// The version of each ref's aggregate before this round checked it, or that this watcher appended since.
    pub(super) seen: BTreeMap<GitReference, u64>,
    /// When this round began, by the monotonic clock.
    pub(super) began: Duration,
    /// Commits that were fetched in this round, and are not built yet.
    pub(super) fetched: Vec<ObjectId>,
    pub(super) builds: BTreeMap<GitReference, RefBuild>,
    pub(super) files: FileCache,
    /// Rounds that failed since one did not.
    failures: u32,
}

/// A round that a push requested is part of its trace. One that is due is of none: what it finds begins one.
fn span_of(project: ProjectId, push: Option<&Cause>) -> Span {
    let Some(push) = push else { return Span::none() };
    let span = tracing::info_span!(
        "repo-poller.look",
        otel.kind = "consumer",
        otel.status_code = tracing::field::Empty,
        %project
    );
    traces::set_parent_or_none(&span, push.traceparent.as_deref());
    span
}

/// How a round went.
enum Round {
    /// At least one ref was read; failures are recorded.
    Done,
    /// No agent may read it. authz is asked again, without touching the repository.
    Refused,
    /// No ref could be read, and that is recorded.
    Failed,
    /// The other services could not be asked or the log did not take it.
    NotNow,
}

/// What was built of a ref, for whom, and the version of its aggregate then.
pub(super) struct Done {
    pub(super) tip: Tip,
    pub(super) wanted: RefInterest,
    pub(super) version: u64,
}

/// What authz decided about the agents that want a repository.
pub(super) struct Permitted {
    agents: BTreeSet<AgentId>,
    refused: BTreeMap<AgentId, String>,
    settings: Option<ProjectSettings>,
    credential_host: Option<String>,
}

impl Watcher {
    pub(super) fn new(
        poller: Arc<Poller>,
        project: ProjectId,
        interest: watch::Receiver<Arc<Interest>>,
        shared: Arc<Shared>,
        jobs: mpsc::Receiver<Job>,
    ) -> Self {
        Self {
            poller,
            project,
            interest,
            shared,
            jobs,
            opened: None,
            done: BTreeMap::new(),
            seen: BTreeMap::new(),
            began: Duration::ZERO,
            fetched: Vec::new(),
            builds: BTreeMap::new(),
            files: FileCache::default(),
            failures: 0,
        }
    }

    /// Runs until no source wants the repository any more.
    pub(super) async fn run(mut self) {
        let mut unfinished = None;
        loop {
            let interest = self.interest.borrow_and_update().clone();
            let push = self.shared.take_push().or_else(|| unfinished.take());
            let span = span_of(self.project, push.as_ref());
            let cause = push.unwrap_or_else(|| Cause {
                correlation_id: CorrelationId(self.poller.deps.world.new_uuid()),
                traceparent: None,
            });
            self.shared.status.send_modify(|status| status.checking = true);
            self.began = self.poller.deps.world.clock.monotonic();
            let round = self.round(&interest, &cause).instrument(span.clone()).await;
            self.count(&round);
            match round {
                Round::Done | Round::Refused => {}
                Round::Failed => traces::failed(&span),
                // The next round is made for the same reason.
                Round::NotNow => unfinished = Some(cause),
            }
            // It ends with the round, not with the pause.
            drop(span);
            let pause = self.pause(&interest, &round);
            let next = Timestamp(
                self.poller.now().0.saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX)),
            );
            self.shared.checked(next, unfinished.is_some());
            if !self.wait(pause).await {
                return;
            }
        }
    }

    fn count(&self, round: &Round) {
        let outcome = match round {
            Round::Done => "read",
            Round::Refused => "refused",
            Round::Failed => "failed",
            Round::NotNow => "not_now",
        };
        let took = self.poller.deps.world.clock.monotonic().saturating_sub(self.began);
        self.poller.counts.looks.with([outcome]).inc();
        self.poller.counts.look_seconds.observe(took.as_secs_f64());
    }

    /// Waits until the next check; false when no source wants the repository any more. Does jobs meanwhile.
    async fn wait(&mut self, pause: Duration) -> bool {
        let world = self.poller.deps.world.clone();
        let due = world.clock.sleep(pause);
        tokio::pin!(due);
        loop {
            tokio::select! {
                biased;
                changed = self.interest.changed() => return changed.is_ok(),
                () = self.shared.woken.notified() => return true,
                Some(job) = self.jobs.recv() => {
                    let answer = self.bundle_at(job.source, &job.commit).await;
                    // The caller may have given up.
                    let _ = job.answer.send(answer);
                }
                () = &mut due => return true,
            }
        }
    }

    fn pause(&mut self, interest: &Interest, round: &Round) -> Duration {
        let sources = interest.refs.values().flat_map(|wanted| wanted.sources.values());
        let shortest =
            sources.map(|wanted| wanted.source.interval_seconds).min().unwrap_or(CONFIGURATION_INTERVAL);
        let configured = interest.refs.values().any(|wanted| !wanted.configured.is_empty());
        let seconds = if configured { shortest.min(CONFIGURATION_INTERVAL) } else { shortest };
        let interval = Duration::from_secs(u64::from(seconds.max(SHORTEST_INTERVAL)));
        let pause = match round {
            Round::Done => {
                self.failures = 0;
                interval
            }
            Round::Refused => interval.max(Duration::from_secs(u64::from(CONFIGURATION_INTERVAL))),
            Round::Failed => self.backoff(FIRST_BACKOFF, LONGEST_BACKOFF.max(interval)),
            Round::NotNow => self.backoff(Duration::from_millis(200), Duration::from_secs(30)),
        };
        self.jittered(pause)
    }

    fn backoff(&mut self, first: Duration, longest: Duration) -> Duration {
        let doubled = first.saturating_mul(1_u32.checked_shl(self.failures.min(20)).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        doubled.min(longest)
    }

    /// Up to a fifth more or less, so that many repositories do not fall into step.
    fn jittered(&self, pause: Duration) -> Duration {
        let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let spread = millis / 5;
        Duration::from_millis(
            (millis - spread).saturating_add(self.poller.deps.world.random.below(spread * 2)),
        )
    }

    async fn round(&mut self, interest: &Interest, cause: &Cause) -> Round {
        self.forget_unwanted(interest);
        let refs = interest.refs.keys();
        self.seen = refs.map(|name| (name.clone(), self.poller.ref_version(self.project, name))).collect();
        let Some(permitted) = self.permitted(interest, cause).await else { return Round::NotNow };
        let mut all_recorded = self.record_refusals(interest, &permitted, cause).await;
        if permitted.agents.is_empty() {
            return if all_recorded { Round::Refused } else { Round::NotNow };
        }
        let wanted: BTreeMap<GitReference, RefInterest> = interest
            .refs
            .iter()
            .map(|(reference, wanted)| (reference.clone(), wanted.of(&permitted.agents)))
            .filter(|(_, wanted)| !wanted.is_empty())
            .collect();
        let settings = permitted.settings.clone().unwrap_or_else(|| interest.settings.clone());
        let tips =
            self.fetch_tips(interest.organization, &settings, permitted.credential_host.as_deref(), &wanted);
        let mut read = false;
        for (reference, tip) in tips.await {
            let Some(wanted) = wanted.get(&reference) else { continue };
            let recorded = match tip {
                Ok(tip) => self.advance(interest.organization, &reference, tip, wanted, cause).await,
                Err(error) => Err(error),
            };
            read |= recorded.is_ok();
            all_recorded &= match recorded {
                Ok(recorded) => recorded,
                Err(error) => self.fail(interest, &reference, wanted, &error, cause).await,
            };
        }
        match (all_recorded, read) {
            (false, _) => Round::NotNow,
            (true, true) => Round::Done,
            (true, false) => Round::Failed,
        }
    }

    fn forget_unwanted(&mut self, interest: &Interest) {
        self.done.retain(|reference, _| interest.refs.contains_key(reference));
        self.builds.retain(|reference, _| interest.refs.contains_key(reference));
        self.shared.status.send_modify(|status| {
            status.tips.retain(|reference, _| interest.refs.contains_key(reference));
            status.checked.retain(|reference, _| interest.refs.contains_key(reference));
            status.failures.retain(|reference, _| interest.refs.contains_key(reference));
        });
    }

    /// Asks authz for all agents. `None` when it does not answer: nothing is fetched without its decision.
    async fn permitted(&self, interest: &Interest, cause: &Cause) -> Option<Permitted> {
        let mut context = self.poller.context(interest.organization, cause.correlation_id);
        context.traceparent.clone_from(&cause.traceparent);
        let bus = &*self.poller.deps.bus;
        let mut permitted = Permitted {
            agents: interest.agents(),
            refused: BTreeMap::new(),
            settings: None,
            credential_host: None,
        };
        let all: Vec<AgentId> = permitted.agents.iter().copied().collect();
        let (project, context) = (self.project, &context);
        let asked = all.chunks(DecideFetch::MOST).map(|agents| async move {
            bus::ask(bus, context, &DecideFetch { agents: agents.to_vec(), project }).await
        });
        for answer in join_all(asked).await {
            match answer {
                Ok(FetchDecision { refused, settings, credential_host }) => {
                    permitted.agents.retain(|agent| !refused.contains_key(agent));
                    permitted.refused.extend(refused);
                    permitted.settings = settings.or(permitted.settings);
                    permitted.credential_host = credential_host.or(permitted.credential_host);
                }
                Err(refusal) => {
                    tracing::warn!(%project, error = %refusal, "permission to read a repository cannot be checked");
                    return None;
                }
            }
        }
        Some(permitted)
    }

    async fn record_refusals(&mut self, interest: &Interest, permitted: &Permitted, cause: &Cause) -> bool {
        let mut all_recorded = true;
        for (agent, reason) in &permitted.refused {
            let error = GitError::new(FetchFailure::Refused, reason.clone());
            for (reference, wanted) in &interest.refs {
                let theirs = wanted.of(&BTreeSet::from([*agent]));
                if theirs.is_empty() {
                    continue;
                }
                all_recorded &= if wanted.agents().any(|agent| permitted.agents.contains(&agent)) {
                    // For whom files alone are read is told when they are; of the ref itself it would be said by turns that it can be
                    // read and that it cannot.
                    theirs.sources.is_empty()
                        || self.record_failure(interest.organization, reference, &theirs, &error, cause).await
                } else {
                    self.fail(interest, reference, &theirs, &error, cause).await
                };
            }
        }
        if permitted.agents.is_empty() {
            self.opened = None;
            *self.shared.objects.lock() = None;
        }
        all_recorded
    }

    /// Records that a ref cannot be read; false when the log did not take it.
    async fn fail(
        &mut self,
        interest: &Interest,
        reference: &GitReference,
        wanted: &RefInterest,
        error: &GitError,
        cause: &Cause,
    ) -> bool {
        tracing::info!(project = %self.project, %reference, error = %error, "repository cannot be read");
        self.done.remove(reference);
        self.shared.status.send_modify(|status| {
            status.failures.insert(reference.clone(), error.clone());
        });
        self.record_failure(interest.organization, reference, wanted, error, cause).await
    }

    async fn record_failure(
        &mut self,
        organization: OrganizationId,
        reference: &GitReference,
        wanted: &RefInterest,
        error: &GitError,
        cause: &Cause,
    ) -> bool {
        let sources: Vec<SourceId> = wanted.sources.keys().copied().collect();
        let check = self.ref_check(organization, reference, cause);
        let version = self.poller.append_failed(check, error, sources).await;
        self.seen.extend(version.map(|version| (reference.clone(), version)));
        version.is_some()
    }

    pub(super) fn ref_check<'a>(
        &self,
        organization: OrganizationId,
        reference: &'a GitReference,
        cause: &'a Cause,
    ) -> RefCheck<'a> {
        let seen = self.seen.get(reference).copied().unwrap_or(0);
        RefCheck { organization, project: self.project, reference, cause, seen }
    }

    /// Commits whose trees are in use: those that were built last, with which the next ones are compared, and those that are
    /// to be built.
    pub(super) fn tips(&self) -> Vec<ObjectId> {
        let mut tips: Vec<ObjectId> = self.done.values().map(|done| done.tip.commit).collect();
        tips.extend(&self.fetched);
        tips.sort();
        tips.dedup();
        tips
    }
}
