//! A poller, and what it needs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, LocalBus, Received};
use bytes::Bytes;
use events::Notice as _;
use events::bundle::{BundleEntry, BundlePage, BundleRoot};
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, GitReference, HealthSettings, KindPattern,
    Mode, ObserveRules, ResourceRules, SourceConfiguration, SyncPolicies,
};
use events::directory::{
    AgentRegistered, DirectoryEvent, ProjectChanged, ProjectCreated, ProjectSettings, TokenHolder,
    TokenIssued, TokenRevoked,
};
use events::repository::{RepositoryEvent, SourceAdvanced};
use events::requests::authz::{DecideFetch, FetchDecision};
use events::requests::repository::{RepositoryAdvanced, RepositoryPushed, ShowFetch};
use events::subject::Subject;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, BlobDigest, Commit, CommitId, CorrelationId, Event, GroupId,
    OrganizationId, Position, ProjectId, RefusalKind, Sha256, SourceId, Timestamp, TokenId,
};
use futures::FutureExt;
use parking_lot::Mutex;
use repo_poller::git::RealRepositories;
use repo_poller::{Args, Deps};
use store::embedded::{EmbeddedStore, Options};
use store::{Blobs, EventLog, Followed, NewCommit, ReadFilter};
use testkit::{GitServer, WorkTree, eventually};
use world::World;

pub const DEADLINE: Duration = Duration::from_secs(60);

/// What authz answers.
#[derive(Default)]
pub struct Answers {
    pub projects: BTreeMap<ProjectId, ProjectSettings>,
    pub credential_host: Option<String>,
    pub refused: Option<String>,
    /// Of all agents this one alone may not read.
    pub refused_agent: Option<AgentId>,
    pub asked: usize,
}

pub struct Harness {
    pub world: World,
    pub store: EmbeddedStore,
    pub bus: Arc<LocalBus>,
    pub answers: Arc<Mutex<Answers>>,
    pub organization: OrganizationId,
    pub git: GitServer,
    pub args: Args,
    versions: Mutex<BTreeMap<String, u64>>,
    notices: Arc<Mutex<Vec<RepositoryAdvanced>>>,
    _folder: tempfile::TempDir,
    _serving: bus::Serving,
}

/// A running poller; ends with this handle.
pub struct Running {
    trigger: chassis::ShutdownTrigger,
    task: world::spawn::TaskHandle,
}

impl Running {
    pub async fn stop(self) {
        self.trigger.request();
        self.task.join().await.unwrap();
    }
}

async fn serve_authz(bus: &Arc<LocalBus>, answers: &Arc<Mutex<Answers>>) -> bus::Serving {
    let table = Arc::clone(answers);
    let serving = bus::answer::<DecideFetch, _>(&**bus, move |_, request| {
        let table = Arc::clone(&table);
        async move { Ok(decide(&table, request)) }.boxed()
    });
    serving.await.unwrap()
}

