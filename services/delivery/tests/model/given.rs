//! A log in memory, and what the tests put into it.

use delivery::model::{BundleContents, DeliveryState, StatusContext, Verdict, WantedLists, source_view};
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, GitReference, HealthSettings, Mode,
    ObserveRules, ResourceRules, SourceConfiguration, SyncPolicies,
};
use events::delivery::{ApplierNamed, BundleDesired, DeliveryEvent, PruneEntry, SyncCounts, SyncOutcome};
use events::directory::{AgentRegistered, DirectoryEvent};
use events::object::ObjectKey;
use events::observation::{Observation, ObservationBatch, Observed, OwnedObject, Write};
use events::position::Stream;
use events::repository::{RepositoryEvent, SourceAdvanced};
use events::requests::delivery::SourceView;
use events::{
    Actor, AgentId, AggregateKind, AggregateRef, BlobDigest, ChainHash, Commit, CommitId, CorrelationId,
    Event, EventId, InstanceId, NewEvent, ObjectIdentity, OrganizationId, ProjectId, Sha256, SourceId,
    SyncId, Timestamp,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Projection;
use store::Record;
use uuid::Uuid;

pub const AGENT: AgentId = AgentId(Uuid::from_u128(2));
pub const INSTANCE: InstanceId = InstanceId(Uuid::from_u128(9));
pub const GATEWAY: InstanceId = InstanceId(Uuid::from_u128(8));
pub const ORGANIZATION: OrganizationId = OrganizationId(Uuid::from_u128(1));

/// A log in memory that folds as it is written.
#[derive(Clone)]
pub struct Given {
    pub state: DeliveryState,
    pub versions: BTreeMap<String, u64>,
    pub observed: BTreeMap<u64, u64>,
    pub records: Vec<Record>,
    /// Lists of wanted objects by their addresses.
    pub wanted: WantedLists,
    /// How much each gateway has said.
    pub told: BTreeMap<InstanceId, u64>,
}

/// As it stands an hour later, all gateways being alive.
pub fn view(state: &DeliveryState, source: SourceId) -> Option<SourceView> {
    source_view(state, source, &StatusContext { now: Timestamp(3_600_000), gateways: None })
}

impl Given {
    pub fn agent_with(sources: Vec<SourceConfiguration>) -> Self {
        let mut given = Self {
            state: DeliveryState::start(),
            versions: BTreeMap::new(),
            observed: BTreeMap::new(),
            records: Vec::new(),
            wanted: WantedLists::new(),
            told: BTreeMap::new(),
        };
        given.decided(
            AggregateKind::Agent,
            AGENT.to_string(),
            DirectoryEvent::AgentRegistered(AgentRegistered {
                agent: AGENT,
                name: "production".to_owned(),
                project: ProjectId(Uuid::from_u128(3)),
                group: None,
                replaces: Vec::new(),
            }),
        );
        given.configured(sources);
        given
    }

    pub fn configured(&mut self, sources: Vec<SourceConfiguration>) {
        let configuration = AgentConfiguration {
            mode: Mode::Cluster,
            resources: ResourceRules::default(),
            observe: ObserveRules::default(),
            health: HealthSettings::default(),
            relations: Vec::new(),
            actions: Vec::new(),
            sources,
            lockdown: false,
            implicit_rights: false,
            grants: events::grants::Grants::default(),
        };
        self.decided(
            AggregateKind::Configuration,
            AGENT.to_string(),
            ConfigurationEvent::ConfigurationChanged(ConfigurationChanged {
                agent: AGENT,
                commit: "c0".to_owned(),
                configuration,
                warnings: Vec::new(),
            }),
        );
    }

    pub fn decided(&mut self, kind: AggregateKind, id: String, event: impl Into<Event>) {
        let version = self.versions.entry(format!("{kind}/{id}")).or_insert(0);
        *version += 1;
        let commit = Commit {
            id: CommitId(Uuid::from_u128(99)),
            organization: ORGANIZATION,
            aggregate: AggregateRef::new(kind, id),
            version: *version,
            previous: ChainHash::default(),
            actor: Actor::service("test"),
            correlation_id: CorrelationId(Uuid::from_u128(77)),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(1_000),
            command: None,
            grounds: None,
            events: vec![NewEvent { id: EventId(Uuid::from_u128(55)), body: event.into().encode().unwrap() }],
        };
        self.folded(Stream::Decisions, events::encode(&commit).unwrap());
    }

    pub fn on_source(&mut self, source: SourceId, event: DeliveryEvent) {
        self.decided(AggregateKind::Source, source.to_string(), event);
    }

    pub fn observed(&mut self, epoch: u64, what: Vec<Observed>) {
        self.observed_when(Timestamp(2_000), epoch, what);
    }

    pub fn observed_when(&mut self, at: Timestamp, epoch: u64, what: Vec<Observed>) {
        let observed = self.observed.entry(epoch).or_default();
        let first = *observed + 1;
        *observed += what.len() as u64;
        self.batch(at, (epoch, first), what);
    }

    pub fn observed_at(&mut self, epoch: u64, first: u64, what: Vec<Observed>) {
        self.batch(Timestamp(2_000), (epoch, first), what);
    }

    fn batch(&mut self, at: Timestamp, (epoch, first): (u64, u64), what: Vec<Observed>) {
        let batch = ObservationBatch {
            organization: ORGANIZATION,
            writer: ObservationBatch::agent_writer(AGENT),
            epoch,
            first,
            observations: what.into_iter().map(|what| Observation { at, what }).collect(),
        };
        self.folded(Stream::Observations, events::encode(&batch).unwrap());
    }

    pub fn folded(&mut self, stream: Stream, bytes: Vec<u8>) {
        let sequence = self.records.len() as u64 + 1;
        let record = Record::new((stream, 0), sequence, Timestamp(1_000), ORGANIZATION, bytes.into());
        self.state.fold(&record);
        self.records.push(record);
    }

    pub fn advanced(&mut self, name: &str, commit: &str, bundle: u8, objects: u32) {
        self.advanced_with(SourceId::derive(AGENT, name), commit, bundle, objects, (false, None));
    }

    /// A bundle of the files that this configuration names.
    pub fn read(&mut self, source: &SourceConfiguration, commit: &str, bundle: u8, objects: u32) {
        self.advanced_with(source.id, commit, bundle, objects, (false, Some(source.selection())));
    }

    /// The source's globs take no file any more.
    pub fn advanced_without_files(&mut self, name: &str, commit: &str, bundle: u8) {
        self.advanced_with(SourceId::derive(AGENT, name), commit, bundle, 0, (true, None));
    }

    fn advanced_with(
        &mut self,
        source: SourceId,
        commit: &str,
        bundle: u8,
        objects: u32,
        (takes_no_file, selection): (bool, Option<Sha256>),
    ) {
        self.decided(
            AggregateKind::Ref,
            "main".to_owned(),
            RepositoryEvent::SourceAdvanced(SourceAdvanced {
                source,
                agent: AGENT,
                commit: commit.to_owned(),
                bundle: BlobDigest([bundle; 32]),
                objects,
                warnings: Vec::new(),
                takes_no_file,
                selection,
            }),
        );
    }

    pub fn desired(&mut self, name: &str, commit: &str, bundle: u8, sync: u128, objects: u32) {
        let source = SourceId::derive(AGENT, name);
        self.on_source(
            source,
            DeliveryEvent::BundleDesired(BundleDesired {
                source,
                agent: AGENT,
                sync: SyncId(Uuid::from_u128(sync)),
                commit: commit.to_owned(),
                bundle: BlobDigest([bundle; 32]),
                objects,
                prune: None,
                prunes: 0,
                wanted: None,
                withheld: 0,
                selection: None,
            }),
        );
    }

    pub fn applied(&mut self, source: &str, sync: u128, names: &[&str], adopted: bool) {
        let source = SourceId::derive(AGENT, source);
        let observed = names
            .iter()
            .map(|name| Observed::ObjectApplied {
                sync: Some(SyncId(Uuid::from_u128(sync))),
                object: owned(source, name, adopted),
                write: Write::Created,
                taken_over: Vec::new(),
            })
            .collect();
        self.observed(1, observed);
    }

    /// The agent's instance is named for an epoch, is connected to a gateway, and has found nothing in the cluster.
    pub fn connected(&mut self, epoch: u64) {
        let named = DeliveryEvent::ApplierNamed(ApplierNamed { agent: AGENT, instance: INSTANCE });
        let version = self.versions.entry(format!("{}/{AGENT}", AggregateKind::Applier)).or_insert(0);
        *version = epoch - 1;
        self.decided(AggregateKind::Applier, AGENT.to_string(), named);
        let opened = Observed::TunnelOpened { agent: AGENT, instance: INSTANCE, version: "0.1.0".to_owned() };
        self.at_gateway(GATEWAY, opened);
        let stated = Observed::InventoryStated { objects: Vec::new(), last: true, unlisted: Vec::new() };
        self.observed(epoch, vec![stated]);
    }

    pub fn at_gateway(&mut self, gateway: InstanceId, what: Observed) {
        let first = self.told.entry(gateway).or_insert(0);
        *first += 1;
        let batch = ObservationBatch {
            organization: ORGANIZATION,
            writer: ObservationBatch::gateway_writer(gateway),
            epoch: 1,
            first: *first,
            observations: vec![Observation { at: Timestamp(2_000), what }],
        };
        self.folded(Stream::Observations, events::encode(&batch).unwrap());
    }

    pub fn verdict(&self, name: &str, bundles: &[(u8, &[&str])]) -> Verdict {
        self.verdict_listed(name, bundles, &[])
    }

    pub fn verdict_listed(&self, name: &str, bundles: &[(u8, &[&str])], listed: &[PruneEntry]) -> Verdict {
        // Not more than what the driver reads.
        let needed = self.state.bundles_needed(SourceId::derive(AGENT, name));
        let bundles: Vec<_> = bundles
            .iter()
            .filter(|(digest, _)| needed.contains(&BlobDigest([*digest; 32])))
            .copied()
            .collect();
        let bundles = bundles.as_slice();
        self.state.verdict(SourceId::derive(AGENT, name), &contents(bundles), listed, &self.wanted)
    }
}

/// Bundles of ConfigMaps by the first byte of their digests.
pub fn contents(bundles: &[(u8, &[&str])]) -> BTreeMap<BlobDigest, Arc<dyn BundleContents>> {
    bundles
        .iter()
        .map(|(digest, names)| {
            let keys = names.iter().map(|name| manifest_key(name)).collect();
            (BlobDigest([*digest; 32]), Arc::new(Named(keys)) as Arc<dyn BundleContents>)
        })
        .collect()
}

/// A bundle.
pub struct Named(Vec<ObjectKey>);

impl BundleContents for Named {
    fn has(&self, key: &ObjectKey, _default_namespace: &str) -> bool {
        self.0.iter().any(|own| own.name == key.name)
    }

    fn keys(&self) -> Box<dyn Iterator<Item = &ObjectKey> + '_> {
        Box::new(self.0.iter())
    }

    fn namesakes(&self, key: &ObjectKey) -> Vec<&ObjectKey> {
        let is_namesake = |own: &&ObjectKey| (&own.kind, &own.name) == (&key.kind, &key.name);
        self.0.iter().filter(is_namesake).collect()
    }
}

