//! Every request, asked by the owner of another organization about what this one has.

use std::collections::BTreeMap;
use std::fmt::Debug;

use authz::driver::SERVED;
use events::attributes::{Attributes, Target};
use events::directory::{Role, Scope};
use events::requests::authz::{
    Action, Admit, AgentView, AssignRole, Authenticate, BeginSignIn, CanUse, CreateCredential, CreateGroup,
    CreateOrganization, CreateProject, CreateUser, CredentialView, Decide, DecideAssociation, DecideFetch,
    DeleteAgent, DeleteGroup, DeleteProject, DisableUser, DistrustProvider, EnableUser, EnsureOwner,
    ExchangeCode, FindMissing, FindProject, GrantCredential, IssueJobToken, IssueToken, ListAgents,
    ListAllowedAgents, ListAllowedProjects, ListCredentials, ListGroups, ListJobAgents, ListOrganizations,
    ListProjects, ListProviders, ListTokens, ListUsableAgents, ListUsers, LocateProject, ProjectView,
    RegisterAgent, RevokeCredential, RevokeToken, RotateRoot, SetProject, SetTokenLifetimes, ShowAgent,
    ShowProject, ShowRoot, ShowUser, SignIn, SignPass, SignReview, TrustProvider, UnlinkUser,
};
use events::{OrganizationId, Position, Refusal, Request, Sha256, TokenId};

use crate::running::{Person, Running, project};

/// What an organization has.
struct Home {
    owner: Person,
    project: ProjectView,
    agent: AgentView,
    token: TokenId,
    credential: CredentialView,
}

impl Home {
    async fn of(running: &Running, owner: Person) -> Self {
        let secret = CreateCredential {
            name: "vault".to_owned(),
            host: "git.acme.example".to_owned(),
            user: None,
            secret: "s".to_owned(),
        };
        let credential = running.ask(&owner, &secret).await.unwrap();
        let create = CreateProject {
            credential: Some("vault".to_owned()),
            external_id: Some(4711),
            ..project("acme-shop/acme-front", "https://git.acme.example/shop.git")
        };
        let project = running.ask(&owner, &create).await.unwrap();
        let register =
            RegisterAgent { name: "acme-cluster".to_owned(), project: project.path.clone(), group: None };
        let registered = running.ask(&owner, &register).await.unwrap();
        Self { owner, project, agent: registered.agent, token: registered.token.view.id, credential }
    }

    /// Texts of which a stranger must never see one.
    fn marks(&self) -> Vec<String> {
        let organization = self.owner.principal.organization;
        let ids = [
            organization.to_string(),
            self.owner.principal.actor.to_string(),
            self.project.id.to_string(),
            self.project.group.to_string(),
            self.agent.id.to_string(),
            self.token.to_string(),
            self.credential.id.to_string(),
        ];
        ids.into_iter().chain(["acme-", "vault", "git.acme.example"].map(str::to_owned)).collect()
    }
}

/// Asks as the stranger, from their own organization and claiming to act in the other; collects what was answered.
struct Asking<'a> {
    running: &'a Running,
    stranger: &'a Person,
    home: OrganizationId,
    answers: BTreeMap<&'static str, Vec<(bool, String)>>,
}

impl Asking<'_> {
    async fn ask<R>(&mut self, request: R, said: impl Fn(&R::Reply) -> String)
    where
        R: Request,
    {
        for organization in [self.stranger.principal.organization, self.home] {
            let answer = self.running.ask_in(self.stranger, organization, &request).await;
            let answer = match answer {
                Ok(reply) => (true, said(&reply)),
                Err(refusal) => (false, refused(&refusal)),
            };
            self.answers.entry(R::NAME).or_default().push(answer);
        }
    }
}

/// What the asker said themselves is left out: names in a message are the asker's own words.
fn refused(refusal: &Refusal) -> String {
    format!("{:?} {:?}", refusal.kind, refusal.field)
}

fn debug<T: Debug>(reply: &T) -> String {
    format!("{reply:?}")
}

