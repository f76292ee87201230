//! Passes: signed by the root that agents pin, for those whom a configuration lets in.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::audit::AuditMode;
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, HealthSettings, Mode, ObserveRules,
    ResourceRules,
};
use events::directory::DirectoryEvent;
use events::grants::{Grants, UserAccessAs, UserGrant};
use events::pass::{AccessAs, Narrowing, PassError, Purpose};
use events::recording::RecordSessions;
use events::requests::authz::{
    AgentWithToken, IssuedPass, RegisterAgent, RevokeToken, RotateRoot, ShowRoot, SignPass, SignReview,
};
use events::root::RootLink;
use events::{
    AgentId, AggregateKind, AggregateRef, Commit, Event, OrganizationId, Position, Refusal, RefusalKind,
    RootId, Sha256, Stream,
};
use store::KeyName;
use store::copy::Copies as _;
use uuid::Uuid;
use world::Clock;

use crate::running::{Person, Running, project};

/// Lets the people of a project in; gives the position behind that.
async fn let_in(running: &Running, owner: &Person, agent: AgentId, path: &str) -> Position {
    let grant = UserGrant { path: path.to_owned(), narrowing: Narrowing::default(), line: 7 };
    let configuration = AgentConfiguration {
        mode: Mode::Cluster,
        resources: ResourceRules::default(),
        observe: ObserveRules::default(),
        health: HealthSettings::default(),
        relations: Vec::new(),
        actions: Vec::new(),
        sources: Vec::new(),
        lockdown: false,
        implicit_rights: false,
        grants: Grants {
            user_projects: vec![grant],
            users_access_as: UserAccessAs::User,
            audit: AuditMode::FailClosed,
            record_sessions: RecordSessions::Output,
            ..Grants::default()
        },
    };
    let changed = ConfigurationChanged { agent, commit: "0".to_owned(), configuration, warnings: Vec::new() };
    let organization = owner.principal.organization;
    let event = Event::from(ConfigurationEvent::ConfigurationChanged(changed));
    let of = AggregateRef::new(AggregateKind::Configuration, agent);
    running.append("config-fetcher", organization, of, event).await;
    running.store.log.position(&[Stream::Decisions]).await.unwrap()
}

async fn sign(
    running: &Running,
    secret: &str,
    agent: AgentId,
    since: &Position,
) -> Result<IssuedPass, Refusal> {
    let context = bus::context_for_service(&running.world, "tunnel-gateway", OrganizationId::SYSTEM);
    let request = SignPass { hash: Sha256::of(secret.as_bytes()), agent, since: since.clone() };
    bus::ask(&*running.bus, &context, &request).await
}

