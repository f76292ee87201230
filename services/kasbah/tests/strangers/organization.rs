//! An organization that has one of everything.

use std::fmt::Debug;
use std::time::Duration;

use events::requests::authz::{
    CreateCredential, CreateProject, GrantCredential, Principal, ProjectView, RegisterAgent,
};
use events::requests::configuration::ShowConfiguration;
use events::requests::delivery::{ListSources, ShowSource};
use events::requests::diff::DiffSource;
use events::requests::environments::{DeploymentView, ListEnvironments, StartDeployment};
use events::requests::gateway::ListTunnels;
use events::requests::repository::ShowFetch;
use events::requests::subscriptions::{CreateSubscription, ListSubscriptions, ShowSubscription};
use events::subject::Subject;
use events::{AgentId, DeploymentId, EnvironmentId, ProjectId, Request, SourceId, SubscriptionId};
use testkit::{GitServer, WorkTree, eventually};

use crate::agent;
use crate::running::Running;

const LIMIT: Duration = Duration::from_secs(60);

/// What it has. Every name in it begins with the organization's own.
pub struct Organization {
    pub owner: Principal,
    /// As whom its agent is known.
    pub as_agent: Principal,
    pub agent: AgentId,
    pub project: ProjectId,
    pub source: SourceId,
    pub environment: EnvironmentId,
    pub deployment: DeploymentId,
    pub subscription: SubscriptionId,
    /// The commit that is desired.
    pub commit: String,
    /// Texts of which nobody outside must ever see one.
    pub marks: Vec<String>,
}

impl Organization {
    /// Makes all of it as the owner, and waits until the agent is connected and is to have the commit.
    pub async fn settle(running: &Running, git: &GitServer, name: &str, owner: Principal) -> Self {
        let (url, commit) = repository(git, name);
        let project = project(running, &owner, name, url).await;
        let secret = CreateCredential {
            name: format!("{name}-vault"),
            host: format!("git.{name}-host.example"),
            user: None,
            secret: "s".to_owned(),
        };
        let credential = running.ask(&owner, &secret).await.unwrap();
        let grant =
            GrantCredential { credential: credential.id.to_string(), project: project.id.to_string() };
        running.ask(&owner, &grant).await.unwrap();
        let register =
            RegisterAgent { name: format!("{name}-cluster"), project: project.path.clone(), group: None };
        let registered = running.ask(&owner, &register).await.unwrap();
        let (agent, token) = (registered.agent.id, registered.token);
        let compared = format!("{name}-compared");
        let instance = agent::connect(&running.world, &running.gateway(), &token.secret, compared).await;
        let ids = [
            owner.organization.to_string(),
            owner.actor.to_string(),
            owner.token.to_string(),
            project.id.to_string(),
            project.group.to_string(),
            credential.id.to_string(),
            agent.to_string(),
            token.view.id.to_string(),
            instance.to_string(),
        ];
        let source = SourceId::derive(agent, &format!("{name}-source"));
        let start = StartDeployment {
            environment: format!("{name}-environment"),
            project: Some(project.path.clone()),
            ..StartDeployment::default()
        };
        let DeploymentView { id: deployment, environment, .. } = running.ask(&owner, &start).await.unwrap();
        let subscription = subscription(running, &owner, name).await;
        let own =
            [source.to_string(), environment.to_string(), deployment.to_string(), subscription.to_string()];
        let marks = ids.into_iter().chain(own).chain([commit.clone(), format!("{name}-")]).collect();
        let as_agent = running.principal(&token.secret).await;
        let project = project.id;
        let settled = Self {
            owner,
            as_agent,
            agent,
            project,
            source,
            environment,
            deployment,
            subscription,
            commit,
            marks,
        };
        settled.shown_to_the_owner(running).await;
        settled
    }

    /// Under which the gateway that holds the agent's tunnel compares.
    pub fn diff(&self) -> Subject {
        Subject::agent_request(DiffSource::NAME, self.agent)
    }

    /// A stranger's empty answer says something only where the owner's is not empty.
    async fn shown_to_the_owner(&self, running: &Running) {
        let (agent, source) = (self.agent, self.source);
        self.shows(running, ListSources::default()).await;
        self.shows(running, ListSources { agent: Some(agent), ..ListSources::default() }).await;
        self.shows(running, ShowSource { source }).await;
        self.shows(running, ShowFetch { source }).await;
        self.shows(running, ShowConfiguration { agent }).await;
        self.shows(running, ListEnvironments::default()).await;
        self.shows(running, ListSubscriptions {}).await;
        self.shows(running, ShowSubscription { subscription: self.subscription.to_string() }).await;
        self.shows(running, ListTunnels::default()).await;
        self.shows(running, ListTunnels { agent: Some(agent), ..ListTunnels::default() }).await;
        self.shows_under(running, &self.diff(), DiffSource { agent, source }).await;
        eventually(LIMIT, || async {
            let view = running.ask(&self.owner, &ShowSource { source }).await;
            let desired = view.as_ref().is_ok_and(|view| view.desired_commit.as_ref() == Some(&self.commit));
            if desired { Ok(()) } else { Err(format!("{} is not desired: {view:?}", self.commit)) }
        })
        .await;
    }

    async fn shows<R: Request<Reply: Debug>>(&self, running: &Running, request: R) {
        self.shows_under(running, &Subject::request(R::NAME), request).await;
    }

    async fn shows_under<R: Request<Reply: Debug>>(&self, running: &Running, subject: &Subject, request: R) {
        eventually(LIMIT, || async {
            let Principal { actor, organization, .. } = self.owner.clone();
            let answer = running.ask_as(actor, organization, subject, &request).await;
            let said = answer.as_ref().map(|reply| format!("{reply:?}")).unwrap_or_default();
            if self.marks.iter().any(|mark| said.contains(mark)) {
                Ok(())
            } else {
                Err(format!("{subject} shows the owner nothing: {answer:?}"))
            }
        })
        .await;
    }
}

/// A subscription whose receiver is not there.
async fn subscription(running: &Running, owner: &Principal, name: &str) -> SubscriptionId {
    let create = CreateSubscription {
        name: format!("{name}-alerts"),
        url: Some(format!("https://hooks.{name}-host.example/{name}-way")),
        nats: false,
        format: None,
        types: Vec::new(),
        project: None,
        environment: None,
        from: None,
    };
    running.ask(owner, &create).await.unwrap().subscription.id
}

/// A repository with an agent's configuration of one source; its URL and its commit.
fn repository(git: &GitServer, name: &str) -> (String, String) {
    let url = git.create(name).unwrap();
    let tree = WorkTree::clone(&url).unwrap();
    let configuration = format!("sources:\n  - name: {name}-source\n    include: [\"manifests/**\"]\n");
    tree.write(&format!(".kasbah/agents/{name}-cluster/config.yaml"), configuration).unwrap();
    let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}-map\n");
    tree.write("manifests/map.yaml", map).unwrap();
    let commit = tree.commit_and_push("configure").unwrap();
    (url, commit)
}

async fn project(running: &Running, owner: &Principal, name: &str, repository: String) -> ProjectView {
    let create = CreateProject {
        path: format!("{name}-shop/{name}-front"),
        repository,
        default_branch: None,
        credential: None,
        external_id: None,
    };
    running.ask(owner, &create).await.unwrap()
}
