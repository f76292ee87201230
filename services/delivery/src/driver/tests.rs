//! Delivery with the embedded store and the bus of one process, over a log that one organization's decisions do not get into.

mod blocked_log;

use std::sync::Arc;
use std::time::Duration;

use bus::LocalBus;
use events::bundle::BundleRoot;
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, GitReference, HealthSettings, Mode,
    ObserveRules, ResourceRules, SourceConfiguration, SyncPolicies,
};
use events::delivery::DeliveryEvent;
use events::directory::{AgentRegistered, DirectoryEvent};
use events::repository::{RepositoryEvent, SourceAdvanced, ref_aggregate};
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, BlobDigest, CommitId, CorrelationId, Event, OrganizationId,
    ProjectId, SourceId, Timestamp,
};
use store::embedded::{Options, open};
use store::{NewCommit, Parts};
use testkit::eventually;
use world::World;

use super::{Args, Deps, run};
use blocked_log::{Blocked, BlockedLog};

/// Well below what delivery gives the log for an append.
const AT_ONCE: Duration = Duration::from_secs(15);

struct Harness {
    world: World,
    parts: Parts,
    log: Arc<BlockedLog>,
    trigger: chassis::ShutdownTrigger,
    _folder: tempfile::TempDir,
}

/// A tenant with one agent that has one source.
struct Tenant {
    organization: OrganizationId,
    agent: AgentId,
    project: ProjectId,
    source: SourceId,
    bundle: BlobDigest,
}

impl Harness {
    fn start() -> Self {
        let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
        let parts = open(&world, folder.path(), Options::default()).unwrap().parts();
        let log = Arc::new(BlockedLog::new(Arc::clone(&parts.log)));
        let (trigger, shutdown) = chassis::ShutdownTrigger::new();
        let deps = Deps {
            world: world.clone(),
            log: Arc::clone(&log) as Arc<dyn store::EventLog>,
            blobs: Arc::clone(&parts.blobs),
            snapshots: Arc::clone(&parts.snapshots),
            bus: Arc::new(LocalBus::new(world.clone())),
            readiness: chassis::Readiness::new(),
            metrics: chassis::Metrics::new(),
        };
        let running = async move { run(Args::default(), deps, shutdown).await.unwrap() };
        drop(world.spawner.spawn("delivery", Box::pin(running)));
        Self { world, parts, log, trigger, _folder: folder }
    }

    async fn append(&self, tenant: &Tenant, aggregate: AggregateRef, expected: u64, event: impl Into<Event>) {
        let commit = NewCommit {
            id: CommitId(self.world.new_uuid()),
            organization: tenant.organization,
            aggregate,
            expected,
            actor: Actor::service("test"),
            correlation_id: CorrelationId(self.world.new_uuid()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(0),
            command: None,
            grounds: None,
            events: store::new_events(&self.world, [event.into()]).unwrap(),
        };
        self.parts.log.append(commit).await.unwrap();
    }

    async fn tenant(&self) -> Tenant {
        let organization = OrganizationId(self.world.new_uuid());
        let (agent, project) = (AgentId(self.world.new_uuid()), ProjectId(self.world.new_uuid()));
        let root = events::encode(&BundleRoot { pages: Vec::new(), objects: 0 }).unwrap();
        let bundle = self.parts.blobs.put(organization, vec![root.into()]).await.unwrap()[0];
        let tenant = Tenant { organization, agent, project, source: SourceId::derive(agent, "shop"), bundle };
        let registered = AgentRegistered {
            agent,
            name: "production".to_owned(),
            project,
            group: None,
            replaces: Vec::new(),
        };
        let aggregate = AggregateRef::new(AggregateKind::Agent, agent);
        self.append(&tenant, aggregate, 0, DirectoryEvent::AgentRegistered(registered)).await;
        let configuration = AgentConfiguration {
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: ObserveRules::default(),
            health: HealthSettings::default(),
            relations: Vec::new(),
            actions: Vec::new(),
            sources: vec![SourceConfiguration {
                id: tenant.source,
                name: "shop".to_owned(),
                project,
                reference: GitReference::Default,
                include: vec!["**".to_owned()],
                exclude: Vec::new(),
                interval_seconds: 60,
                default_namespace: "shop".to_owned(),
                service_account: None,
                policies: SyncPolicies::default(),
                environment: None,
                line: 1,
            }],
            lockdown: false,
            implicit_rights: false,
            grants: events::grants::Grants::default(),
        };
        let (commit, warnings) = ("c0".to_owned(), Vec::new());
        let changed = ConfigurationChanged { agent, commit, configuration, warnings };
        let aggregate = AggregateRef::new(AggregateKind::Configuration, agent);
        self.append(&tenant, aggregate, 0, ConfigurationEvent::ConfigurationChanged(changed)).await;
        tenant
    }

    /// Its ref has another commit, the one of this number.
    async fn push(&self, tenant: &Tenant, number: u64) {
        let advanced = SourceAdvanced {
            source: tenant.source,
            agent: tenant.agent,
            commit: format!("c{number}"),
            bundle: tenant.bundle,
            objects: 0,
            warnings: Vec::new(),
            takes_no_file: false,
            selection: None,
        };
        let aggregate = ref_aggregate(tenant.project, &GitReference::Default);
        self.append(tenant, aggregate, number - 1, RepositoryEvent::SourceAdvanced(advanced)).await;
    }

    /// The agent is to have the commit of this number.
    async fn wait_desired(&self, tenant: &Tenant, number: u64) {
        let aggregate = AggregateRef::new(AggregateKind::Source, tenant.source);
        eventually(AT_ONCE, || async {
            let history = self.parts.log.history(tenant.organization, &aggregate).await.unwrap();
            let desired = history.iter().flat_map(|record| &record.commit().unwrap().events);
            let desired = desired.filter_map(|event| match DeliveryEvent::decode(&event.body).unwrap() {
                DeliveryEvent::BundleDesired(desired) => Some(desired.commit),
                _ => None,
            });
            let desired: Vec<String> = desired.collect();
            if desired.last() == Some(&format!("c{number}")) { Ok(()) } else { Err(format!("{desired:?}")) }
        })
        .await;
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.trigger.request();
    }
}

/// While one organization's decisions do not get into the log, another one's are made at once, however often.
async fn another_organization_waits_for_nothing(blocked: Blocked) {
    let harness = Harness::start();
    let (one, other) = (harness.tenant().await, harness.tenant().await);
    for tenant in [&one, &other] {
        harness.push(tenant, 1).await;
        harness.wait_desired(tenant, 1).await;
    }
    harness.log.block(Some((one.organization, blocked)));
    harness.push(&one, 2).await;
    harness.log.met(1).await;
    for number in 2..5 {
        harness.push(&other, number).await;
        harness.wait_desired(&other, number).await;
    }
    harness.log.block(None);
    harness.wait_desired(&one, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_hangs_for_one_organization_delays_no_other() {
    another_organization_waits_for_nothing(Blocked::Hangs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_fails_for_one_organization_delays_no_other() {
    another_organization_waits_for_nothing(Blocked::IsAway).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_fails_is_tried_again_by_itself() {
    let harness = Harness::start();
    let tenant = harness.tenant().await;
    harness.log.block(Some((tenant.organization, Blocked::IsAway)));
    harness.push(&tenant, 1).await;
    harness.log.met(5).await;
    harness.log.block(None);
    harness.wait_desired(&tenant, 1).await;
}
