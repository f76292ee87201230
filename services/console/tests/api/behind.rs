//! What answers behind the bus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bus::{Bus, Serving};
use bytes::Bytes;
use events::directory::{ProjectSettings, Scope, TokenHolder};
use events::request::RequestContext;
use events::requests::authz::{
    AgentView, Authenticate, CanUse, Decide, Decision, IssueToken, LocateProject, Principal, ProjectLocation,
    ProjectView, RevokeToken, SecretToken, ShowAgent, ShowProject, TokenView,
};
use events::requests::delivery::{ShowSource, SourceView};
use events::requests::diff::{DiffSource, SourceDiff};
use events::requests::environments::ReportDeployment;
use events::requests::index::{
    AsOf, Coverage, FindObjects, ListChanges, ObjectChange, ObjectTree, ShowCoverage, ShowTree,
};
use events::requests::page::{Page, Paged as _};
use events::requests::status::{ObjectCounts, Status};
use events::subject::Subject;
use events::{
    Actor, AgentId, DeploymentId, GroupId, OrganizationId, Position, ProjectId, Refusal, RefusalKind,
    Request, Sha256, Stream, Timestamp, TokenId, UserId,
};
use parking_lot::Mutex;
use serde::Serialize;

/// One request that came over the bus.
#[derive(Debug, Clone)]
pub struct Seen {
    pub name: String,
    pub context: RequestContext,
}

/// Answers what the console needs to go on; everything else is not found.
#[derive(Clone, Default)]
pub struct Behind {
    seen: Arc<Mutex<Vec<Seen>>>,
    tokens: Arc<Mutex<BTreeMap<Sha256, Principal>>>,
    projects: Arc<Mutex<BTreeMap<ProjectId, OrganizationId>>>,
    /// The last request for a tree.
    tree: Arc<Mutex<Option<ShowTree>>>,
    /// What the index lists, the newest first.
    changes: Arc<Mutex<Vec<ObjectChange>>>,
    /// The position that the index was last asked to cover.
    covered: Arc<Mutex<Option<Position>>>,
    /// Reports of jobs and deployments.
    reported: Arc<Mutex<Vec<ReportDeployment>>>,
    /// The index is behind the log.
    is_behind: Arc<AtomicBool>,
    /// All that callers may see, if not everything of their own.
    narrow: Arc<Mutex<Option<ProjectId>>>,
}

/// The agent of each source.
pub const AGENT: AgentId = AgentId(from(0xa9e7));

/// The deployment that each report ends.
pub const DEPLOYMENT: DeploymentId = DeploymentId(from(0xde9));

const fn from(number: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(number)
}

/// Requests that the console may send, besides those that are answered below.
const OTHERS: &[&str] = &[
    "authz.list-organizations",
    "authz.create-organization",
    "authz.list-groups",
    "authz.create-group",
    "authz.list-projects",
    "authz.create-project",
    "authz.set-project",
    "authz.list-users",
    "authz.show-user",
    "authz.create-user",
    "authz.assign-role",
    "authz.list-credentials",
    "authz.create-credential",
    "authz.grant-credential",
    "authz.revoke-credential",
    "authz.list-tokens",
    "authz.issue-job-token",
    "authz.list-job-agents",
    "authz.list-providers",
    "authz.trust-provider",
    "authz.distrust-provider",
    "authz.unlink-user",
    "authz.show-root",
    "authz.rotate-root",
    "authz.sign-in",
    "authz.begin-sign-in",
    "authz.exchange-code",
    "authz.list-agents",
    "authz.register-agent",
    "authz.delete-agent",
    "authz.delete-group",
    "authz.delete-project",
    "authz.disable-user",
    "authz.enable-user",
    "authz.set-token-lifetimes",
    "config-fetcher.show",
    "delivery.list-sources",
    "delivery.list-environments",
    "delivery.show-environment",
    "delivery.list-deployments",
    "delivery.list-environment-changes",
    "delivery.list-objects",
    "delivery.list-syncs",
    "delivery.list-agent-statuses",
    "delivery.sync-source",
    "delivery.suspend-source",
    "delivery.resume-source",
    "delivery.pin-source",
    "delivery.unpin-source",
    "delivery.confirm-source",
    "delivery.create-environment",
    "delivery.set-environment",
    "delivery.stop-environment",
    "delivery.preview-stop",
    "delivery.delete-environment",
    "delivery.start-deployment",
    "delivery.show-deployment",
    "delivery.finish-deployment",
    "delivery.fail-deployment",
    "delivery.can-deploy",
    "event-relay.create-subscription",
    "event-relay.list-subscriptions",
    "event-relay.show-subscription",
    "event-relay.delete-subscription",
    "event-relay.replay-subscription",
    "event-relay.pause-subscription",
    "event-relay.resume-subscription",
    "event-relay.rotate-subscription-secret",
    "event-relay.list-dead-letters",
    "event-relay.resend-dead-letters",
    "tunnel-gateway.list-tunnels",
    "resource-indexer.explain-health",
    "resource-indexer.show-indexed",
    "resource-indexer.list-environment-health",
    "resource-indexer.show-environment-tree",
    "resource-indexer.show-tiers",
    "resource-indexer.diff-environment",
];

