//! Every request of every service, asked by another organization's owner and agent about what this one has.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};

use authz::driver::SERVED;
use events::configuration::GitReference;
use events::pass::SignedPass;
use events::requests::authz::{CreateGroup, CreateOrganization};
use events::requests::configuration::ShowConfiguration;
use events::requests::delivery::{
    ConfirmSource, ListSources, ListSyncs, NameApplier, PinSource, ResumeSource, ShowDesired, ShowNext,
    ShowSource, SuspendSource, SyncSource, UnpinSource,
};
use events::requests::diff::DiffSource;
use events::requests::environments::{
    CanDeploy, CreateEnvironment, DeleteEnvironment, FailDeployment, FinishDeployment, ListDeployments,
    ListEnvironmentChanges, ListEnvironments, ListResourceGroups, PreviewStop, ReportDeployment,
    ReportedDeployment, SetEnvironment, ShowDeployment, ShowEnvironment, StartDeployment, StopEnvironment,
};
use events::requests::gateway::{ForwardedRequest, ListTunnels, RedeemTicket};
use events::requests::index::{
    DiffEnvironment, ExplainHealth, FindObjects, ListChanges, ListEnvironmentHealth, Moment, ObjectFilter,
    ShowCoverage, ShowEnvironmentTree, ShowIndexed, ShowNetwork, ShowTiers, ShowTree,
};
use events::requests::page::Paged;
use events::requests::presence::ListReplicas;
use events::requests::repository::{BundleAt, ReadFile, ShowFetch};
use events::requests::rights::ReviewRights;
use events::requests::status::{ListAgentStatuses, ListObjects};
use events::requests::subscriptions::{
    CreateSubscription, DeleteSubscription, ListDeadLetters, ListSubscriptions, PauseSubscription,
    ReplaySubscription, ResendDeadLetters, ResumeSubscription, RotateSubscriptionSecret, ShowSubscription,
};
use events::subject::Subject;
use events::{
    Actor, AgentId, DeploymentId, EnvironmentId, InstanceId, OrganizationId, ProjectId, RefusalKind, Request,
    Sha256, SourceId, SubscriptionId, Timestamp,
};
use store::Record;
use testkit::GitServer;

use crate::organization::Organization;
use crate::running::Running;

/// Asks as the stranger, and keeps what was asked.
struct Asking<'a> {
    running: &'a Running,
    home: &'a Organization,
    stranger: &'a Organization,
    tried: BTreeSet<Subject>,
}

