//! authz over a real log and bus.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "bus/lists.rs"]
mod lists;
#[path = "bus/passes.rs"]
mod passes;
#[path = "bus/people.rs"]
mod people;
#[path = "bus/running.rs"]
mod running;
#[path = "bus/strangers.rs"]
mod strangers;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use authz::driver::Driver;
use authz::identity::IdentityProviders;
use authz::model::Directory;
use bus::LocalBus;
use events::directory::{DirectoryEvent, NameClaimed, Role, Scope};
use events::id::derived_uuid;
use events::position::Stream;
use events::request::RefusedCommand;
use events::requests::authz::{
    Admission, Admit, AssignRole, Authenticate, CreateCredential, CreateGroup, CreateProject, CreateUser,
    Decide, DecideFetch, DeleteAgent, GrantCredential, IssueToken, ListProjects, ListTokens, ListUsers,
    RegisterAgent, RevokeCredential, RevokeToken, SetProject, ShowProject,
};
use events::{AggregateKind, AggregateRef, Event, OrganizationId, Position, RefusalKind, Sha256};
use running::{Running, project};
use store::{KeyName, ReadFilter, follow_projection};
use testkit::eventually;

#[tokio::test]
async fn a_request_that_is_answered_twice_at_once_makes_one_thing() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let actor = owner.principal.actor.clone();
    for number in 0..20 {
        let create = project(&format!("shop/twice-{number}"), "https://git.example/shop.git");
        let context = bus::context_for(&running.world, actor.clone(), owner.principal.organization);
        let ask = || bus::ask(&*running.bus, &context, &create);
        let (one, other) = futures::join!(ask(), ask());
        assert_eq!(one.unwrap().id, other.unwrap().id);
        let all = running.ask(&owner, &ListProjects::default()).await.unwrap().items;
        assert_eq!(all.iter().filter(|known| known.path == create.path).count(), 1);
    }
    running.stop().await;
}

#[tokio::test]
async fn the_first_owner_is_made_once_and_gets_a_token_whenever_none_lives() {
    let mut running = Running::start().await;
    let first = running.ensure_owner(None).await;
    let token = first.token.unwrap();
    let owner = running.principal(&token.secret).await.unwrap();
    assert_eq!((owner.organization, owner.actor), (first.organization, events::Actor::User(first.owner)));
    let again = running.ensure_owner(Some(&token.secret)).await;
    assert_eq!((again.organization, again.owner, again.token), (first.organization, first.owner, None));
    running.restart().await;
    let later = running.ensure_owner(Some(&token.secret)).await;
    assert_eq!((later.owner, later.token), (first.owner, None), "a fold of the log is all that there is");
    let shared = running.ensure_shared_owner().await;
    assert_eq!((shared.owner, shared.token), (first.owner, None), "another replica has it");
    let lost = running.ensure_owner(None).await.token.unwrap();
    assert!(running.principal(&lost.secret).await.is_ok());
    let refusal = running.principal(&token.secret).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unauthenticated, "the one that nobody has is revoked");
    running.stop().await;
}

#[tokio::test]
async fn a_person_sets_up_a_project_and_an_agent() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let credential = CreateCredential {
        name: "git".to_owned(),
        host: "git.example".to_owned(),
        user: None,
        secret: "hunter2".to_owned(),
    };
    let credential = running.ask(&owner, &credential).await.unwrap();
    let stored = running.store.keys.get(KeyName::Credential(credential.id)).await.unwrap().unwrap();
    assert_eq!(stored.as_slice(), b"git:hunter2");
    let create = CreateProject {
        credential: Some("git".to_owned()),
        external_id: Some(17),
        ..project("shop/deployment", "https://git.example/shop.git")
    };
    let made = running.ask(&owner, &create).await.unwrap();
    assert_eq!(made.settings.credential, Some(credential.id));
    for text in ["shop/deployment", "17", &made.id.to_string()] {
        let found = running.ask(&owner, &ShowProject { project: text.to_owned() }).await.unwrap();
        assert_eq!(found, made, "{text}");
    }
    let register =
        RegisterAgent { name: "cluster".to_owned(), project: "shop/deployment".to_owned(), group: None };
    let agent = running.ask(&owner, &register).await.unwrap();
    assert!(agent.token.secret.starts_with("kasbah_a_"));
    assert_eq!(agent.root_key, running.store.root_public_key);
    let principal = running.principal(&agent.token.secret).await.unwrap();
    assert_eq!(principal.actor, events::Actor::Agent(agent.agent.id));
    let taken = running.ask(&owner, &register).await.err().unwrap();
    assert_eq!((taken.kind, taken.field.as_deref()), (RefusalKind::Conflict, Some("name")));
    let set = SetProject {
        project: "17".to_owned(),
        repository: Some("https://elsewhere.example/shop.git".to_owned()),
        default_branch: None,
        credential: None,
        external_id: None,
    };
    let refused = running.ask(&owner, &set).await.unwrap_err();
    assert_eq!(refused.field.as_deref(), Some("credential"), "the credential would go to another host");
    let set = SetProject { credential: Some(String::new()), ..set };
    assert_eq!(running.ask(&owner, &set).await.unwrap().settings.credential, None);
    let revoked = running.ask(&owner, &RevokeCredential { credential: "git".to_owned() }).await.unwrap();
    assert!(revoked.revoked);
    assert!(
        running.store.keys.get(KeyName::Credential(credential.id)).await.unwrap().is_none(),
        "the secret is destroyed"
    );
    running.stop().await;
}

