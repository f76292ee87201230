//! Given these batches, when that is asked: helpers of the model's tests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests end a test by panicking")]

use std::collections::BTreeSet;

use events::digest::Sha256;
use events::directory::{AgentRegistered, DirectoryEvent, GroupCreated, ProjectCreated, ProjectSettings};
use events::environment::{Association, Grouping, SyncRun, Tier};
use events::grants::UserAccessAs;
use events::object::ObjectIdentity;
use events::observation::{
    FieldWriter, Gone, ObjectBody, Observation, ObservationBatch, Observed as Word, ObservedKind, SeenObject,
};
use events::pass::Narrowing;
use events::requests::authz::UsableAgent;
use events::requests::environments::{EnvironmentState, ResourceGroup, ResourcePlace};
use events::requests::index::AsOf;
use events::{
    AgentId, DeploymentId, EnvironmentId, Event, GroupId, InstanceId, OrganizationId, Position, ProjectId,
    SourceId, SyncId, Timestamp,
};
use objects::ownership::{OwnerMark, mark};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

pub(crate) const ORGANIZATION: OrganizationId = OrganizationId(Uuid::from_u128(1));
pub(crate) const PROJECT: ProjectId = ProjectId(Uuid::from_u128(2));
/// Another project of the same group.
pub(crate) const BANK: ProjectId = ProjectId(Uuid::from_u128(4));
pub(crate) const SOURCE: SourceId = SourceId(Uuid::from_u128(30));
pub(crate) const GROUP: GroupId = GroupId(Uuid::from_u128(3));
pub(crate) const AGENT: AgentId = AgentId(Uuid::from_u128(10));
pub(crate) const OTHER: AgentId = AgentId(Uuid::from_u128(11));
pub(crate) const GATEWAY: InstanceId = InstanceId(Uuid::from_u128(20));

/// A body with its identity; what is given is put over it.
pub(crate) fn object(api_version: &str, kind: &str, place: &str, rest: Value) -> Value {
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let mut body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "uid": format!("uid-{name}")}});
    if !namespace.is_empty() {
        body["metadata"]["namespace"] = json!(namespace);
    }
    merge(&mut body, rest);
    body
}

fn merge(body: &mut Value, rest: Value) {
    match (body, rest) {
        (Value::Object(body), Value::Object(rest)) => {
            for (key, value) in rest {
                merge(body.entry(key).or_insert(Value::Null), value);
            }
        }
        (body, rest) => *body = rest,
    }
}

/// Makes a body one that another object controls.
pub(crate) fn below(mut body: Value, api_version: &str, kind: &str, owner: &str) -> Value {
    body["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": owner,
        "uid": format!("uid-{owner}"), "controller": true}]);
    body
}

pub(crate) fn pod(place: &str, rest: Value) -> Value {
    object("v1", "Pod", place, rest)
}

pub(crate) fn config(place: &str, rest: Value) -> Value {
    object("v1", "ConfigMap", place, rest)
}

pub(crate) fn identity(body: &Value) -> ObjectIdentity {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    ObjectIdentity {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    }
}

pub(crate) fn uid(body: &Value) -> String {
    body["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub(crate) fn digest(body: &Value) -> Sha256 {
    Sha256::of(body.to_string().as_bytes())
}

pub(crate) fn seen(body: &Value) -> Word {
    let writer = FieldWriter {
        manager: "kubectl".to_owned(),
        operation: "Apply".to_owned(),
        subresource: String::new(),
        at: None,
    };
    Word::ObjectSeen {
        object: Box::new(SeenObject {
            identity: identity(body),
            uid: uid(body),
            resource_version: "1".to_owned(),
            digest: digest(body),
            body: ObjectBody::Json(body.to_string()),
            writers: vec![writer],
        }),
    }
}

pub(crate) fn kept(body: &Value) -> Word {
    Word::ObjectKept { identity: identity(body), uid: uid(body), digest: digest(body) }
}

pub(crate) fn gone(body: &Value) -> Word {
    let (identity, uid) = (identity(body), uid(body));
    Word::ObjectGone { identity, uid, resource_version: String::new(), why: Gone::Deleted }
}

pub(crate) fn kind(group: &str, kind: &str, plural: &str, namespace: &str) -> ObservedKind {
    ObservedKind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced: true,
        namespace: namespace.to_owned(),
    }
}

