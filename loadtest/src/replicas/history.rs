//! What a fleet leaves in the log: agents that are registered and configured, and pushes that each of them brings into its cluster.

use std::sync::Arc;

use events::configuration::{
    AgentConfiguration, ConfigurationChanged, GitReference, HealthSettings, Mode, ObserveRules,
    ResourceRules, SourceConfiguration, SyncPolicies,
};
use events::delivery::{ApplierNamed, BundleDesired, SyncCounts, SyncFinished, SyncOutcome, SyncStarted};
use events::directory::{AgentRegistered, TokenHolder, TokenIssued};
use events::grants::Grants;
use events::id::derived_uuid;
use events::observation::{Observation, ObservationBatch, Observed, OwnedObject, Write};
use events::repository::SourceAdvanced;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, BlobDigest, CommitId, CorrelationId, Event, Grounds,
    InstanceId, ObjectIdentity, ProjectId, Sha256, SourceId, Stream, SyncId, Timestamp, TokenId,
};
use events::{configuration::ConfigurationEvent, delivery::DeliveryEvent, directory::DirectoryEvent};
use store::{EventLog, NewBatch, NewCommit};
use uuid::Uuid;
use world::World;

use crate::log::ORGANIZATION;

/// Projects, each with one source of each of its agents on its default branch.
const PROJECTS: usize = 100;
const AGENTS_OF_EACH: usize = 10;
/// Objects that each push changes in each cluster.
const CHANGED: usize = 2;
/// Events of a push for one agent. Decided are its bundle, that it is to have it, that a sync began, and that it ended; observed are the sync's
/// beginning and end, and what it changed.
const EVENTS: usize = 4 + 2 + CHANGED;
const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// Appends about so many events.
pub async fn write(log: &Arc<dyn EventLog>, events: usize) -> anyhow::Result<()> {
    let pushes = events / (PROJECTS * AGENTS_OF_EACH * EVENTS);
    let projects = (0..PROJECTS).map(|_| tokio::spawn(Project::new(Arc::clone(log)).lives(pushes)));
    for project in projects.collect::<Vec<_>>() {
        project.await??;
    }
    Ok(())
}

struct Project {
    log: Arc<dyn EventLog>,
    world: World,
    id: ProjectId,
    agents: Vec<Agent>,
}

struct Agent {
    id: AgentId,
    source: SourceId,
    /// Commits about the source, and observations.
    decided: u64,
    observed: u64,
}

impl Project {
    fn new(log: Arc<dyn EventLog>) -> Self {
        let agent = |_| {
            let id = AgentId(Uuid::now_v7());
            Agent { id, source: SourceId::derive(id, "shop"), decided: 0, observed: 0 }
        };
        let agents = (0..AGENTS_OF_EACH).map(agent).collect();
        Self { log, world: World::real(), id: ProjectId(Uuid::now_v7()), agents }
    }

    async fn lives(mut self, pushes: usize) -> anyhow::Result<()> {
        for place in 0..self.agents.len() {
            self.comes(place).await?;
        }
        for push in 0..pushes {
            self.advances(u64::try_from(push)?).await?;
        }
        Ok(())
    }

    async fn append<E: Into<Event>>(
        &self,
        aggregate: AggregateRef,
        expected: u64,
        events: impl IntoIterator<Item = E>,
    ) -> anyhow::Result<()> {
        let events = store::new_events(&self.world, events.into_iter().map(Into::into))?;
        // A decision is given about what it says.
        let given = events::encode(&events)?;
        let seen = (CommitId(Uuid::from_u128(4)), expected);
        let grounds = Grounds { given, commits: [(ORGANIZATION, Some(seen))].into(), observed: [].into() };
        let commit = NewCommit {
            id: CommitId(Uuid::now_v7()),
            organization: ORGANIZATION,
            aggregate,
            expected,
            actor: Actor::service("loadtest"),
            correlation_id: CorrelationId(Uuid::from_u128(2)),
            causation_id: None,
            traceparent: None,
            occurred_at: NOW,
            command: None,
            grounds: Some(grounds),
            events,
        };
        self.log.append(commit).await?;
        Ok(())
    }

    /// An agent is registered and configured, and one of its instances applies.
    async fn comes(&self, place: usize) -> anyhow::Result<()> {
        let Some(Agent { id: agent, source, .. }) = self.agents.get(place) else { return Ok(()) };
        let registered = AgentRegistered {
            agent: *agent,
            name: format!("cluster-{place}"),
            project: self.id,
            group: None,
            replaces: Vec::new(),
        };
        let issued = TokenIssued {
            token: TokenId(Uuid::now_v7()),
            holder: TokenHolder::Agent(*agent),
            hash: Sha256::of(agent.0.as_bytes()),
            name: "first".to_owned(),
            // It is over: nobody has to look for the agent's file.
            expires_at: Some(NOW),
            clusters_only: false,
        };
        let events = [DirectoryEvent::AgentRegistered(registered), DirectoryEvent::TokenIssued(issued)];
        self.append(AggregateRef::new(AggregateKind::Agent, agent), 0, events).await?;
        let changed = ConfigurationChanged {
            agent: *agent,
            commit: commit_of(0),
            configuration: configuration(self.id, *source),
            warnings: Vec::new(),
        };
        let changed = ConfigurationEvent::ConfigurationChanged(changed);
        self.append(AggregateRef::new(AggregateKind::Configuration, agent), 0, [changed]).await?;
        let named = ApplierNamed { agent: *agent, instance: InstanceId(Uuid::now_v7()) };
        let named = DeliveryEvent::ApplierNamed(named);
        self.append(AggregateRef::new(AggregateKind::Applier, agent), 0, [named]).await
    }

