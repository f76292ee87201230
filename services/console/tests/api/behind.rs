//! What answers behind the bus.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::{Bus, Serving};
use bytes::Bytes;
use events::directory::{ProjectSettings, Scope};
use events::request::RequestContext;
use events::requests::authz::{
    AgentView, Authenticate, CanUse, Decide, Decision, LocateProject, Principal, ProjectLocation,
    ProjectView, ShowAgent, ShowProject,
};
use events::requests::delivery::{ShowSource, SourceView};
use events::requests::diff::{DiffSource, SourceDiff};
use events::requests::status::{ObjectCounts, Status};
use events::subject::Subject;
use events::{AgentId, GroupId, OrganizationId, ProjectId, Refusal, RefusalKind, Request, Sha256, Timestamp};
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
}

/// The agent of each source.
pub const AGENT: AgentId = AgentId(from(0xa9e7));

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
    "authz.issue-token",
    "authz.issue-job-token",
    "authz.list-job-agents",
    "authz.revoke-token",
    "authz.list-providers",
    "authz.trust-provider",
    "authz.distrust-provider",
    "authz.unlink-user",
    "authz.show-root",
    "authz.rotate-root",
    "authz.sign-in",
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
    "delivery.list-objects",
    "delivery.list-agent-statuses",
    "delivery.sync-source",
    "delivery.suspend-source",
    "delivery.resume-source",
    "delivery.pin-source",
    "delivery.unpin-source",
    "delivery.confirm-source",
    "tunnel-gateway.list-tunnels",
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
            self.answer::<Decide>(bus, |_, context, request| {
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
        ];
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
