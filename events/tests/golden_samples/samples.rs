//! One sample or more of each event, with fixed ids.

use events::configuration::*;
use events::delivery::*;
use events::directory::*;
use events::environment::Tier;
use events::repository::*;
use events::root::RootLink;
use events::*;
use serde_json::json;
use uuid::Uuid;

use super::deployed::{environments, subscriptions};

pub fn id(number: u128) -> Uuid {
    Uuid::from_u128(0x0190_b6a2_7c1e_7d3a_9f10_0000_0000_0000 + number)
}

fn digest(byte: u8) -> BlobDigest {
    BlobDigest([byte; 32])
}

pub fn identity() -> ObjectIdentity {
    ObjectIdentity {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    }
}

pub fn counts() -> SyncCounts {
    SyncCounts { unchanged: 1, created: 2, changed: 3, pruned: 4, failed: 5, unhealthy: 6, waiting: 0 }
}

pub fn failure() -> ObjectFailure {
    ObjectFailure {
        identity: identity(),
        file: "staging/web.yaml".to_owned(),
        line: 7,
        message: "field is immutable".to_owned(),
    }
}

fn finding() -> FileFinding {
    FileFinding {
        file: "staging/web.yaml".to_owned(),
        line: 7,
        column: 3,
        field: "sources[0].ref".to_owned(),
        message: "unknown key".to_owned(),
    }
}

pub fn commit() -> String {
    "4f1a5b10c0ffee00c0ffee00c0ffee00c0ffee00".to_owned()
}

fn settings() -> ProjectSettings {
    ProjectSettings {
        repository: "https://git.example.com/shop/deploy.git".to_owned(),
        default_branch: "main".to_owned(),
        credential: Some(CredentialId(id(5))),
        external_id: Some(42),
    }
}

/// Every event, by the name of its sample.
pub fn all() -> Vec<(&'static str, Event)> {
    let mut samples = directory();
    samples.extend(configuration());
    samples.extend(repository());
    samples.extend(delivery());
    samples.extend(handed_over());
    samples.extend(subscriptions());
    samples.extend(environments());
    samples
}

/// What is said only where objects may be handed over.
fn handed_over() -> Vec<(&'static str, Event)> {
    let (agent, source, project) = (AgentId(id(2)), SourceId(id(8)), ProjectId(id(3)));
    let (bundle, selection) = (digest(1), Some(Sha256([7; 32])));
    let registered = AgentRegistered {
        agent,
        name: "production".to_owned(),
        project,
        group: None,
        replaces: vec![AgentId(id(22))],
    };
    let of_a_group =
        AgentRegistered { group: Some(GroupId(id(4))), replaces: Vec::new(), ..registered.clone() };
    let advanced = SourceAdvanced {
        source,
        agent,
        commit: commit(),
        bundle,
        objects: 3,
        warnings: Vec::new(),
        takes_no_file: false,
        selection,
    };
    let desired = BundleDesired {
        source,
        agent,
        sync: SyncId(id(9)),
        commit: commit(),
        bundle,
        objects: 3,
        prune: None,
        prunes: 0,
        wanted: None,
        withheld: 2,
        selection,
    };
    vec![
        ("again", DirectoryEvent::AgentRegistered(registered.clone()).into()),
        ("of-a-group", DirectoryEvent::AgentRegistered(of_a_group).into()),
        ("selected", RepositoryEvent::SourceAdvanced(advanced).into()),
        ("withheld", DeliveryEvent::BundleDesired(desired).into()),
    ]
}

fn job_admitted(project: ProjectId) -> JobAdmitted {
    JobAdmitted {
        job: JobId(id(17)),
        project,
        facts: JobFacts {
            name: "deploy 4711".to_owned(),
            pipeline: "815".to_owned(),
            reference: "refs/heads/main".to_owned(),
            is_protected: true,
            environment: Some(JobEnvironment {
                name: "production".to_owned(),
                tier: "production".to_owned(),
            }),
        },
    }
}

