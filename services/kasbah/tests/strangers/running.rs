//! All services in this process, as `kasbah up` runs them, on a bus that the test holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::bus::{
    Bus, BusError, ByteStream, Handler, LocalBus, Opening, RequestError, Serving, StreamHandler, Subscription,
};
use async_trait::async_trait;
use bytes::Bytes;
use chassis::{Metrics, ShutdownTrigger};
use clap::Parser;
use events::position::Stream;
use events::request::RequestContext;
use events::requests::authz::{Authenticate, Principal};
use events::subject::Subject;
use events::{Actor, Notice, OrganizationId, Position, Refusal, Request, Sha256};
use kasbah::cli::{Command, CommandLine};
use kasbah::folder::{AUTHORITY_FILE, TOKEN_FILE};
use kasbah::server::Addresses;
use parking_lot::Mutex;
use store::embedded::Options;
use store::{ReadFilter, Record};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tunnel::agent::{Target, Transport};
use world::World;
use world::spawn::TaskHandle;

/// A bus that notes what is served on it, requests and streams.
pub struct NotingBus {
    inner: LocalBus,
    served: Mutex<BTreeSet<Subject>>,
}

impl NotingBus {
    fn new(world: &World) -> Self {
        Self { inner: LocalBus::new(world.clone()), served: Mutex::default() }
    }
}

#[async_trait]
impl Bus for NotingBus {
    async fn request(
        &self,
        subject: &Subject,
        context: &RequestContext,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        self.inner.request(subject, context, body).await
    }

    async fn serve(&self, subject: &Subject, group: &str, handler: Handler) -> Result<Serving, BusError> {
        self.served.lock().insert(subject.clone());
        self.inner.serve(subject, group, handler).await
    }

    async fn publish(&self, subject: &Subject, body: Bytes) -> Result<(), BusError> {
        self.inner.publish(subject, body).await
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, BusError> {
        self.inner.subscribe(subject).await
    }

    async fn open_stream(
        &self,
        subject: &Subject,
        context: &RequestContext,
        window: u32,
        opening: Opening,
    ) -> Result<ByteStream, RequestError> {
        self.inner.open_stream(subject, context, window, opening).await
    }

    async fn serve_streams(
        &self,
        subject: &Subject,
        group: &str,
        handler: StreamHandler,
    ) -> Result<Serving, BusError> {
        self.served.lock().insert(subject.clone());
        self.inner.serve_streams(subject, group, handler).await
    }
}

/// The services and where they are.
pub struct Running {
    pub world: World,
    bus: Arc<NotingBus>,
    addresses: Addresses,
    trigger: ShutdownTrigger,
    task: TaskHandle,
    folder: TempDir,
}

impl Running {
    pub async fn start() -> Self {
        let world = World::real();
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().to_str().unwrap();
        let mut words = vec!["kasbah", "up", "--data", data];
        for option in ["--api-listen", "--tunnel-listen", "--clusters-listen", "--admin-listen"] {
            words.extend([option, "127.0.0.1:0"]);
        }
        words.extend(["--allow-private-addresses", "--allow-plain-http"]);
        let Command::Up(args) = CommandLine::parse_from(words).command else {
            panic!("these words start it")
        };
        let bus = Arc::new(NotingBus::new(&world));
        let (trigger, shutdown) = ShutdownTrigger::new();
        let (said, ready) = oneshot::channel();
        let services = {
            let (world, bus): (_, Arc<dyn Bus>) = (world.clone(), Arc::clone(&bus) as _);
            let ready = move |addresses: &Addresses| said.send(addresses.clone()).unwrap();
            async move {
                let settings = args.settings().unwrap();
                kasbah::server::run(settings, world, bus, Metrics::new(), shutdown, ready).await.unwrap()
            }
        };
        let task = world.spawner.spawn("kasbah up", Box::pin(services));
        let addresses = ready.await.expect("everything is served");
        Self { world, bus, addresses, trigger, task, folder }
    }

    /// Stops them; what the log has of an organization's decisions, oldest first.
    pub async fn decisions_at_the_end(self, organization: OrganizationId) -> Vec<Record> {
        self.trigger.request();
        self.task.join().await.unwrap();
        let store = store::embedded::open(&self.world, self.folder.path(), Options::default()).unwrap();
        let filter = ReadFilter {
            streams: vec![Stream::Decisions],
            organization: Some(organization),
            kinds: Vec::new(),
        };
        let mut reading = store.log.read(&Position::start(), &filter).await.unwrap();
        let mut records = Vec::new();
        while let Some(record) = reading.recv().await {
            records.push(record.unwrap());
        }
        store.close();
        records
    }

    /// Every subject that some service serves or has served.
    pub fn served(&self) -> BTreeSet<Subject> {
        self.bus.served.lock().clone()
    }

    /// Tells those who listen.
    pub async fn announce<N: Notice>(&self, notice: &N) {
        ::bus::announce(&*self.bus, notice).await.unwrap();
    }

    /// Opens a byte stream as somebody.
    pub async fn open_as(
        &self,
        actor: Actor,
        organization: OrganizationId,
        subject: &Subject,
    ) -> Result<ByteStream, RequestError> {
        let context = bus::context_for(&self.world, actor, organization);
        self.bus.open_stream(subject, &context, 1024, Opening::default()).await
    }

    /// Where agents dial.
    pub fn gateway(&self) -> Target {
        let authority = self.folder.path().join(AUTHORITY_FILE);
        let tls = chassis::tls::client_config(&self.world, Some(&authority), &[tunnel::settings::ALPN]);
        let address = self.addresses.gateway.expect("agents dial it");
        let transport = Transport::Tls(tls.unwrap());
        Target { host: address.ip().to_string(), port: address.port(), transport }
    }

    /// The first owner, who is an operator too.
    pub async fn operator(&self) -> Principal {
        let secret = std::fs::read_to_string(self.folder.path().join(TOKEN_FILE)).unwrap();
        self.principal(secret.trim()).await
    }

    /// Whom a token belongs to.
    pub async fn principal(&self, secret: &str) -> Principal {
        let request = Authenticate { hash: Sha256::of(secret.as_bytes()) };
        let subject = Subject::request(Authenticate::NAME);
        let answer = self.ask_as(Actor::service("test"), OrganizationId::SYSTEM, &subject, &request).await;
        answer.unwrap()
    }

    pub async fn ask<R: Request>(&self, person: &Principal, request: &R) -> Result<R::Reply, Refusal> {
        let subject = Subject::request(R::NAME);
        self.ask_as(person.actor.clone(), person.organization, &subject, request).await
    }

    pub async fn ask_as<R: Request>(
        &self,
        actor: Actor,
        organization: OrganizationId,
        subject: &Subject,
        request: &R,
    ) -> Result<R::Reply, Refusal> {
        let context = ::bus::context_for(&self.world, actor, organization);
        ::bus::ask_under(&*self.bus, subject, &context, request).await
    }
}