impl Harness {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = World::real();
        let store = store::embedded::open(&world, folder.path().join("store"), Options::default()).unwrap();
        let bus = Arc::new(LocalBus::new(world.clone()));
        let answers: Arc<Mutex<Answers>> = Arc::default();
        let serving = serve_authz(&bus, &answers).await;
        let notices: Arc<Mutex<Vec<RepositoryAdvanced>>> = Arc::default();
        let mut subscription = bus.subscribe(&Subject::notice(RepositoryAdvanced::NAME)).await.unwrap();
        let heard = Arc::clone(&notices);
        world.spawner.spawn(
            "notices",
            Box::pin(async move {
                let subscription = &mut subscription;
                while let Some(Received::Message(bytes)) = subscription.receiver.recv().await {
                    heard.lock().push(events::decode(&bytes).unwrap());
                }
            }),
        );
        let mut args = Args::with_folder(folder.path().join("repositories"));
        args.allow_private_addresses = true;
        args.allow_plain_http = true;
        let organization = OrganizationId(world.new_uuid());
        Self {
            organization,
            store,
            bus,
            answers,
            git: GitServer::start().unwrap(),
            args,
            versions: Mutex::default(),
            notices,
            _folder: folder,
            _serving: serving,
            world,
        }
    }

    pub fn folder(&self) -> &Path {
        self._folder.path()
    }

    pub async fn start(&self) -> Running {
        self.start_with(self.args.clone()).await
    }

    /// As another replica would, with a folder of its own.
    pub async fn start_in(&self, folder: &str) -> Running {
        let args = Args { repositories: self.folder().join(folder), ..self.args.clone() };
        self.start_with(args).await
    }

    /// As another replica would that neither sees this one nor is seen.
    pub async fn start_unseen(&self, bus: &Arc<LocalBus>, blobs: Arc<dyn Blobs>) -> (Running, bus::Serving) {
        let serving = serve_authz(bus, &self.answers).await;
        let args = Args { repositories: self.folder().join("unseen"), ..self.args.clone() };
        (self.start_on(args, bus, blobs).await, serving)
    }

    async fn start_with(&self, args: Args) -> Running {
        self.start_on(args, &self.bus, Arc::clone(&self.store.blobs)).await
    }

    async fn start_on(&self, args: Args, bus: &Arc<LocalBus>, blobs: Arc<dyn Blobs>) -> Running {
        let (trigger, shutdown) = chassis::ShutdownTrigger::new();
        let readiness = chassis::Readiness::new();
        let deps = Deps {
            repositories: Arc::new(RealRepositories::new(&args, &self.world).unwrap()),
            world: self.world.clone(),
            log: Arc::clone(&self.store.log),
            blobs,
            keys: Arc::clone(&self.store.keys),
            snapshots: Arc::clone(&self.store.snapshots),
            bus: Arc::clone(bus) as Arc<dyn Bus>,
            readiness: readiness.clone(),
            metrics: chassis::Metrics::new(),
        };
        let task = self.world.spawner.spawn(
            "repo-poller",
            Box::pin(async move { repo_poller::run(args, deps, shutdown).await.unwrap() }),
        );
        // Nothing is registered before it runs, so readiness alone says too much.
        let show = ShowFetch { source: SourceId(self.world.new_uuid()) };
        eventually(DEADLINE, || async {
            let context = bus::context_for_service(&self.world, "test", self.organization);
            match bus::ask(&**bus, &context, &show).await {
                Err(refusal) if refusal.kind == RefusalKind::NotFound => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        readiness.wait().await;
        Running { trigger, task }
    }

    pub async fn append(&self, kind: AggregateKind, id: impl std::fmt::Display, event: impl Into<Event>) {
        let aggregate = AggregateRef::new(kind, id);
        let expected = self.versions.lock().get(&aggregate.to_string()).copied().unwrap_or(0);
        let commit = NewCommit {
            id: CommitId(self.world.new_uuid()),
            organization: self.organization,
            aggregate: aggregate.clone(),
            expected,
            actor: Actor::service("test"),
            correlation_id: CorrelationId(self.world.new_uuid()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(self.world.clock.now_millis()),
            command: None,
            grounds: None,
            events: store::new_events(&self.world, [event.into()]).unwrap(),
        };
        let appended = self.store.log.append(commit).await.unwrap();
        self.versions.lock().insert(aggregate.to_string(), appended.version);
    }

    pub async fn project(&self, repository: &str) -> ProjectId {
        let project = ProjectId(self.world.new_uuid());
        let settings = ProjectSettings {
            repository: repository.to_owned(),
            default_branch: "main".into(),
            credential: None,
            external_id: None,
        };
        self.answers.lock().projects.insert(project, settings.clone());
        let group = GroupId(self.world.new_uuid());
        let created = ProjectCreated { project, group, name: "deploy".into(), settings };
        self.append(AggregateKind::Project, project, DirectoryEvent::ProjectCreated(created)).await;
        project
    }

    pub async fn change_project(&self, project: ProjectId, settings: ProjectSettings) {
        self.answers.lock().projects.insert(project, settings.clone());
        let changed = ProjectChanged { project, settings };
        self.append(AggregateKind::Project, project, DirectoryEvent::ProjectChanged(changed)).await;
    }

    pub async fn agent_without_token(&self, project: ProjectId) -> AgentId {
        let agent = AgentId(self.world.new_uuid());
        let registered =
            AgentRegistered { agent, name: "staging".into(), project, group: None, replaces: Vec::new() };
        self.append(AggregateKind::Agent, agent, DirectoryEvent::AgentRegistered(registered)).await;
        agent
    }

    pub async fn agent(&self, project: ProjectId) -> AgentId {
        let agent = self.agent_without_token(project).await;
        self.issue(agent, None).await;
        agent
    }

    pub async fn issue(&self, agent: AgentId, expires_at: Option<Timestamp>) -> TokenId {
        let token = TokenId(self.world.new_uuid());
        let holder = TokenHolder::Agent(agent);
        let issued = TokenIssued {
            token,
            holder,
            hash: Sha256::default(),
            name: "first".into(),
            expires_at,
            clusters_only: false,
        };
        self.append(AggregateKind::Agent, agent, DirectoryEvent::TokenIssued(issued)).await;
        token
    }

    pub async fn revoke(&self, agent: AgentId, token: TokenId) {
        let revoked = TokenRevoked { token, holder: TokenHolder::Agent(agent) };
        self.append(AggregateKind::Agent, agent, DirectoryEvent::TokenRevoked(revoked)).await;
    }

    pub async fn configure(&self, agent: AgentId, sources: Vec<SourceConfiguration>) {
        self.configure_with(agent, sources, ResourceRules::default()).await;
    }

    pub async fn configure_with(
        &self,
        agent: AgentId,
        sources: Vec<SourceConfiguration>,
        resources: ResourceRules,
    ) {
        let configuration = AgentConfiguration {
            mode: Mode::Cluster,
            resources,
            observe: ObserveRules::default(),
            health: HealthSettings::default(),
            relations: Vec::new(),
            actions: Vec::new(),
            sources,
            lockdown: false,
            implicit_rights: false,
            grants: events::grants::Grants::default(),
        };
        let changed =
            ConfigurationChanged { agent, commit: "0".repeat(40), configuration, warnings: Vec::new() };
        self.append(AggregateKind::Configuration, agent, ConfigurationEvent::ConfigurationChanged(changed))
            .await;
    }

    pub async fn push(&self, project: ProjectId) -> CorrelationId {
        let correlation_id = CorrelationId(self.world.new_uuid());
        let notice = RepositoryPushed {
            project,
            reference: Some("refs/heads/main".into()),
            correlation_id,
            traceparent: None,
        };
        self.publish(&notice).await;
        correlation_id
    }

    pub async fn publish(&self, notice: &RepositoryPushed) {
        let bytes = Bytes::from(events::encode(notice).unwrap());
        self.bus.publish(&Subject::notice(RepositoryPushed::NAME), bytes).await.unwrap();
    }

    pub fn notices(&self) -> Vec<RepositoryAdvanced> {
        self.notices.lock().clone()
    }

    /// Everything that was said about refs, oldest first.
    pub async fn said(&self) -> Vec<(Commit, RepositoryEvent)> {
        said(&*self.store.log).await
    }

    /// Waits until so many events were said about refs, and gives them.
    pub async fn wait_said(&self, count: usize) -> Vec<(Commit, RepositoryEvent)> {
        eventually(DEADLINE, || async {
            let said = self.said().await;
            if said.len() >= count { Ok(said) } else { Err(format!("{said:#?}")) }
        })
        .await
    }

    /// Waits for the newest event about refs to be what is expected, and gives it.
    pub async fn wait_for<T>(&self, expected: impl Fn(&RepositoryEvent) -> Option<T>) -> T {
        eventually(DEADLINE, || async {
            let said = self.said().await;
            said.last().and_then(|(_, event)| expected(event)).ok_or_else(|| format!("{:#?}", said.last()))
        })
        .await
    }

    pub async fn wait_advanced(&self, commit: &str) -> SourceAdvanced {
        self.wait_for(|event| match event {
            RepositoryEvent::SourceAdvanced(advanced) if advanced.commit == commit => Some(advanced.clone()),
            _ => None,
        })
        .await
    }

    /// All entries of a bundle, each with its object, in the order of their files.
    pub async fn bundle(&self, bundle: BlobDigest) -> Vec<(BundleEntry, String)> {
        let blobs = &self.store.blobs;
        let get = |digest| async move { blobs.get(self.organization, digest).await.unwrap() };
        let addresses = blobs.addresses(self.organization).await.unwrap();
        let at = |digest| addresses.of(digest);
        let root: BundleRoot = events::decode(&get(bundle).await).unwrap();
        let mut entries = Vec::new();
        for page in root.pages {
            let page: BundlePage = events::decode(&get(at(page)).await).unwrap();
            for entry in page.entries {
                let object = String::from_utf8(get(at(entry.digest)).await.to_vec()).unwrap();
                entries.push((entry, object));
            }
        }
        assert_eq!(entries.len(), usize::try_from(root.objects).unwrap());
        entries.sort_by(|left, right| (&left.0.file, left.0.line).cmp(&(&right.0.file, right.0.line)));
        entries
    }

    /// Requests that reached the Git server, by method.
    pub fn git_requests(&self, method: &str) -> usize {
        self.git.requests().iter().filter(|request| request.method == method).count()
    }

    /// A repository with a first commit of these files.
    pub fn repository(&self, name: &str, files: &[(&str, &str)]) -> (String, WorkTree, String) {
        let url = self.git.create(name).unwrap();
        let tree = WorkTree::clone(&url).unwrap();
        for (path, text) in files {
            tree.write(path, text).unwrap();
        }
        let commit = tree.commit_and_push("first").unwrap();
        (url, tree, commit)
    }
}

fn decide(answers: &Mutex<Answers>, DecideFetch { agents, project }: DecideFetch) -> FetchDecision {
    let mut answers = answers.lock();
    answers.asked += 1;
    let settings = answers.projects.get(&project).cloned();
    match (&answers.refused, settings) {
        (None, Some(settings)) => FetchDecision {
            refused: agents
                .into_iter()
                .filter(|agent| Some(*agent) == answers.refused_agent)
                .map(|agent| (agent, "not granted".to_owned()))
                .collect(),
            settings: Some(settings),
            credential_host: answers.credential_host.clone(),
        },
        (refused, _) => {
            let reason = refused.clone().unwrap_or_else(|| "no such project".into());
            let refused = agents.into_iter().map(|agent| (agent, reason.clone())).collect();
            FetchDecision { refused, settings: None, credential_host: None }
        }
    }
}

pub async fn said(log: &dyn EventLog) -> Vec<(Commit, RepositoryEvent)> {
    let filter = ReadFilter::decisions(&[AggregateKind::Ref]);
    let mut reader = log.follow(&Position::start(), &filter).await.unwrap();
    let mut said = Vec::new();
    while let Some(followed) = reader.recv().await {
        match followed.unwrap() {
            Followed::Record(record) => {
                let commit = record.commit().cloned().unwrap();
                for event in commit.events.clone() {
                    said.push((commit.clone(), RepositoryEvent::decode(&event.body).unwrap()));
                }
            }
            Followed::CaughtUp(_) => break,
            Followed::Passed(_) => {}
        }
    }
    said
}

pub fn source(agent: AgentId, name: &str, project: ProjectId, include: &[&str]) -> SourceConfiguration {
    SourceConfiguration {
        id: SourceId::derive(agent, name),
        name: name.into(),
        project,
        reference: GitReference::Default,
        include: include.iter().map(|glob| (*glob).to_owned()).collect(),
        exclude: Vec::new(),
        interval_seconds: 3600,
        default_namespace: "default".into(),
        service_account: None,
        policies: SyncPolicies::default(),
        environment: None,
        line: 1,
    }
}

pub fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: {value:?}\n")
}

pub fn without(group: &str, kind: &str) -> ResourceRules {
    ResourceRules {
        include: Vec::new(),
        exclude: vec![KindPattern { group: group.into(), kind: kind.into() }],
    }
}