#[tokio::test]
async fn neither_secrets_nor_names_of_persons_lie_in_the_log() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let (login, secret) = ("ada.lovelace@example.com", "correct-horse-battery");
    let create = CreateUser { name: login.to_owned(), role: Role::Viewer, scope: None };
    let user = running.ask(&owner, &create).await.unwrap();
    assert_eq!(user.name.as_deref(), Some(login));
    let assign = AssignRole { user: login.to_owned(), role: Role::Developer, scope: None, withdraw: false };
    running.ask(&owner, &assign).await.unwrap();
    let again = running.ask(&owner, &create).await.unwrap_err();
    assert_eq!(again.kind, RefusalKind::Conflict, "a login name is unique though nobody can read its claim");
    let issue = IssueToken {
        agent: None,
        user: Some(login.to_owned()),
        name: "laptop".to_owned(),
        lifetime_seconds: None,
        clusters_only: false,
    };
    let token = running.ask(&owner, &issue).await.unwrap();
    let credential = CreateCredential {
        name: "git".to_owned(),
        host: "git.example".to_owned(),
        user: Some(login.to_owned()),
        secret: secret.to_owned(),
    };
    running.ask(&owner, &credential).await.unwrap();
    let unknown = AssignRole { user: "charles@example.com".to_owned(), ..assign };
    assert_eq!(running.ask(&owner, &unknown).await.unwrap_err().kind, RefusalKind::NotFound);
    let hidden = [login, "charles@example.com", secret, &token.secret, &owner.secret];
    for record in running.records(&[Stream::Decisions, Stream::Refusals]).await {
        for text in hidden {
            let found = record.bytes.windows(text.len()).any(|bytes| bytes == text.as_bytes());
            assert!(!found, "{text} lies in the log");
        }
    }
    running.store.keys.destroy(KeyName::Person(user.id)).await.unwrap();
    let mut running = running;
    running.restart().await;
    let users = running.ask(&owner, &ListUsers::default()).await.unwrap().items;
    let forgotten = users.iter().find(|other| other.id == user.id).unwrap();
    assert_eq!(forgotten.name, None, "without their key nobody can read the name");
    running.stop().await;
}

#[tokio::test]
async fn of_those_who_take_a_name_at_once_one_gets_it() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let create = CreateGroup { name: "shop".to_owned() };
    let asked = (0..12).map(|_| running.ask(&owner, &create));
    let answers = futures::future::join_all(asked).await;
    let made: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    assert_eq!(made.len(), 1, "{answers:?}");
    for refusal in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!((refusal.kind, refusal.field.as_deref()), (RefusalKind::Conflict, Some("name")));
    }
    let path = |number| format!("bank/project-{number}x");
    let projects: Vec<_> = (0..6).map(|number| project(&path(number), "https://git.example/a.git")).collect();
    let answers =
        futures::future::join_all(projects.iter().map(|project| running.ask(&owner, project))).await;
    let groups: std::collections::BTreeSet<_> =
        answers.into_iter().map(|answer| answer.unwrap().group).collect();
    assert_eq!(groups.len(), 1, "those who make a group on the way share it");
    running.stop().await;
}

#[tokio::test]
async fn a_fetch_is_not_refused_for_what_lies_in_the_log_already() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let made =
        running.ask(&owner, &project("shop/deployment", "https://git.example/shop.git")).await.unwrap();
    let register = RegisterAgent { name: "cluster".to_owned(), project: made.path, group: None };
    let agent = running.ask(&owner, &register).await.unwrap().agent.id;

    let (world, store) = (&running.world, &running.store);
    let log = Arc::clone(&store.log);
    let behind =
        follow_projection::<Directory>(Arc::clone(&log), Arc::clone(&store.snapshots), world.clone());
    let (driver, _uses) = Driver::new(
        world.clone(),
        log,
        Arc::clone(&store.keys),
        behind.clone(),
        Arc::new(IdentityProviders::none()),
    );
    let bus = LocalBus::new(world.clone());
    let _serving = driver.serve(&bus).await.unwrap();
    let context = bus::context_for_service(world, "test", owner.principal.organization);
    let decide = DecideFetch { agents: vec![agent], project: made.id };
    let mut asking = pin!(bus::ask(&bus, &context, &decide));
    for _ in 0..100 {
        assert!(futures::poll!(&mut asking).is_pending(), "answered by a directory that has read nothing");
        tokio::task::yield_now().await;
    }
    tokio::select! {
        decision = asking => assert!(decision.unwrap().refused.is_empty()),
        ended = behind.drive(std::future::pending()) => panic!("{ended:?}"),
    }
    running.stop().await;
}

