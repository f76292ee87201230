//! The API server as requests of people reach it: HTTP on the network, through their agent.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use agent::kubernetes::{AnswerBody, ChannelError};
use bytes::Bytes;
use events::AgentId;
use futures::stream;
use http::{HeaderMap, Request, Response, Version, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use tokio::sync::watch;
use tunnel::body::Held;
use world::network::Connection;
use world::{World, WorldTasks};

use super::{ApiServer, Fault};
use crate::access::{Access, SeenAs};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What an agent asks to see which protocol is spoken.
const VERSION: &str = "/version";
/// A log without an end: how much of it comes at once.
const PIECE: &[u8] = &[b'x'; 16 * 1024];

/// Where requests come in.
#[derive(Clone)]
pub(crate) struct Front {
    world: World,
    server: ApiServer,
    access: Access,
    /// Whose cluster it is.
    agent: AgentId,
    closing: Arc<watch::Sender<u64>>,
}

/// A request that came, until this is dropped.
struct Open(Access, usize);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.over(self.1);
    }
}

impl Front {
    pub(crate) fn new(world: World, server: ApiServer, access: Access, agent: AgentId) -> Self {
        Self { world, server, access, agent, closing: Arc::default() }
    }

    /// Listens, for as long as its process lives.
    pub(crate) fn listen(&self, port: u16) {
        let front = self.clone();
        let serving = async move {
            let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
            let Ok(listener) = front.world.network.listen(address).await else { return };
            while let Ok((connection, _)) = listener.accept().await {
                let serving = front.clone().serve(connection);
                front.world.spawner.spawn("API server's connection", Box::pin(serving));
            }
        };
        self.world.spawner.spawn("API server", Box::pin(serving));
    }

    /// Closes its connections in order, as one that stops does; others are taken at once.
    pub(crate) fn leave(&self) {
        let mut state = self.server.state.lock();
        for _ in 0..self.closing.receiver_count() {
            state.fired(Fault::ApiServerLeaves);
        }
        drop(state);
        self.closing.send_modify(|times| *times += 1);
    }

    async fn serve(self, connection: Box<dyn Connection>) {
        let mut builder = Builder::new(WorldTasks::new(&self.world, "API server"));
        // The date would be the machine's.
        builder.http1().auto_date_header(false);
        builder.http2().auto_date_header(false).max_concurrent_streams(100);
        let mut closing = self.closing.subscribe();
        let answering = service_fn(move |request| self.clone().answer(request));
        let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(connection), answering));
        tokio::select! {
            biased;
            _ended = &mut serving => return,
            _closing = closing.changed() => {}
        }
        drop(closing);
        serving.as_mut().graceful_shutdown();
        let _ended = serving.await;
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Held<AnswerBody, Option<Open>>>, BoxError> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        if parts.uri.path() == VERSION {
            return Ok(Response::new(Held::new(nothing(), None)));
        }
        let client = parts.headers.get(header::USER_AGENT).and_then(|client| client.to_str().ok());
        let seen_as = SeenAs::of(&parts.headers);
        let number = self.access.arrive(self.agent, client.unwrap_or_default(), seen_as);
        let open = Open(self.access.clone(), number);
        without_impersonation(&mut parts.headers);
        let mut answer = if parts.uri.path().ends_with("/log") {
            Response::new(endless())
        } else {
            self.server.ask(None, Request::from_parts(parts, body)).await?
        };
        *answer.version_mut() = Version::default();
        Ok(answer.map(|body| Held::new(body, Some(open))))
    }
}

fn without_impersonation(headers: &mut HeaderMap) {
    for name in ["impersonate-user", "impersonate-uid", "impersonate-group"] {
        headers.remove(name);
    }
}

fn nothing() -> AnswerBody {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

fn endless() -> AnswerBody {
    let pieces = stream::repeat_with(|| Ok::<_, ChannelError>(Frame::data(Bytes::from_static(PIECE))));
    StreamBody::new(pieces).boxed_unsync()
}