fn of_ends(user: UserId, project: ProjectId) -> [DirectoryEvent; 5] {
    [
        DirectoryEvent::UserDisabled(UserDisabled { user, keeps_agents_tokens: true }),
        DirectoryEvent::UserEnabled(UserEnabled { user }),
        DirectoryEvent::TokenLifetimesSet(TokenLifetimesSet {
            lifetimes: TokenLifetimes { default_seconds: 3600, longest_seconds: 86_400 },
        }),
        DirectoryEvent::GroupDeleted(GroupDeleted { group: GroupId(id(4)) }),
        DirectoryEvent::ProjectDeleted(ProjectDeleted { project }),
    ]
}

fn for_clusters(user: UserId) -> DirectoryEvent {
    DirectoryEvent::TokenIssued(TokenIssued {
        token: TokenId(id(6)),
        holder: TokenHolder::User(user),
        hash: Sha256([7; 32]),
        name: "kubectl".to_owned(),
        expires_at: Some(Timestamp(1_800_000_000_000)),
        clusters_only: true,
    })
}

fn of_the_root() -> DirectoryEvent {
    DirectoryEvent::RootRotated(RootRotated {
        root: RootId(id(18)),
        link: RootLink { number: 1, public_key: vec![7; 32], signature: vec![9; 64] },
    })
}

fn of_sign_in(user: UserId) -> [DirectoryEvent; 4] {
    [
        DirectoryEvent::IdentityProviderTrusted(IdentityProviderTrusted {
            provider: "gitlab".to_owned(),
            owners: vec!["shop".to_owned()],
        }),
        DirectoryEvent::IdentityProviderDistrusted(IdentityProviderDistrusted {
            provider: "gitlab".to_owned(),
        }),
        DirectoryEvent::UserLinked(UserLinked {
            user,
            provider: "company".to_owned(),
            subject: Sha256([7; 32]),
        }),
        DirectoryEvent::UserUnlinked(UserUnlinked { user, provider: "company".to_owned() }),
    ]
}

fn of_credentials(credential: CredentialId, project: ProjectId) -> [DirectoryEvent; 3] {
    [
        DirectoryEvent::CredentialCreated(CredentialCreated {
            credential,
            name: "deploy-key".to_owned(),
            host: "git.example.com".to_owned(),
        }),
        DirectoryEvent::CredentialGranted(CredentialGranted { credential, project }),
        DirectoryEvent::CredentialRevoked(CredentialRevoked { credential }),
    ]
}

fn directory() -> Vec<(&'static str, Event)> {
    let (user, agent, project, token) = (UserId(id(1)), AgentId(id(2)), ProjectId(id(3)), TokenId(id(6)));
    let events = [
        DirectoryEvent::OrganizationCreated(OrganizationCreated {
            organization: OrganizationId(id(0)),
            name: "acme".to_owned(),
        }),
        DirectoryEvent::GroupCreated(GroupCreated { group: GroupId(id(4)), name: "shop".to_owned() }),
        DirectoryEvent::ProjectCreated(ProjectCreated {
            project,
            group: GroupId(id(4)),
            name: "deploy".to_owned(),
            settings: settings(),
        }),
        DirectoryEvent::ProjectChanged(ProjectChanged {
            project,
            settings: ProjectSettings { credential: None, external_id: None, ..settings() },
        }),
        DirectoryEvent::UserCreated(UserCreated { user, name: PersonalData(vec![1, 2, 3]) }),
        DirectoryEvent::RoleAssigned(RoleAssigned {
            user,
            role: Role::Maintainer,
            scope: Scope::Project(project),
        }),
        DirectoryEvent::RoleWithdrawn(RoleWithdrawn {
            user,
            role: Role::Owner,
            scope: Scope::Group(GroupId(id(4))),
        }),
        DirectoryEvent::AgentRegistered(AgentRegistered {
            agent,
            name: "production".to_owned(),
            project,
            group: None,
            replaces: Vec::new(),
        }),
        DirectoryEvent::AgentDeleted(AgentDeleted { agent }),
        DirectoryEvent::JobAdmitted(job_admitted(project)),
        DirectoryEvent::TokenIssued(TokenIssued {
            token,
            holder: TokenHolder::Agent(agent),
            hash: Sha256([7; 32]),
            name: "first".to_owned(),
            expires_at: Some(Timestamp(1_800_000_000_000)),
            clusters_only: false,
        }),
        DirectoryEvent::TokenRevoked(TokenRevoked { token, holder: TokenHolder::User(user) }),
        DirectoryEvent::TokenUsed(TokenUsed { token, at: Timestamp(1_800_000_000_000) }),
        DirectoryEvent::NameClaimed(NameClaimed { what: "project".to_owned(), holder: project.to_string() }),
    ];
    events
        .into_iter()
        .chain(of_credentials(CredentialId(id(5)), project))
        .chain(of_sign_in(user))
        .chain(of_ends(user, project))
        .chain([of_the_root()])
        .map(|event| ("full", Event::from(event)))
        .chain([("clusters", Event::from(for_clusters(user)))])
        .collect()
}

