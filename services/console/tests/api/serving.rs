//! A console that serves.

use std::sync::Arc;

use bus::{Bus, LocalBus, Serving};
use chassis::tls::{Authority, ServerCertificate, client_config_trusting};
use chassis::{Metrics, Readiness, ShutdownTrigger};
use console::{Args, Deps};
use events::requests::authz::Principal;
use events::{Actor, OrganizationId, Timestamp, TokenId, UserId};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use store::embedded::{EmbeddedStore, Options, open};
use world::World;
use world::spawn::TaskHandle;

use crate::behind::Behind;

/// Tokens that are known from the start: of somebody at home, and of a stranger.
pub const HOME: &str = "kasbah_p_home";
pub const STRANGER: &str = "kasbah_p_stranger";

pub struct Console {
    pub world: World,
    pub store: EmbeddedStore,
    pub bus: Arc<dyn Bus>,
    pub behind: Behind,
    pub client: reqwest::Client,
    /// How clients encrypt who speak HTTP/1.1 only.
    pub tls: Arc<rustls::ClientConfig>,
    pub address: String,
    pub home: Principal,
    pub stranger: Principal,
    trigger: ShutdownTrigger,
    task: TaskHandle,
    serving: Vec<Serving>,
    _folder: tempfile::TempDir,
}

impl Console {
    pub async fn start() -> Self {
        let world = World::real();
        let folder = tempfile::tempdir().unwrap();
        let store = open(&world, folder.path(), Options::default()).unwrap();
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new(world.clone()));
        let behind = Behind::default();
        let serving = behind.serve(&*bus).await;
        let authority = Authority::generate(Timestamp(world.clock.now_millis())).unwrap();
        let certificate = ServerCertificate::issued(&world, &authority, &["127.0.0.1".to_owned()]).unwrap();
        let listener = world.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap().to_string();
        let (trigger, shutdown) = ShutdownTrigger::new();
        let deps = Deps {
            world: world.clone(),
            log: Arc::clone(&store.log),
            keys: Arc::clone(&store.keys),
            bus: Arc::clone(&bus),
            listener,
            tls: Some(certificate.config(&world, &[b"h2", b"http/1.1"]).unwrap()),
            readiness: Readiness::new(),
            metrics: Metrics::new(),
        };
        let clusters_url = Some("https://127.0.0.1:8443".to_owned());
        let args = Args { clusters_url, ..Args::default() };
        let running = async move { console::run(args, deps, shutdown).await.unwrap() };
        let task = world.spawner.spawn("console", Box::pin(running));
        let tls = client_config_trusting(&world, authority.certificate().as_bytes(), &[b"h2", b"http/1.1"])
            .unwrap();
        let client = reqwest::Client::builder().tls_backend_preconfigured((*tls).clone()).build().unwrap();
        let tls = client_config_trusting(&world, authority.certificate().as_bytes(), &[b"http/1.1"]).unwrap();
        let (home, stranger) = (principal(&world), principal(&world));
        behind.knows(HOME, home.clone());
        behind.knows(STRANGER, stranger.clone());
        let _folder = folder;
        Self {
            world,
            store,
            bus,
            behind,
            client,
            tls,
            address,
            home,
            stranger,
            trigger,
            task,
            serving,
            _folder,
        }
    }

    /// Nobody answers behind the bus any more.
    pub fn lose_services(&mut self) {
        self.serving.clear();
    }

    pub async fn stop(self) {
        self.trigger.request();
        self.task.join().await.unwrap();
        self.store.close();
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub async fn call(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> (StatusCode, Value) {
        let mut request = self.client.request(method, self.url(path)).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(body);
        }
        answer(request.send().await.unwrap()).await
    }

    pub async fn get(&self, token: &str, path: &str) -> (StatusCode, Value) {
        self.call(token, Method::GET, path, None).await
    }
}

pub async fn answer(response: Response) -> (StatusCode, Value) {
    let status = response.status();
    let bytes = response.bytes().await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn principal(world: &World) -> Principal {
    Principal {
        actor: Actor::User(UserId(world.new_uuid())),
        organization: OrganizationId(world.new_uuid()),
        token: TokenId(world.new_uuid()),
        expires_at: None,
    }
}