impl Asking<'_> {
    /// As whom the stranger asks: their owner and their agent, from their own organization and claiming to act in the other.
    fn guises(&self) -> impl Iterator<Item = (Actor, OrganizationId)> + use<> {
        let organizations = [self.stranger.owner.organization, self.home.owner.organization];
        let actors = [self.stranger.owner.actor.clone(), self.stranger.as_agent.actor.clone()];
        actors.into_iter().flat_map(move |actor| organizations.map(|place| (actor.clone(), place)))
    }

    /// What names a thing of the other organization is refused, in the same words as what names nothing at all.
    async fn refused<R, T>(&mut self, theirs: T, nobodys: T, naming: impl Fn(T) -> R)
    where
        R: Request<Reply: Debug>,
        T: Copy + Display,
    {
        let subject = Subject::request(R::NAME);
        // One replica is asked under a subject of its own.
        let of_replica = |served: &Subject| served.as_str().starts_with(&format!("{subject}."));
        let replicas: Vec<Subject> = self.running.served().into_iter().filter(of_replica).collect();
        for subject in std::iter::once(subject).chain(replicas) {
            self.refused_under(&subject, theirs, nobodys, &naming).await;
        }
    }

    async fn refused_under<R, T>(&mut self, subject: &Subject, theirs: T, nobodys: T, naming: impl Fn(T) -> R)
    where
        R: Request<Reply: Debug>,
        T: Copy + Display,
    {
        self.tried.insert(subject.clone());
        for (actor, organization) in self.guises() {
            let mut refusals = Vec::new();
            for thing in [theirs, nobodys] {
                let answer = self.running.ask_as(actor.clone(), organization, subject, &naming(thing)).await;
                let refusal = match answer {
                    Err(refusal) => refusal,
                    Ok(reply) => panic!("{subject} of {thing} answers {actor} in {organization}: {reply:?}"),
                };
                let refused = matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Denied);
                assert!(refused, "{subject} of {thing} for {actor} in {organization}: {refusal:?}");
                // The asker's own words may be said back.
                refusals.push(format!("{refusal:?}").replace(&thing.to_string(), "it"));
            }
            assert_eq!(refusals[0], refusals[1], "{subject} tells {actor} in {organization} what exists");
            self.tells_nothing(subject, &refusals[0]);
        }
    }

    /// What lists, lists the stranger's own in their own organization, and nothing in the other.
    async fn lists<R>(&mut self, request: R, own: usize, agent: impl Fn(&R::Item) -> AgentId)
    where
        R: Paged<Item: Debug>,
    {
        let subject = Subject::request(R::NAME);
        self.tried.insert(subject.clone());
        let stranger = &self.stranger.owner;
        for (actor, organization) in self.guises() {
            let listed = match self.running.ask_as(actor.clone(), organization, &subject, &request).await {
                Ok(listed) => listed.items,
                // Some lists are not for agents at all.
                Err(refusal) => {
                    assert_eq!(refusal.kind, RefusalKind::Denied, "{subject} for {actor}: {refusal:?}");
                    assert_ne!(actor, stranger.actor, "{subject}: {refusal:?}");
                    self.tells_nothing(&subject, &format!("{refusal:?}"));
                    continue;
                }
            };
            self.tells_nothing(&subject, &format!("{listed:?}"));
            assert!(listed.iter().all(|view| agent(view) == self.stranger.agent), "{subject}: {listed:?}");
            if organization != stranger.organization {
                assert!(listed.is_empty(), "{subject} for {actor} in {organization}: {listed:?}");
            } else if actor == stranger.actor {
                assert_eq!(listed.len(), own, "{subject}: {listed:?}");
            }
        }
    }

    fn tells_nothing(&self, subject: &Subject, said: &str) {
        for mark in &self.home.marks {
            assert!(!said.contains(mark), "{subject} tells a stranger {mark}: {said}");
        }
    }
}

async fn ask_delivery(asking: &mut Asking<'_>) {
    let world = asking.running.world.clone();
    let (agent, commit) = (asking.home.agent, asking.home.commit.clone());
    let (theirs, nobodys) = (asking.home.source, SourceId(world.new_uuid()));
    asking.lists(ListSources::default(), 1, |view| view.agent).await;
    // An agent that is not visible has as many sources as one that is not there.
    for agent in [agent, AgentId(world.new_uuid())] {
        asking
            .lists(ListSources { agent: Some(agent), ..ListSources::default() }, 0, |view| view.agent)
            .await;
    }
    asking.lists(ListAgentStatuses::default(), 1, |status| status.agent).await;
    for agent in [agent, AgentId(world.new_uuid())] {
        asking
            .lists(ListAgentStatuses { agent: Some(agent), ..ListAgentStatuses::default() }, 0, |status| {
                status.agent
            })
            .await;
    }
    asking.refused(theirs, nobodys, |source| ShowSource { source }).await;
    asking.refused(theirs, nobodys, |source| ListSyncs { source, limit: None, cursor: None }).await;
    asking.refused(theirs, nobodys, |source| ListObjects { source, limit: None, cursor: None }).await;
    asking.refused(theirs, nobodys, |source| ShowNext { source }).await;
    asking.refused(theirs, nobodys, |source| SyncSource { source }).await;
    asking.refused(theirs, nobodys, |source| SuspendSource { source, reason: "spite".to_owned() }).await;
    asking.refused(theirs, nobodys, |source| ResumeSource { source }).await;
    for commit in [&commit, "nonsense"] {
        asking.refused(theirs, nobodys, |source| PinSource { source, commit: commit.to_owned() }).await;
    }
    asking.refused(theirs, nobodys, |source| UnpinSource { source }).await;
    for commit in [Some(&commit), None] {
        asking.refused(theirs, nobodys, |source| ConfirmSource { source, commit: commit.cloned() }).await;
    }
    let (nobodys, instance) = (AgentId(world.new_uuid()), InstanceId(world.new_uuid()));
    asking.refused(agent, nobodys, |agent| ShowDesired { agents: vec![agent] }).await;
    asking.refused(agent, nobodys, |agent| NameApplier { agent, instance }).await;
}

