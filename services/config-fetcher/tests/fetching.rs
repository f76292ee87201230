//! config-fetcher with the embedded store and the bus of one process; what authz and repo-poller answer comes from a table.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test from end to end")]

#[path = "fetching/definitions.rs"]
mod definitions;
#[path = "fetching/late_log.rs"]
mod late_log;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, LocalBus, Serving};
use config_fetcher::{Args, Deps};
use events::Notice as _;
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, ConfigurationRejected, FileFinding,
    GitReference,
};
use events::directory::{AgentRegistered, DirectoryEvent, ProjectSettings, TokenHolder, TokenIssued};
use events::requests::authz::{
    Decide, DecideFetch, Decision, FetchDecision, FindMissing, Missing, ProjectView, ShowProject,
};
use events::requests::configuration::ShowConfiguration;
use events::requests::repository::{FileAtCommit, ReadFile, RepositoryAdvanced};
use events::subject::Subject;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, Commit, CommitId, CorrelationId, Event, GroupId,
    OrganizationId, Position, ProjectId, Refusal, RefusalKind, Sha256, Timestamp, TokenId, UserId,
};
use futures::FutureExt;
use parking_lot::Mutex;
use store::embedded::{EmbeddedStore, Options};
use store::{AppendError, Followed, NewCommit, ReadFilter};
use testkit::eventually;
use world::World;
use world::spawn::TaskHandle;

use late_log::{Late, LateLog};

const DEADLINE: Duration = Duration::from_secs(60);
const FILE: &str = ".kasbah/agents/staging/config.yaml";

#[derive(Default)]
struct Table {
    /// What reading the file gives.
    file: Option<Result<FileAtCommit, Refusal>>,
    /// What reading any other file gives.
    others: BTreeMap<(ProjectId, String), Result<FileAtCommit, Refusal>>,
    projects: BTreeMap<String, ProjectId>,
    not_granted: Option<ProjectId>,
    reads: Vec<ReadFile>,
}

struct Harness {
    world: World,
    store: EmbeddedStore,
    bus: Arc<LocalBus>,
    table: Arc<Mutex<Table>>,
    late: Arc<Mutex<Late>>,
    organization: OrganizationId,
    project: ProjectId,
    agent: AgentId,
    trigger: chassis::ShutdownTrigger,
    _folder: tempfile::TempDir,
    _serving: Vec<Serving>,
}

fn at(commit: &str, text: &str) -> Option<Result<FileAtCommit, Refusal>> {
    Some(Ok(FileAtCommit {
        commit: commit.into(),
        content: Some(text.as_bytes().to_vec()),
        too_large: None,
        folder: commit.into(),
    }))
}

fn source(extra: &str) -> String {
    format!("sources:\n  - name: shop\n    include: ['**']\n{extra}")
}

