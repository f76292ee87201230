//! Tickets for WebSockets, each good for one, soon. A ticket names the gateway that issued it, which alone knows it: whoever is shown it asks
//! there, and it is known no more. So it is good for once, on whichever gateway; and for nothing when that gateway is gone.
//!
//! Only whom authz knows for an agent gets one for that agent, and only so many: nobody else fills this gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bus::{BusError, RequestError, Serving};
use bytes::Bytes;
use events::requests::gateway::{RedeemTicket, RedeemedTicket};
use events::subject::Subject;
use events::{Actor, AgentId, OrganizationId, Refusal, RefusalKind, Request as _, Sha256};
use http::header::{HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;
use world::World;

use super::super::AnswerBody;
use super::super::admission;
use super::super::error::{Hop, ProxyError};
use super::super::headers::TICKET_PROTOCOL;
use super::super::route::route;
use super::origins::Origin;
use crate::gateway::Gateway;

/// How long a ticket lives.
const LIFE: Duration = Duration::from_secs(30);
/// Tickets that nobody has used yet.
const MAXIMUM_TICKETS: usize = 10_000;
/// Of those, one user's, whatever tokens they show.
const MAXIMUM_PER_USER: usize = 100;
/// Longest wish for one, in bytes: a path and its query.
const MAXIMUM_REQUEST: usize = 16 * 1024;
const SECRET_BYTES: usize = 32;

/// Those that this gateway issued and that nobody has used.
pub(crate) struct Tickets {
    replica: Uuid,
    open: Mutex<BTreeMap<Sha256, Ticket>>,
}

struct Ticket {
    until: Duration,
    holder: Actor,
    what: RedeemedTicket,
}

/// Body of `POST /tickets`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TicketRequest {
    /// Path and query of the WebSocket, which name an agent.
    target: String,
}

/// Too many are open.
#[derive(Debug, PartialEq, Eq)]
struct Full {
    /// When the next of them ends at the latest.
    next_ends_in: Duration,
}

impl Tickets {
    pub(crate) fn new(world: &World) -> Self {
        Self { replica: world.new_uuid(), open: Mutex::default() }
    }

    /// Takes a new one in, unless too many are open.
    fn issue(&self, world: &World, holder: Actor, what: RedeemedTicket) -> Result<String, Full> {
        let mut secret = [0; SECRET_BYTES];
        world.random.fill(&mut secret);
        let now = world.clock.monotonic();
        let mut open = self.open.lock();
        open.retain(|_, ticket| ticket.until > now);
        check_capacity(&open, MAXIMUM_TICKETS, now, |_| true)?;
        check_capacity(&open, MAXIMUM_PER_USER, now, |ticket| ticket.holder == holder)?;
        open.insert(Sha256::of(&secret), Ticket { until: now.saturating_add(LIFE), holder, what });
        Ok(format!("{}.{}", self.replica.simple(), URL_SAFE_NO_PAD.encode(secret)))
    }

    /// Takes one out: it is good for no second use.
    fn redeem(&self, world: &World, secret: Sha256) -> Result<RedeemedTicket, Refusal> {
        let ticket = self.open.lock().remove(&secret);
        let ticket = ticket.filter(|ticket| ticket.until > world.clock.monotonic());
        ticket.map(|ticket| ticket.what).ok_or_else(|| Refusal::not_found("the ticket"))
    }
}

/// Whether there is room for one more among some of the tickets.
fn check_capacity(
    open: &BTreeMap<Sha256, Ticket>,
    most: usize,
    now: Duration,
    is_one: impl Fn(&Ticket) -> bool,
) -> Result<(), Full> {
    if open.len() < most {
        return Ok(());
    }
    let ends = || open.values().filter(|ticket| is_one(ticket)).map(|ticket| ticket.until);
    match ends().min() {
        Some(first) if ends().count() >= most => Err(Full { next_ends_in: first.saturating_sub(now) }),
        _ => Ok(()),
    }
}

/// Answers other gateways that were shown a ticket of this one's.
pub(crate) async fn serve(gateway: &Arc<Gateway>) -> Result<Serving, BusError> {
    let subject = Subject::replica_request(RedeemTicket::NAME, gateway.tickets.replica);
    let answering = Arc::clone(gateway);
    bus::answer_under::<RedeemTicket, _>(&*gateway.bus, &subject, move |context, request| {
        let gateway = Arc::clone(&answering);
        Box::pin(async move {
            match context.actor {
                Actor::Service(_) => gateway.tickets.redeem(&gateway.world, request.secret),
                _ => Err(Refusal::not_found("the ticket")),
            }
        })
    })
    .await
}

