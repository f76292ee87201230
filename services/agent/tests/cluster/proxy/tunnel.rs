//! An agent's service at the other end of a connection with HTTP/2, and the passes that it asks for.

use std::sync::Arc;

use ::tunnel::settings::MAXIMUM_HEADER_LIST_BYTES;
use ::tunnel::wire::cluster::{PASS, pass_to_header};
use agent::Agent;
use agent::cluster_api::RootKey;
use agent::kubernetes::{ApiServer, Connections, KubeOptions};
use agent::link::AgentService;
use agent::metrics::Counts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use events::pass::{AccessAs, Impersonated, Narrowing, Pass, PassGrant, Purpose, SignedPass};
use events::{Actor, AgentId, InstanceId, OrganizationId, Timestamp};
use http::request::Builder;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::Value;
use testkit::{Cluster, Folder};
use tokio::sync::mpsc;
use world::World;

use crate::kubeconfig;
use crate::rig::{cluster, uuid};

pub type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// An agent's service at the other end of a connection with HTTP/2, as a gateway has it.
pub struct Tunnel {
    pub agent: AgentId,
    pub gateway: SendRequest<Body>,
    pub api_server: Arc<ApiServer>,
    pub counts: Counts,
    pub world: World,
}

pub fn root() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[3; 32]).unwrap()
}

pub fn pinned() -> RootKey {
    STANDARD.encode(root().public_key().as_ref()).parse().unwrap()
}

pub async fn through(cluster: &Cluster) -> Tunnel {
    Tunnel::open(World::real(), cluster.kubeconfig(), Some(pinned())).await
}

/// Before something at an address that is no API server.
pub async fn before(world: World, address: &str) -> Tunnel {
    let folder = Folder::temporary().unwrap();
    let path = folder.path().join("kubeconfig");
    kubeconfig::at(&cluster().await, address, &path);
    Tunnel::open(world, &path, Some(pinned())).await
}

impl Tunnel {
    pub async fn open(world: World, kubeconfig: &std::path::Path, root: Option<RootKey>) -> Self {
        let options = KubeOptions { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        let connections = Connections::open(&world, &options).await.unwrap();
        let api_server = connections.api_server().unwrap();
        let (counts, instance) = (Counts::default(), InstanceId(uuid()));
        let agent = Agent::new(world.clone(), connections, None, counts.clone(), instance).pinning(root);
        let service: AgentService = agent.service();
        let agent = AgentId(uuid());
        service.is_agent(agent);
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let answer = service_fn(move |request: Request<Incoming>| service.clone().answer(request));
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size((1 << 31) - 1)
            .max_concurrent_streams(1000)
            .serve_connection(TokioIo::new(theirs), answer);
        spawn(&world, async { drop(serving.await) });
        let (gateway, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size((1 << 31) - 1)
            .max_header_list_size(MAXIMUM_HEADER_LIST_BYTES)
            .handshake(TokioIo::new(ours))
            .await
            .unwrap();
        spawn(&world, async { drop(connection.await) });
        Self { agent, gateway, api_server, counts, world }
    }

    pub fn pass(&self, access_as: AccessAs, narrowing: Narrowing) -> Pass {
        let now = Timestamp(self.world.clock.now_millis());
        Pass {
            organization: OrganizationId(uuid()),
            agent: self.agent,
            holder: Actor::service("test"),
            access_as,
            grants: vec![PassGrant { narrowing, groups: Vec::new(), place: "agents/a.yaml:3".to_owned() }],
            audit: events::audit::AuditMode::default(),
            record_sessions: events::recording::RecordSessions::default(),
            issued_at: now,
            expires_at: now.plus_millis(60_000),
        }
    }

    pub async fn send(&self, request: Builder, pass: &Pass, body: Body) -> Response<Incoming> {
        let pass = events::encode(pass).unwrap();
        let signature = root().sign(&SignedPass::signed_text(Purpose::Requests, &pass)).as_ref().to_vec();
        let request = request.header(PASS, pass_to_header(&SignedPass { pass, signature }).unwrap());
        self.gateway.clone().send_request(request.body(body).unwrap()).await.unwrap()
    }

    /// As the user, with everything that the pass allows.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        user: &str,
        body: &Value,
    ) -> (StatusCode, HeaderMap, Value) {
        let pass = self.pass(as_user(user), Narrowing::default());
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(format!("/k8s{path}"))
            .header("content-type", "application/json");
        read(self.send(request, &pass, whole(body)).await).await
    }

    /// As the agent itself.
    pub async fn get(&self, path: &str) -> Response<Incoming> {
        let pass = self.pass(AccessAs::Agent, Narrowing::default());
        self.send(Request::get(format!("/k8s{path}")), &pass, whole("")).await
    }
}

pub fn spawn(world: &World, task: impl Future<Output = ()> + Send + 'static) {
    world.spawner.spawn("test", Box::pin(task));
}

pub fn as_user(name: &str) -> AccessAs {
    AccessAs::Impersonated(Impersonated { username: name.to_owned(), ..Impersonated::default() })
}

pub fn whole(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).boxed_unsync()
}

/// A body that comes in pieces.
pub fn in_pieces() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel(1);
    let pieces = futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|piece: Bytes| (Ok(Frame::data(piece)), receiver))
    });
    (sender, BodyExt::boxed_unsync(StreamBody::new(pieces)))
}

pub async fn read(response: Response<Incoming>) -> (StatusCode, HeaderMap, Value) {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    (parts.status, parts.headers, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
}
