//! Keeps one tunnel to the server.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use chassis::{ReadyHandle, Shutdown};
use events::Timestamp;
use http::Request;
use hyper::service::service_fn;
use parking_lot::Mutex;
use tunnel::agent::{DialError, Ended, Link, LinkEnd, Reconnect, Target};
use tunnel::body::GuardedBody;
use tunnel::handshake::{Hello, Token};
use world::World;

use super::access::Access;
use super::bulk::{Bulk, BulkRoom};
use super::last_message::LastMessage;
use super::service::AgentService;
use super::tunnel_check::{self, TunnelCheck};
use crate::kubernetes::client::chain;
use crate::metrics::Counts;

/// A clock that is further off than this is worth a warning.
const CLOCK_SKEW_MILLIS: i64 = 30_000;
/// Requests may take this long to end once this process is asked to.
const DRAIN: Duration = Duration::from_secs(10);

/// A refused agent looks this often whether its token was replaced: a Secret takes up to a minute to reach its pod.
const LOOK_FOR_TOKEN: Duration = Duration::from_secs(5);

/// What a tunnel needs.
pub struct LinkKeeper {
    /// Clock, randomness, network.
    world: World,
    /// What lets this agent in.
    access: Arc<Mutex<Access>>,
    /// What answers.
    service: AgentService,
    /// Whether there is a tunnel, and why not.
    check: Mutex<TunnelCheck>,
    /// Where it is counted.
    counts: Counts,
    bulk: BulkRoom,
}

impl LinkKeeper {
    /// Of these parts.
    #[must_use]
    pub fn new(
        world: World,
        access: Access,
        service: AgentService,
        ready: ReadyHandle,
        counts: Counts,
    ) -> Self {
        let access = Arc::new(Mutex::new(access));
        let check = Mutex::new(TunnelCheck::new(ready));
        Self { world, access, service, check, counts, bulk: BulkRoom::default() }
    }

    /// Dials again and again until shutdown is asked for; then what is open is brought to its end.
    pub async fn keep(self, shutdown: Shutdown) {
        self.keep_tunnel(&shutdown).await;
        // Each ends by itself within the time that the tunnel has, too.
        self.bulk.emptied().await;
    }

    async fn keep_tunnel(&self, shutdown: &Shutdown) {
        let mut reconnect = Reconnect::new();
        let mut last_message = LastMessage::default();
        while !shutdown.is_requested() {
            let hello = Hello {
                desired: self.service.desired(),
                ..Hello::control(self.service.instance(), self.service.epoch(), env!("CARGO_PKG_VERSION"))
            };
            let (target, token) = {
                let access = self.access.lock();
                (access.target().clone(), access.token().clone())
            };
            let dialled = tokio::select! {
                biased;
                () = shutdown.requested() => return,
                dialled = tunnel::agent::dial(&self.world, &target, &token, &hello) => dialled,
            };
            let (ended, lived) = match dialled {
                Ok(link) => {
                    self.counts.dials.with(["opened"]).inc();
                    last_message.forget();
                    self.serve_link(link, &target, shutdown).await
                }
                Err(error) => {
                    let reason = words(&error);
                    self.check.lock().lost(&target, &reason, self.now());
                    if let Some(reason) = last_message.if_changed(reason) {
                        tracing::warn!(reason, "no tunnel");
                    }
                    let ended = Ended::from(&error);
                    let outcome = if ended == Ended::Refused { "refused" } else { "failed" };
                    self.counts.dials.with([outcome]).inc();
                    (ended, Duration::ZERO)
                }
            };
            let wait = reconnect.wait(ended, lived, self.world.random.as_ref());
            tokio::select! {
                biased;
                () = shutdown.requested() => return,
                () = self.pause(ended, wait, &token) => {}
            }
        }
    }

    /// Waits; who was refused with this token no longer than until there is another.
    async fn pause(&self, ended: Ended, mut wait: Duration, refused: &Token) {
        let clock = Arc::clone(&self.world.clock);
        if ended == Ended::Refused {
            while !wait.is_zero() {
                if self.refreshed().secret() != refused.secret() {
                    return;
                }
                let step = wait.min(LOOK_FOR_TOKEN);
                clock.sleep(step).await;
                wait -= step;
            }
        }
        clock.sleep(wait).await;
        self.refreshed();
    }

    /// The token, after its file was read again.
    fn refreshed(&self) -> Token {
        let mut access = self.access.lock();
        access.refresh();
        access.token().clone()
    }

    fn bulk(&self, shutdown: Shutdown) -> Bulk {
        Bulk {
            world: self.world.clone(),
            service: self.service.clone(),
            access: Arc::clone(&self.access),
            room: self.bulk.clone(),
            counts: self.counts.clone(),
            shutdown,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.world.clock.now_millis())
    }

    async fn serve_link(&self, link: Link, target: &Target, shutdown: &Shutdown) -> (Ended, Duration) {
        let begun = self.world.clock.monotonic();
        let welcome = link.welcome();
        tracing::info!(agent = %welcome.agent, host = target.host, "tunnel open");
        warn_of_skew(link.clock_skew_millis());
        self.service.is_agent(welcome.agent);
        self.check.lock().opened(target, self.now());
        self.counts.tunnel_open.set(1);
        let bulk = self.bulk(shutdown.clone());
        let answer = service_fn(move |request: Request<GuardedBody>| bulk.clone().answer(request));
        let end = serve(&self.world, link, answer, shutdown).await;
        self.check.lock().lost(target, &tunnel_check::words(&end), self.now());
        self.counts.tunnel_open.set(0);
        tracing::info!(reason = %end, "tunnel closed");
        (Ended::from(&end), self.world.clock.monotonic().saturating_sub(begun))
    }
}

/// What is wrong, in one line.
pub(super) fn words(error: &DialError) -> String {
    match error {
        DialError::Tls { host, source } => {
            chassis::tls::explain(source, host).map_or_else(|| chain(error), |trouble| trouble.to_string())
        }
        _ => chain(error),
    }
}

pub(super) async fn serve<S>(world: &World, link: Link, service: S, shutdown: &Shutdown) -> LinkEnd
where
    S: hyper::service::Service<
            Request<GuardedBody>,
            Response = http::Response<super::AnswerBody>,
            Error = Infallible,
        >,
    S::Future: Send + 'static,
{
    let late = async {
        shutdown.requested().await;
        world.clock.sleep(DRAIN).await;
    };
    tokio::select! {
        biased;
        end = link.serve(service, shutdown.requested()) => end,
        () = late => LinkEnd::Drained,
    }
}

fn warn_of_skew(skew_millis: i64) {
    if skew_millis.abs() > CLOCK_SKEW_MILLIS {
        let seconds = skew_millis / 1000;
        tracing::warn!(
            ahead_seconds = seconds,
            "this machine's clock differs from the server's: set the clock"
        );
    }
}