fn full_configuration(agent: AgentId) -> AgentConfiguration {
    AgentConfiguration {
        mode: Mode::Cluster,
        resources: ResourceRules {
            include: vec![KindPattern { group: "*".to_owned(), kind: "*".to_owned() }],
            exclude: vec![KindPattern { group: String::new(), kind: "Secret".to_owned() }],
        },
        observe: ObserveRules::default(),
        health: HealthSettings::default(),
        relations: Vec::new(),
        actions: Vec::new(),
        sources: vec![SourceConfiguration {
            id: SourceId::derive(agent, "shop"),
            name: "shop".to_owned(),
            project: ProjectId(id(3)),
            reference: GitReference::Branch("main".to_owned()),
            include: vec!["staging/**".to_owned()],
            exclude: vec!["**/draft-*".to_owned()],
            interval_seconds: 60,
            default_namespace: "shop".to_owned(),
            service_account: Some(ServiceAccount {
                namespace: "shop".to_owned(),
                name: "deployer".to_owned(),
            }),
            policies: SyncPolicies::default(),
            environment: None,
            line: 4,
        }],
        lockdown: true,
        grants: grants::Grants::default(),
        implicit_rights: true,
    }
}

/// A configuration with a health rule.
fn judging(explicit: &AgentConfiguration) -> AgentConfiguration {
    let rule = HealthRule {
        group: "db.example.com".to_owned(),
        kind: "Database".to_owned(),
        healthy: "status.phase == 'Ready'".to_owned(),
        progressing: Some("status.phase == 'Pending'".to_owned()),
        degraded: Some("status.phase == 'Failed'".to_owned()),
        suspended: Some("has(spec.paused) && spec.paused".to_owned()),
        message: Some("status.phase".to_owned()),
    };
    AgentConfiguration {
        health: HealthSettings { rules: vec![rule], ..HealthSettings::default() },
        ..explicit.clone()
    }
}

/// A configuration with a health rule of Argo CD.
fn importing(explicit: &AgentConfiguration) -> AgentConfiguration {
    let rule = ImportedRule {
        group: "*.example.com".to_owned(),
        kind: "*".to_owned(),
        lua: "hs = {}\nhs.status = \"Healthy\"\nreturn hs\n".to_owned(),
    };
    let health = HealthSettings { imported: vec![rule], ..HealthSettings::default() };
    AgentConfiguration { health, ..explicit.clone() }
}

/// A configuration with a relation.
fn relating(explicit: &AgentConfiguration) -> AgentConfiguration {
    let kind = |group: &str, kind: &str| KindPattern { group: group.to_owned(), kind: kind.to_owned() };
    let relation = DeclaredRelation {
        name: "uses-database".to_owned(),
        from: kind("example.com", "App"),
        to: kind("db.example.com", "Database"),
        names: Some("spec.database".to_owned()),
        labels: Some("spec.labels".to_owned()),
        namespace: Some("'data'".to_owned()),
    };
    AgentConfiguration { relations: vec![relation], ..explicit.clone() }
}