impl Behind {
    pub fn knows(&self, token: &str, principal: Principal) {
        self.tokens.lock().insert(Sha256::of(token.as_bytes()), principal);
    }

    pub fn revokes(&self, token: &str) {
        self.tokens.lock().remove(&Sha256::of(token.as_bytes()));
    }

    pub fn has(&self, project: ProjectId, organization: OrganizationId) {
        self.projects.lock().insert(project, organization);
    }

    /// A token for the asker, which is known from then on.
    fn issue(&self, context: &RequestContext) -> SecretToken {
        let id = TokenId(context.idempotency_key.0);
        let secret = format!("kasbah_p_{id}");
        let view = token(id, context);
        let (actor, organization) = (context.actor.clone(), context.organization);
        self.knows(&secret, Principal { actor, organization, token: id, expires_at: view.expires_at });
        SecretToken { view, secret }
    }

    /// The last request for a tree, as it came.
    pub fn tree(&self) -> ShowTree {
        self.tree.lock().take().expect("a request for a tree")
    }

    /// Callers may see this project, and nothing else.
    pub fn narrow(&self, project: ProjectId) {
        *self.narrow.lock() = Some(project);
    }

    /// The index lists one change more.
    pub fn changed(&self, change: ObjectChange) {
        self.changes.lock().insert(0, change);
    }

    /// The index is behind the log, or not any more.
    pub fn falls_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::SeqCst);
    }

    /// Reports of jobs and deployments since the last call.
    pub fn reported(&self) -> Vec<ReportDeployment> {
        std::mem::take(&mut self.reported.lock())
    }

    /// The position that the index was last asked to cover.
    pub fn covered(&self) -> Option<Position> {
        self.covered.lock().clone()
    }

    /// What came since the last call.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock())
    }

    pub async fn serve(&self, bus: &dyn Bus) -> Vec<Serving> {
        let mut serving = vec![
            self.answer::<Authenticate>(bus, |behind, _, request| {
                let known = behind.tokens.lock().get(&request.hash).cloned();
                known.ok_or_else(|| Refusal::new(RefusalKind::Unauthenticated, "unknown token"))
            })
            .await,
            self.answer::<Decide>(bus, |behind, context, request| {
                if let Some(project) = *behind.narrow.lock() {
                    let allowed = request.scope == Scope::Project(project);
                    return Ok(Decision { allowed, visible: true, reason: String::new() });
                }
                let own = request.organization == context.organization && request.actor == context.actor;
                let own = own
                    && !matches!(request.scope, Scope::Organization(other) if other != context.organization);
                Ok(Decision { allowed: own, visible: own, reason: String::new() })
            })
            .await,
            self.answer::<ShowAgent>(bus, |_, _, _| Ok(agent())).await,
            self.answer::<CanUse>(bus, |_, _, _| Err(Refusal::not_found("agent"))).await,
            self.answer::<ShowProject>(bus, |_, _, request| {
                Ok(project(request.project.parse().unwrap_or(ProjectId(from(0x9801)))))
            })
            .await,
            self.answer::<LocateProject>(bus, |behind, _, request| {
                let organization = behind.projects.lock().get(&request.project).copied();
                let organization = organization.ok_or_else(|| Refusal::not_found("project"))?;
                Ok(ProjectLocation { organization, project: project(request.project) })
            })
            .await,
            self.answer::<ShowSource>(bus, |_, _, request| Ok(source(&request))).await,
            self.answer::<ReportDeployment>(bus, |behind, context, request| {
                let known = behind.projects.lock().get(&request.project).copied();
                assert_eq!(
                    known,
                    Some(context.organization),
                    "it is asked for the project's own organization"
                );
                behind.reported.lock().push(request);
                Ok(vec![DEPLOYMENT])
            })
            .await,
            self.answer::<IssueToken>(bus, |behind, context, _| Ok(behind.issue(context))).await,
            self.answer::<RevokeToken>(bus, |_, context, request| Ok(token(request.token, context))).await,
        ];
        serving.extend(self.serve_index(bus).await);
        let subject = Subject::agent_request(DiffSource::NAME, AGENT);
        serving.push(
            self.answer_raw(bus, &subject, DiffSource::NAME, |_, _, _| encoded(Ok(SourceDiff::default())))
                .await,
        );
        for name in OTHERS {
            let subject = Subject::request(name);
            let refuse =
                |_: &Self, _: &RequestContext, _: Bytes| encoded::<()>(Err(Refusal::not_found("thing")));
            serving.push(self.answer_raw(bus, &subject, name, refuse).await);
        }
        serving
    }

    async fn serve_index(&self, bus: &dyn Bus) -> Vec<Serving> {
        vec![
            self.answer::<ShowTree>(bus, |behind, _, request| {
                *behind.tree.lock() = Some(request);
                Ok(ObjectTree { nodes: Vec::new(), left_out: 0, as_of: as_of() })
            })
            .await,
            self.answer::<FindObjects>(bus, |behind, _, request| {
                if behind.is_behind.load(Ordering::SeqCst) {
                    return Err(Refusal::new(RefusalKind::Unavailable, "the index is behind"));
                }
                if request.at_least.is_some() {
                    behind.covered.lock().clone_from(&request.at_least);
                }
                Ok(Page { items: Vec::new(), next: None })
            })
            .await,
            self.answer::<ListChanges>(bus, |behind, _, request| {
                if request.at_least.is_some() && behind.is_behind.load(Ordering::SeqCst) {
                    return Err(Refusal::new(RefusalKind::Unavailable, "the index is behind"));
                }
                page_of(&behind.changes.lock(), &request)
            })
            .await,
            self.answer::<ShowCoverage>(bus, |_, _, _| {
                Ok(Coverage { agents: Vec::new(), left_out: 0, as_of: as_of() })
            })
            .await,
        ]
    }

    async fn answer<R: Request>(
        &self,
        bus: &dyn Bus,
        reply: fn(&Self, &RequestContext, R) -> Result<R::Reply, Refusal>,
    ) -> Serving {
        let answer = move |behind: &Self, context: &RequestContext, body: Bytes| {
            encoded(reply(behind, context, events::decode(&body).unwrap()))
        };
        self.answer_raw(bus, &Subject::request(R::NAME), R::NAME, answer).await
    }

    async fn answer_raw(
        &self,
        bus: &dyn Bus,
        subject: &Subject,
        name: &'static str,
        answer: impl Fn(&Self, &RequestContext, Bytes) -> Bytes + Send + Sync + 'static,
    ) -> Serving {
        let (behind, answer) = (self.clone(), Arc::new(answer));
        let handler = Arc::new(move |context: RequestContext, body: Bytes| {
            let (behind, answer) = (behind.clone(), Arc::clone(&answer));
            Box::pin(async move {
                behind.seen.lock().push(Seen { name: name.to_owned(), context: context.clone() });
                answer(&behind, &context, body)
            }) as futures::future::BoxFuture<'static, Bytes>
        });
        bus.serve(subject, "test", handler).await.unwrap()
    }
}