async fn ask_about_environments(asking: &mut Asking<'_>) {
    let world = asking.running.world.clone();
    let (theirs, nobodys) = (asking.home.environment, EnvironmentId(world.new_uuid()));
    asking.refused(theirs, nobodys, |environment| ShowEnvironment { environment }).await;
    let reason = || "spite".to_owned();
    for delete_objects in [false, true] {
        let stop = |environment| StopEnvironment { environment, reason: reason(), delete_objects };
        asking.refused(theirs, nobodys, stop).await;
    }
    asking.refused(theirs, nobodys, |environment| PreviewStop { environment }).await;
    asking.refused(theirs, nobodys, |environment| DeleteEnvironment { environment }).await;
    let set = |environment| SetEnvironment {
        environment,
        tier: None,
        url: None,
        agent: None,
        namespace: None,
        auto_stop_seconds: None,
        deployers: Some(Vec::new()),
        grouping: None,
    };
    asking.refused(theirs, nobodys, set).await;
    asking.refused(theirs, nobodys, |environment| ListEnvironmentChanges { environment }).await;
    let list = |environment| ListDeployments { environment, status: None, limit: None, cursor: None };
    asking.refused(theirs, nobodys, list).await;
    asking.refused(theirs, nobodys, |_| ListResourceGroups::default()).await;
    let (theirs, nobodys) = (asking.home.deployment, DeploymentId(world.new_uuid()));
    asking.refused(theirs, nobodys, |deployment| ShowDeployment { deployment }).await;
    asking.refused(theirs, nobodys, |deployment| FinishDeployment { deployment }).await;
    asking.refused(theirs, nobodys, |deployment| FailDeployment { deployment, reason: reason() }).await;
    let (theirs, nobodys) = (asking.home.project, ProjectId(world.new_uuid()));
    let deployment = asking.home.deployment;
    let report = |project| {
        let which = ReportedDeployment::Deployment(deployment);
        ReportDeployment { project, which, succeeded: true, reason: String::new() }
    };
    asking.refused(theirs, nobodys, report).await;
    let name = || "acme-environment".to_owned();
    let create = |project: ProjectId| CreateEnvironment {
        project: project.to_string(),
        name: name(),
        ..CreateEnvironment::default()
    };
    asking.refused(theirs, nobodys, create).await;
    let start = |project: ProjectId| StartDeployment {
        environment: name(),
        project: Some(project.to_string()),
        ..StartDeployment::default()
    };
    asking.refused(theirs, nobodys, start).await;
    let list = |project: ProjectId| ListEnvironments {
        project: Some(project.to_string()),
        ..ListEnvironments::default()
    };
    asking.refused(theirs, nobodys, list).await;
    ask_for_lists_of_environments(asking).await;
}

/// What lists the stranger's own, and what answers with what is missing.
async fn ask_for_lists_of_environments(asking: &mut Asking<'_>) {
    let [listing, reviewing] = [ListEnvironments::NAME, CanDeploy::NAME].map(Subject::request);
    asking.tried.extend([listing.clone(), reviewing.clone()]);
    for (actor, organization) in asking.guises() {
        let all = ListEnvironments::default();
        let listed = asking.running.ask_as(actor.clone(), organization, &listing, &all).await.unwrap();
        asking.tells_nothing(&listing, &format!("{listed:?}"));
        let own = asking.stranger.owner.clone();
        if (&actor, organization) == (&own.actor, own.organization) {
            assert_eq!(listed.items.len(), 1, "{listed:?}");
        }
        let review = CanDeploy {
            environment: "home".to_owned(),
            project: Some(asking.home.project.to_string()),
            deployer: None,
            agent: None,
            namespace: None,
        };
        let said = asking.running.ask_as(actor, organization, &reviewing, &review).await.unwrap();
        assert!(!said.allowed, "{said:?}");
        asking
            .tells_nothing(&reviewing, &format!("{said:?}").replace(&asking.home.project.to_string(), "it"));
    }
}