#[tokio::test]
async fn whom_a_configuration_lets_in_gets_a_pass_that_the_root_signed() {
    let running = Running::start().await;
    let owner = running.owner().await;
    running.ask(&owner, &project("shop/front", "https://git.example/shop.git")).await.unwrap();
    let register =
        RegisterAgent { name: "cluster".to_owned(), project: "shop/front".to_owned(), group: None };
    let AgentWithToken { agent, token, root_key } = running.ask(&owner, &register).await.unwrap();
    let start = Position::start();
    let refused = sign(&running, &owner.secret, agent.id, &start).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Denied);
    assert!(refused.message.contains("permits no user"), "{}", refused.message);

    let since = let_in(&running, &owner, agent.id, "shop/front").await;
    let issued = sign(&running, &owner.secret, agent.id, &since).await.unwrap();
    let root = STANDARD.decode(root_key).unwrap();
    let pass = issued.pass.verified(&root, Purpose::Requests).unwrap();
    assert_eq!((pass.audit, pass.record_sessions), (AuditMode::FailClosed, RecordSessions::Output));
    assert_eq!((pass.agent, &pass.holder), (agent.id, &owner.principal.actor));
    assert_eq!(pass.expires_at.millis_since(pass.issued_at), SignPass::LIFETIME_MILLIS);
    let AccessAs::Impersonated(whom) = &pass.access_as else { panic!("{pass:?}") };
    assert_eq!(
        (whom.username.as_str(), whom.groups.as_slice()),
        ("kasbah:user:owner", &["kasbah:user".to_owned()][..])
    );
    assert!(pass.grants[0].place.contains("config.yaml:7"), "{pass:?}");

    let mut changed = issued.pass.clone();
    let last = changed.pass.len() - 1;
    changed.pass[last] ^= 1;
    assert!(matches!(changed.verified(&root, Purpose::Requests), Err(PassError::Signature)));
    let mut other = root.clone();
    other[0] ^= 1;
    assert!(matches!(issued.pass.verified(&other, Purpose::Requests), Err(PassError::Signature)));

    // What an agent asks its cluster with is good for that alone, and for nobody but services to have.
    let review = SignReview { actor: owner.principal.actor.clone(), agent: agent.id, since: since.clone() };
    let organization = owner.principal.organization;
    let service = bus::context_for_service(&running.world, "resource-indexer", organization);
    let reviewed = bus::ask(&*running.bus, &service, &review).await.unwrap();
    let seen = reviewed.pass.verified(&root, Purpose::Review).unwrap();
    assert_eq!((&seen.access_as, &seen.grants, &seen.holder), (&pass.access_as, &pass.grants, &pass.holder));
    assert!(matches!(reviewed.pass.verified(&root, Purpose::Requests), Err(PassError::Signature)));
    assert!(matches!(issued.pass.verified(&root, Purpose::Review), Err(PassError::Signature)));
    let refused = running.ask(&owner, &review).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Denied, "a user has no use of it");
    let elsewhere = bus::context_for_service(&running.world, "resource-indexer", OrganizationId::SYSTEM);
    let refused = bus::ask(&*running.bus, &elsewhere, &review).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotFound, "in another organization");

    let agents = sign(&running, &token.secret, agent.id, &since).await.unwrap_err();
    assert_eq!(agents.kind, RefusalKind::Denied, "an agent's token is nobody's");
    let stranger = running.stranger(&owner).await;
    let nothing = sign(&running, &stranger.secret, agent.id, &since).await.unwrap_err();
    assert_eq!(nothing.kind, RefusalKind::NotFound, "who may not know of the agent hears of none");
    running.ask(&owner, &RevokeToken { token: owner.principal.token }).await.unwrap();
    let revoked = sign(&running, &owner.secret, agent.id, &since).await.unwrap_err();
    assert_eq!(revoked.kind, RefusalKind::Unauthenticated);
    running.stop().await;
}

/// A clock that is ahead of the machine's.
struct Ahead {
    clock: Arc<dyn Clock>,
    millis: i64,
}

#[async_trait]
impl Clock for Ahead {
    fn now_millis(&self) -> i64 {
        self.clock.now_millis() + self.millis
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }
}

/// Starts it anew when passes of the root before the newest one have long ended.
async fn start_later(running: &mut Running) {
    let clock = Arc::clone(&running.world.clock);
    running.world.clock = Arc::new(Ahead { clock, millis: RootLink::OVERLAP_MILLIS });
    running.restart().await;
}

/// Later roots that the key ring has.
async fn kept(running: &Running) -> BTreeSet<RootId> {
    let names = running.store.key_names().await.unwrap();
    names
        .into_iter()
        .filter_map(|name| if let KeyName::LaterRoot(id) = name { Some(id) } else { None })
        .collect()
}

/// Rotations in the log, each with the ids that were passed in.
async fn rotations(running: &Running) -> Vec<(RootId, Vec<Uuid>)> {
    let records = running.records(&[Stream::Decisions]).await;
    let commits = records.iter().filter_map(|record| record.commit());
    let of_commit = |commit: &Commit| match DirectoryEvent::decode(&commit.events[0].body) {
        Ok(DirectoryEvent::RootRotated(event)) => {
            Some((event.root, commit.command.as_ref().unwrap().ids.clone()))
        }
        _ => None,
    };
    commits.filter_map(of_commit).collect()
}