/// A configuration with actions.
fn acting(explicit: &AgentConfiguration) -> AgentConfiguration {
    let action = |name: &str, patch: ObjectPatch| DeclaredAction {
        name: name.to_owned(),
        group: "db.example.com".to_owned(),
        kind: "Database".to_owned(),
        text: "Stops it.".to_owned(),
        when: Some("!spec.paused".to_owned()),
        patch,
        subresource: Some("status".to_owned()),
    };
    let merge = ObjectPatch::Merge(json!({"status": {"asked": {"$cel": "now"}}}));
    let json = ObjectPatch::Json(vec![json!({"op": "remove", "path": "/status/asked"})]);
    AgentConfiguration { actions: vec![action("pause", merge), action("resume", json)], ..explicit.clone() }
}

fn configuration() -> Vec<(&'static str, Event)> {
    let agent = AgentId(id(2));
    let configuration = full_configuration(agent);
    let explicit =
        AgentConfiguration { implicit_rights: false, sources: Vec::new(), ..configuration.clone() };
    let pattern = |kind: &str, namespace: &str| {
        let [group, kind, namespace] = ["", kind, namespace].map(str::to_owned);
        ObservePattern { group, kind, namespace }
    };
    let observe =
        ObserveRules { include: vec![pattern("*", "shop-*")], exclude: vec![pattern("Secret", "*")] };
    let observing = AgentConfiguration { observe, ..explicit.clone() };
    let (judging, importing, relating) = (judging(&explicit), importing(&explicit), relating(&explicit));
    let acting = acting(&explicit);
    let deploying = AgentConfiguration {
        sources: configuration.sources.iter().cloned().map(into_production).collect(),
        ..explicit.clone()
    };
    let changed = |configuration, warnings: Vec<FileFinding>| {
        let commit = commit();
        ConfigurationEvent::ConfigurationChanged(ConfigurationChanged {
            agent,
            commit,
            configuration,
            warnings,
        })
    };
    let rejected = |commit: Option<String>, findings: &[FileFinding], warnings: &[FileFinding]| {
        let (findings, warnings) = (findings.to_vec(), warnings.to_vec());
        ConfigurationEvent::ConfigurationRejected(ConfigurationRejected { agent, commit, findings, warnings })
    };
    vec![
        ("explicit", changed(explicit, Vec::new()).into()),
        ("full", changed(configuration, vec![finding()]).into()),
        ("observing", changed(observing, Vec::new()).into()),
        ("judging", changed(judging, Vec::new()).into()),
        ("importing", changed(importing, Vec::new()).into()),
        ("relating", changed(relating, Vec::new()).into()),
        ("acting", changed(acting, Vec::new()).into()),
        ("deploying", changed(deploying, Vec::new()).into()),
        ("full", rejected(Some(commit()), &[finding()], &[]).into()),
        ("with-warnings", rejected(Some(commit()), &[finding()], &[finding()]).into()),
        ("unreadable", rejected(None, &[], &[]).into()),
    ]
}

fn into_production(source: SourceConfiguration) -> SourceConfiguration {
    let environment = SourceEnvironment {
        name: "production".to_owned(),
        tier: Some(Tier::Production),
        project: Some(ProjectId(id(3))),
    };
    SourceConfiguration { environment: Some(environment), ..source }
}