async fn ask_fetchers(asking: &mut Asking<'_>) {
    let world = asking.running.world.clone();
    let (home, own) = (asking.home, asking.stranger);
    let (theirs, nobodys) = (home.source, SourceId(world.new_uuid()));
    asking.refused(theirs, nobodys, |source| ShowFetch { source }).await;
    for commit in [home.commit.as_str(), "nonsense"] {
        asking.refused(theirs, nobodys, |source| BundleAt { source, commit: commit.to_owned() }).await;
    }
    let nobodys = ProjectId(world.new_uuid());
    for agent in [home.agent, own.agent] {
        let read = |project| ReadFile {
            agent,
            project,
            reference: GitReference::Default,
            path: "manifests/map.yaml".to_owned(),
            limit: 1024,
            fresh: true,
            watch_seconds: None,
        };
        asking.refused(home.project, nobodys, read).await;
    }
    asking.refused(home.agent, AgentId(world.new_uuid()), |agent| ShowConfiguration { agent }).await;
    for service in ["config-fetcher", "delivery", "event-relay", "repo-poller", "tunnel-gateway"] {
        let subject = Subject::request(&format!("presence.{service}"));
        asking.refused_under(&subject, 1, 2, |_| ListReplicas {}).await;
    }
}

async fn ask_gateway(asking: &mut Asking<'_>) {
    let world = asking.running.world.clone();
    let (home, own) = (asking.home, asking.stranger);
    let (source, agent) = (SourceId(world.new_uuid()), AgentId(world.new_uuid()));
    asking.lists(ListTunnels::default(), 1, |view| view.agent).await;
    asking
        .refused(home.agent, agent, |agent| ListTunnels { agent: Some(agent), ..ListTunnels::default() })
        .await;
    // Nobody serves the subject of an agent that is not there, which would tell; but nobody outside chooses a subject: the
    // API takes it from delivery's answer to the asker.
    for subject in [home.diff(), own.diff()] {
        for agent in [home.agent, own.agent] {
            asking.refused_under(&subject, home.source, source, |source| DiffSource { agent, source }).await;
        }
        let source = home.source;
        asking.refused_under(&subject, home.agent, agent, |agent| DiffSource { agent, source }).await;
    }
    let pass = SignedPass { pass: vec![1], signature: vec![2] };
    let question =
        ReviewRights { pass, roots: Vec::new(), kinds: Vec::new(), namespaces: vec!["default".to_owned()] };
    for agent in [home.agent, own.agent] {
        let subject = Subject::agent_request(ReviewRights::NAME, agent);
        asking.refused_under(&subject, 1, 2, |_| question.clone()).await;
    }
    let of_tickets = |subject: &Subject| subject.name() == Some(RedeemTicket::NAME);
    let tickets = asking.running.served().into_iter().find(of_tickets).unwrap();
    let (one, another) = (Sha256::of(b"one"), Sha256::of(b"another"));
    asking.refused_under(&tickets, one, another, |secret| RedeemTicket { secret }).await;
}