#[tokio::test]
async fn a_stranger_sees_nothing_of_another_organization() {
    let running = Running::start().await;
    let operator = running.owner().await;
    let stranger = running.stranger(&operator).await;
    let home = Home::of(&running, operator).await;
    let before = directory_size(&running).await;
    let mut asking = Asking {
        running: &running,
        stranger: &stranger,
        home: home.owner.principal.organization,
        answers: BTreeMap::new(),
    };
    ask_queries(&mut asking, &home).await;
    ask_commands(&mut asking, &home).await;
    let answers = asking.answers;
    for name in SERVED {
        assert!(answers.contains_key(name), "{name} is served but not tried as a stranger");
    }
    for (name, answers) in &answers {
        for (done, text) in answers {
            for mark in home.marks() {
                assert!(!text.contains(&mark), "{name} tells a stranger {mark}: {text}");
            }
            assert!(!done || !MUST_REFUSE.contains(name), "{name} was answered: {text}");
        }
    }
    assert_eq!(directory_size(&running).await, before, "a stranger changed something");
    running.stop().await;
}

/// Requests that name a thing of the other organization: they must be refused. The others list, and list nothing of it.
const MUST_REFUSE: &[&str] = &[
    "authz.authenticate",
    "authz.admit",
    "authz.decide-fetch",
    "authz.find-missing",
    "authz.list-allowed-agents",
    "authz.list-allowed-projects",
    "authz.find-project",
    "authz.sign-review",
    "authz.decide-association",
    "authz.show-user",
    "authz.locate-project",
    "authz.ensure-owner",
    "authz.create-organization",
    "authz.set-project",
    "authz.show-project",
    "authz.show-agent",
    "authz.delete-agent",
    "authz.delete-group",
    "authz.delete-project",
    "authz.disable-user",
    "authz.enable-user",
    "authz.register-agent",
    "authz.revoke-token",
    "authz.issue-token",
    "authz.assign-role",
    "authz.grant-credential",
    "authz.revoke-credential",
    "authz.trust-provider",
    "authz.distrust-provider",
    "authz.unlink-user",
    "authz.rotate-root",
    "authz.sign-in",
    "authz.begin-sign-in",
    "authz.exchange-code",
];

/// Decisions of the first organization.
async fn directory_size(running: &Running) -> usize {
    let records = running.records(&[events::position::Stream::Decisions]).await;
    let first =
        records.iter().find(|record| record.organization != OrganizationId::SYSTEM).unwrap().organization;
    let kept = records.iter().filter(|record| record.organization == first);
    kept.filter(|record| {
        let command = record.commit().and_then(|commit| commit.command.as_ref());
        command.is_none_or(|command| command.name != "authz.note-use")
    })
    .count()
}

async fn ask_queries(asking: &mut Asking<'_>, home: &Home) {
    let hash = Sha256::of(home.owner.secret.as_bytes());
    asking.ask(Authenticate { hash }, debug).await;
    asking.ask(Admit { hashes: vec![hash] }, debug).await;
    let (agent, since) = (home.agent.id, Position::start());
    asking.ask(SignPass { hash, agent, since }, debug).await;
    ask_decisions(asking, home).await;
    ask_as_a_service(asking, home).await;
    asking.ask(ListOrganizations::default(), debug).await;
    asking.ask(ListGroups::default(), debug).await;
    asking.ask(ListProjects::default(), debug).await;
    for project in [home.project.path.clone(), home.project.id.to_string(), "4711".to_owned()] {
        asking.ask(ShowProject { project }, debug).await;
    }
    asking.ask(ListUsers::default(), debug).await;
    for user in ["owner".to_owned(), home.owner.principal.actor.to_string().replace("user:", "")] {
        asking.ask(ShowUser { user }, debug).await;
    }
    asking.ask(ListProviders {}, debug).await;
    asking.ask(ListCredentials::default(), debug).await;
    asking.ask(ListAgents::default(), debug).await;
    ask_about_agents(asking, home).await;
    ask_for_tokens(asking, home).await;
}

async fn ask_about_agents(asking: &mut Asking<'_>, home: &Home) {
    for agent in
        ["acme-cluster".to_owned(), "acme-shop/acme-front:acme-cluster".to_owned(), home.agent.id.to_string()]
    {
        asking.ask(ShowAgent { agent: agent.clone() }, debug).await;
        let target = Target::Path("/version".to_owned());
        let attributes = Attributes { verb: "get".to_owned(), target };
        for user in [None, Some("owner".to_owned())] {
            let asked = CanUse { agent: agent.clone(), user, attributes: attributes.clone() };
            asking.ask(asked, debug).await;
        }
        asking.ask(ListTokens { agent: Some(agent), ..ListTokens::default() }, debug).await;
    }
}