#[tokio::test]
async fn another_root_signs_once_it_was_rotated_and_the_former_one_leads_to_it() {
    let mut running = Running::start().await;
    let owner = running.owner().await;
    running.ask(&owner, &project("shop/front", "https://git.example/shop.git")).await.unwrap();
    let register =
        |name: &str| RegisterAgent { name: name.to_owned(), project: "shop/front".to_owned(), group: None };
    let AgentWithToken { agent, root_key, .. } = running.ask(&owner, &register("old")).await.unwrap();
    let since = let_in(&running, &owner, agent.id, "shop/front").await;
    let first = running.ask(&owner, &ShowRoot {}).await.unwrap();
    assert_eq!((first.number, &first.public_key, first.since), (0, &root_key, None));
    assert!(sign(&running, &owner.secret, agent.id, &since).await.unwrap().roots.is_empty());

    let stranger = running.stranger(&owner).await;
    assert_eq!(running.ask(&stranger, &RotateRoot {}).await.unwrap_err().kind, RefusalKind::NotFound);
    let second = running.ask(&owner, &RotateRoot {}).await.unwrap();
    start_later(&mut running).await;
    let third = running.ask(&owner, &RotateRoot {}).await.unwrap();
    assert_eq!((second.number, third.number), (1, 2));
    assert!(third.since > second.since && second.since.is_some());
    assert_eq!(running.ask(&owner, &ShowRoot {}).await.unwrap(), third);

    let issued = sign(&running, &owner.secret, agent.id, &since).await.unwrap();
    let key = |text: &str| STANDARD.decode(text).unwrap();
    issued.pass.verified(&key(&third.public_key), Purpose::Requests).unwrap();
    assert!(matches!(
        issued.pass.verified(&key(&second.public_key), Purpose::Requests),
        Err(PassError::Signature)
    ));
    let [to_second, to_third] = issued.roots.as_slice() else { panic!("{:?}", issued.roots) };
    assert!(to_second.is_signed_by(&key(&root_key)) && to_third.is_signed_by(&to_second.public_key));
    assert_eq!(to_third.public_key, key(&third.public_key));
    let newer = running.ask(&owner, &register("new")).await.unwrap();
    assert_eq!(newer.root_key, third.public_key, "who is registered now pins the newest one");
    running.stop().await;
}

#[tokio::test]
async fn those_who_rotate_at_once_or_again_have_one_root_and_a_hurried_one_makes_no_key() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let of_owner =
        |_| bus::context_for(&running.world, owner.principal.actor.clone(), owner.principal.organization);
    let contexts: Vec<_> = (0..5).map(of_owner).collect();
    let asked = contexts.iter().map(|context| bus::ask(&*running.bus, context, &RotateRoot {}));
    let answers = futures::future::join_all(asked).await;
    let shown = running.ask(&owner, &ShowRoot {}).await.unwrap();
    assert_eq!(shown.number, 1);
    // Any of them may be the one that rotates.
    let mut rotated = Vec::new();
    for (context, answer) in contexts.iter().zip(answers) {
        match answer {
            Ok(view) => {
                assert_eq!(view, shown);
                rotated.push(context);
            }
            Err(refusal) => assert_eq!(refusal.kind, RefusalKind::Conflict, "{refusal}"),
        }
    }
    let rotations = rotations(&running).await;
    let [(root, passed)] = rotations.as_slice() else { panic!("{rotations:?}") };
    assert_eq!(passed, &[root.0], "no key that was made before has that name");

    let keys = kept(&running).await;
    assert!(keys.contains(root));
    // The same request again has the same answer; those that came beside it ask anew.
    let mut same = 0;
    for context in rotated {
        same += usize::from(
            bus::ask(&*running.bus, context, &RotateRoot {}).await.is_ok_and(|view| view == shown),
        );
    }
    assert_eq!(same, 1);
    let refusal = running.ask(&owner, &RotateRoot {}).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    let again = shown.since.unwrap().plus_millis(RootLink::OVERLAP_MILLIS);
    assert!(refusal.message.ends_with(&format!("again at {again}")), "{}", refusal.message);
    assert_eq!(kept(&running).await, keys);
    running.stop().await;
}

#[tokio::test]
async fn a_root_that_the_key_ring_lacks_is_not_made_anew() {
    let mut running = Running::start().await;
    let owner = running.owner().await;
    running.ask(&owner, &project("shop/front", "https://git.example/shop.git")).await.unwrap();
    running.ask(&owner, &RotateRoot {}).await.unwrap();
    let later = kept(&running).await;
    for root in later {
        running.store.keys.destroy(KeyName::LaterRoot(root)).await.unwrap();
    }
    start_later(&mut running).await;
    let register =
        RegisterAgent { name: "cluster".to_owned(), project: "shop/front".to_owned(), group: None };
    for refusal in [
        running.ask(&owner, &ShowRoot {}).await.unwrap_err(),
        running.ask(&owner, &RotateRoot {}).await.unwrap_err(),
        running.ask(&owner, &register).await.err().unwrap(),
    ] {
        assert_eq!(refusal.kind, RefusalKind::Internal);
        assert!(refusal.message.contains("lacks root 1"), "{}", refusal.message);
    }
    assert!(kept(&running).await.is_empty());
    running.stop().await;
}