/// Neither agent told of an object; what there would be to see is tried with a real cluster.
async fn ask_indexer(asking: &mut Asking<'_>) {
    let (home, nobodys) = (asking.home.agent, AgentId(asking.running.world.new_uuid()));
    asking.lists(FindObjects::default(), 0, |object| object.agent).await;
    asking.lists(ListChanges::default(), 0, |change| change.agent).await;
    let of = |agent: AgentId| ObjectFilter { agent: Some(agent.to_string()), ..ObjectFilter::default() };
    asking.refused(home, nobodys, |agent| FindObjects { filter: of(agent), ..FindObjects::default() }).await;
    asking.refused(home, nobodys, |agent| ListChanges { filter: of(agent), ..ListChanges::default() }).await;
    asking
        .refused(home, nobodys, |agent| ShowTree { filter: of(agent), at: None, todays_rules: false })
        .await;
    asking.refused(home, nobodys, |agent| ShowNetwork { filter: of(agent), at: None }).await;
    asking
        .refused(home, nobodys, |agent| ExplainHealth { filter: of(agent), at: None, todays_rules: false })
        .await;
    asking
        .refused(home, nobodys, |agent| ShowIndexed { filter: of(agent), at: None, todays_rules: false })
        .await;
    ask_indexer_of_environments(asking).await;
    let subject = Subject::request(ShowCoverage::NAME);
    asking.tried.insert(subject.clone());
    for (actor, organization) in asking.guises() {
        let covered = asking.running.ask_as(actor, organization, &subject, &ShowCoverage::default()).await;
        let agents = covered.map(|covered| covered.agents).unwrap_or_default();
        assert!(agents.is_empty(), "nobody is let into a cluster: {agents:?}");
    }
}

/// The rules that group objects are shown to nobody who may not see them, neither by a filter nor as a list.
async fn ask_indexer_of_environments(asking: &mut Asking<'_>) {
    let subject = Subject::request(ListEnvironmentHealth::NAME);
    for (actor, organization) in asking.guises() {
        let request = ListEnvironmentHealth::default();
        let told = asking.running.ask_as(actor, organization, &subject, &request).await;
        assert!(told.map(|told| told.items).unwrap_or_default().is_empty());
    }
    let (theirs, nobodys) = (asking.home.environment, EnvironmentId(asking.running.world.new_uuid()));
    let of = ObjectFilter::of_environment;
    asking
        .refused(theirs, nobodys, |environment| FindObjects {
            filter: of(environment),
            ..FindObjects::default()
        })
        .await;
    asking
        .refused(theirs, nobodys, |environment| ListChanges {
            filter: of(environment),
            ..ListChanges::default()
        })
        .await;
    asking
        .refused(theirs, nobodys, |environment| ShowTree {
            filter: of(environment),
            at: None,
            todays_rules: false,
        })
        .await;
    asking.refused(theirs, nobodys, |environment| ShowNetwork { filter: of(environment), at: None }).await;
    asking
        .refused(theirs, nobodys, |environment| ShowEnvironmentTree {
            environment,
            at: None,
            todays_rules: false,
        })
        .await;
    let from = || Moment::Time(Timestamp(asking.running.world.clock.now_millis()));
    let diff = |environment| DiffEnvironment {
        environment,
        from: from(),
        to: None,
        status: false,
        todays_rules: false,
    };
    asking.refused(theirs, nobodys, diff).await;
    let env = |environment: EnvironmentId| ListEnvironmentHealth {
        env: Some(environment.to_string()),
        ..ListEnvironmentHealth::default()
    };
    asking.refused(theirs, nobodys, env).await;
    let (theirs, nobodys) = (asking.home.project, ProjectId(asking.running.world.new_uuid()));
    let project = |project: ProjectId| ShowTiers { project: Some(project.to_string()) };
    asking.refused(theirs, nobodys, project).await;
    let subject = Subject::request(ShowTiers::NAME);
    for (actor, organization) in asking.guises() {
        let told = asking.running.ask_as(actor, organization, &subject, &ShowTiers::default()).await;
        assert!(told.map(|told| told.tiers).unwrap_or_default().is_empty());
    }
}

