//! Objects in clusters, and their changes.

use async_graphql::{Context, Enum, ID, Json, Object, Result, SimpleObject};
use events::ObjectIdentity;
use events::observation::FieldWriter;
use events::requests::index::{
    self, IndexedObject, Moment as BusMoment, ObjectChange, RelatedObject, TreeNode as BusNode,
};
use objects::diff::FieldChange as Difference;
use serde_json::Value;

use super::super::asker::Asker;
use super::owner::{ResourceEnvironment, ResourceOwner};
use super::scalar::{Position, Time};

/// How an object is doing, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(remote = "index::HealthState")]
pub enum HealthState {
    /// There is no rule that could judge it, and it says nothing about itself.
    None,
    /// What was asked for is there.
    Healthy,
    /// Stopped on purpose.
    Suspended,
    /// On its way, or waiting.
    Progressing,
    /// Not there.
    Missing,
    /// Failed, or failing.
    Degraded,
    /// Cannot be judged.
    Unknown,
}

/// The verdict on one object.
#[derive(Debug, Clone, SimpleObject)]
pub struct Health {
    /// How it is doing.
    state: HealthState,
    /// Why; empty when there is nothing to say.
    message: String,
    /// Being deleted.
    terminating: bool,
    /// Waiting does not bring it about; it does not count in a roll-up.
    optional: bool,
    /// Which rule judged: `deletion`, `declared`, `built-in`, `generic`, `none`.
    rule: String,
    /// The version of the declared rules, where one of them judged.
    rule_set: Option<String>,
}

/// One object in one cluster.
#[derive(Debug, Clone, SimpleObject)]
pub struct Resource {
    /// In which agent's cluster.
    agent: ID,
    /// The agent's name.
    agent_name: String,
    /// API group; empty for the core group.
    group: String,
    /// API version, such as `v1`.
    version: String,
    /// Kind.
    kind: String,
    /// Namespace; empty for cluster-scoped objects.
    namespace: String,
    /// Name.
    name: String,
    /// UID.
    uid: ID,
    /// How it is doing.
    health: Health,
    /// When it was created, by its API server's clock.
    created_at: Option<Time>,
    /// When the change that made it so was recorded.
    changed_at: Time,
    /// When it was deleted or vanished, if it is gone.
    gone_at: Option<Time>,
    /// Why it may be out of date; null where it is fresh.
    stale: Option<String>,
    /// The environment that it belongs to; of several the one that was asked for, or else the first. Null where there is none that you may see.
    environment: Option<ResourceEnvironment>,
    /// Who owns it, as far as that is known.
    owners: Vec<ResourceOwner>,
    /// The deployment that set it last, of those that are kept; null where that is not known or you may not see its environment.
    deployment: Option<ResourceDeployment>,
}

/// The deployment that set an object last.
#[derive(Debug, Clone, SimpleObject)]
pub struct ResourceDeployment {
    /// Its id.
    id: ID,
    /// The commit that it brought; empty if not known.
    sha: String,
    /// It is a job's, inferred from the object's last writer and the time of the write. A sync's is known: its agent reports its writes.
    inferred: bool,
}

impl From<index::ObjectDeployment> for ResourceDeployment {
    fn from(of: index::ObjectDeployment) -> Self {
        Self { id: of.id.to_string().into(), sha: of.commit, inferred: of.inferred }
    }
}

impl From<IndexedObject> for Resource {
    fn from(object: IndexedObject) -> Self {
        let ObjectIdentity { group, version, kind, namespace, name } = object.identity;
        let index::ObjectHealth { state, message, terminating, optional, rule, rule_set } = object.health;
        Self {
            agent: object.agent.to_string().into(),
            agent_name: object.agent_name,
            group,
            version,
            kind,
            namespace,
            name,
            uid: object.uid.into(),
            health: Health { state: state.into(), message, terminating, optional, rule, rule_set },
            created_at: object.created_at.map(Time),
            changed_at: Time(object.changed_at),
            gone_at: object.gone_at.map(Time),
            stale: object.stale,
            environment: object.environment.map(ResourceEnvironment::from),
            owners: object.owners.into_iter().map(ResourceOwner::from).collect(),
            deployment: object.deployment.map(ResourceDeployment::from),
        }
    }
}