#[tokio::test]
async fn a_claim_left_by_a_crash_blocks_nobody() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let organization = owner.principal.organization;
    let claimed = running.world.new_uuid();
    let claim = derived_uuid(&[b"name", b"group", organization.0.as_bytes(), b"shop"]);
    let event =
        DirectoryEvent::NameClaimed(NameClaimed { what: "group".to_owned(), holder: claimed.to_string() });
    let name = AggregateRef::new(AggregateKind::Name, claim);
    running.append("authz", organization, name, Event::from(event)).await;
    let group = running.ask(&owner, &CreateGroup { name: "shop".to_owned() }).await.unwrap();
    assert_eq!(group.id.0, claimed, "the claim is completed");
    running.stop().await;
}

#[tokio::test]
async fn a_repeated_request_is_answered_as_the_first() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let context =
        bus::context_for(&running.world, owner.principal.actor.clone(), owner.principal.organization);
    let create = project("shop/deployment", "https://git.example/shop.git");
    let first = bus::ask(&*running.bus, &context, &create).await.unwrap();
    assert_eq!(bus::ask(&*running.bus, &context, &create).await.unwrap(), first);
    let group = CreateGroup { name: "bank".to_owned() };
    let made = bus::ask(&*running.bus, &context, &group).await.unwrap();
    assert_eq!(bus::ask(&*running.bus, &context, &group).await.unwrap(), made);
    let issue = IssueToken {
        agent: None,
        user: None,
        name: "laptop".to_owned(),
        lifetime_seconds: None,
        clusters_only: false,
    };
    let token = bus::ask(&*running.bus, &context, &issue).await.unwrap();
    assert!(running.principal(&token.secret).await.is_ok());
    let refusal = bus::ask(&*running.bus, &context, &issue).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict, "a token is shown once");
    running.stop().await;
}

#[tokio::test]
async fn a_use_is_noted_and_a_revoked_token_opens_nothing() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let issue = IssueToken {
        agent: None,
        user: None,
        name: "laptop".to_owned(),
        lifetime_seconds: Some(3600),
        clusters_only: false,
    };
    let token = running.ask(&owner, &issue).await.unwrap();
    running.principal(&token.secret).await.unwrap();
    let own = ListTokens::default();
    eventually(Duration::from_secs(20), || async {
        let tokens = running.ask(&owner, &own).await.unwrap().items;
        let noted = tokens.iter().any(|view| view.id == token.view.id && view.last_used_at.is_some());
        noted.then_some(()).ok_or("the use is not noted")
    })
    .await;
    let revoked = running.ask(&owner, &RevokeToken { token: token.view.id }).await.unwrap();
    assert!(revoked.revoked_at.is_some());
    assert_eq!(running.principal(&token.secret).await.unwrap_err().kind, RefusalKind::Unauthenticated);
    running.stop().await;
}

#[tokio::test]
async fn of_many_tokens_each_is_judged_by_itself_and_in_order() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let project =
        running.ask(&owner, &project("shop/deployment", "https://git.example/shop.git")).await.unwrap();
    let mut agents = Vec::new();
    for name in ["one", "two", "deleted"] {
        let register = RegisterAgent { name: name.to_owned(), project: project.path.clone(), group: None };
        agents.push(running.ask(&owner, &register).await.unwrap());
    }
    running.ask(&owner, &RevokeToken { token: agents[1].token.view.id }).await.unwrap();
    running.ask(&owner, &DeleteAgent { agent: agents[2].agent.id.to_string() }).await.unwrap();
    let secrets = [
        agents[1].token.secret.as_str(),
        agents[0].token.secret.as_str(),
        owner.secret.as_str(),
        agents[2].token.secret.as_str(),
        "kasbah_a_unknown",
    ];
    let context = bus::context_for_service(&running.world, "test", OrganizationId::SYSTEM);
    let hashes = secrets.iter().map(|secret| Sha256::of(secret.as_bytes())).collect();
    let admissions = bus::ask(&*running.bus, &context, &Admit { hashes }).await.unwrap();
    let kinds: Vec<_> = admissions
        .iter()
        .map(|admission| match admission {
            Admission::Admitted { holder, agent } => {
                assert_eq!((*agent, holder.token), (agents[0].agent.id, agents[0].token.view.id));
                None
            }
            Admission::Denied { refusal, .. } | Admission::Refused(refusal) => Some(refusal.kind),
        })
        .collect();
    let gone = Some(RefusalKind::Unauthenticated);
    assert_eq!(kinds, [gone, None, Some(RefusalKind::Denied), gone, gone]);
    let hashes = vec![Sha256::of(b"x"); Admit::MOST + 1];
    let refusal = bus::ask(&*running.bus, &context, &Admit { hashes }).await.unwrap_err();
    assert_eq!((refusal.kind, refusal.field.as_deref()), (RefusalKind::Invalid, Some("hashes")));
    running.stop().await;
}

