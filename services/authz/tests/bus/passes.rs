//! Passes: signed by the root that agents pin, for those whom a configuration lets in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::audit::AuditMode;
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, Mode, ResourceRules,
};
use events::grants::{Grants, UserAccessAs, UserGrant};
use events::pass::{AccessAs, Narrowing, PassError};
use events::requests::authz::{
    AgentWithToken, IssuedPass, RegisterAgent, RevokeToken, RotateRoot, ShowRoot, SignPass,
};
use events::{
    AgentId, AggregateKind, AggregateRef, Event, OrganizationId, Position, Refusal, RefusalKind, Sha256,
};

use crate::running::{Person, Running, project};

/// Lets the people of a project in; gives the position behind that.
async fn let_in(running: &Running, owner: &Person, agent: AgentId, path: &str) -> Position {
    let grant = UserGrant { path: path.to_owned(), narrowing: Narrowing::default(), line: 7 };
    let configuration = AgentConfiguration {
        mode: Mode::Cluster,
        resources: ResourceRules::default(),
        sources: Vec::new(),
        lockdown: false,
        grants: Grants {
            user_projects: vec![grant],
            users_access_as: UserAccessAs::User,
            audit: AuditMode::FailClosed,
            ..Grants::default()
        },
    };
    let changed = ConfigurationChanged { agent, commit: "0".to_owned(), configuration, warnings: Vec::new() };
    let organization = owner.principal.organization;
    let event = Event::from(ConfigurationEvent::ConfigurationChanged(changed));
    let of = AggregateRef::new(AggregateKind::Configuration, agent);
    running.append("config-fetcher", organization, of, event).await;
    running.store.log.position(&[events::Stream::Decisions]).await.unwrap()
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
    let register = RegisterAgent { name: "cluster".to_owned(), project: "shop/front".to_owned() };
    let AgentWithToken { agent, token, root_key } = running.ask(&owner, &register).await.unwrap();
    let start = Position::start();
    let refused = sign(&running, &owner.secret, agent.id, &start).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Denied);
    assert!(refused.message.contains("lets no person"), "{}", refused.message);

    let since = let_in(&running, &owner, agent.id, "shop/front").await;
    let issued = sign(&running, &owner.secret, agent.id, &since).await.unwrap();
    let root = STANDARD.decode(root_key).unwrap();
    let pass = issued.pass.verified(&root).unwrap();
    assert_eq!(pass.audit, AuditMode::FailClosed);
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
    assert!(matches!(changed.verified(&root), Err(PassError::Signature)));
    let mut other = root.clone();
    other[0] ^= 1;
    assert!(matches!(issued.pass.verified(&other), Err(PassError::Signature)));

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

#[tokio::test]
async fn another_root_signs_once_it_was_rotated_and_the_former_one_leads_to_it() {
    let running = Running::start().await;
    let owner = running.owner().await;
    running.ask(&owner, &project("shop/front", "https://git.example/shop.git")).await.unwrap();
    let register = |name: &str| RegisterAgent { name: name.to_owned(), project: "shop/front".to_owned() };
    let AgentWithToken { agent, root_key, .. } = running.ask(&owner, &register("old")).await.unwrap();
    let since = let_in(&running, &owner, agent.id, "shop/front").await;
    let first = running.ask(&owner, &ShowRoot {}).await.unwrap();
    assert_eq!((first.number, &first.public_key, first.since), (0, &root_key, None));
    assert!(sign(&running, &owner.secret, agent.id, &since).await.unwrap().roots.is_empty());

    let stranger = running.stranger(&owner).await;
    assert_eq!(running.ask(&stranger, &RotateRoot {}).await.unwrap_err().kind, RefusalKind::NotFound);
    let second = running.ask(&owner, &RotateRoot {}).await.unwrap();
    let third = running.ask(&owner, &RotateRoot {}).await.unwrap();
    assert_eq!((second.number, third.number), (1, 2));
    assert!(third.since >= second.since && second.since.is_some());
    assert_eq!(running.ask(&owner, &ShowRoot {}).await.unwrap(), third);

    let issued = sign(&running, &owner.secret, agent.id, &since).await.unwrap();
    let key = |text: &str| STANDARD.decode(text).unwrap();
    issued.pass.verified(&key(&third.public_key)).unwrap();
    assert!(matches!(issued.pass.verified(&key(&second.public_key)), Err(PassError::Signature)));
    let [to_second, to_third] = issued.roots.as_slice() else { panic!("{:?}", issued.roots) };
    assert!(to_second.is_signed_by(&key(&root_key)) && to_third.is_signed_by(&to_second.public_key));
    assert_eq!(to_third.public_key, key(&third.public_key));
    let newer = running.ask(&owner, &register("new")).await.unwrap();
    assert_eq!(newer.root_key, third.public_key, "who is registered now pins the newest one");

    let at_once = futures::future::join_all((0..4).map(|_| running.ask(&owner, &RotateRoot {}))).await;
    let last = running.ask(&owner, &ShowRoot {}).await.unwrap();
    let made: Vec<u32> = at_once.into_iter().filter_map(|view| Some(view.ok()?.number)).collect();
    assert!(!made.is_empty() && made.iter().all(|number| *number <= last.number), "{made:?}");
    let issued = sign(&running, &owner.secret, agent.id, &since).await.unwrap();
    assert_eq!(issued.roots.len(), last.number as usize);
    running.stop().await;
}