async fn ask_decisions(asking: &mut Asking<'_>, home: &Home) {
    let organization = home.owner.principal.organization;
    for action in [Action::ReadOrganization, Action::ReadProject, Action::ConnectAgent, Action::ReadSource] {
        for scope in [
            Scope::Organization(organization),
            Scope::Group(home.project.group),
            Scope::Project(home.project.id),
            Scope::Agent(home.agent.id),
        ] {
            for claimed in [organization, asking.stranger.principal.organization] {
                let actor = asking.stranger.principal.actor.clone();
                let decide = Decide { actor, organization: claimed, action, scope };
                asking
                    .ask(decide, |decision| {
                        assert!(!decision.allowed && !decision.visible, "{decision:?}");
                        debug(decision)
                    })
                    .await;
            }
        }
    }
}

async fn ask_as_a_service(asking: &mut Asking<'_>, home: &Home) {
    asking.ask(DecideFetch { agents: vec![home.agent.id], project: home.project.id }, debug).await;
    asking.ask(LocateProject { project: home.project.id }, debug).await;
    let (projects, groups) = (vec![home.project.path.clone()], vec!["acme-shop".to_owned()]);
    asking.ask(FindMissing { projects, groups }, debug).await;
    let actor = home.owner.principal.actor.clone();
    let organization = home.owner.principal.organization;
    let allowed =
        ListAllowedAgents { actor: actor.clone(), organization, action: Action::ReadAgent, from: None };
    asking.ask(allowed, debug).await;
    let action = Action::ReadEnvironment;
    let allowed = ListAllowedProjects { actor: actor.clone(), organization, action, from: None };
    asking.ask(allowed, debug).await;
    let project = Some(home.project.path.clone());
    asking.ask(FindProject { actor: actor.clone(), project }, debug).await;
    let (agent, namespace) = (home.agent.name.clone(), "default".to_owned());
    asking.ask(DecideAssociation { actor, agent, namespace }, debug).await;
}

async fn ask_for_tokens(asking: &mut Asking<'_>, home: &Home) {
    asking.ask(ListTokens { user: Some("owner".to_owned()), ..ListTokens::default() }, debug).await;
    let project = Some(home.project.id.to_string());
    asking.ask(ListTokens { project, ..ListTokens::default() }, debug).await;
    asking.ask(ListJobAgents::default(), debug).await;
    let (actor, since) = (home.owner.principal.actor.clone(), Position::start());
    let agent = home.agent.id;
    asking.ask(SignReview { actor: actor.clone(), agent, since: since.clone() }, debug).await;
    asking.ask(ListUsableAgents { actor, since, limit: None, cursor: None }, debug).await;
}

async fn ask_about_sign_in(asking: &mut Asking<'_>, home: &Home) {
    let provider = || "company".to_owned();
    asking.ask(TrustProvider { provider: provider(), owners: Vec::new() }, debug).await;
    asking.ask(DistrustProvider { provider: provider() }, debug).await;
    for user in ["owner".to_owned(), home.owner.principal.actor.to_string().replace("user:", "")] {
        asking.ask(UnlinkUser { user, provider: provider() }, debug).await;
    }
    asking.ask(ShowRoot {}, debug).await;
    asking.ask(RotateRoot {}, debug).await;
    let id_token = "e30.e30.e30".to_owned();
    let begin = BeginSignIn {
        provider: provider(),
        redirect: "https://kasbah.example/api/session/callback".to_owned(),
        state: "state".to_owned(),
        nonce: "nonce".to_owned(),
        challenge: "challenge".to_owned(),
    };
    asking.ask(begin, debug).await;
    let exchange = ExchangeCode {
        provider: provider(),
        redirect: "https://kasbah.example/api/session/callback".to_owned(),
        code: "code".to_owned(),
        verifier: "verifier".to_owned(),
        nonce: "nonce".to_owned(),
        issuer: None,
    };
    asking.ask(exchange, debug).await;
    asking.ask(SignIn { id_token, organization: Some("acme".to_owned()), project: None }, debug).await;
}

