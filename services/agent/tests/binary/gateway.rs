//! The server's end of the link, as far as these tests need it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chassis::tls::SharedTickets;
use events::AgentId;
use events::bundle::{BundleEntry, BundlePage, page_of, pages_for};
use events::configuration::{
    HealthSettings, Mode, ObservePattern, ObserveRules, ResourceRules, SyncPolicies,
};
use events::desired::{
    Applier, ConfigurationRejection, DesiredReply, DesiredSource, DesiredState, SourceHead,
};
use events::digest::Sha256;
use events::observation::Observed;
use events::{CorrelationId, InstanceId, OrganizationId, SourceId, SyncId};
use http::{Method, Request, StatusCode};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use testkit::eventually;
use tunnel::gateway::{Acceptor, AgentConnection, Presented, Rejection, Secured};
use tunnel::wire::{Acknowledged, EventFrame, FrameDecoder, Objects};
use world::network::Listener;
use world::{Clock, World};

pub const LIMIT: Duration = Duration::from_secs(30);
/// The token with which an agent is started.
pub const TOKEN: &str = "kasbah_a_test";

/// What a server shows, and whom its agents are to trust.
pub struct Pki {
    pub server: Arc<rustls::ServerConfig>,
    pub authority: String,
}

impl Pki {
    pub fn new(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&own, &issuer).unwrap().der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::try_from(own.serialize_der()).unwrap())
            .unwrap();
        Self { server: Arc::new(server), authority }
    }
}

/// A clock that is wrong by a fixed time.
pub struct WrongClock {
    pub right: Arc<dyn Clock>,
    pub ahead_millis: i64,
}

#[async_trait]
impl Clock for WrongClock {
    fn now_millis(&self) -> i64 {
        self.right.now_millis() + self.ahead_millis
    }

    fn monotonic(&self) -> Duration {
        self.right.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.right.sleep(duration).await;
    }
}

/// A gateway of one agent.
pub struct Gateway {
    pub address: SocketAddr,
    pub agent: AgentId,
    world: World,
    listener: Box<dyn Listener>,
    acceptor: Acceptor,
    pub knocks: Arc<AtomicUsize>,
    /// The digest of the state that the agent of the last tunnel came with.
    pub brought: Mutex<Option<Sha256>>,
    /// How TLS was agreed on for the last tunnel.
    pub secured: Mutex<Secured>,
}

impl Gateway {
    pub async fn listen(world: World, pki: &Pki, address: &str) -> Self {
        let listener = world.network.listen(address.parse().unwrap()).await.unwrap();
        let tls = SharedTickets::new(&world, b"a secret").given_out_by(Arc::clone(&pki.server));
        let acceptor = Acceptor { tls: Some(tls), ..Acceptor::default() };
        let address = listener.local_address().unwrap();
        let agent = AgentId(world.new_uuid());
        let (knocks, brought, secured) = (Arc::default(), Mutex::default(), Mutex::new(Secured::Not));
        Self { address, agent, world, listener, acceptor, knocks, brought, secured }
    }

    /// The next tunnel; `refuse` turns everybody away.
    pub async fn accept(&self, refuse: Option<&'static str>) -> Option<(AgentConnection, InstanceId)> {
        self.accept_with(TOKEN, refuse).await
    }

    /// The next tunnel of an agent that has this token.
    pub async fn accept_with(
        &self,
        token: &'static str,
        refuse: Option<&'static str>,
    ) -> Option<(AgentConnection, InstanceId)> {
        let (socket, _) = self.listener.accept().await.unwrap();
        self.knocks.fetch_add(1, Ordering::SeqCst);
        let agent = self.agent;
        let admit = move |presented: Presented| async move {
            assert_eq!(presented.token.secret(), token);
            refuse.map_or(Ok((agent, ())), |reason| Err(Rejection::unauthenticated(reason)))
        };
        let accepted = self.acceptor.accept(&self.world, socket, admit).await.ok()?;
        *self.brought.lock() = accepted.hello.desired;
        *self.secured.lock() = accepted.secured;
        Some((accepted.connection, accepted.hello.instance))
    }
}

/// Drives one agent over its tunnel.
pub struct Driver {
    pub connection: AgentConnection,
    pub instance: InstanceId,
    pub agent: AgentId,
    pub observed: Arc<Mutex<Vec<Observed>>>,
    pub holds: Arc<Mutex<bool>>,
    revision: u64,
    /// The digest of the state that was taken last.
    pub taken: Option<Sha256>,
    /// Why the agent's newest configuration is not in force.
    pub rejected: Option<ConfigurationRejection>,
    /// How far the agent reaches.
    pub mode: Mode,
}

impl Driver {
    pub fn new(connection: AgentConnection, instance: InstanceId, agent: AgentId) -> Self {
        let (observed, holds) = (Arc::default(), Arc::default());
        let (taken, rejected, mode) = (None, None, Mode::Cluster);
        Self { connection, instance, agent, observed, holds, revision: 0, taken, rejected, mode }
    }