    /// A push gets into all clusters.
    async fn advances(&mut self, push: u64) -> anyhow::Result<()> {
        let reference = GitReference::Default.to_string();
        let aggregate = derived_uuid(&[self.id.0.as_bytes(), reference.as_bytes()]).hyphenated();
        let advanced = self.agents.iter().map(|agent| SourceAdvanced {
            source: agent.source,
            agent: agent.id,
            commit: commit_of(push),
            bundle: bundle_of(self.id, push),
            objects: 20,
            warnings: Vec::new(),
            takes_no_file: false,
            selection: None,
        });
        let advanced = advanced.map(events::repository::RepositoryEvent::SourceAdvanced);
        self.append(AggregateRef::new(AggregateKind::Ref, aggregate), push, advanced).await?;
        for place in 0..self.agents.len() {
            self.reaches(place, push).await?;
        }
        Ok(())
    }

    async fn reaches(&mut self, place: usize, push: u64) -> anyhow::Result<()> {
        let Some(Agent { id: agent, source, decided, observed }) = self.agents.get_mut(place) else {
            return Ok(());
        };
        let (agent, source, sync) = (*agent, *source, SyncId(Uuid::now_v7()));
        let (version, first) = (*decided, *observed + 1);
        let counts = SyncCounts { unchanged: 18, changed: 2, ..SyncCounts::default() };
        let observations = observations(source, sync, counts);
        *decided += 3;
        *observed += u64::try_from(observations.len())?;
        let desired = BundleDesired {
            source,
            agent,
            sync,
            commit: commit_of(push),
            bundle: bundle_of(self.id, push),
            objects: 20,
            prune: None,
            prunes: 0,
            wanted: None,
            withheld: 0,
            selection: None,
        };
        let outcome = SyncOutcome::Succeeded;
        let finished = SyncFinished { source, sync, run: 1, outcome, counts, failures: Vec::new() };
        let aggregate = AggregateRef::new(AggregateKind::Source, source);
        self.append(aggregate.clone(), version, [DeliveryEvent::BundleDesired(desired)]).await?;
        let writer = ObservationBatch::agent_writer(agent);
        let batch = ObservationBatch { organization: ORGANIZATION, writer, epoch: 1, first, observations };
        let batch = NewBatch {
            stream: Stream::Observations,
            organization: ORGANIZATION,
            writer: batch.writer.clone(),
            data: events::encode(&batch)?,
        };
        self.log.append_batch(batch).await?;
        let started = SyncStarted { source, sync, run: 1, epoch: 1 };
        self.append(aggregate.clone(), version + 1, [DeliveryEvent::SyncStarted(started)]).await?;
        self.append(aggregate, version + 2, [DeliveryEvent::SyncFinished(finished)]).await
    }
}

fn commit_of(push: u64) -> String {
    format!("{push:040x}")
}

fn bundle_of(project: ProjectId, push: u64) -> BlobDigest {
    BlobDigest(Sha256::of(format!("{project} {push}").as_bytes()).0)
}

fn configuration(project: ProjectId, source: SourceId) -> AgentConfiguration {
    let source = SourceConfiguration {
        id: source,
        name: "shop".to_owned(),
        project,
        reference: GitReference::Default,
        include: vec!["manifests/**".to_owned()],
        exclude: Vec::new(),
        interval_seconds: 60,
        default_namespace: "shop".to_owned(),
        service_account: None,
        policies: SyncPolicies::default(),
        environment: None,
        line: 2,
    };
    AgentConfiguration {
        actions: Vec::new(),
        mode: Mode::Cluster,
        resources: ResourceRules::default(),
        observe: ObserveRules::default(),
        health: HealthSettings::default(),
        relations: Vec::new(),
        sources: vec![source],
        lockdown: false,
        implicit_rights: false,
        grants: Grants::default(),
    }
}

fn observations(source: SourceId, sync: SyncId, counts: SyncCounts) -> Vec<Observation> {
    let started = Observed::SyncStarted { source, sync, correlation_id: CorrelationId(Uuid::from_u128(2)) };
    let applied = (0..CHANGED).map(|number| Observed::ObjectApplied {
        sync: Some(sync),
        object: OwnedObject {
            source,
            identity: ObjectIdentity {
                group: "apps".to_owned(),
                version: "v1".to_owned(),
                kind: "Deployment".to_owned(),
                namespace: "shop".to_owned(),
                name: format!("part-{number}"),
            },
            uid: Uuid::from_u128(5).to_string(),
            digest: Some(Sha256::of(sync.0.as_bytes())),
            adopted: false,
        },
        write: Write::Changed,
        taken_over: Vec::new(),
    });
    let outcome = SyncOutcome::Succeeded;
    let finished = Observed::SyncFinished { source, sync, outcome, counts, failures: Vec::new() };
    let all = [started].into_iter().chain(applied).chain([finished]);
    all.map(|what| Observation { at: NOW, what }).collect()
}