/// Of which state of the index an answer is.
#[derive(Debug, Clone, SimpleObject)]
pub struct AsOf {
    /// What the answer covers. For a list: what it covers at least.
    pub position: Position,
    /// The instant at which health was judged; null for a past position.
    pub judged_at: Option<Time>,
    /// Version of the rules that judged.
    pub rules: u32,
    /// What happened before this is gone; null while nothing has left the log.
    pub horizon: Option<Time>,
}

impl AsOf {
    /// As it leaves the server.
    ///
    /// # Errors
    /// When the key ring is away.
    pub async fn sealed(asker: &Asker, as_of: &index::AsOf) -> Result<Self> {
        Ok(Self {
            position: Position(asker.seal(&as_of.position).await?),
            judged_at: Some(Time(as_of.judged_at)),
            rules: as_of.rules,
            horizon: as_of.horizon.map(Time),
        })
    }
}

/// What a list says besides its items. The index is asked for it only where it is wanted.
#[derive(Debug, Clone, Default)]
pub struct ListExtra(Option<AsOf>);

impl ListExtra {
    /// What a list covers that is asked for after this.
    ///
    /// # Errors
    /// What the index refuses.
    pub async fn before(context: &Context<'_>, at: Option<&BusMoment>) -> Result<Self> {
        if !context.look_ahead().field("asOf").exists() {
            return Ok(Self(None));
        }
        let asker = Asker::of(context)?;
        let mut as_of = AsOf::sealed(asker, &asker.coverage().await?.as_of).await?;
        match at {
            Some(BusMoment::Time(time)) => as_of.judged_at = Some(Time(*time)),
            Some(BusMoment::Position(_)) => as_of.judged_at = None,
            None => {}
        }
        Ok(Self(Some(as_of)))
    }

    /// The position that a list has to cover to be what this says.
    pub async fn covered(&self, asker: &Asker) -> Result<Option<events::Position>> {
        match &self.0 {
            Some(_) => Ok(Some(asker.coverage().await?.as_of.position.clone())),
            None => Ok(None),
        }
    }
}

/// What a list says besides its items.
#[Object]
impl ListExtra {
    /// Of which state of the index the answer is.
    #[graphql(complexity = "10 + child_complexity")]
    async fn as_of(&self) -> Option<AsOf> {
        self.0.clone()
    }
}

/// Who wrote fields of an object, by its managed fields.
#[derive(Debug, Clone, SimpleObject)]
pub struct Writer {
    /// Field manager, such as `kubectl-client-side-apply`.
    manager: String,
    /// `Apply` or `Update`.
    operation: String,
    /// Such as `status`; empty for the object itself.
    subresource: String,
    /// When, by the API server's clock.
    at: Option<Time>,
}

impl From<FieldWriter> for Writer {
    fn from(writer: FieldWriter) -> Self {
        let FieldWriter { manager, operation, subresource, at } = writer;
        Self { manager, operation, subresource, at: at.map(Time) }
    }
}

/// A relation to another object.
#[derive(Debug, Clone, SimpleObject)]
pub struct Relation {
    /// Such as `controls`, `owns`, `selects`, `routes-to`, `mounts`.
    relation: String,
    /// The relation points from the other object to this one.
    inwards: bool,
    /// API group of the other object.
    group: String,
    /// Its kind.
    kind: String,
    /// Its namespace.
    namespace: String,
    /// Its name.
    name: String,
    /// Its UID, if it is there and you may see it.
    uid: Option<ID>,
    /// It is known not to be there. Without this and a UID it is only not seen.
    missing: bool,
}

