//! The agent's HTTP over the shipped end of the link.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use events::Sha256;
use events::bundle::BundlePage;
use events::desired::{DesiredReply, DesiredState};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::Service;
use tunnel::agent::{DialError, LinkEnd, Target, Transport, dial};
use tunnel::body::{EventSender, SendError, event_body};
use tunnel::handshake::{Hello, Token};
use tunnel::wire::{Acknowledged, Again, EventFrame, Objects, StaleRevision, path};

use super::{Instance, PORT};

const IDLE: Duration = Duration::from_secs(20);
const FRAMES: usize = 16;

type AgentBody = UnsyncBoxBody<Bytes, Infallible>;

impl Instance {
    /// Dials and serves, again and again.
    pub(super) async fn link(&self) {
        let target = Target { host: "gateways".to_owned(), port: PORT, transport: Transport::PlainText };
        loop {
            let token = Token::new(&self.secret.lock().clone());
            let hello = Hello::control(self.id, 0, "0.1.0");
            let pause = match dial(&self.world, &target, &token, &hello).await {
                Ok(link) => match link.serve(Door(self.clone()), std::future::pending()).await {
                    LinkEnd::Farewell(farewell) if farewell.again == Again::AtOnce => 10,
                    _ => 500,
                },
                Err(DialError::Refused { .. }) => 1_000,
                Err(_) => 500,
            };
            let millis = pause + self.world.random.below(pause);
            self.world.clock.sleep(Duration::from_millis(millis)).await;
        }
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Response<AgentBody> {
        match (method, path) {
            (&Method::PUT, path::OBJECTS) => match events::decode::<Objects>(body) {
                Ok(objects) => {
                    let mut kept = self.state.objects.lock();
                    kept.extend(objects.contents.into_iter().map(|content| (Sha256::of(&content), content)));
                    said(StatusCode::NO_CONTENT, Vec::new())
                }
                Err(_) => said(StatusCode::BAD_REQUEST, Vec::new()),
            },
            (&Method::PUT, path::DESIRED) => match events::decode::<DesiredState>(body) {
                Ok(desired) => self.take(desired),
                Err(_) => said(StatusCode::BAD_REQUEST, Vec::new()),
            },
            (&Method::PUT, path::ACKNOWLEDGED) => match events::decode::<Acknowledged>(body) {
                Ok(durable) => {
                    self.state.outbox.acknowledged(durable);
                    said(StatusCode::NO_CONTENT, Vec::new())
                }
                Err(_) => said(StatusCode::BAD_REQUEST, Vec::new()),
            },
            _ => said(StatusCode::NOT_FOUND, Vec::new()),
        }
    }

    fn take(&self, desired: DesiredState) -> Response<AgentBody> {
        let has = self.state.desired.borrow().as_ref().map_or(0, |known| known.revision);
        if desired.revision < has {
            let stale = events::encode(&StaleRevision { revision: has });
            return said(StatusCode::CONFLICT, stale.unwrap_or_default());
        }
        let missing = self.missing(&desired);
        if missing.is_empty() {
            self.state.desired.send_replace(Some(Arc::new(desired)));
        }
        said(StatusCode::OK, events::encode(&DesiredReply { missing }).unwrap_or_default())
    }

    fn missing(&self, desired: &DesiredState) -> Vec<Sha256> {
        let kept = self.state.objects.lock();
        let mut missing = Vec::new();
        for page in desired.sources.iter().flat_map(|source| source.pages.iter().flatten()) {
            match kept.get(page).map(|content| events::decode::<BundlePage>(content)) {
                Some(Ok(page)) => {
                    let digests = page.entries.iter().map(|entry| entry.digest);
                    missing.extend(digests.filter(|digest| !kept.contains_key(digest)));
                }
                _ => missing.push(*page),
            }
        }
        missing
    }

    async fn send_events(&self, sender: EventSender, after: Acknowledged) -> Result<(), SendError> {
        let (mut grown, mut holding) = (self.state.outbox.grown(), self.state.holding.subscribe());
        let mut sent = after;
        let held = *holding.borrow_and_update();
        sender.send(&EventFrame::Lease { held }).await?;
        loop {
            grown.mark_unchanged();
            while let Some(batch) = self.state.outbox.behind(sent) {
                sent = Acknowledged { epoch: batch.epoch, sequence: batch.last() };
                sender.send(&EventFrame::Batch(batch)).await?;
            }
            tokio::select! {
                biased;
                () = sender.ended() => return Ok(()),
                _ = holding.changed() => {
                    let held = *holding.borrow_and_update();
                    sender.send(&EventFrame::Lease { held }).await?;
                }
                _ = grown.changed() => {}
                () = self.world.clock.sleep(IDLE) => { sender.send(&EventFrame::Idle).await?; }
            }
        }
    }
}

fn said(status: StatusCode, body: Vec<u8>) -> Response<AgentBody> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// What the gateway asks.
struct Door(Instance);

impl Service<Request<Incoming>> for Door {
    type Response = Response<AgentBody>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let instance = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            if parts.method == Method::GET && parts.uri.path() == path::EVENTS {
                let after = parts.uri.query().and_then(|query| query.strip_prefix("after=")?.parse().ok());
                let (sender, body) = event_body(FRAMES);
                let spawner = Arc::clone(&instance.world.spawner);
                let sending = async move {
                    // The gateway asks again.
                    let _ended = instance.send_events(sender, after.unwrap_or_default()).await;
                };
                spawner.spawn("agent-events", Box::pin(sending));
                return Ok(Response::new(body.boxed_unsync()));
            }
            let body = body.collect().await?.to_bytes();
            Ok(instance.answer(&parts.method, parts.uri.path(), &body))
        })
    }
}
