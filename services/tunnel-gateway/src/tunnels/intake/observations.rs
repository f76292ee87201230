//! What an agent did, and whether it holds its Lease.

use std::collections::BTreeSet;
use std::time::Duration;

use events::SourceId;
use events::position::Stream;
use events::requests::delivery::NameApplier;
use store::CatchUpError;
use tunnel::wire::{Acknowledged, Batch, path};

use super::{FIRST_PAUSE, FOLD_TIME, Feed, IntakeError, LONGEST_PAUSE, run};
use crate::gateway::Gateway;
use crate::token_bucket::TokenBucket;
use crate::tunnels::model::{Removed, has_foreign, remove_foreign};
use crate::tunnels::session::Session;

/// How long delivery may take to say by itself who applies when a tunnel opened.
const APPLIER_TIMEOUT: Duration = Duration::from_secs(30);
/// Being named again and again costs the log: so far apart.
const NAMING_PAUSE: Duration = Duration::from_secs(5);

/// Reads until the tunnel is dismissed; then what is under way is brought to its end.
pub(crate) async fn read_observations(gateway: &Gateway, session: &Session) {
    let now = gateway.world.clock.monotonic();
    let mut feed = Observations {
        gateway,
        session,
        own: BTreeSet::new(),
        rate: TokenBucket::new(gateway.args.tunnel_observation_rate, now),
        naming: Naming { last: None, held: false, pending: false },
    };
    run(gateway, session, &mut feed).await;
}

struct Observations<'a> {
    gateway: &'a Gateway,
    session: &'a Session,
    own: BTreeSet<SourceId>,
    rate: TokenBucket,
    naming: Naming,
}

impl Feed for Observations<'_> {
    const STREAM: Stream = Stream::Observations;
    const PATH: &'static str = path::EVENTS;
    const ACKNOWLEDGED: &'static str = path::ACKNOWLEDGED;
    const IS_OPTIONAL: bool = false;
    const MAXIMUM_BYTES_UNDER_WAY: usize = 8 * 1024 * 1024;
    const STALL: Duration = Duration::from_secs(120);

    async fn durable(&mut self) -> Result<Acknowledged, CatchUpError> {
        let (gateway, session) = (self.gateway, self.session);
        gateway.catch_up_throttle.wait(&*gateway.world.clock).await;
        gateway.cursors.catch_up(FOLD_TIME).await?;
        self.own = gateway.standing.read(|standing| standing.sources(session.agent));
        Ok(gateway.cursors.read(|cursors| cursors.of(session.agent)))
    }

    async fn heard(&mut self, lease: Option<bool>) {
        if let Some(held) = lease {
            (self.naming.held, self.naming.pending) = (held, held);
        }
        self.naming.name_if_pending(self.gateway, self.session).await;
    }

    /// Leaves out what is not this agent's, and what belongs elsewhere. A source that is not known yet may be in the log and not in the
    /// fold.
    async fn admit(&mut self, batch: &mut Batch<&str>) -> Result<bool, IntakeError> {
        if !has_foreign(&batch.observations, &self.own) {
            return Ok(false);
        }
        let standing = &self.gateway.standing;
        standing.catch_up(FOLD_TIME).await.map_err(IntakeError::Lagging)?;
        self.own = standing.read(|standing| standing.sources(self.session.agent));
        let Removed { sources, misplaced, count } = remove_foreign(&mut batch.observations, &self.own);
        self.gateway.counts.observations_removed.with([Self::STREAM.as_str()]).inc_by(count);
        let (agent, instance) = (self.session.agent, self.session.instance);
        if !sources.is_empty() {
            let sources = sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            tracing::warn!(%agent, %instance, sources, "observations of other agents' sources are removed");
        }
        if misplaced > 0 {
            tracing::warn!(%agent, %instance, misplaced, "observations that belong elsewhere are removed");
        }
        Ok(true)
    }

    fn charge(&mut self, bytes: usize, observations: usize) -> Duration {
        self.gateway.counts.observations.inc_by(observations as u64);
        self.rate.take(bytes, self.gateway.world.clock.monotonic())
    }
}

/// Has the instance named that says it holds its agent's Lease.
struct Naming {
    /// When delivery was asked last.
    last: Option<Duration>,
    /// The agent said last that it holds its Lease.
    held: bool,
    /// Delivery is to be asked to name it.
    pending: bool,
}

impl Naming {
    /// Asks delivery until it answers: what the instance sends next counts only once it is named. One that was named a moment
    /// ago and says it again is not asked for at once.
    async fn name_if_pending(&mut self, gateway: &Gateway, session: &Session) {
        // One that held the Lease before may have been named after this one, because what it asked for came late.
        self.pending |= self.held && !session.is_applier();
        let lately = self.last.is_some_and(|last| {
            gateway.world.clock.monotonic().saturating_sub(last) < NAMING_PAUSE && session.is_applier()
        });
        if !self.pending || lately {
            return;
        }
        // What applies by now is reported by delivery when a tunnel opens, of many agents together: thousands that come back at once need
        // not be asked about one by one.
        if self.last.is_none() {
            tokio::select! {
                biased;
                () = session.applier_known() => {}
                () = gateway.world.clock.sleep(APPLIER_TIMEOUT) => {}
            }
            if session.is_applier() {
                (self.pending, self.last) = (false, Some(gateway.world.clock.monotonic()));
                return;
            }
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let request = NameApplier { agent: session.agent, instance: session.instance };
            let (agent, instance) = (session.agent, session.instance);
            self.last = Some(gateway.world.clock.monotonic());
            match bus::ask(&*gateway.bus, &gateway.context(session.organization), &request).await {
                Ok(applier) => {
                    tracing::info!(%agent, %instance, epoch = applier.epoch, "applier named");
                    self.pending = false;
                    session.set_applier(Some(applier));
                    gateway.registry.mark_changed(Some(agent));
                    return;
                }
                Err(refusal) => {
                    tracing::warn!(%agent, %instance, %refusal, "applier not named, retrying");
                    gateway.world.clock.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}
