//! A running authz.

use std::sync::Arc;
use std::time::Duration;

use authz::{Args, Deps};
use bus::{Bus, LocalBus};
use chassis::{Readiness, ShutdownTrigger};
use events::directory::Role;
use events::position::Stream;
use events::requests::authz::{
    Authenticate, CreateOrganization, CreateProject, CreateUser, FirstStart, IssueToken, ListOrganizations,
    Principal,
};
use events::{
    AggregateRef, Event, OrganizationId, Position, Refusal, RefusalKind, Request, Sha256, Timestamp,
};
use store::embedded::{EmbeddedStore, Options, open};
use store::{NewCommit, ReadFilter, Record};
use world::World;
use world::spawn::TaskHandle;

/// authz over a store of its own.
pub struct Running {
    pub world: World,
    pub store: EmbeddedStore,
    pub bus: Arc<dyn Bus>,
    trigger: ShutdownTrigger,
    task: Option<TaskHandle>,
    _folder: tempfile::TempDir,
}

/// Somebody with a token.
#[derive(Debug, Clone)]
pub struct Person {
    pub principal: Principal,
    pub secret: String,
}

impl Running {
    pub async fn start() -> Self {
        let world = World::real();
        let folder = tempfile::tempdir().unwrap();
        let store = open(&world, folder.path(), Options::default()).unwrap();
        let (bus, trigger, task) = run(&world, &store).await;
        Self { world, store, bus, trigger, task: Some(task), _folder: folder }
    }

    /// Stops it and starts another one that has nothing but the store.
    pub async fn restart(&mut self) {
        self.trigger.request();
        self.task.take().unwrap().join().await.unwrap();
        let (bus, trigger, task) = run(&self.world, &self.store).await;
        (self.bus, self.trigger, self.task) = (bus, trigger, Some(task));
    }

    /// Appends what another service would decide, as the first event of its aggregate.
    pub async fn append(&self, service: &str, organization: OrganizationId, of: AggregateRef, event: Event) {
        let context = bus::context_for_service(&self.world, service, organization);
        let commit = NewCommit {
            id: context.idempotency_key,
            organization,
            aggregate: of,
            expected: 0,
            actor: context.actor,
            correlation_id: context.correlation_id,
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(self.world.clock.now_millis()),
            command: None,
            grounds: None,
            events: store::new_events(&self.world, [event]).unwrap(),
        };
        self.store.log.append(commit).await.unwrap();
    }

    pub async fn stop(mut self) {
        self.trigger.request();
        self.task.take().unwrap().join().await.unwrap();
        self.store.close();
    }

    pub async fn ensure_owner(&self, token: Option<&str>) -> FirstStart {
        authz::ensure_owner(&*self.bus, &self.world, "default", "owner", token, false).await.unwrap()
    }

    /// As a replica that is not the first one asks.
    pub async fn ensure_shared_owner(&self) -> FirstStart {
        authz::ensure_owner(&*self.bus, &self.world, "default", "owner", None, true).await.unwrap()
    }

    pub async fn principal(&self, secret: &str) -> Result<Principal, Refusal> {
        let context = bus::context_for_service(&self.world, "test", OrganizationId::SYSTEM);
        bus::ask(&*self.bus, &context, &Authenticate { hash: Sha256::of(secret.as_bytes()) }).await
    }

    async fn person(&self, secret: String) -> Person {
        Person { principal: self.principal(&secret).await.unwrap(), secret }
    }

    /// The first owner, who is an operator too.
    pub async fn owner(&self) -> Person {
        self.person(self.ensure_owner(None).await.token.unwrap().secret).await
    }

    /// The owner of another organization.
    pub async fn stranger(&self, operator: &Person) -> Person {
        let create = CreateOrganization { name: "other".to_owned(), owner: "stranger".to_owned() };
        let made = self.ask(operator, &create).await.unwrap();
        self.person(made.owner_token.unwrap().secret).await
    }

    /// A user with one role in the whole organization.
    pub async fn user(&self, owner: &Person, name: &str, role: Role) -> Person {
        self.ask(owner, &CreateUser { name: name.to_owned(), role, scope: None }).await.unwrap();
        self.user_of(owner, name).await
    }

    /// A user that there is, with a new token.
    pub async fn user_of(&self, owner: &Person, name: &str) -> Person {
        let issue = IssueToken {
            agent: None,
            user: Some(name.to_owned()),
            name: "t".to_owned(),
            lifetime_seconds: None,
            clusters_only: false,
        };
        self.person(self.ask(owner, &issue).await.unwrap().secret).await
    }

    pub async fn ask<R: Request>(&self, person: &Person, request: &R) -> Result<R::Reply, Refusal> {
        self.ask_in(person, person.principal.organization, request).await
    }

    pub async fn ask_in<R: Request>(
        &self,
        person: &Person,
        organization: OrganizationId,
        request: &R,
    ) -> Result<R::Reply, Refusal> {
        let context = bus::context_for(&self.world, person.principal.actor.clone(), organization);
        bus::ask(&*self.bus, &context, request).await
    }

    pub async fn records(&self, streams: &[Stream]) -> Vec<Record> {
        let filter = ReadFilter::streams(streams);
        let mut records = self.store.log.read(&Position::start(), &filter).await.unwrap();
        let mut found = Vec::new();
        while let Some(record) = records.recv().await {
            found.push(record.unwrap());
        }
        found
    }
}

pub fn project(path: &str, repository: &str) -> CreateProject {
    CreateProject {
        path: path.to_owned(),
        repository: repository.to_owned(),
        default_branch: None,
        credential: None,
        external_id: None,
    }
}

async fn run(world: &World, store: &EmbeddedStore) -> (Arc<dyn Bus>, ShutdownTrigger, TaskHandle) {
    let bus: Arc<dyn Bus> = Arc::new(LocalBus::new(world.clone()));
    let (trigger, shutdown) = ShutdownTrigger::new();
    let readiness = Readiness::new();
    let deps = Deps {
        world: world.clone(),
        log: Arc::clone(&store.log),
        keys: Arc::clone(&store.keys),
        snapshots: Arc::clone(&store.snapshots),
        bus: Arc::clone(&bus),
        readiness: readiness.clone(),
    };
    let running = async move { authz::run(Args::default(), deps, shutdown).await.unwrap() };
    let task = world.spawner.spawn("authz", Box::pin(running));
    // It is served once somebody answers: readiness is registered only when the task has run.
    let context = bus::context_for_service(world, "test", OrganizationId::SYSTEM);
    let ready = async {
        while let Err(refusal) = bus::ask(&*bus, &context, &ListOrganizations::default()).await {
            assert_eq!(refusal.kind, RefusalKind::Unavailable, "{refusal}");
            tokio::task::yield_now().await;
        }
        readiness.wait().await;
    };
    tokio::time::timeout(Duration::from_secs(20), ready).await.expect("authz gets ready");
    (bus, trigger, task)
}