impl From<RelatedObject> for Relation {
    fn from(related: RelatedObject) -> Self {
        let RelatedObject { relation, inwards, key, uid, missing } = related;
        let uid = uid.map(ID::from);
        Self {
            relation,
            inwards,
            group: key.group,
            kind: key.kind,
            namespace: key.namespace,
            name: key.name,
            uid,
            missing,
        }
    }
}

/// How a service mesh secures connections to pods.
#[derive(Debug, Clone, SimpleObject)]
pub struct Mesh {
    /// `istio`, `linkerd`, or `none` where no pod is in a mesh.
    mesh: String,
    /// Mutual TLS of the least secured pod: `strict`, `permissive`, `off`, or `unknown` where policies decide that you may not see.
    mtls: String,
    /// The policy, or another fact, that decides it.
    reason: String,
    /// Ports for which that policy says otherwise.
    ports: Vec<MeshPort>,
}

/// How a service mesh secures connections to one port.
#[derive(Debug, Clone, SimpleObject)]
pub struct MeshPort {
    /// Which port.
    port: u16,
    /// Mutual TLS: `strict`, `permissive` or `off`.
    mtls: String,
}

impl From<index::MeshSecurity> for Mesh {
    fn from(security: index::MeshSecurity) -> Self {
        let index::MeshSecurity { mesh, mtls, reason, ports } = security;
        let ports = ports.into_iter().map(|index::PortSecurity { port, mtls }| MeshPort { port, mtls });
        Self { mesh, mtls, reason, ports: ports.collect() }
    }
}

/// Something that can be done with one object: a patch of it, sent to its cluster's API by anybody who may patch it.
#[derive(Debug, Clone, SimpleObject)]
pub struct ResourceAction {
    /// What it is called.
    name: String,
    /// What it does, for people.
    text: String,
    /// The resource of the object's kind, such as `deployments`.
    resource: String,
    /// The subresource that is patched; null for the object itself.
    subresource: Option<String>,
    /// The media type of the patch.
    media_type: String,
    /// The patch, with all values filled in.
    patch: Json<Value>,
    /// The agent's configuration declares it.
    declared: bool,
}

impl From<index::OfferedAction> for ResourceAction {
    fn from(action: index::OfferedAction) -> Self {
        let index::OfferedAction { name, text, resource, subresource, patch, declared } = action;
        let (media_type, patch) = (patch.media_type().to_owned(), Json(patch.document()));
        Self { name, text, resource, subresource, media_type, patch, declared }
    }
}

/// Everything that is known of one object.
#[derive(Debug, Clone, SimpleObject)]
pub struct ResourceDetail {
    /// The object in a line.
    pub resource: Resource,
    /// The object without managed fields and without values of Secrets; null where it is not known.
    #[graphql(complexity = 100)]
    pub body: Option<Json<Value>>,
    /// Who wrote it last.
    pub writer: Option<Writer>,
    /// All environments that it belongs to and that you may see.
    pub environments: Vec<ResourceEnvironment>,
    /// What it is related to.
    #[graphql(complexity = "20 * child_complexity")]
    pub related: Vec<Relation>,
    /// How a service mesh secures connections to its pods; null for what has no pods, and where no mesh is known.
    pub mesh: Option<Mesh>,
    /// What can be done with it, by built-in actions and by those that its agent's configuration declares; nothing of the past.
    #[graphql(complexity = "10 * child_complexity")]
    pub actions: Vec<ResourceAction>,
    /// Of which state of the index.
    pub as_of: AsOf,
}