pub(crate) fn listed(of: ObservedKind, since: u64) -> Word {
    Word::KindListed { of, resource_version: "9".to_owned(), since, objects: 0 }
}

pub(crate) fn batch(agent: AgentId, epoch: u64, first: u64, words: Vec<Word>) -> ObservationBatch {
    let observations = words.into_iter().map(|what| Observation { at: Timestamp(1_000), what }).collect();
    let writer = ObservationBatch::agent_writer(agent);
    ObservationBatch { organization: ORGANIZATION, writer, epoch, first, observations }
}

/// Where what is decided at the beginning stands.
pub(crate) const DECIDED: DecidedAt = DecidedAt { recorded_at: Timestamp(0), partition: 0, sequence: 1 };

/// A fold, with names and rights around it.
pub(crate) struct Given {
    pub(crate) fold: Fold,
    pub(crate) directory: Directory,
    pub(crate) tunnels: Tunnels,
    /// Everything that changed.
    pub(crate) changes: Vec<Change>,
    /// The log has lost its beginning.
    pub(crate) misses_beginning: bool,
    /// What was fetched.
    pub(crate) bodies: Bodies,
    next: u64,
    sequence: u64,
}

impl Given {
    /// Two agents of one project, `edge` and `core`.
    pub(crate) fn agents() -> Self {
        let mut directory = Directory::default();
        let registered = |agent, name: &str| {
            let (name, replaces) = (name.to_owned(), Vec::new());
            DirectoryEvent::AgentRegistered(AgentRegistered {
                agent,
                name,
                project: PROJECT,
                group: None,
                replaces,
            })
        };
        let settings = ProjectSettings {
            repository: "https://git.example".to_owned(),
            default_branch: "main".to_owned(),
            credential: None,
            external_id: None,
        };
        let events = [
            DirectoryEvent::GroupCreated(GroupCreated { group: GROUP, name: "shop".to_owned() }),
            DirectoryEvent::ProjectCreated(ProjectCreated {
                project: BANK,
                group: GROUP,
                name: "bank".to_owned(),
                settings: settings.clone(),
            }),
            DirectoryEvent::ProjectCreated(ProjectCreated {
                project: PROJECT,
                group: GROUP,
                name: "front".to_owned(),
                settings,
            }),
            registered(AGENT, "edge"),
            registered(OTHER, "core"),
        ];
        directory.apply((ORGANIZATION, DECIDED), events.map(Event::from));
        let (fold, tunnels) = (Fold::default(), Tunnels::default());
        Self {
            fold,
            directory,
            tunnels,
            changes: Vec::new(),
            misses_beginning: false,
            bodies: Bodies::default(),
            next: 1,
            sequence: 0,
        }
    }

    /// The first agent says this next, in epoch 1.
    pub(crate) fn says(&mut self, words: Vec<Word>) -> Vec<Change> {
        let count = u64::try_from(words.len()).unwrap();
        let batch = batch(AGENT, 1, self.next, words);
        self.next += count;
        self.apply(AGENT, batch)
    }

    /// A batch of an agent, recorded a second after the one before.
    pub(crate) fn apply(&mut self, agent: AgentId, batch: ObservationBatch) -> Vec<Change> {
        self.sequence += 1;
        let recorded_at = self.now();
        let at = RecordedAt {
            sequence: self.sequence,
            recorded_at,
            now: recorded_at,
            misses_beginning: self.misses_beginning,
        };
        let folded = self.fold.apply(at, agent, batch, &mut self.bodies);
        self.changes.extend(folded.changes.clone());
        folded.changes
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(1_000_000 + i64::try_from(self.sequence).unwrap() * 1_000)
    }

    pub(crate) fn whats(changes: &[Change]) -> Vec<String> {
        changes.iter().map(|change| format!("{} {}", change.what.as_str(), change.uid)).collect()
    }