fn encoded<T: Serialize>(answer: Result<T, Refusal>) -> Bytes {
    events::encode(&answer).unwrap().into()
}

/// The changes behind a request's cursor, as the index orders them.
fn page_of(changes: &[ObjectChange], request: &ListChanges) -> Result<Page<ObjectChange>, Refusal> {
    let key = |change: &ObjectChange| (change.recorded_at, change.agent, change.uid.clone(), change.number);
    let place = |(at, agent, uid, number): (Timestamp, AgentId, String, u64)| {
        (std::cmp::Reverse(at), agent, uid, std::cmp::Reverse(number))
    };
    let after = request.after()?.map(place);
    let mut page = bus::PageBuilder::of(request);
    for change in changes {
        if request.since.is_some_and(|since| change.recorded_at < since) {
            break;
        }
        let is_behind = after.as_ref().is_none_or(|after| place(key(change)) > *after);
        if is_behind && !page.push(key(change), change.clone())? {
            break;
        }
    }
    page.finish()
}

/// Of which state the index answers.
pub fn as_of() -> AsOf {
    AsOf {
        position: Position::of(Stream::Objects, 3, 123_456),
        judged_at: Timestamp(1),
        rules: 1,
        horizon: None,
    }
}

fn token(id: TokenId, context: &RequestContext) -> TokenView {
    let user = match context.actor {
        Actor::User(user) => user,
        _ => UserId(from(0)),
    };
    TokenView {
        id,
        name: "a token".to_owned(),
        holder: TokenHolder::User(user),
        issued_at: Timestamp(0),
        expires_at: Some(Timestamp(4_000_000_000_000)),
        last_used_at: None,
        revoked_at: None,
        clusters_only: false,
    }
}

fn agent() -> AgentView {
    let (project, project_path) = (ProjectId(from(1)), "shop/front".to_owned());
    AgentView {
        id: AGENT,
        name: "cluster".to_owned(),
        project,
        project_path,
        group: None,
        registered_at: Timestamp(0),
    }
}

fn project(id: ProjectId) -> ProjectView {
    let (repository, default_branch) = ("https://git.example/a.git".to_owned(), "main".to_owned());
    let settings = ProjectSettings { repository, default_branch, credential: None, external_id: None };
    ProjectView { id, group: GroupId(from(2)), path: "shop/front".to_owned(), settings }
}

fn source(request: &ShowSource) -> SourceView {
    let configuration = serde_json::json!({
        "id": request.source, "name": "web", "project": ProjectId(from(1)), "reference": "default", "include": ["**"],
        "interval_seconds": 60, "default_namespace": "default", "line": 1,
        "policies": events::configuration::SyncPolicies::default(),
    });
    let status = Status::of(Vec::new(), ObjectCounts::default(), Vec::new());
    serde_json::from_value(serde_json::json!({
        "id": request.source, "agent": AGENT, "configuration": configuration, "inventory": 0, "status": status,
    }))
    .unwrap()
}