impl ResourceDetail {
    /// As it leaves the server.
    ///
    /// # Errors
    /// When the key ring is away.
    pub async fn sealed(asker: &Asker, detail: index::ObjectDetail) -> Result<Self> {
        let body = detail.body.as_deref().and_then(|body| serde_json::from_str(body).ok());
        Ok(Self {
            as_of: AsOf::sealed(asker, &detail.as_of).await?,
            resource: detail.object.into(),
            body: body.map(Json),
            writer: detail.writer.map(Writer::from),
            environments: detail.environments.into_iter().map(ResourceEnvironment::from).collect(),
            related: detail.related.into_iter().map(Relation::from).collect(),
            mesh: detail.mesh.map(Mesh::from),
            actions: detail.actions.into_iter().map(ResourceAction::from).collect(),
        })
    }
}

/// One node of a tree.
#[derive(Debug, Clone, SimpleObject)]
pub struct TreeNode {
    /// Place of the parent in the list of nodes; null for a root.
    parent: Option<u32>,
    /// Why it is below its parent; null for a root.
    relation: Option<String>,
    /// The object.
    resource: Resource,
}

impl From<BusNode> for TreeNode {
    fn from(node: BusNode) -> Self {
        Self { parent: node.parent, relation: node.relation, resource: node.object.into() }
    }
}

/// Objects with what they own, select and use.
#[derive(Debug, Clone, SimpleObject)]
pub struct ResourceTree {
    /// The nodes, parents before children.
    #[graphql(complexity = "2000 * child_complexity")]
    pub nodes: Vec<TreeNode>,
    /// How many nodes were left out.
    pub left_out: u64,
    /// Of which state of the index.
    pub as_of: AsOf,
}

/// From one object down to the one that is to blame.
#[derive(Debug, Clone, SimpleObject)]
pub struct ReasonChain {
    /// The object itself first, the guilty one last.
    #[graphql(complexity = "5 * child_complexity")]
    pub resources: Vec<Resource>,
}

/// Why objects are as they are.
#[derive(Debug, Clone, SimpleObject)]
pub struct Why {
    /// One chain for each object, the worst first.
    #[graphql(complexity = "100 * child_complexity")]
    pub chains: Vec<ReasonChain>,
    /// Of which state of the index.
    pub as_of: AsOf,
}

/// One change of one object.
#[derive(Debug, Clone, SimpleObject)]
pub struct Change {
    /// In which agent's cluster.
    agent: ID,
    /// The agent's name.
    agent_name: String,
    /// API group; empty for the core group.
    group: String,
    /// API version.
    version: String,
    /// Kind.
    kind: String,
    /// Namespace; empty for cluster-scoped objects.
    namespace: String,
    /// Name.
    name: String,
    /// UID.
    uid: ID,
    /// When the log took it.
    recorded_at: Time,
    /// When the agent saw it, as it claims.
    seen_at: Time,
    /// When it happened at the earliest, of what vanished: it was there then, and was deleted some time until `recordedAt`.
    not_before: Option<Time>,
    /// `first-seen`, `created`, `changed`, `deleted`, `vanished`, `gap`, `unobserved`.
    what: String,
    /// Who wrote it.
    writer: Option<Writer>,
    /// Paths of the changed fields, the first ones.
    fields: Vec<String>,
    /// How many fields changed.
    field_count: u32,
    /// Health after it.
    health: HealthState,
    /// Health before it, if it was another.
    health_before: Option<HealthState>,
    /// The object names an owner in its cluster: what becomes of it may follow from what becomes of that.
    owned: bool,
}

impl From<ObjectChange> for Change {
    fn from(change: ObjectChange) -> Self {
        let ObjectIdentity { group, version, kind, namespace, name } = change.identity;
        Self {
            agent: change.agent.to_string().into(),
            agent_name: change.agent_name,
            group,
            version,
            kind,
            namespace,
            name,
            uid: change.uid.into(),
            recorded_at: Time(change.recorded_at),
            seen_at: Time(change.seen_at),
            not_before: change.not_before.map(Time),
            what: change.what,
            writer: change.writer.map(Writer::from),
            fields: change.fields,
            field_count: change.field_count,
            health: change.health.into(),
            health_before: change.health_before.map(HealthState::from),
            owned: change.owned,
        }
    }
}