async fn ask_for_power(asking: &mut Asking<'_>, home: &Home) {
    let scope = Some(Scope::Project(home.project.id));
    asking.ask(CreateUser { name: "accomplice".to_owned(), role: Role::Owner, scope }, debug).await;
    let user = home.owner.principal.actor.to_string().replace("user:", "");
    for user in [user, "owner".to_owned()] {
        let assign = AssignRole { user: user.clone(), role: Role::Viewer, scope: None, withdraw: false };
        asking.ask(assign, debug).await;
        let issue = IssueToken {
            agent: None,
            user: Some(user),
            name: "t".to_owned(),
            lifetime_seconds: None,
            clusters_only: false,
        };
        asking.ask(issue, debug).await;
    }
    let issue = IssueToken {
        agent: Some(home.agent.id.to_string()),
        user: None,
        name: "t".to_owned(),
        lifetime_seconds: None,
        clusters_only: false,
    };
    asking.ask(issue, debug).await;
}

async fn ask_to_end(asking: &mut Asking<'_>, home: &Home) {
    for group in ["acme-shop".to_owned(), home.project.group.to_string()] {
        asking.ask(DeleteGroup { group }, debug).await;
    }
    for project in [home.project.path.clone(), home.project.id.to_string()] {
        asking.ask(DeleteProject { project }, debug).await;
    }
    for user in ["owner".to_owned(), home.owner.principal.actor.to_string().replace("user:", "")] {
        asking.ask(DisableUser { user: user.clone(), keep_agents_tokens: false }, debug).await;
        asking.ask(EnableUser { user }, debug).await;
    }
    asking.ask(SetTokenLifetimes { default_seconds: Some(60), longest_seconds: Some(60) }, debug).await;
}

async fn ask_commands(asking: &mut Asking<'_>, home: &Home) {
    let (project_id, owner) = (home.project.id.to_string(), "owner".to_owned());
    let (organization, again) = ("default".to_owned(), owner.clone());
    for project in [project_id.clone(), "acme-shop/acme-front".to_owned()] {
        let name = "deploy".to_owned();
        let (environment, protected, lifetime_seconds) = (None, false, None);
        asking.ask(IssueJobToken { project, name, environment, protected, lifetime_seconds }, debug).await;
    }
    let ensure = EnsureOwner { organization, owner: again, token: None, shared: false };
    asking.ask(ensure, debug).await;
    asking.ask(CreateOrganization { name: "third".to_owned(), owner: owner.clone() }, debug).await;
    ask_about_sign_in(asking, home).await;
    ask_to_end(asking, home).await;
    asking.ask(CreateGroup { name: "strange".to_owned() }, debug).await;
    for (path, external_id) in [("strange/new", None), ("strange/newer", Some(4711))] {
        let create = CreateProject { external_id, ..project(path, "https://git.example/a.git") };
        asking.ask(create.clone(), debug).await;
        asking.ask(CreateProject { credential: Some(home.credential.id.to_string()), ..create }, debug).await;
    }
    for named in [home.project.path.clone(), project_id.clone()] {
        let set = SetProject {
            project: named.clone(),
            repository: Some("https://evil.example/a.git".to_owned()),
            default_branch: None,
            credential: None,
            external_id: None,
        };
        asking.ask(set, debug).await;
        asking
            .ask(RegisterAgent { name: "spy".to_owned(), project: named.clone(), group: None }, |made| {
                debug(&made.agent)
            })
            .await;
        asking
            .ask(GrantCredential { credential: home.credential.id.to_string(), project: named }, debug)
            .await;
    }
    asking.ask(RevokeCredential { credential: home.credential.id.to_string() }, debug).await;
    ask_for_power(asking, home).await;
    let agent = home.agent.id.to_string();
    asking.ask(RevokeToken { token: home.token }, debug).await;
    asking.ask(DeleteAgent { agent }, debug).await;
    let secret = CreateCredential {
        name: "vault".to_owned(),
        host: "git.example".to_owned(),
        user: None,
        secret: "s".to_owned(),
    };
    asking.ask(secret, |made| made.id.to_string()).await;
}
