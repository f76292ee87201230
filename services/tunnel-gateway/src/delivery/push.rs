//! Pushing desired states to one agent.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use chassis::traces;
use events::desired::{Applier, DesiredPlan, DesiredState};
use events::{OrganizationId, Refusal, Sha256, SourceId, Timestamp};
use http::{Method, StatusCode};
use tokio::sync::watch;
use tracing::{Instrument as _, Span};
use tunnel::gateway::{AgentReply, AskError};
use tunnel::wire::{MAXIMUM_DESIRED_BYTES, StaleRevision, path};

use super::bundles::{RefusedSources, ResolveError, Resolved};
use super::model::{Causes, KnownObjects};
use super::transfer::{MAXIMUM_REPLY_BYTES, ObjectTransfer, ROUNDS, TransferError};
use crate::gateway::Gateway;
use crate::tunnels::session::Session;

/// How often a newer state may take a push's place before one is completed.
const SUPERSEDED: u32 = 3;
const DESIRED_TIME: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum PushError {
    #[error("the delivery service does not answer: {0}")]
    Delivery(Refusal),
    #[error("the plan is for another agent")]
    AnotherAgent,
    #[error("cannot encode the desired state: {0}")]
    Encode(#[from] events::EncodeError),
    #[error("a bundle cannot be read")]
    Resolve(#[from] ResolveError),
    #[error("the agent cannot be supplied")]
    Transfer(#[from] TransferError),
    #[error("the agent does not answer")]
    Tunnel(#[from] AskError),
    #[error("the agent answered {0} to the desired state")]
    Status(StatusCode),
    #[error("the agent's answer is malformed: {0}")]
    Answer(#[from] events::DecodeError),
    #[error("the agent has revision {0} already")]
    Stale(u64),
    #[error("the replica of delivery that answered has only revision {0} so far")]
    Behind(u64),
}

/// What the agent at the other end has.
struct Pusher<'a> {
    gateway: &'a Gateway,
    session: &'a Session,
    transfer: ObjectTransfer<'a>,
    changes: watch::Receiver<u64>,
    /// `None`: it has not taken a state on this connection, and may have anything.
    known: Option<KnownObjects>,
    /// The digest of what it says that it came with.
    reported: Option<Sha256>,
    taken: Option<DesiredPlan>,
}

enum Pushed {
    Done,
    AlreadyCurrent,
    Superseded,
}

/// Pushes whenever the desired state may have changed. Never ends by itself.
pub(crate) async fn run(gateway: &Gateway, session: &Session) {
    let changes = session.changed.subscribe();
    let transfer = ObjectTransfer { gateway, session };
    let mut pusher =
        Pusher { gateway, session, transfer, changes, known: None, reported: session.desired, taken: None };
    let mut pause = Duration::ZERO;
    let mut superseded = 0;
    loop {
        pusher.changes.mark_unchanged();
        match Box::pin(pusher.push(superseded < SUPERSEDED)).await {
            Ok(Pushed::Superseded) => {
                superseded += 1;
                continue;
            }
            Ok(Pushed::Done | Pushed::AlreadyCurrent) => {
                (superseded, pause) = (0, Duration::ZERO);
                // The sender lives in the session.
                let _held = pusher.changes.changed().await;
            }
            Err(error) => {
                gateway.counts.pushes.with(["failed"]).inc();
                report(session, &error);
                pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                let jitter = u64::try_from(pause.as_millis()).unwrap_or(0) / 2;
                let wait = pause / 2 + Duration::from_millis(gateway.world.random.below(jitter + 1));
                tokio::select! {
                    biased;
                    () = gateway.world.clock.sleep(wait) => {}
                    _held = pusher.changes.changed() => {}
                }
            }
        }
    }
}

fn report(session: &Session, error: &PushError) {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    match error {
        PushError::Stale(_)
        | PushError::Behind(_)
        | PushError::Tunnel(AskError::Closed { .. })
        | PushError::Transfer(TransferError::Tunnel(AskError::Closed { .. })) => {
            tracing::debug!(agent = %session.agent, instance = %session.instance, %error, source, "push given up");
        }
        _ => {
            tracing::warn!(agent = %session.agent, instance = %session.instance, %error, source, "push failed")
        }
    }
}

impl Pusher<'_> {
    async fn push(&mut self, may_be_superseded: bool) -> Result<Pushed, PushError> {
        let plan = self.gateway.plans.ask(self.session.agent).await.map_err(PushError::Delivery)?;
        let Some(plan) = plan else {
            self.session.set_applier(None);
            return Ok(Pushed::Done);
        };
        if plan.agent != self.session.agent || plan.organization != self.session.organization {
            return Err(PushError::AnotherAgent);
        }
        self.session.set_applier(plan.applier);
        if plan.revision < self.session.announced.load(Ordering::Relaxed) {
            return Err(PushError::Behind(plan.revision));
        }
        if self.taken.as_ref() == Some(&plan) {
            return Ok(Pushed::Done);
        }
        let span = self.span(&plan);
        let began = self.gateway.world.clock.monotonic();
        let pushed = self.push_plan(plan, may_be_superseded).instrument(span.clone()).await;
        match &pushed {
            Ok(Pushed::Done) => {
                let took = self.gateway.world.clock.monotonic().saturating_sub(began);
                self.gateway.counts.push_seconds.observe(took.as_secs_f64());
            }
            Ok(Pushed::AlreadyCurrent | Pushed::Superseded) => {}
            Err(_) => traces::failed(&span),
        }
        pushed
    }

    /// A push is part of the trace of what it brings.
    fn span(&self, plan: &DesiredPlan) -> Span {
        let now = Timestamp(self.gateway.world.clock.now_millis());
        let causes = Causes::of(self.taken.as_ref(), plan, now);
        let span = tracing::info_span!(
            "tunnel-gateway.push",
            otel.kind = "client",
            otel.status_code = tracing::field::Empty,
            agent = %self.session.agent,
            revision = plan.revision,
        );
        let age = Duration::from_millis(causes.age_millis);
        traces::set_cause(&span, causes.newest.as_deref(), age);
        for other in &causes.others {
            traces::add_link(&span, other);
        }
        span
    }

    /// Brings a plan. What of it cannot be sent is left out source by source, so that it stops no other.
    async fn push_plan(&mut self, plan: DesiredPlan, may_be_superseded: bool) -> Result<Pushed, PushError> {
        let mut refused = RefusedSources::new();
        loop {
            let mut resolved = self.gateway.bundles.resolve(plan.clone(), &refused).await;
            let body = Bytes::from(events::encode(&resolved.desired)?);
            let (sources, reason) = if body.len() > MAXIMUM_DESIRED_BYTES {
                let reason = format!(
                    "the lists of the agent's objects and prunes have {} bytes, more than the maximum of {MAXIMUM_DESIRED_BYTES}, \
                     and this source's list is the longest; split it over several agents",
                    body.len()
                );
                (longest(&resolved.desired)?.into_iter().collect(), reason)
            } else {
                match self.push_resolved(&plan, &mut resolved, body, may_be_superseded).await {
                    Err(
                        PushError::Resolve(ResolveError::Content { content, reason })
                        | PushError::Transfer(TransferError::Resolve(ResolveError::Content {
                            content,
                            reason,
                        })),
                    ) => (self.gateway.bundles.sources_with(&resolved.desired, content).await?, reason),
                    reported => return reported,
                }
            };
            if sources.is_empty() {
                return Err(TransferError::Unsatisfied.into());
            }
            for source in sources {
                tracing::error!(agent = %plan.agent, %source, reason, "bundle cannot be sent");
                refused.insert(source, format!("its bundle cannot be sent: {reason}"));
            }
        }
    }

    async fn push_resolved(
        &mut self,
        plan: &DesiredPlan,
        resolved: &mut Resolved,
        body: Bytes,
        may_be_superseded: bool,
    ) -> Result<Pushed, PushError> {
        let (organization, applier) = (plan.organization, plan.applier);
        if self.reported.take() == Some(Sha256::of(&body)) {
            self.record_taken(plan.clone(), resolved).await?;
            self.gateway.counts.pushes.with(["had"]).inc();
            return Ok(Pushed::AlreadyCurrent);
        }
        let answered = match &self.known {
            Some(known) => {
                let missing = self.missing(known, organization, resolved).await?;
                self.transfer.send_with(missing, &body).await?
            }
            None => None,
        };
        if answered.is_none() && may_be_superseded && self.changes.has_changed().unwrap_or(false) {
            return Ok(Pushed::Superseded);
        }
        self.put_state(resolved, body, answered).await?;
        self.gateway.counts.pushes.with(["taken"]).inc();
        let revision = resolved.desired.revision;
        tracing::debug!(agent = %self.session.agent, instance = %self.session.instance, revision, epoch = epoch(applier), "desired state accepted");
        self.record_taken(plan.clone(), resolved).await?;
        Ok(Pushed::Done)
    }

    /// The agent has what was planned for it.
    async fn record_taken(&mut self, plan: DesiredPlan, resolved: &mut Resolved) -> Result<(), PushError> {
        let pages = resolved.pages.iter().copied();
        let taken = self.gateway.bundles.objects_of(plan.organization, pages).await?;
        self.known.get_or_insert_default().replace(taken);
        if let Some(broken) = resolved.broken.take() {
            return Err(broken.into());
        }
        self.taken = Some(plan);
        Ok(())
    }

    /// Pages and objects that the agent cannot have yet, as far as is known.
    async fn missing(
        &self,
        known: &KnownObjects,
        organization: OrganizationId,
        resolved: &Resolved,
    ) -> Result<BTreeSet<Sha256>, PushError> {
        let fresh = resolved.pages.iter().copied().filter(|page| !known.has_page(page));
        let pages = self.gateway.bundles.objects_of(organization, fresh).await?;
        let mut missing = BTreeSet::new();
        for (page, objects) in pages {
            missing.insert(page);
            missing.extend(objects.iter().copied().filter(|object| !known.has_object(object)));
        }
        Ok(missing)
    }

    /// Puts the state, unless it was put and `answered`, and sends what the agent says it lacks, until it takes the state.
    async fn put_state(
        &self,
        resolved: &Resolved,
        body: Bytes,
        mut answered: Option<AgentReply>,
    ) -> Result<(), PushError> {
        for _ in 0..ROUNDS {
            let asked = match answered.take() {
                Some(asked) => asked,
                None => {
                    let traceparent = traces::current_traceparent();
                    let connection = self.session.connection.traced(traceparent.as_deref());
                    connection
                        .ask(Method::PUT, path::DESIRED, body.clone(), MAXIMUM_REPLY_BYTES, DESIRED_TIME)
                        .await?
                }
            };
            match asked.status {
                StatusCode::OK => {}
                StatusCode::CONFLICT => {
                    return Err(PushError::Stale(events::decode::<StaleRevision>(&asked.body)?.revision));
                }
                status => return Err(PushError::Status(status)),
            }
            if self.transfer.send_missing(&resolved.pages, &asked.body).await? {
                return Ok(());
            }
        }
        Err(TransferError::Unsatisfied.into())
    }
}

/// The source that takes the most of a state.
fn longest(desired: &DesiredState) -> Result<Option<SourceId>, events::EncodeError> {
    let mut longest = None;
    for source in desired.sources.iter().filter(|source| source.refused.is_none()) {
        let bytes = events::encoded_length(source)?;
        longest = longest.max(Some((bytes, source.head.source)));
    }
    Ok(longest.map(|(_, source)| source))
}

fn epoch(applier: Option<Applier>) -> u64 {
    applier.map_or(0, |applier| applier.epoch)
}
