//! Those who work with it: they set everything up, push, change configurations, rotate tokens, and remember what they were told.

mod model;
mod pushes;
mod subscribing;
mod tasks;
mod visitors;
mod visits;

use std::sync::Arc;
use std::time::Duration;

use agent::cluster_api::RootKey;
use bus::Bus;
use events::request::RequestContext;
use events::requests::authz::{
    AgentWithToken, CreateGroup, CreateProject, FirstStart, ProjectView, RegisterAgent, SecretToken,
};
use events::{Actor, AgentId, OrganizationId, ProjectId, Refusal, RefusalKind, Request, UserId};
use parking_lot::Mutex;
use world::World;

use crate::access::Access;
use crate::agent::SharedSecret;
use crate::executor::Executor;
use crate::forge::Forge;
use crate::receivers::Receivers;
use crate::scene::{Given, Scene};
use model::Model;
pub(crate) use model::{SOURCES, is_deployment, never_available, source_of};
pub(crate) use pushes::SharedPushes;
use visits::Visitor;

/// How long between two attempts of the same request.
const AGAIN: Duration = Duration::from_millis(700);
/// The repositories of the two projects.
pub(crate) const REPOSITORIES: [&str; 2] = ["https://git.example/deploy", "https://git.example/extra"];

/// The paths of these projects.
const PROJECTS: [&str; 2] = ["shop/deploy", "shop/extra"];

/// An agent as people know it.
pub struct KnownAgent {
    /// Its id.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// Its token.
    pub secret: SharedSecret,
    /// The root key that it pins.
    pub root_key: RootKey,
    token: events::TokenId,
    pub(crate) model: Model,
    /// What was pushed for it.
    pub(crate) pushes: SharedPushes,
}

/// What people did and were told.
#[derive(Default)]
pub struct Facts {
    owner: Option<(OrganizationId, UserId)>,
    projects: Vec<ProjectId>,
    /// The agents that there are.
    pub agents: Vec<KnownAgent>,
    /// Secrets of tokens that were revoked, or whose agent was deleted.
    pub revoked: Vec<String>,
    /// Those who use clusters.
    visitors: Vec<Visitor>,
    /// The same, with tokens that were revoked.
    former_visitors: Vec<Visitor>,
    /// The newest value that one of them wrote.
    last_value: u64,
    /// What they were told is written: to whose cluster, the object, the value.
    pub(crate) written: Vec<(AgentId, String, u64)>,
    /// Names of which one only may have become a project.
    pub(crate) names: Vec<(String, Vec<ProjectId>)>,
    /// What was said that cannot be.
    pub(crate) violations: Vec<String>,
    /// Every token's secret that there ever was.
    pub(crate) secrets: Vec<String>,
    /// Things that were done.
    pub done: u64,
    /// Nothing new is begun.
    pub(crate) tidy: bool,
    pub(crate) working: usize,
}

/// Somebody who works with it.
#[derive(Clone)]
pub struct Person {
    world: World,
    bus: Arc<dyn Bus>,
    forge: Forge,
    executor: Executor,
    access: Access,
    receivers: Receivers,
    facts: Arc<Mutex<Facts>>,
}

impl Person {
    /// Somebody.
    #[must_use]
    pub(crate) fn new(given: &Given, scene: &Scene) -> Self {
        let (world, bus) = (given.world.clone(), Arc::clone(&given.bus));
        let (forge, executor) = (scene.forge.clone(), scene.executor.clone());
        let (access, receivers) = (scene.access.clone(), scene.receivers.clone());
        Self { world, bus, forge, executor, access, receivers, facts: Arc::default() }
    }

    /// What is known.
    #[must_use]
    pub fn facts(&self) -> Arc<Mutex<Facts>> {
        Arc::clone(&self.facts)
    }

    fn context(&self) -> Option<RequestContext> {
        let (organization, owner) = self.facts.lock().owner?;
        Some(bus::context_for(&self.world, Actor::User(owner), organization))
    }

    /// Asks until there is an answer, each time with the same key.
    async fn ask<R: Request>(&self, request: &R) -> Result<R::Reply, Refusal> {
        let Some(context) = self.context() else {
            return Err(Refusal::new(RefusalKind::Internal, "nobody is known yet"));
        };
        loop {
            match bus::ask(&*self.bus, &context, request).await {
                Err(refusal) if refusal.kind == RefusalKind::Unavailable => {
                    self.world.clock.sleep(AGAIN).await
                }
                answered => return answered,
            }
        }
    }

    /// Makes organization, projects and agents; then works.
    pub fn start(&self, agents: usize) {
        let person = self.clone();
        let setting_up = async move {
            person.found().await;
            person.set_up(agents).await;
            for _ in 0..2 {
                let worker = person.clone();
                let work = async move { worker.work().await };
                person.world.spawner.spawn("person", Box::pin(work));
            }
            for number in 0..person.visitors().len() {
                let visitor = person.clone();
                let visiting = async move { visitor.use_clusters(number).await };
                person.world.spawner.spawn("visitor", Box::pin(visiting));
            }
        };
        self.world.spawner.spawn("founder", Box::pin(setting_up));
    }

    async fn found(&self) {
        loop {
            let made = authz::ensure_owner(&*self.bus, &self.world, "acme", "olga", None, false).await;
            match made {
                Ok(FirstStart { organization, owner, .. }) => {
                    self.facts.lock().owner = Some((organization, owner));
                    return;
                }
                Err(_) => self.world.clock.sleep(AGAIN).await,
            }
        }
    }

    async fn set_up(&self, agents: usize) {
        self.subscribe().await;
        self.insist("group", &CreateGroup { name: "shop".to_owned() }).await;
        for (path, repository) in PROJECTS.iter().zip(REPOSITORIES) {
            let create = CreateProject {
                path: (*path).to_owned(),
                repository: repository.to_owned(),
                default_branch: None,
                credential: None,
                external_id: None,
            };
            let made: Option<ProjectView> = self.insist("project", &create).await;
            self.facts.lock().projects.extend(made.map(|project| project.id));
        }
        for number in 0..agents {
            let name = format!("agent-{number}");
            let register =
                RegisterAgent { name: name.clone(), project: "shop/deploy".to_owned(), group: None };
            let made: Option<AgentWithToken> = self.insist("agent", &register).await;
            let Some(AgentWithToken { agent, token: SecretToken { view, secret }, root_key }) = made else {
                return;
            };
            self.facts.lock().secrets.push(secret.clone());
            let Ok(root_key) = root_key.parse() else { return };
            let known = KnownAgent {
                id: agent.id,
                name: name.clone(),
                secret: SharedSecret::new(&secret),
                root_key,
                token: view.id,
                model: Model::first(number, &name),
                pushes: SharedPushes::default(),
            };
            self.facts.lock().agents.push(known);
            self.push_all(number).await;
        }
        self.set_up_visitors().await;
    }

    /// What nobody has a reason to refuse.
    async fn insist<R: Request>(&self, what: &str, request: &R) -> Option<R::Reply> {
        match self.ask(request).await {
            Ok(reply) => Some(reply),
            Err(refusal) => {
                self.facts.lock().violations.push(format!("{what} is refused: {refusal}"));
                None
            }
        }
    }
}