/// An object as a manifest names it: `name` or `namespace/name` of a ConfigMap, or `Kind.group namespace/name`.
pub fn manifest_key(text: &str) -> ObjectKey {
    let (kind, place) = text.split_once(' ').unwrap_or(("ConfigMap", text));
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let [group, kind, namespace, name] = [group, kind, namespace, name].map(str::to_owned);
    ObjectKey { group, kind, namespace, name }
}

pub fn source(name: &str) -> SourceConfiguration {
    SourceConfiguration {
        id: SourceId::derive(AGENT, name),
        name: name.to_owned(),
        project: ProjectId(Uuid::from_u128(3)),
        reference: GitReference::Default,
        include: vec!["**".to_owned()],
        exclude: Vec::new(),
        interval_seconds: 60,
        default_namespace: "shop".to_owned(),
        service_account: None,
        policies: SyncPolicies::default(),
        environment: None,
        line: 1,
    }
}

pub fn owned(source: SourceId, name: &str, adopted: bool) -> OwnedObject {
    OwnedObject {
        source,
        identity: ObjectIdentity {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        },
        uid: format!("uid-{name}"),
        digest: None,
        adopted,
    }
}

pub fn pruned(verdict: &Verdict) -> Vec<String> {
    match verdict {
        Verdict::Deliver { prune, .. } | Verdict::Remove { prune } => {
            prune.iter().map(|entry| entry.identity.name.clone()).collect()
        }
        other => panic!("expected a prune list, got {other:?}"),
    }
}

pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("c{number:03}")).collect()
}

pub fn started(source: SourceId, sync: u128) -> Observed {
    Observed::SyncStarted {
        source,
        sync: SyncId(Uuid::from_u128(sync)),
        correlation_id: CorrelationId(Uuid::from_u128(77)),
    }
}

pub fn finished(source: SourceId, sync: u128, outcome: SyncOutcome) -> Observed {
    Observed::SyncFinished {
        source,
        sync: SyncId(Uuid::from_u128(sync)),
        outcome,
        counts: SyncCounts::default(),
        failures: Vec::new(),
    }
}
