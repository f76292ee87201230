//! Lists of sources and of how agents stand, page by page, while all services run: each item once, and only what one may see.

use std::time::Duration;

use events::directory::{Role, Scope};
use events::requests::authz::{
    CreateProject, CreateUser, DeleteAgent, IssueToken, Principal, ProjectView, RegisterAgent,
};
use events::requests::delivery::ListSources;
use events::requests::page::{PageLimit, Paged as _};
use events::requests::repository::RepositoryPushed;
use events::requests::status::ListAgentStatuses;
use events::{AgentId, CorrelationId, RefusalKind};
use testkit::{GitServer, WorkTree, eventually};

use crate::running::Running;

const LIMIT: Duration = Duration::from_secs(60);

/// An agent's file with sources of these names.
fn write(tree: &WorkTree, agent: usize, sources: &[&str]) {
    let source = |name: &&str| format!("  - name: {name}\n    include: [\"manifests/**\"]\n");
    let file: String = sources.iter().map(source).collect();
    tree.write(&format!(".kasbah/agents/agent-{agent}/config.yaml"), format!("sources:\n{file}")).unwrap();
}

/// Sources as `<number of the agent>/<name>`.
async fn sources(
    running: &Running,
    person: &Principal,
    agents: &[AgentId],
    request: &ListSources,
) -> (Vec<String>, Option<ListSources>) {
    let page = running.ask(person, request).await.unwrap();
    let number = |agent| agents.iter().position(|known| *known == agent).unwrap();
    let names = page.items.iter().map(|view| format!("{}/{}", number(view.agent), view.configuration.name));
    (names.collect(), page.next.map(|cursor| request.clone().at(cursor)))
}

async fn all_sources(running: &Running, person: &Principal, agents: &[AgentId]) -> Vec<String> {
    sources(running, person, agents, &ListSources::default()).await.0
}

/// What the lists are of.
struct Scene {
    running: Running,
    owner: Principal,
    tree: WorkTree,
    project: ProjectView,
    agents: Vec<AgentId>,
    _git: GitServer,
}

/// Three agents of one project, with three sources each.
async fn scene() -> Scene {
    let running = Running::start().await;
    let git = GitServer::start().unwrap();
    let owner = running.operator().await;
    let url = git.create("deploy").unwrap();
    let tree = WorkTree::clone(&url).unwrap();
    for agent in 0..3 {
        write(&tree, agent, &["a", "b", "c"]);
    }
    tree.commit_and_push("configure").unwrap();
    let create = CreateProject {
        path: "shop/deploy".to_owned(),
        repository: url,
        default_branch: None,
        credential: None,
        external_id: None,
    };
    let project = running.ask(&owner, &create).await.unwrap();
    let mut agents = Vec::new();
    for number in 0..3 {
        let (name, project) = (format!("agent-{number}"), project.path.clone());
        let register = RegisterAgent { name, project, group: None };
        agents.push(running.ask(&owner, &register).await.unwrap().agent.id);
    }
    Scene { running, owner, tree, project, agents, _git: git }
}

impl Scene {
    /// Waits until the owner's whole list is this.
    async fn lists(&self, expected: &[&str]) {
        eventually(LIMIT, || async {
            let found = all_sources(&self.running, &self.owner, &self.agents).await;
            if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    async fn page(&self, request: &ListSources) -> (Vec<String>, Option<ListSources>) {
        sources(&self.running, &self.owner, &self.agents, request).await
    }

    /// The source that the cursor names goes, one comes before it, and one behind it; and an agent that was listed goes.
    async fn changes(&self) {
        write(&self.tree, 1, &["0a", "b", "c", "d"]);
        self.tree.commit_and_push("change").unwrap();
        let delete = DeleteAgent { agent: self.agents[0].to_string() };
        self.running.ask(&self.owner, &delete).await.unwrap();
        let pushed = RepositoryPushed {
            project: self.project.id,
            reference: None,
            correlation_id: CorrelationId(self.running.world.new_uuid()),
            traceparent: None,
        };
        self.running.announce(&pushed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_and_agents_come_in_pages_with_each_one_once() {
    let scene = scene().await;
    let (running, owner, agents) = (&scene.running, &scene.owner, &scene.agents);
    let before = ["0/a", "0/b", "0/c", "1/a", "1/b", "1/c", "2/a", "2/b", "2/c"];
    scene.lists(&before).await;
    let limit = PageLimit::new(2);
    let request = ListSources { limit, ..ListSources::default() };
    let (first, next) = scene.page(&request).await;
    let (second, mut next) = scene.page(&next.unwrap()).await;
    assert_eq!([first, second].concat(), before[..4]);

    scene.changes().await;
    let after = ["1/0a", "1/b", "1/c", "1/d", "2/a", "2/b", "2/c"];
    scene.lists(&after).await;
    let mut rest = Vec::new();
    while let Some(request) = next {
        let page = scene.page(&request).await;
        rest.extend(page.0);
        next = page.1;
    }
    assert_eq!(rest, after[1..]);
    let of_one = ListSources { agent: Some(agents[1]), limit, cursor: None };
    let (first, next) = scene.page(&of_one).await;
    let (second, last) = scene.page(&next.unwrap()).await;
    assert_eq!([first, second].concat(), after[..4]);
    assert_eq!(last, None);

    let statuses = ListAgentStatuses { limit: PageLimit::new(1), ..ListAgentStatuses::default() };
    let first = running.ask(owner, &statuses).await.unwrap();
    let second = running.ask(owner, &statuses.at(first.next.unwrap())).await.unwrap();
    assert_eq!((first.items[0].agent, second.items[0].agent, second.next), (agents[1], agents[2], None));

    sees_one(running, owner, agents).await;
}

/// Somebody with a role on the last agent only.
async fn sees_one(running: &Running, owner: &Principal, agents: &[AgentId]) {
    let scope = Some(Scope::Agent(agents[2]));
    let create = CreateUser { name: "ann".to_owned(), role: Role::Viewer, scope };
    running.ask(owner, &create).await.unwrap();
    let issue = IssueToken {
        agent: None,
        user: Some("ann".to_owned()),
        name: "t".to_owned(),
        lifetime_seconds: None,
        clusters_only: false,
    };
    let ann = running.principal(&running.ask(owner, &issue).await.unwrap().secret).await;
    let request = ListSources { limit: PageLimit::new(2), ..ListSources::default() };
    let (first, next) = sources(running, &ann, agents, &request).await;
    assert_eq!(first, ["2/a", "2/b"], "the first page is full though all agents before are out of sight");
    assert_eq!(sources(running, &ann, agents, &next.unwrap()).await, (vec!["2/c".to_owned()], None));
    // From a place that only others see, it goes on with what this one sees.
    let of_owner = sources(running, owner, agents, &request).await.1.unwrap();
    assert_eq!(sources(running, &ann, agents, &of_owner).await.0, ["2/a", "2/b"]);
    let wrong = ListSources { cursor: Some("c00".to_owned().into()), ..request };
    let refusal = running.ask(&ann, &wrong).await.unwrap_err();
    assert_eq!((refusal.kind, refusal.field.as_deref()), (RefusalKind::Invalid, Some("cursor")));
}