#[tokio::test]
async fn a_refused_command_is_kept_with_its_reason() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let viewer = running.user(&owner, "viewer", Role::Viewer).await;
    let refusal = running.ask(&viewer, &CreateGroup { name: "shop".to_owned() }).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Denied);
    assert!(refusal.message.contains("owner"), "{}", refusal.message);
    let kept: Vec<RefusedCommand> = running
        .records(&[Stream::Refusals])
        .await
        .iter()
        .map(|record| events::decode(&record.bytes).unwrap())
        .collect();
    assert_eq!(kept.len(), 1);
    assert_eq!((&kept[0].actor, kept[0].request.as_str()), (&viewer.principal.actor, "authz.create-group"));
    assert_eq!(kept[0].refusal, refusal);
    running.stop().await;
}

#[tokio::test]
async fn people_ask_only_for_themselves_what_may_be_done() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let viewer = running.user(&owner, "viewer", Role::Viewer).await;
    let organization = owner.principal.organization;
    let decide = Decide {
        actor: owner.principal.actor.clone(),
        organization,
        action: events::requests::authz::Action::CreateGroup,
        scope: Scope::Organization(organization),
    };
    assert!(running.ask(&owner, &decide).await.unwrap().allowed);
    assert_eq!(running.ask(&viewer, &decide).await.unwrap_err().kind, RefusalKind::Denied);
    let authenticate = Authenticate { hash: Sha256::of(owner.secret.as_bytes()) };
    assert_eq!(running.ask(&viewer, &authenticate).await.unwrap_err().kind, RefusalKind::Denied);
    running.stop().await;
}

#[tokio::test]
async fn a_maintainer_uses_no_credential_that_was_not_granted() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let maintainer = running.user(&owner, "maintainer", Role::Maintainer).await;
    running.ask(&owner, &CreateGroup { name: "shop".to_owned() }).await.unwrap();
    let credential = CreateCredential {
        name: "git".to_owned(),
        host: "git.example".to_owned(),
        user: None,
        secret: "s".to_owned(),
    };
    running.ask(&owner, &credential).await.unwrap();
    let create = project("shop/deployment", "https://git.example/shop.git");
    let with = CreateProject { credential: Some("git".to_owned()), ..create.clone() };
    let refusal = running.ask(&maintainer, &with).await.unwrap_err();
    assert_eq!(refusal.field.as_deref(), Some("credential"));
    let made = running.ask(&maintainer, &create).await.expect("the refused request left the name free");
    let grant = GrantCredential { credential: "git".to_owned(), project: made.id.to_string() };
    assert_eq!(running.ask(&maintainer, &grant).await.unwrap_err().kind, RefusalKind::Denied);
    running.ask(&owner, &grant).await.unwrap();
    let set = SetProject {
        project: made.path,
        repository: None,
        default_branch: None,
        credential: Some("git".to_owned()),
        external_id: None,
    };
    assert!(running.ask(&maintainer, &set).await.unwrap().settings.credential.is_some());
    running.stop().await;
}

#[tokio::test]
async fn every_chain_begins_at_version_one_and_grows_by_one() {
    let running = Running::start().await;
    let owner = running.owner().await;
    running.ask(&owner, &project("shop/deployment", "/srv/git/shop.git")).await.unwrap();
    let mut versions = std::collections::BTreeMap::new();
    let mut records = running.store.log.read(&Position::start(), &ReadFilter::decisions(&[])).await.unwrap();
    while let Some(record) = records.recv().await {
        let commit = record.unwrap().commit().cloned().unwrap();
        let version = versions.entry((commit.organization, commit.aggregate)).or_insert(0);
        *version += 1;
        assert_eq!(commit.version, *version);
        assert!(commit.command.is_some(), "each decision can be made again");
    }
    assert!(versions.len() >= 6);
    running.stop().await;
}
