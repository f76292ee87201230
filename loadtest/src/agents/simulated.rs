//! One simulated agent: it dials as the shipped one does, takes what it is told, applies nothing, and reports as often as it is to.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::desired::{DesiredReply, DesiredState};
use events::id::derived_uuid;
use events::{InstanceId, Sha256};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::service::service_fn;
use tokio::sync::watch;
use tunnel::agent::{Ended, Reconnect, Target, dial};
use tunnel::body::{EventSender, GuardedBody, event_body};
use tunnel::handshake::{Hello, Token};
use tunnel::wire::{EventFrame, MAXIMUM_DESIRED_BYTES, Objects, path};

use super::fleet::Shared;
use super::reports::Reports;

/// As the shipped agent says that it lives.
const IDLE: Duration = Duration::from_secs(12);
/// Frames that the gateway has not taken yet.
const CAPACITY: usize = 8;
/// How long a slow agent thinks about each request.
const THINKS: Duration = Duration::from_secs(5);

/// How an agent behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// As it should.
    Good,
    /// It answers each request late.
    Slow,
    /// It answers nothing, for as long as it lives.
    Stalled,
}

/// What one agent is.
pub struct Simulated {
    /// Its number in the fleet.
    pub number: usize,
    /// The gateways, and how it speaks to each.
    pub targets: Vec<Target>,
    /// The gateway that it dials first.
    pub first: usize,
    /// Its token.
    pub token: Token,
    /// How it behaves.
    pub manner: Behaviour,
    /// What it reports.
    pub reports: Reports,
}

impl Simulated {
    /// A process keeps its instance for as long as it lives, through each of its connections.
    fn instance(&self) -> InstanceId {
        InstanceId(derived_uuid(&[b"simulated", &self.number.to_be_bytes()]))
    }

    /// When it reports for the first time, so that of a hundred agents no two do at the same moment.
    fn first_report(&self, traffic: &watch::Receiver<Option<Duration>>) -> Option<Instant> {
        let place = u32::try_from(self.number % 100).unwrap_or_default();
        let interval = *traffic.borrow();
        interval.map(|interval| Instant::now() + interval * place / 100)
    }

    /// Dials and serves, again and again; after each failure at the next gateway, as a load balancer would have it.
    pub async fn live(self: Arc<Self>, fleet: Arc<Shared>) {
        let mut reconnect = Reconnect::new();
        let mut turn = self.first;
        loop {
            let begun = Instant::now();
            fleet.dialled(self.number);
            let hello = Hello {
                desired: fleet.has(self.number),
                ..Hello::control(self.instance(), 0, env!("CARGO_PKG_VERSION"))
            };
            #[expect(
                clippy::indexing_slicing,
                reason = "the remainder is within the list, which is not empty"
            )]
            let target = &self.targets[turn % self.targets.len()];
            let (ended, lived) = match dial(&fleet.world, target, &self.token, &hello).await {
                Ok(link) => {
                    let service =
                        service_fn(|request| answer(Arc::clone(&self), Arc::clone(&fleet), request));
                    let end = link.serve(service, std::future::pending()).await;
                    fleet.lost(self.number);
                    (Ended::from(&end), begun.elapsed())
                }
                Err(error) => {
                    fleet.failed(&error);
                    (Ended::from(&error), Duration::ZERO)
                }
            };
            turn += 1;
            tokio::time::sleep(reconnect.wait(ended, lived, fleet.world.random.as_ref())).await;
        }
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

fn packed(status: StatusCode, body: Vec<u8>) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = status;
    response
}

async fn answer(
    agent: Arc<Simulated>,
    fleet: Arc<Shared>,
    request: Request<GuardedBody>,
) -> Result<Answer, Infallible> {
    let (parts, body) = request.into_parts();
    if (parts.method, parts.uri.path()) == (Method::GET, path::EVENTS) {
        let (sender, body) = event_body(CAPACITY);
        let after = parts.uri.query().and_then(|query| query.strip_prefix("after=")?.parse().ok());
        agent.reports.resumes(after.unwrap_or_default());
        fleet.ready(agent.number);
        tokio::spawn(speak(agent, fleet, sender));
        return Ok(Response::new(body.boxed()));
    }
    if parts.uri.path() == path::OBJECT_CHANGES {
        // It sees none.
        return Ok(packed(StatusCode::NOT_FOUND, Vec::new()));
    }
    match agent.manner {
        Behaviour::Good => {}
        Behaviour::Slow => tokio::time::sleep(THINKS).await,
        Behaviour::Stalled => std::future::pending().await,
    }
    let Ok(body) = Limited::new(body, MAXIMUM_DESIRED_BYTES).collect().await else {
        return Ok(packed(StatusCode::BAD_REQUEST, Vec::new()));
    };
    let body = body.to_bytes();
    if parts.uri.path() == path::ACKNOWLEDGED {
        let durable = events::decode(&body).map(|up_to| agent.reports.durable(up_to));
        fleet.durable(durable.unwrap_or_default());
    }
    let desired = match parts.uri.path() {
        path::DESIRED => Some(body),
        path::OBJECTS => events::decode::<Objects>(&body).ok().and_then(|objects| objects.desired),
        _ => None,
    };
    let Some(desired) = desired else { return Ok(packed(StatusCode::NO_CONTENT, Vec::new())) };
    match events::decode::<DesiredState>(&desired) {
        Ok(state) => {
            agent.reports.told(agent.instance(), &state);
            fleet.told(agent.number, &state, Sha256::of(&desired));
            let nothing_is_missing = events::encode(&DesiredReply::default()).unwrap_or_default();
            Ok(packed(StatusCode::OK, nothing_is_missing))
        }
        Err(_) => Ok(packed(StatusCode::BAD_REQUEST, Vec::new())),
    }
}

/// Holds the Lease, and reports as often as the fleet is to; not all of it at the same moment.
async fn speak(agent: Arc<Simulated>, fleet: Arc<Shared>, sender: EventSender) {
    let mut traffic = fleet.traffic();
    let mut frame = EventFrame::Lease { held: true };
    let mut due = agent.first_report(&traffic);
    while sender.send(&frame).await.is_ok() {
        frame = EventFrame::Idle;
        let wait = due.map_or(IDLE, |due| due.saturating_duration_since(Instant::now()).min(IDLE));
        tokio::select! {
            () = sender.ended() => return,
            Ok(()) = traffic.changed() => due = agent.first_report(&traffic),
            () = tokio::time::sleep(wait) => {}
        }
        let interval = *traffic.borrow();
        if let (Some(at), Some(interval)) = (due.filter(|due| *due <= Instant::now()), interval) {
            due = Some(at + interval);
            frame = agent.reports.next(&fleet.world).map_or(EventFrame::Idle, EventFrame::Batch);
        }
    }
}
