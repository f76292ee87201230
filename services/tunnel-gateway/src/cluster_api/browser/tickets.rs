//! Tickets for WebSockets, each good for one, soon. A ticket names the gateway that issued it, which alone knows it: whoever is shown it asks
//! there, and it is known no more. So it is good for once, on whichever gateway; and for nothing when that gateway is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bus::{BusError, Serving};
use events::requests::gateway::{RedeemTicket, RedeemedTicket};
use events::subject::Subject;
use events::{Actor, OrganizationId, Refusal, RefusalKind, Request as _, Sha256};
use http::header::{HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;
use world::World;

use super::super::AnswerBody;
use super::super::headers::TICKET_PROTOCOL;
use super::super::trouble::{Hop, Trouble};
use super::origins::Origin;
use crate::gateway::Gateway;

/// How long a ticket lives.
const LIFE: Duration = Duration::from_secs(30);
/// Tickets that nobody has used yet.
const MOST: usize = 10_000;
/// Longest wish for one, in bytes: a path and its query.
const MAXIMUM_WISH: usize = 64 * 1024;
const SECRET_BYTES: usize = 32;

/// Those that this gateway issued and that nobody has used.
pub(crate) struct Tickets {
    replica: Uuid,
    open: Mutex<BTreeMap<Sha256, Ticket>>,
}

struct Ticket {
    until: Duration,
    what: RedeemedTicket,
}

/// Body of `POST /tickets`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    /// Path and query of the WebSocket.
    target: String,
}

impl Tickets {
    pub(crate) fn new(world: &World) -> Self {
        Self { replica: world.new_uuid(), open: Mutex::default() }
    }

    /// Takes a new one in, unless too many are open.
    fn issue(&self, world: &World, what: RedeemedTicket) -> Option<String> {
        let mut secret = [0; SECRET_BYTES];
        world.random.fill(&mut secret);
        let now = world.clock.monotonic();
        let mut open = self.open.lock();
        open.retain(|_, ticket| ticket.until > now);
        if open.len() >= MOST {
            return None;
        }
        open.insert(Sha256::of(&secret), Ticket { until: now.saturating_add(LIFE), what });
        Some(format!("{}.{}", self.replica.simple(), URL_SAFE_NO_PAD.encode(secret)))
    }

    /// Takes one out: it is good for no second use.
    fn redeem(&self, world: &World, secret: Sha256) -> Result<RedeemedTicket, Refusal> {
        let ticket = self.open.lock().remove(&secret);
        let ticket = ticket.filter(|ticket| ticket.until > world.clock.monotonic());
        ticket.map(|ticket| ticket.what).ok_or_else(|| Refusal::not_found("the ticket"))
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
) -> Result<Response<AnswerBody>, Trouble> {
    let token = super::token_of(gateway, &request, false).await?;
    let bad = |message: String| Trouble::new(StatusCode::BAD_REQUEST, Hop::Gateway, message);
    let body = Limited::new(request.into_body(), MAXIMUM_WISH).collect().await;
    let body = body.map_err(|error| bad(format!("the wish for a ticket cannot be read: {error}")))?;
    let wish: Wish = serde_json::from_slice(&body.to_bytes()).map_err(|error| {
        bad(format!("a wish for a ticket is {{\"target\": \"<path and query of the WebSocket>\"}}: {error}"))
    })?;
    let what = RedeemedTicket { token, target: wish.target, origin: origin.to_string() };
    let ticket = gateway.tickets.issue(&gateway.world, what).ok_or_else(|| {
        let message = "too many tickets are open; retry";
        Trouble::new(StatusCode::TOO_MANY_REQUESTS, Hop::Gateway, message).retry_after(1)
    })?;
    let protocol = format!("{TICKET_PROTOCOL}{ticket}");
    let body = json!({"protocol": protocol, "expires_in_seconds": LIFE.as_secs()}).to_string();
    Ok(super::json_answer(StatusCode::CREATED, body))
}

/// The ticket among the protocols of a WebSocket.
pub(super) fn shown(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut protocols = values.flat_map(|value| value.split(',')).map(str::trim);
    protocols.find_map(|protocol| protocol.strip_prefix(TICKET_PROTOCOL))
}

/// Uses a ticket: gives the hash of the token that it was issued for.
pub(super) async fn redeem(
    gateway: &Gateway,
    ticket: &str,
    origin: &Origin,
    uri: &Uri,
) -> Result<Sha256, Trouble> {
    let unknown = || {
        let message = "the ticket is not known: it was used, is older than 30 seconds, or the gateway that issued it is gone; ask for another one";
        Trouble::new(StatusCode::UNAUTHORIZED, Hop::Gateway, message)
    };
    let (replica, secret) = parsed(ticket).ok_or_else(unknown)?;
    let redeemed = if replica == gateway.tickets.replica {
        gateway.tickets.redeem(&gateway.world, secret)
    } else {
        let subject = Subject::replica_request(RedeemTicket::NAME, replica);
        let context = gateway.context(OrganizationId::SYSTEM);
        bus::ask_under(&*gateway.bus, &subject, &context, &RedeemTicket { secret }).await
    };
    let what = redeemed.map_err(|refusal| match refusal.kind {
        RefusalKind::Internal => Trouble::refused(refusal),
        _ => unknown(),
    })?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    if what.target != target || what.origin != origin.to_string() {
        let message = "the ticket is for another address or page; ask for one for this";
        return Err(Trouble::new(StatusCode::FORBIDDEN, Hop::Gateway, message));
    }
    Ok(what.token)
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
        let issue = || {
            let ticket = tickets.issue(&world, what.clone()).unwrap();
            parsed(&ticket).filter(|(replica, _)| *replica == tickets.replica).unwrap().1
        };
        let (used, late) = (issue(), issue());
        clock.0.store(129, Ordering::SeqCst);
        assert_eq!(tickets.redeem(&world, used), Ok(what.clone()));
        assert!(tickets.redeem(&world, used).is_err(), "once");
        clock.0.store(130, Ordering::SeqCst);
        assert!(tickets.redeem(&world, late).is_err(), "late");
        for _ in 0..MOST {
            issue();
        }
        assert!(tickets.issue(&world, what.clone()).is_none(), "too many");
        clock.0.store(200, Ordering::SeqCst);
        assert!(tickets.issue(&world, what).is_some(), "old ones go");
    }
}