/// Issues one to a page.
pub(super) async fn issue(
    gateway: &Gateway,
    origin: &Origin,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, ProxyError> {
    let token = super::token_of(gateway, &request, false).await?;
    let bad = |message: String| ProxyError::new(StatusCode::BAD_REQUEST, Hop::Gateway, message);
    let body = Limited::new(request.into_body(), MAXIMUM_REQUEST).collect().await;
    let body = body.map_err(|error| bad(format!("the request for a ticket cannot be read: {error}")))?;
    let ticket_request: TicketRequest = serde_json::from_slice(&body.to_bytes()).map_err(|error| {
        bad(format!(
            "a request for a ticket is {{\"target\": \"<path and query of the WebSocket>\"}}: {error}"
        ))
    })?;
    let (target, agent) = parse_target(&ticket_request.target).map_err(bad)?;
    let held = gateway.passes.of(gateway, (token, agent)).await.map_err(ProxyError::from_refusal)?;
    let _slot = admission::take_slot(gateway, &held)?;
    let what = RedeemedTicket { token, target: target.to_string(), origin: origin.to_string() };
    let issued = gateway.tickets.issue(&gateway.world, held.pass.holder.clone(), what);
    let ticket = issued.map_err(|Full { next_ends_in }| {
        let message =
            "too many tickets are open: use the issued tickets, or wait until they expire; then retry";
        let seconds = u16::try_from(next_ends_in.as_secs()).unwrap_or(u16::MAX).saturating_add(1);
        ProxyError::new(StatusCode::TOO_MANY_REQUESTS, Hop::Gateway, message).retry_after(seconds)
    })?;
    let protocol = format!("{TICKET_PROTOCOL}{ticket}");
    let body = json!({"protocol": protocol, "expires_in_seconds": LIFE.as_secs()}).to_string();
    Ok(super::json_answer(StatusCode::CREATED, body))
}

/// Where a ticket is to lead. That is below a path that names the agent, since pages use the paths, also where agents have hosts.
fn parse_target(target: &str) -> Result<(PathAndQuery, AgentId), String> {
    let target: PathAndQuery =
        target.parse().map_err(|error| format!("{target:?} is not a path and query: {error}"))?;
    let request = Request::builder().uri(target.clone()).body(()).map_err(|error| error.to_string())?;
    let agent = route(&request, None).map_err(|error| error.to_string())?.agent;
    Ok((target, agent))
}

/// The ticket among the protocols of a WebSocket.
pub(super) fn offered(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut protocols = values.flat_map(|value| value.split(',')).map(str::trim);
    protocols.find_map(|protocol| protocol.strip_prefix(TICKET_PROTOCOL))
}

/// Uses a ticket: gives the hash of the token that it was issued for.
pub(super) async fn redeem<B>(
    gateway: &Gateway,
    ticket: &str,
    origin: &Origin,
    request: &Request<B>,
) -> Result<Sha256, ProxyError> {
    let unknown = || {
        let message = "unknown ticket: it was used, is older than 30 seconds, or the gateway that issued it is gone; request another one";
        ProxyError::new(StatusCode::UNAUTHORIZED, Hop::Gateway, message)
    };
    let (replica, secret) = parsed(ticket).ok_or_else(unknown)?;
    let redeemed = if replica == gateway.tickets.replica {
        gateway.tickets.redeem(&gateway.world, secret)
    } else {
        ask(gateway, replica, secret).await
    };
    let what = redeemed.map_err(|refusal| match refusal.kind {
        RefusalKind::Unavailable | RefusalKind::Internal => {
            tracing::warn!(%refusal, "the gateway that issued a ticket does not answer");
            let message = "the gateway that issued the ticket does not answer; retry with another ticket";
            ProxyError::new(StatusCode::SERVICE_UNAVAILABLE, Hop::Replica, message).retry_after(1)
        }
        _ => unknown(),
    })?;
    let is_there = matches_target(gateway, &what.target, request);
    if !is_there || what.origin != origin.to_string() {
        let message = "the ticket is for another address or page; request one for this address";
        return Err(ProxyError::new(StatusCode::FORBIDDEN, Hop::Gateway, message));
    }
    Ok(what.token)
}

/// Whether a request goes where a ticket leads: the path alone does not say so, as at a host of its own another agent has the same paths.
fn matches_target<B>(gateway: &Gateway, target: &str, request: &Request<B>) -> bool {
    let asked = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let meant = route(request, gateway.args.clusters_domain.as_deref());
    asked == target
        && parse_target(target).ok().zip(meant.ok()).is_some_and(|((_, agent), meant)| agent == meant.agent)
}

/// Asks another gateway for a ticket of its own.
async fn ask(gateway: &Gateway, replica: Uuid, secret: Sha256) -> Result<RedeemedTicket, Refusal> {
    let subject = Subject::replica_request(RedeemTicket::NAME, replica);
    let context = gateway.context(OrganizationId::SYSTEM);
    let asked = events::encode(&RedeemTicket { secret }).map_err(|error| internal(&error))?;
    decode_reply(gateway.bus.request(&subject, &context, Bytes::from(asked)).await)
}

/// What another gateway said. Where nobody answers it is gone, and its tickets with it.
fn decode_reply(reply: Result<Bytes, RequestError>) -> Result<RedeemedTicket, Refusal> {
    let reply = reply.map_err(|error| match error {
        RequestError::NoResponder { .. } => Refusal::not_found("the ticket"),
        _ => Refusal::new(RefusalKind::Unavailable, error.to_string()),
    })?;
    events::decode::<Result<RedeemedTicket, Refusal>>(&reply).map_err(|error| internal(&error))?
}

fn internal(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Internal, error.to_string())
}