/// A field that differs.
#[derive(Debug, Clone, SimpleObject)]
pub struct FieldChange {
    /// Where, such as `spec.template.spec.containers[name=web].image`.
    path: String,
    /// What was there; null if nothing.
    before: Option<Json<Value>>,
    /// What is there now; null if nothing.
    after: Option<Json<Value>>,
}

impl From<Difference> for FieldChange {
    fn from(change: Difference) -> Self {
        let Difference { path, before, after } = change;
        Self { path: path.to_string(), before: before.map(Json), after: after.map(Json) }
    }
}

/// What differs of one object between two moments.
#[derive(Debug, Clone, SimpleObject)]
pub struct Diff {
    /// Whether anything differs.
    pub differs: bool,
    /// The object at the earlier moment; null where it was not there.
    pub from: Option<ResourceDetail>,
    /// The object at the later moment; null where it was not there.
    pub to: Option<ResourceDetail>,
    /// The fields that differ, lists compared by their merge keys; empty where the object was there at one moment only.
    #[graphql(complexity = "100 * child_complexity")]
    pub fields: Vec<FieldChange>,
}

/// A change as it comes.
#[derive(Debug, Clone, SimpleObject)]
pub struct ChangeEvent {
    /// Where to go on: `after` of another subscription, or `Last-Event-ID`.
    pub position: Position,
    /// The change.
    pub change: Change,
}

/// What is known of one cluster.
#[derive(Debug, Clone, SimpleObject)]
pub struct ClusterCoverage {
    /// Which agent.
    agent: ID,
    /// Its name.
    agent_name: String,
    /// How many objects there are.
    objects: u64,
    /// How many kinds were listed in full.
    kinds: u32,
    /// When something was heard of it last.
    heard_at: Time,
    /// Why it may be out of date; null where it is fresh.
    stale: Option<String>,
    /// Why it is not known what of it you may see, where its own authorization decides. What is not known is not shown, and counted
    /// nowhere; null where all is known.
    rights_unknown: Option<String>,
    /// Kinds that the agent cannot see, the first ones.
    #[graphql(complexity = "20 * child_complexity")]
    blind: Vec<BlindKind>,
    /// How many there are.
    blind_count: u32,
}

/// A kind that an agent cannot see.
#[derive(Debug, Clone, SimpleObject)]
pub struct BlindKind {
    /// The resource with its group, such as `deployments.apps`.
    resource: String,
    /// The namespace; empty for all.
    namespace: String,
    /// Why, in the API server's words.
    reason: String,
    /// The verb that is missing, where it is for want of a right.
    missing_verb: Option<String>,
    /// Since when.
    since: Time,
}

impl From<index::AgentCoverage> for ClusterCoverage {
    fn from(covered: index::AgentCoverage) -> Self {
        Self {
            agent: covered.agent.to_string().into(),
            agent_name: covered.agent_name,
            objects: covered.objects,
            kinds: covered.kinds,
            heard_at: Time(covered.heard_at),
            stale: covered.stale,
            rights_unknown: covered.rights_unknown,
            blind: covered.blind.into_iter().map(BlindKind::from).collect(),
            blind_count: covered.blind_count,
        }
    }
}

impl From<index::BlindKind> for BlindKind {
    fn from(blind: index::BlindKind) -> Self {
        let index::BlindKind { resource, namespace, reason, missing, since } = blind;
        Self {
            resource,
            namespace,
            reason,
            missing_verb: missing.map(|right| right.verb),
            since: Time(since),
        }
    }
}

/// What the index covers.
#[derive(Debug, Clone, SimpleObject)]
pub struct Coverage {
    /// One for each agent whose cluster you may use.
    #[graphql(complexity = "50 * child_complexity")]
    pub agents: Vec<ClusterCoverage>,
    /// Of which state of the index.
    pub as_of: AsOf,
}