fn repository() -> Vec<(&'static str, Event)> {
    let (agent, source, project) = (AgentId(id(2)), SourceId(id(8)), ProjectId(id(3)));
    let reference = GitReference::Tag("v1".to_owned());
    let events = [
        RepositoryEvent::SourceAdvanced(SourceAdvanced {
            source,
            agent,
            commit: commit(),
            bundle: digest(1),
            objects: 3,
            warnings: vec![finding()],
            takes_no_file: false,
            selection: None,
        }),
        RepositoryEvent::BundleRejected(BundleRejected {
            source,
            agent,
            commit: commit(),
            findings: vec![finding()],
            more: 2,
            warnings: Vec::new(),
        }),
        RepositoryEvent::FetchFailed(FetchFailed {
            project,
            reference: reference.clone(),
            failure: FetchFailure::Unauthorized,
            message: "the server refused the credential".to_owned(),
            sources: vec![source],
        }),
        RepositoryEvent::FetchRecovered(FetchRecovered { project, reference, sources: vec![source] }),
    ];
    let mut samples: Vec<_> = events.into_iter().map(|event| ("full", Event::from(event))).collect();
    let nothing = RepositoryEvent::SourceAdvanced(SourceAdvanced {
        source,
        agent,
        commit: commit(),
        bundle: digest(1),
        objects: 0,
        warnings: vec![finding()],
        takes_no_file: true,
        selection: None,
    });
    let rejected = RepositoryEvent::BundleRejected(BundleRejected {
        source,
        agent,
        commit: commit(),
        findings: vec![finding()],
        more: 0,
        warnings: vec![finding()],
    });
    samples.extend([("without-files", nothing.into()), ("with-warnings", rejected.into())]);
    samples
}

fn delivery() -> Vec<(&'static str, Event)> {
    let (agent, source, sync) = (AgentId(id(2)), SourceId(id(8)), SyncId(id(9)));
    let events = [
        DeliveryEvent::BundleDesired(BundleDesired {
            source,
            agent,
            sync,
            commit: commit(),
            bundle: digest(1),
            objects: 3,
            prune: Some(digest(2)),
            prunes: 1,
            wanted: None,
            withheld: 0,
            selection: None,
        }),
        DeliveryEvent::BundleHeld(BundleHeld {
            source,
            agent,
            commit: commit(),
            bundle: digest(1),
            objects: 3,
            reason: HoldReason::LargePrune { prunes: 12, inventory: 20 },
        }),
        DeliveryEvent::BundleConfirmed(BundleConfirmed { source, commit: commit(), bundle: None }),
        DeliveryEvent::SourceSuspended(SourceSuspended { source, reason: "maintenance".to_owned() }),
        DeliveryEvent::SourceResumed(SourceResumed { source }),
        DeliveryEvent::SourcePinned(SourcePinned { source, commit: commit(), bundle: digest(1), objects: 3 }),
        DeliveryEvent::SourceUnpinned(SourceUnpinned { source }),
        DeliveryEvent::SourceRemoved(SourceRemoved {
            source,
            agent,
            sync: Some(sync),
            prune: Some(digest(2)),
        }),
        DeliveryEvent::SyncRequested(SyncRequested { source, sync }),
        DeliveryEvent::SyncStarted(SyncStarted { source, sync, run: 1, epoch: 4 }),
        DeliveryEvent::SyncFinished(SyncFinished {
            source,
            sync,
            run: 1,
            outcome: SyncOutcome::Failed,
            counts: counts(),
            failures: vec![failure()],
        }),
        DeliveryEvent::ApplierNamed(ApplierNamed { agent, instance: InstanceId(id(10)) }),
    ];
    let mut all: Vec<_> = events.into_iter().map(|event| ("full", Event::from(event))).collect();
    all.extend(later_delivery());
    all
}

/// Fields that came later.
fn later_delivery() -> [(&'static str, Event); 2] {
    let (agent, source, sync) = (AgentId(id(2)), SourceId(id(8)), SyncId(id(9)));
    let confirmed = BundleConfirmed { source, commit: commit(), bundle: Some(digest(1)) };
    let wanted =
        WantedObject { object: identity().key(), holder: SourceId(id(11)), holder_name: "base".to_owned() };
    let desired = BundleDesired {
        source,
        agent,
        sync,
        commit: commit(),
        bundle: digest(1),
        objects: 3,
        prune: None,
        prunes: 0,
        wanted: Some(WantedList { list: digest(3), objects: 1, first: vec![wanted] }),
        withheld: 0,
        selection: None,
    };
    [
        ("of-a-bundle", DeliveryEvent::BundleConfirmed(confirmed).into()),
        ("with-wanted", DeliveryEvent::BundleDesired(desired).into()),
    ]
}