    /// Reads the agent's events for as long as it tells any.
    pub async fn read_events(
        connection: AgentConnection,
        observed: Arc<Mutex<Vec<Observed>>>,
        holds: Arc<Mutex<bool>>,
    ) {
        let request = Request::get("http://agent/v1/events?after=0,0").body(tunnel::body::empty()).unwrap();
        let mut body = connection.request(request, LIMIT).await.unwrap().into_body();
        let mut decoder = FrameDecoder::default();
        while let Some(Ok(bytes)) = body.chunk().await {
            decoder.push(&bytes);
            while let Some(frame) = decoder.next_frame().unwrap() {
                match frame {
                    EventFrame::Lease { held } => *holds.lock() = held,
                    EventFrame::Idle => {}
                    EventFrame::Batch(batch) => {
                        let cursor = Acknowledged { epoch: batch.epoch, sequence: batch.last() };
                        observed.lock().extend(batch.observations.into_iter().map(|one| one.what));
                        let body = Bytes::from(events::encode(&cursor).unwrap());
                        let _gone = connection.ask(Method::PUT, "/v1/acknowledged", body, 1024, LIMIT).await;
                    }
                }
            }
        }
    }

    pub async fn holds_lease(&self) {
        eventually(LIMIT, || async { if *self.holds.lock() { Ok(()) } else { Err("no lease") } }).await;
    }

    /// Sends a source with these manifests; gives its sync.
    pub async fn put(&mut self, namespace: &str, manifests: &[Value]) -> SyncId {
        self.revision += 1;
        let mut contents = BTreeMap::new();
        let sync = SyncId(World::real().new_uuid());
        let state = DesiredState {
            revision: self.revision,
            organization: OrganizationId(uuid::Uuid::from_u128(1)),
            agent: self.agent,
            applier: Some(Applier { instance: self.instance, epoch: 1 }),
            mode: self.mode,
            resources: ResourceRules::default(),
            observe: nothing(),
            health: HealthSettings::default(),
            lockdown: false,
            replaces: Vec::new(),
            rejected: self.rejected.clone(),
            sources: vec![DesiredSource {
                pages: Some(pages(manifests, &mut contents)),
                prune: Vec::new(),
                refused: None,
                wanted: Vec::new(),
                head: SourceHead {
                    source: SourceId::derive(self.agent, "shop"),
                    name: "shop".into(),
                    sync,
                    check_all: false,
                    commit: "0123".into(),
                    correlation_id: CorrelationId(uuid::Uuid::nil()),
                    traceparent: None,
                    suspended: false,
                    removed: false,
                    default_namespace: namespace.to_owned(),
                    service_account: None,
                    policies: SyncPolicies::default(),
                    finished: Vec::new(),
                },
            }],
        };
        let body = Bytes::from(events::encode(&state).unwrap());
        loop {
            let answer = self.ask(Method::PUT, "/v1/desired", body.clone()).await;
            let reply: DesiredReply = events::decode(&answer).unwrap();
            if reply.missing.is_empty() {
                self.taken = Some(Sha256::of(&body));
                return sync;
            }
            let contents = reply.missing.iter().map(|digest| Bytes::from(contents[digest].clone())).collect();
            let body = events::encode(&Objects { contents, desired: None }).unwrap();
            self.ask(Method::PUT, "/v1/objects", Bytes::from(body)).await;
        }
    }

    pub async fn ask(&self, method: Method, path: &str, body: Bytes) -> Bytes {
        let answer = self.connection.ask(method, path, body, 64 << 20, LIMIT).await.unwrap();
        assert!(
            matches!(answer.status, StatusCode::OK | StatusCode::NO_CONTENT),
            "{path}: {}",
            answer.status
        );
        answer.body
    }

    /// Waits until the sync ended.
    pub async fn finished(&self, sync: SyncId) -> Observed {
        let ended = |one: &Observed| matches!(one, Observed::SyncFinished { sync: of, .. } if *of == sync);
        eventually(LIMIT, || async {
            self.observed.lock().iter().find(|one| ended(one)).cloned().ok_or("not finished")
        })
        .await
    }
}

fn pages(manifests: &[Value], contents: &mut BTreeMap<Sha256, Vec<u8>>) -> Vec<Sha256> {
    let count = pages_for(manifests.len());
    let mut pages: Vec<Vec<BundleEntry>> = vec![Vec::new(); count];
    for manifest in manifests {
        let bytes = objects::digest::canonical_bytes(manifest);
        let identity = objects::identity::identity_of(manifest).unwrap();
        let digest = Sha256::of(&bytes);
        contents.insert(digest, bytes);
        pages[page_of(&identity, count)].push(BundleEntry {
            identity,
            digest,
            file: "a.yaml".into(),
            line: 1,
        });
    }
    let mut keep = |entries| {
        let bytes = events::encode(&BundlePage { entries }).unwrap();
        let digest = Sha256::of(&bytes);
        contents.insert(digest, bytes);
        digest
    };
    pages.into_iter().map(&mut keep).collect()
}

/// The control plane is shared, and who reads here reads no objects.
fn nothing() -> ObserveRules {
    let any = || "*".to_owned();
    let everything = ObservePattern { group: any(), kind: any(), namespace: any() };
    ObserveRules { include: Vec::new(), exclude: vec![everything] }
}