async fn ask_event_relay(asking: &mut Asking<'_>) {
    let (theirs, nobodys) = (asking.home.subscription, SubscriptionId(asking.running.world.new_uuid()));
    let of = |id: SubscriptionId| id.to_string();
    asking.refused(theirs, nobodys, |id| ShowSubscription { subscription: of(id) }).await;
    asking.refused(theirs, nobodys, |id| ListDeadLetters { subscription: of(id) }).await;
    asking.refused(theirs, nobodys, |id| DeleteSubscription { subscription: of(id) }).await;
    asking.refused(theirs, nobodys, |id| ReplaySubscription { subscription: of(id), from: None }).await;
    asking.refused(theirs, nobodys, |id| PauseSubscription { subscription: of(id) }).await;
    asking.refused(theirs, nobodys, |id| ResumeSubscription { subscription: of(id) }).await;
    asking.refused(theirs, nobodys, |id| RotateSubscriptionSecret { subscription: of(id) }).await;
    let resend = |id| ResendDeadLetters { subscription: of(id), sequences: Vec::new() };
    asking.refused(theirs, nobodys, resend).await;
    let (theirs, nobodys) = (asking.home.project, ProjectId(asking.running.world.new_uuid()));
    let create = |project: ProjectId| CreateSubscription {
        name: "spy".to_owned(),
        url: Some("https://hooks.example/spy".to_owned()),
        nats: false,
        format: None,
        types: Vec::new(),
        project: Some(project.to_string()),
        environment: None,
        from: None,
    };
    asking.refused(theirs, nobodys, create).await;
    let subject = Subject::request(ListSubscriptions::NAME);
    asking.tried.insert(subject.clone());
    for (actor, organization) in asking.guises() {
        let told = asking.running.ask_as(actor, organization, &subject, &ListSubscriptions {}).await;
        asking.tells_nothing(&subject, &format!("{told:?}"));
    }
}

/// A request that is a byte stream, whatever it says.
async fn open_forwarded(asking: &mut Asking<'_>) {
    for agent in [asking.home.agent, asking.stranger.agent] {
        let subject = Subject::agent_request(ForwardedRequest::NAME, agent);
        for (actor, organization) in asking.guises() {
            let opened = asking.running.open_as(actor.clone(), organization, &subject).await;
            let ended = opened.unwrap().reader.0.read().await.unwrap_err();
            assert!(ended.reason.contains("only gateways"), "{actor} in {organization}: {ended}");
        }
        asking.tried.insert(subject);
    }
}

/// The name of the command that a decision came from.
fn command(record: &Record) -> Option<&str> {
    Some(record.commit()?.command.as_ref()?.name.as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_sees_and_changes_nothing_by_any_request() {
    let running = Running::start().await;
    let git = GitServer::start().unwrap();
    let operator = running.operator().await;
    let create = CreateOrganization { name: "other".to_owned(), owner: "stranger".to_owned() };
    let made = running.ask(&operator, &create).await.unwrap();
    let stranger = running.principal(&made.owner_token.unwrap().secret).await;
    let stranger = Organization::settle(&running, &git, "other", stranger).await;
    let home = Organization::settle(&running, &git, "acme", operator).await;
    // The home organization's last decision before the stranger asks.
    running.ask(&home.owner, &CreateGroup { name: "acme-mark".to_owned() }).await.unwrap();

    let mut asking = Asking { running: &running, home: &home, stranger: &stranger, tried: BTreeSet::new() };
    ask_delivery(&mut asking).await;
    ask_about_environments(&mut asking).await;
    ask_fetchers(&mut asking).await;
    ask_gateway(&mut asking).await;
    ask_indexer(&mut asking).await;
    ask_event_relay(&mut asking).await;
    open_forwarded(&mut asking).await;

    // A test of authz's own tries each of its requests, and that it tries each is seen to there.
    let of_authz = SERVED.iter().map(|name| Subject::request(name));
    let tried: BTreeSet<Subject> = asking.tried.into_iter().chain(of_authz).collect();
    let served = running.served();
    let untried: Vec<_> = served.difference(&tried).map(Subject::as_str).collect();
    assert!(untried.is_empty(), "served but not tried as a stranger: {untried:?}");

    let decisions = running.decisions_at_the_end(home.owner.organization).await;
    let mark = decisions.iter().rposition(|record| command(record) == Some(CreateGroup::NAME)).unwrap();
    let changed = decisions[mark + 1..].iter().filter(|record| command(record) != Some("authz.note-use"));
    let changed: Vec<_> = changed.collect();
    assert!(changed.is_empty(), "a stranger changed something: {changed:#?}");
}
