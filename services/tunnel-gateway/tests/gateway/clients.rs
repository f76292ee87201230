//! People who use clusters' APIs, let in by a stand-in for authz; and further gateways beside a first one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bus::Serving;
use chassis::tls::Authority;
use chassis::{Shutdown, ShutdownTrigger};
use events::audit::AuditMode;
use events::pass::{AccessAs, Narrowing, Pass, PassGrant, SignedPass};
use events::recording::RecordSessions;
use events::requests::authz::{IssuedPass, SignPass};
use events::{Refusal, RefusalKind, Sha256, Timestamp};
use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use store::EventLog;
use testkit::{client_trusting, eventually};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tunnel::agent::Target;
use tunnel_gateway::{Args, ClusterListener, Deps};

use super::agent::TestAgent;
use super::harness::{Gateway, LIMIT, agent_id, args, instance, organization, ready, secret, spawn, user};

/// What was answered.
#[derive(Debug)]
pub struct Reply {
    pub code: u16,
    pub retry_after: Option<u64>,
    pub body: String,
}

impl Reply {
    /// The message of a `Status`, or what else there is.
    pub fn message(&self) -> String {
        self.status()["message"].as_str().unwrap_or(&self.body).to_owned()
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// Everybody whom the stand-in lets in, in each cluster and to everything there.
pub struct Clients {
    client: reqwest::Client,
    /// By the hash of the token.
    passes: Arc<Mutex<BTreeMap<Sha256, Pass>>>,
    _serving: Serving,
}

impl Clients {
    pub async fn of(gateway: &Gateway) -> Self {
        let passes: Arc<Mutex<BTreeMap<Sha256, Pass>>> = Arc::default();
        let known = Arc::clone(&passes);
        let serving = bus::answer::<SignPass, _>(&gateway.bus, move |_, request| {
            let pass = known.lock().get(&request.hash).cloned();
            Box::pin(async move {
                let unknown = || Refusal::new(RefusalKind::Unauthenticated, "unknown token");
                let pass = Pass { agent: request.agent, ..pass.ok_or_else(unknown)? };
                let pass = SignedPass { pass: events::encode(&pass).unwrap(), signature: vec![0; 64] };
                Ok(IssuedPass { pass, token_ends: None, roots: Vec::new() })
            })
        });
        let authority = Authority::generate(Timestamp(gateway.world.clock.now_millis())).unwrap();
        let client = client_trusting(authority.certificate().as_bytes()).unwrap();
        Self { client, passes, _serving: serving.await.unwrap() }
    }

    /// A client that trusts the gateways.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Lets somebody in, whose token is their number.
    pub fn let_in(&self, number: u128) {
        let pass = Pass {
            organization: organization(),
            agent: agent_id(0),
            holder: user(number),
            access_as: AccessAs::Agent,
            grants: vec![PassGrant {
                narrowing: Narrowing::default(),
                groups: Vec::new(),
                place: "by the test".to_owned(),
            }],
            audit: AuditMode::default(),
            record_sessions: RecordSessions::default(),
            issued_at: Timestamp(0),
            expires_at: Timestamp(i64::MAX),
        };
        self.passes.lock().insert(Sha256::of(number.to_string().as_bytes()), pass);
    }

    /// From now on their token is not known. Gateways hear of it only when a test says so in the log.
    pub fn shut_out(&self, number: u128) {
        self.passes.lock().remove(&Sha256::of(number.to_string().as_bytes()));
    }

    /// From now on nothing goes on that is not recorded.
    pub fn must_be_recorded(&self) {
        self.passes.lock().values_mut().for_each(|pass| pass.audit = AuditMode::FailClosed);
    }

    /// From now on so much of sessions is kept.
    pub fn record_sessions(&self, kept: RecordSessions) {
        self.passes.lock().values_mut().for_each(|pass| pass.record_sessions = kept);
    }

    /// A request of somebody to an agent's cluster.
    pub fn request(
        &self,
        person: u128,
        clusters: SocketAddr,
        agent: u128,
        path: &str,
    ) -> reqwest::RequestBuilder {
        let url = format!("http://{clusters}/agents/{}{path}", agent_id(agent));
        self.client.get(url).bearer_auth(person.to_string())
    }

    /// The same, until it is answered whole.
    pub async fn get(&self, person: u128, clusters: SocketAddr, agent: u128, path: &str) -> Reply {
        timeout(LIMIT, told(self.request(person, clusters, agent, path))).await.expect("an answer that ends")
    }

    /// Begins a request to the cluster of the first agent.
    pub fn begin(&self, method: Method, clusters: SocketAddr, path: &str) -> JoinHandle<Reply> {
        let url = format!("http://{clusters}/agents/{}{path}", agent_id(1));
        spawn(told(self.client.request(method, url).bearer_auth("1")))
    }

    /// Begins to send something, which comes back when it reached the cluster.
    pub fn send(&self, person: u128, clusters: SocketAddr, agent: u128, body: &str) -> JoinHandle<Reply> {
        let url = format!("http://{clusters}/agents/{}/api/v1/namespaces/a/pods", agent_id(agent));
        spawn(told(self.client.post(url).bearer_auth(person.to_string()).body(body.to_owned())))
    }
}

async fn told(request: reqwest::RequestBuilder) -> Reply {
    let answer = request.send().await.unwrap();
    let code = answer.status().as_u16();
    let retry_after =
        answer.headers().get("retry-after").map(|value| value.to_str().unwrap().parse().unwrap());
    Reply { code, retry_after, body: answer.text().await.unwrap() }
}

/// A gateway beside a first one, on the same bus.
pub struct Second {
    pub clusters: SocketAddr,
    target: Target,
    _stop: ShutdownTrigger,
}

impl Second {
    pub async fn beside(first: &Gateway) -> Self {
        Self::with(first, args(), Arc::clone(&first.store.log)).await
    }

    /// One with these settings and this log. Its tunnels are plain text.
    pub async fn with(first: &Gateway, args: Args, log: Arc<dyn EventLog>) -> Self {
        let args = Args { tunnel_insecure_plain_text: true, ..args };
        let clients = first.world.network.listen(args.clusters_listen).await.unwrap();
        let clusters = clients.local_address().unwrap();
        let deps = Deps { log, ..first.plain_text_deps().await };
        let deps = Deps { clusters: Some(ClusterListener { listener: clients, tls: None }), ..deps };
        let address = deps.listener.local_address().unwrap();
        let target = Target {
            host: address.ip().to_string(),
            port: address.port(),
            transport: tunnel::agent::Transport::PlainText,
        };
        let readiness = deps.readiness.clone();
        let (stop, shutdown): (ShutdownTrigger, Shutdown) = ShutdownTrigger::new();
        spawn(tunnel_gateway::run(args, deps, shutdown));
        eventually(LIMIT, || async { ready(&readiness) }).await;
        Self { clusters, target, _stop: stop }
    }

    /// Where its agents dial.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Connects an instance of an agent.
    pub async fn connect(&self, first: &Gateway, agent: u128, number: u128) -> TestAgent {
        TestAgent::connect(&first.world, &self.target, &secret(agent), instance(number)).await
    }
}