impl Harness {
    /// A running fetcher, and an agent with a live token that was there before.
    async fn start(file: Option<Result<FileAtCommit, Refusal>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = World::real();
        let store = store::embedded::open(&world, folder.path(), Options::default()).unwrap();
        let bus = Arc::new(LocalBus::new(world.clone()));
        let table = Arc::new(Mutex::new(Table { file, ..Table::default() }));
        let serving = serve(&bus, &table).await;
        let (trigger, shutdown) = chassis::ShutdownTrigger::new();
        let harness = Self {
            organization: OrganizationId(world.new_uuid()),
            project: ProjectId(world.new_uuid()),
            agent: AgentId(world.new_uuid()),
            store,
            bus,
            table,
            late: Arc::default(),
            trigger,
            _folder: folder,
            _serving: serving,
            world,
        };
        harness.register(harness.agent, harness.project).await;
        let _running = harness.run(shutdown, chassis::Readiness::new());
        // Nothing is registered before it runs, so readiness alone says too much.
        let show = ShowConfiguration { agent: AgentId(harness.world.new_uuid()) };
        eventually(DEADLINE, || async {
            let context = bus::context_for_service(&harness.world, "test", harness.organization);
            match bus::ask(&*harness.bus, &context, &show).await {
                Err(refusal) if refusal.kind == RefusalKind::NotFound => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        harness
    }

    fn run(&self, shutdown: chassis::Shutdown, readiness: chassis::Readiness) -> TaskHandle {
        let log = LateLog { log: Arc::clone(&self.store.log), late: Arc::clone(&self.late) };
        let deps = Deps {
            world: self.world.clone(),
            log: Arc::new(log),
            snapshots: Arc::clone(&self.store.snapshots),
            bus: Arc::clone(&self.bus) as Arc<dyn Bus>,
            readiness,
        };
        let running = async move {
            config_fetcher::run(Args { configuration_interval: 3600 }, deps, shutdown).await.unwrap()
        };
        self.world.spawner.spawn("config-fetcher", Box::pin(running))
    }

    async fn register(&self, agent: AgentId, project: ProjectId) {
        let registered =
            AgentRegistered { agent, name: "staging".into(), project, group: None, replaces: Vec::new() };
        let issued = TokenIssued {
            token: TokenId(self.world.new_uuid()),
            holder: TokenHolder::Agent(agent),
            hash: Sha256::of(agent.0.as_bytes()),
            name: "first".into(),
            expires_at: None,
            clusters_only: false,
        };
        let events = [DirectoryEvent::AgentRegistered(registered), DirectoryEvent::TokenIssued(issued)];
        let commit = NewCommit {
            id: CommitId(self.world.new_uuid()),
            organization: self.organization,
            aggregate: AggregateRef::new(AggregateKind::Agent, agent),
            expected: 0,
            actor: Actor::service("test"),
            correlation_id: CorrelationId(self.world.new_uuid()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(0),
            command: None,
            grounds: None,
            events: store::new_events(&self.world, events.map(Event::from)).unwrap(),
        };
        self.store.log.append(commit).await.unwrap();
    }

    /// An earlier version put a configuration into force.
    async fn put_into_force(&self, configuration: AgentConfiguration) {
        let (agent, warnings) = (self.agent, Vec::new());
        let changed = ConfigurationChanged { agent, commit: "c1".into(), configuration, warnings };
        let event = Event::from(ConfigurationEvent::ConfigurationChanged(changed));
        let commit = NewCommit {
            id: CommitId(self.world.new_uuid()),
            organization: self.organization,
            aggregate: AggregateRef::new(AggregateKind::Configuration, agent),
            expected: 0,
            actor: Actor::service("config-fetcher"),
            correlation_id: CorrelationId(self.world.new_uuid()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(0),
            command: None,
            grounds: None,
            events: store::new_events(&self.world, [event]).unwrap(),
        };
        self.store.log.append(commit).await.unwrap();
    }

    /// The file changes, and repo-poller says so.
    async fn advance(&self, file: Option<Result<FileAtCommit, Refusal>>) -> CorrelationId {
        self.table.lock().file = file;
        self.tell_of(self.project).await
    }

    async fn tell_of(&self, project: ProjectId) -> CorrelationId {
        let correlation_id = CorrelationId(self.world.new_uuid());
        let notice = RepositoryAdvanced {
            traceparent: None,
            project,
            reference: GitReference::Default,
            commit: "next".into(),
            configuration: None,
            correlation_id,
        };
        let bytes = events::encode(&notice).unwrap().into();
        self.bus.publish(&Subject::notice(RepositoryAdvanced::NAME), bytes).await.unwrap();
        correlation_id
    }

    async fn said(&self) -> Vec<(Commit, ConfigurationEvent)> {
        let filter = ReadFilter::decisions(&[AggregateKind::Configuration]);
        let mut reader = self.store.log.follow(&Position::start(), &filter).await.unwrap();
        let mut said = Vec::new();
        while let Some(followed) = reader.recv().await {
            match followed.unwrap() {
                Followed::Record(record) => {
                    let commit = record.commit().cloned().unwrap();
                    let event = ConfigurationEvent::decode(&commit.events[0].body).unwrap();
                    said.push((commit, event));
                }
                Followed::CaughtUp(_) => break,
                Followed::Passed(_) => {}
            }
        }
        said
    }

    async fn wait_said(&self, count: usize) -> (Commit, ConfigurationEvent) {
        let said = eventually(DEADLINE, || async {
            let said = self.said().await;
            if said.len() >= count { Ok(said) } else { Err(format!("{said:#?}")) }
        })
        .await;
        assert_eq!(said.len(), count, "{said:#?}");
        said.into_iter().next_back().unwrap()
    }

    async fn wait_changed(&self, count: usize) -> ConfigurationChanged {
        match self.wait_said(count).await.1 {
            ConfigurationEvent::ConfigurationChanged(changed) => changed,
            other @ ConfigurationEvent::ConfigurationRejected(_) => panic!("{other:#?}"),
        }
    }

    async fn wait_rejected(&self, count: usize) -> ConfigurationRejected {
        match self.wait_said(count).await.1 {
            ConfigurationEvent::ConfigurationRejected(rejected) => rejected,
            other @ ConfigurationEvent::ConfigurationChanged(_) => panic!("{other:#?}"),
        }
    }

    async fn wait_reads(&self, count: usize) {
        eventually(DEADLINE, || async {
            let reads = self.table.lock().reads.len();
            if reads >= count { Ok(()) } else { Err(format!("{reads} reads")) }
        })
        .await;
    }

    fn reads(&self) -> usize {
        self.table.lock().reads.len()
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.trigger.request();
    }
}

async fn serve(bus: &Arc<LocalBus>, table: &Arc<Mutex<Table>>) -> Vec<Serving> {
    let (read, show, fetch) = (Arc::clone(table), Arc::clone(table), Arc::clone(table));
    let find = Arc::clone(table);
    let settings = ProjectSettings {
        repository: "https://example.com/a.git".into(),
        default_branch: "main".into(),
        credential: None,
        external_id: None,
    };
    vec![
        bus::answer::<ReadFile, _>(&**bus, move |_, request| {
            let mut table = read.lock();
            let other = table.others.get(&(request.project, request.path.clone())).cloned();
            let unavailable = || Err(Refusal::new(RefusalKind::Unavailable, "not watched yet; retry"));
            let answer = other.or_else(|| table.file.clone().filter(|_| request.path == FILE));
            let answer = answer.unwrap_or_else(unavailable);
            table.reads.push(request);
            async move { answer }.boxed()
        })
        .await
        .unwrap(),
        bus::answer::<ShowProject, _>(&**bus, move |_, request| {
            let found = show.lock().projects.get(&request.project).copied();
            let settings = settings.clone();
            async move {
                let id = found.ok_or_else(|| Refusal::not_found("project"))?;
                Ok(ProjectView { id, group: GroupId(id.0), path: request.project, settings })
            }
            .boxed()
        })
        .await
        .unwrap(),
        bus::answer::<FindMissing, _>(&**bus, move |_, request| {
            let table = find.lock();
            let missing = |path: &String| !table.projects.contains_key(path);
            let projects = request.projects.into_iter().filter(missing).collect();
            let missing = Missing { projects, groups: request.groups.into_iter().collect() };
            async move { Ok(missing) }.boxed()
        })
        .await
        .unwrap(),
        bus::answer::<DecideFetch, _>(&**bus, move |_, request| {
            let refused = fetch.lock().not_granted == Some(request.project);
            let reason = "grant the credential to the agent's project too".to_owned();
            let refused = request.agents.into_iter().filter(|_| refused);
            let refused = refused.map(|agent| (agent, reason.clone())).collect();
            async move { Ok(FetchDecision { refused, settings: None, credential_host: None }) }.boxed()
        })
        .await
        .unwrap(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_comes_into_force_in_the_chain_of_its_push() {
    let harness = Harness::start(at("c1", &source(""))).await;
    let changed = harness.wait_changed(1).await;
    assert_eq!((changed.agent, changed.commit.as_str()), (harness.agent, "c1"));
    assert_eq!(changed.configuration.sources[0].project, harness.project);
    let read = harness.table.lock().reads[0].clone();
    assert_eq!((read.agent, read.project, read.path.as_str()), (harness.agent, harness.project, FILE));
    let cause = harness.advance(at("c2", &source("    interval: 5m\n    intervall: 1\n"))).await;
    let changed = harness.wait_changed(2).await;
    assert_eq!(changed.configuration.sources[0].interval_seconds, 300);
    assert_eq!(changed.warnings[0].line, 5);
    assert_eq!(harness.said().await[1].0.correlation_id, cause);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_came_into_force_formerly_stays_so_until_what_it_says_changes() {
    let harness = Harness::start(None).await;
    let text = "sources: []\nuser_access: {projects: [{id: shop/web}]}\n";
    let former = config_fetcher::schema::check(FILE, text.as_bytes()).former.unwrap();
    harness.put_into_force(former.draft.resolve(harness.agent, &[], &BTreeMap::new())).await;
    harness.advance(at("c2", text)).await;
    let changed = harness.wait_changed(2).await;
    let as_agent = events::grants::UserAccessAs::Agent;
    assert_eq!(changed.configuration.grants.users_access_as, as_agent);
    assert!(changed.configuration.implicit_rights);
    let fields: Vec<&str> = changed.warnings.iter().map(|found| found.field.as_str()).collect();
    for field in ["ci_access", "user_access.access_as"] {
        assert!(fields.contains(&field), "{fields:?}");
    }
    let reads = harness.reads();
    harness.advance(at("c3", &format!("{text}# a comment\n"))).await;
    harness.wait_reads(reads + 1).await;
    harness.advance(at("c4", &format!("{text}lockdown: true\n"))).await;
    let changed = harness.wait_changed(3).await;
    assert_ne!(changed.configuration.grants.users_access_as, as_agent, "what changes is read as it is today");
    assert!(!changed.configuration.implicit_rights);
    assert!(changed.warnings.iter().all(|found| !found.field.ends_with("access_as")), "{changed:?}");
}

/// How often each agent was told of a commit.
async fn told(harness: &Harness, commit: &str) -> BTreeMap<AgentId, usize> {
    let mut told = BTreeMap::new();
    for (_, event) in harness.said().await {
        match event {
            ConfigurationEvent::ConfigurationChanged(changed) if changed.commit == commit => {
                *told.entry(changed.agent).or_default() += 1;
            }
            ConfigurationEvent::ConfigurationChanged(_) => {}
            other @ ConfigurationEvent::ConfigurationRejected(_) => panic!("{other:#?}"),
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_moves_to_another_replica_misses_no_push_and_doubles_no_event() {
    const AGENTS: usize = 8;
    let harness = Harness::start(at("c0", &source(""))).await;
    let mut projects = vec![harness.project];
    while projects.len() < AGENTS {
        let (agent, project) = (AgentId(harness.world.new_uuid()), ProjectId(harness.world.new_uuid()));
        harness.register(agent, project).await;
        projects.push(project);
    }
    let comes = async |commit: &'static str| {
        eventually(DEADLINE, || async {
            let told = told(&harness, commit).await;
            if told.len() == AGENTS { Ok(()) } else { Err(format!("{commit}: {told:?}")) }
        })
        .await;
    };
    let push = async |commit: &'static str, minutes: usize| {
        harness.table.lock().file = at(commit, &source(&format!("    interval: {minutes}m\n")));
        for project in &projects {
            harness.tell_of(*project).await;
        }
    };
    comes("c0").await;
    let (trigger, shutdown) = chassis::ShutdownTrigger::new();
    let readiness = chassis::Readiness::new();
    let other = harness.run(shutdown, readiness.clone());
    // Pushed while some move to the new replica, and while they move back.
    push("c1", 11).await;
    comes("c1").await;
    eventually(DEADLINE, || async { if readiness.is_ready() { Ok(()) } else { Err("not ready") } }).await;
    push("c2", 12).await;
    comes("c2").await;
    push("c3", 13).await;
    trigger.request();
    other.join().await.unwrap();
    comes("c3").await;
    push("c4", 14).await;
    comes("c4").await;
    for commit in ["c0", "c1", "c2", "c3", "c4"] {
        let told = told(&harness, commit).await;
        assert!(told.values().all(|times| *times == 1), "{commit}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_to_the_log_late_takes_the_place_of_nothing_newer() {
    let harness = Harness::start(at("c1", &source(""))).await;
    let before = harness.wait_changed(1).await;
    let table = Arc::clone(&harness.table);
    // By the time that anybody looks again, the file is as it was.
    let back = move || table.lock().file = at("c3", &source(""));
    harness.late.lock().meanwhile = Some(Box::new(back));
    let cause = harness.advance(at("c2", "sources: []\n")).await;
    assert_eq!(harness.wait_changed(2).await, ConfigurationChanged { commit: "c3".into(), ..before });
    assert_eq!(harness.said().await[1].0.correlation_id, cause, "it is still in the chain of the push");
    let late = harness.late.lock().commits.pop().unwrap();
    let conflict = harness.store.log.append(late).await;
    assert!(matches!(conflict, Err(AppendError::Conflict { .. })), "{conflict:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_readable_yet_is_read_again_soon() {
    let harness = Harness::start(None).await;
    harness.wait_reads(3).await;
    harness.table.lock().file = at("c1", &source(""));
    harness.wait_changed(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_or_missing_changes_nothing_that_is_in_force() {
    let harness = Harness::start(at("c1", &source(""))).await;
    harness.wait_changed(1).await;
    harness.advance(at("c2", "sources: nonsense\nmode: x\n")).await;
    let rejected = harness.wait_rejected(2).await;
    assert_eq!((rejected.commit.as_deref(), rejected.findings.len()), (Some("c2"), 2));
    let missing = FileAtCommit { commit: "c3".into(), content: None, too_large: None, folder: "c3".into() };
    harness.advance(Some(Ok(missing))).await;
    let rejected = harness.wait_rejected(3).await;
    assert!(rejected.findings[0].message.contains("no such file"), "{rejected:?}");
    let large =
        FileAtCommit { commit: "c4".into(), content: None, too_large: Some(1_000_000), folder: "c4".into() };
    harness.advance(Some(Ok(large))).await;
    assert!(harness.wait_rejected(4).await.findings[0].message.contains("1000000 bytes"));
    harness.advance(Some(Err(Refusal::new(RefusalKind::Denied, "not granted")))).await;
    let rejected = harness.wait_rejected(5).await;
    assert_eq!(rejected.commit, None);
    assert!(rejected.findings[0].message.contains("not granted"));
    // The same again says nothing; what is good again does.
    let reads = harness.reads();
    harness.advance(Some(Err(Refusal::new(RefusalKind::Denied, "not granted")))).await;
    harness.wait_reads(reads + 1).await;
    let show = ShowConfiguration { agent: harness.agent };
    let context = bus::context_for(&harness.world, Actor::service("test"), harness.organization);
    let view = bus::ask(&*harness.bus, &context, &show).await.unwrap();
    assert_eq!((view.commit.as_deref(), view.configuration.unwrap().sources.len()), (Some("c1"), 1));
    assert_eq!(view.rejected.unwrap().findings, rejected.findings);
    harness.advance(at("c5", &source(""))).await;
    harness.wait_changed(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_projects_are_found_by_their_path_when_they_may_be_read() {
    let harness = Harness::start(None).await;
    let deploy = ProjectId(harness.world.new_uuid());
    harness.table.lock().projects.insert("shop/deploy".into(), deploy);
    harness.advance(at("c1", &source("    project: shop/deploy\n"))).await;
    assert_eq!(harness.wait_changed(1).await.configuration.sources[0].project, deploy);
    let both = "sources:\n  - {name: a, include: [a], project: shop/deploy}\n  - {name: b, include: [a], project: shop/other}\n";
    harness.table.lock().not_granted = Some(deploy);
    harness.advance(at("c2", both)).await;
    let rejected = harness.wait_rejected(2).await;
    let places: Vec<_> = rejected
        .findings
        .iter()
        .map(|finding| (finding.line, finding.column, finding.field.as_str()))
        .collect();
    assert_eq!(places, [(2, 38, "sources[0].project"), (3, 38, "sources[1].project")]);
    assert!(rejected.findings[0].message.contains("grant the credential"), "{rejected:?}");
    assert!(rejected.findings[1].message.contains("not found"), "{rejected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_for_what_is_not_there_are_warned_of_until_it_is() {
    let harness = Harness::start(None).await;
    harness.table.lock().projects.insert("shop/web".into(), ProjectId(harness.world.new_uuid()));
    let grants = "sources: []\nci_access:\n  projects:\n    - id: shop/web\n    - id: Shop/Wbe\n  groups:\n    - id: shpo\nuser_access:\n  projects:\n    - id: shop/wbe\n";
    harness.advance(at("c1", grants)).await;
    let changed = harness.wait_changed(1).await;
    let places = |warnings: &[FileFinding]| -> Vec<(u32, String)> {
        warnings.iter().map(|warning| (warning.line, warning.field.clone())).collect()
    };
    let expected =
        [(5, "ci_access.projects[1].id"), (7, "ci_access.groups[0].id"), (10, "user_access.projects[0].id")];
    assert_eq!(places(&changed.warnings), expected.map(|(line, field)| (line, field.to_owned())));
    assert!(changed.warnings[0].message.contains("no project 'shop/wbe'"), "{changed:?}");
    assert!(changed.warnings[1].message.contains("no group 'shpo'"), "{changed:?}");

    // The file stays as it is, and so does its folder.
    harness.table.lock().projects.insert("shop/wbe".into(), ProjectId(harness.world.new_uuid()));
    harness.tell_of(harness.project).await;
    let changed = harness.wait_changed(2).await;
    assert_eq!(places(&changed.warnings), [(7, "ci_access.groups[0].id".to_owned())]);

    // Of a file that is refused they are told too.
    harness.advance(at("c2", &format!("mode: x\n{grants}"))).await;
    let rejected = harness.wait_rejected(3).await;
    assert_eq!(places(&rejected.warnings), [(8, "ci_access.groups[0].id".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_see_what_authz_lets_them_see() {
    let harness = Harness::start(at("c1", &source(""))).await;
    harness.wait_changed(1).await;
    let (friend, stranger) = (UserId(harness.world.new_uuid()), UserId(harness.world.new_uuid()));
    let _serving = bus::answer::<Decide, _>(&*harness.bus, move |_, request| {
        let known = request.actor == Actor::User(friend);
        async move { Ok(Decision { allowed: known, visible: known, reason: "a test".into() }) }.boxed()
    })
    .await
    .unwrap();
    let show = ShowConfiguration { agent: harness.agent };
    let ask = |actor: Actor, organization: OrganizationId| {
        let context = bus::context_for(&harness.world, actor, organization);
        let (bus, show) = (Arc::clone(&harness.bus), show.clone());
        async move { bus::ask(&*bus, &context, &show).await }
    };
    // The log has it before the fetcher has folded it.
    eventually(DEADLINE, || async {
        let view = ask(Actor::User(friend), harness.organization).await.unwrap();
        if view.commit.as_deref() == Some("c1") { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    let refusals = [
        ask(Actor::User(stranger), harness.organization).await,
        ask(Actor::User(friend), OrganizationId(harness.world.new_uuid())).await,
    ];
    for refusal in refusals {
        assert_eq!(refusal.unwrap_err().kind, RefusalKind::NotFound);
    }
}