    /// Looks as somebody who may see everything of both agents.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&View<'_>) -> T) -> T {
        let all = [AGENT, OTHER].map(|agent| usable(agent, UserAccessAs::Agent, Narrowing::default()));
        self.look_as(&Rights::of(all).seeing([PROJECT, BANK]), look)
    }

    /// These are all environments from now on.
    pub(crate) fn environments(&mut self, groups: Vec<ResourceGroup>) {
        let of = |resource: ResourceGroup| {
            let path = self.directory.path_of(resource.project);
            let project_labels = project_labels(resource.project, path, Some(17));
            Group { organization: ORGANIZATION, resource, project_labels }
        };
        let groups = groups.into_iter().map(of).collect();
        let index = &mut self.fold.index;
        let (groups, changed) = index.groups().with(ORGANIZATION, groups);
        index.set_groups(std::sync::Arc::new(groups));
        changed.into_iter().for_each(|environment| index.regroup(environment));
    }

    /// The objects of an environment that are there, each with a star where none of them has caused it.
    pub(crate) fn members(&self, name: &str) -> Vec<String> {
        let environment = EnvironmentId::derive(PROJECT, name);
        let index = &self.fold.index;
        let slots = index.clusters_of(environment).flat_map(|(_, cluster)| cluster.members());
        let records = slots.filter_map(|slot| index.get(slot)).filter(|record| record.is_there());
        let top = |record: &Record| record.groups.of(environment).is_some_and(|member| member.is_top);
        let mut names: Vec<String> =
            records.map(|record| format!("{}{}", record.name, if top(record) { "*" } else { "" })).collect();
        names.sort();
        names
    }

    pub(crate) fn look_as<T>(&self, rights: &Rights, look: impl FnOnce(&View<'_>) -> T) -> T {
        let gateways = BTreeSet::from([GATEWAY]);
        let as_of = AsOf { position: Position::start(), judged_at: self.now(), rules: RULES, horizon: None };
        look(&View {
            index: &self.fold.index,
            now: &self.fold.index,
            observed: &self.fold.observed,
            directory: &self.directory,
            tunnels: &self.tunnels,
            gateways: Some(&gateways),
            sight: Sight::of(rights),
            as_of,
        })
    }

    /// Names of the objects that are there, in the order of answers.
    pub(crate) fn there(&self) -> Vec<String> {
        let filter = events::requests::index::ObjectFilter::default();
        self.look(|view| {
            let matcher = Matcher::read(&filter, view).unwrap();
            matcher.walk(view, None).map(|record| format!("{} {}", record.name, record.uid)).collect()
        })
    }
}

/// An environment that was deployed by [`SOURCE`] through the first agent into this namespace.
pub(crate) fn environment(
    project: ProjectId,
    name: &str,
    namespace: &str,
    grouping: Grouping,
) -> ResourceGroup {
    let sync = SyncRun { source: SOURCE, sync: SyncId(Uuid::from_u128(31)), run: 1 };
    let place = ResourcePlace {
        association: Association { agent: AGENT, namespace: namespace.to_owned() },
        deployment: DeploymentId(Uuid::from_u128(32)),
        commit: "c".to_owned(),
        sync: Some(sync),
        recent: Vec::new(),
    };
    ResourceGroup {
        environment: EnvironmentId::derive(project, name),
        project,
        name: name.to_owned(),
        slug: name.replace('/', "-"),
        tier: Tier::guess(name),
        state: EnvironmentState::Available,
        grouping,
        places: vec![place],
    }
}

/// A body as [`SOURCE`] puts it there.
pub(crate) fn marked(mut body: Value) -> Value {
    let owner = OwnerMark {
        organization: ORGANIZATION.to_string(),
        agent: AGENT.to_string(),
        source: SOURCE.to_string(),
    };
    mark(&mut body, &owner).unwrap();
    body
}

pub(crate) fn usable(agent: AgentId, access_as: UserAccessAs, narrowing: Narrowing) -> UsableAgent {
    UsableAgent { agent, access_as, grants: vec![narrowing], identity: None }
}