fn parsed(ticket: &str) -> Option<(Uuid, Sha256)> {
    let (replica, secret) = ticket.split_once('.')?;
    let secret = URL_SAFE_NO_PAD.decode(secret).ok().filter(|secret| secret.len() == SECRET_BYTES)?;
    Some((Uuid::try_parse(replica).ok()?, Sha256::of(&secret)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use events::UserId;
    use world::Clock;

    use super::*;

    struct Still(AtomicU64);

    #[async_trait]
    impl Clock for Still {
        fn now_millis(&self) -> i64 {
            0
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::SeqCst))
        }

        async fn sleep(&self, _: Duration) {}
    }

    #[tokio::test]
    async fn a_ticket_is_good_for_half_a_minute_and_once() {
        let clock = Arc::new(Still(AtomicU64::new(100)));
        let world = World { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..World::real() };
        let tickets = Tickets::new(&world);
        let what = RedeemedTicket {
            token: Sha256::of(b"token"),
            target: "/x".to_owned(),
            origin: "https://console.example".to_owned(),
        };
        let issue = |number| tickets.issue(&world, user(number), what.clone());
        let issued = || parsed(&issue(0).unwrap()).filter(|(replica, _)| *replica == tickets.replica);
        let (used, late) = (issued().unwrap().1, issued().unwrap().1);
        clock.0.store(129, Ordering::SeqCst);
        assert_eq!(tickets.redeem(&world, used), Ok(what.clone()));
        assert!(tickets.redeem(&world, used).is_err(), "once");
        clock.0.store(130, Ordering::SeqCst);
        assert!(tickets.redeem(&world, late).is_err(), "late");
        for number in 0..MAXIMUM_TICKETS {
            let until = Duration::from_secs(if number < MAXIMUM_PER_USER { 160 } else { 170 });
            let ticket =
                Ticket { until, holder: user((number / MAXIMUM_PER_USER) as u128), what: what.clone() };
            tickets.open.lock().insert(Sha256::of(&number.to_be_bytes()), ticket);
        }
        clock.0.store(140, Ordering::SeqCst);
        assert_eq!(issue(u128::MAX), Err(Full { next_ends_in: Duration::from_secs(20) }), "too many");
        clock.0.store(160, Ordering::SeqCst);
        assert!(issue(u128::MAX).is_ok(), "old ones go");
        let of_one = Err(Full { next_ends_in: Duration::from_secs(10) });
        assert_eq!(issue(1), of_one, "too many of one user's");
        assert!(issue(0).is_ok(), "theirs were old");
    }

    fn user(number: u128) -> Actor {
        Actor::User(UserId(Uuid::from_u128(number)))
    }

    #[test]
    fn a_ticket_leads_below_a_path_that_names_an_agent() {
        const ID: &str = "01a20945-a5cc-7508-b575-0fdafa0c3680";
        let of = |target: &str| parse_target(&target.replace("ID", ID)).map(|(_, agent)| agent.to_string());
        for good in ["/agents/ID", "/agents/ID/api/v1/pods?watch=1"] {
            assert_eq!(of(good).as_deref(), Ok(ID), "{good}");
        }
        for bad in [
            "",
            "/",
            "x",
            "*",
            "/api/v1/pods",
            "/agents/x/api",
            "//kasbah.example/agents/ID/api",
            "/agents/ID/\n",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gateway_that_is_gone_has_no_tickets_and_one_that_cannot_be_asked_may() {
        let kind = |error| decode_reply(Err(error)).unwrap_err().kind;
        let (subject, detail) = (String::new(), String::new());
        assert_eq!(kind(RequestError::Away { detail }), RefusalKind::Unavailable);
        let late = RequestError::Deadline { subject: subject.clone(), deadline: LIFE };
        assert_eq!(kind(late), RefusalKind::Unavailable);
        assert_eq!(kind(RequestError::NoResponder { subject }), RefusalKind::NotFound);
        assert_eq!(decode_reply(Ok(Bytes::new())).unwrap_err().kind, RefusalKind::Internal);
    }
}
