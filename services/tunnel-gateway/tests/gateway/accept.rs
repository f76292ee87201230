//! Who comes in, and who goes.

use events::directory::{AgentDeleted, DirectoryEvent};
use events::observation::Observed;
use events::request::RequestContext;
use events::requests::authz::Principal;
use events::requests::diff::DiffSource;
use events::requests::gateway::ListTunnels;
use events::subject::Subject;
use events::{AggregateKind, AggregateRef, Event, RefusalKind, Request, Sha256, Timestamp};
use http::StatusCode;
use testkit::eventually;
use tokio::time::timeout;
use tunnel::agent::{DialError, LinkEnd};
use tunnel::wire::{Again, Farewell};

use super::harness::{
    Gateway, LIMIT, agent_id, args, instance, organization, secret, source, token_id, user,
};

fn status(error: &DialError) -> StatusCode {
    match error {
        DialError::Refused { status, .. } => *status,
        other => panic!("{other}"),
    }
}

fn farewell(end: &LinkEnd) -> Farewell {
    match end {
        LinkEnd::Farewell(farewell) => farewell.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_live_tokens_of_agents_open_tunnels_and_the_log_says_so() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let error = gateway.refusal("kasbah_a_nobody").await;
    assert_eq!(status(&error), StatusCode::UNAUTHORIZED);
    assert!(error.to_string().contains("issue a new one"), "{error}");

    let personal =
        Principal { actor: user(3), organization: organization(), token: token_id(9), expires_at: None };
    gateway.directory.lock().principals.insert(Sha256::of(b"kasbah_p_x"), personal);
    assert_eq!(status(&gateway.refusal("kasbah_p_x").await), StatusCode::FORBIDDEN);

    gateway.directory.lock().away = true;
    let error = gateway.refusal(&secret(1)).await;
    assert!(
        matches!(&error, DialError::Refused { status, retry_after: Some(_), .. } if *status == StatusCode::SERVICE_UNAVAILABLE),
        "{error}"
    );
    gateway.directory.lock().away = false;

    let agent = gateway.connect(1, 1).await;
    agent.drain.notify_one();
    agent.state.lock().events = None;
    agent.link.await.unwrap();
    let journal = eventually(LIMIT, || async {
        let journal = gateway.journal().await;
        if matches!(journal.last(), Some(Observed::TunnelClosed { .. })) {
            Ok(journal)
        } else {
            Err(format!("{journal:?}"))
        }
    })
    .await;
    let refusals = journal.iter().filter(|what| matches!(what, Observed::TunnelRefused { .. })).count();
    assert_eq!(refusals, 2, "what authz could not tell is no refusal: {journal:?}");
    assert!(journal.contains(&Observed::TunnelOpened {
        agent: agent_id(1),
        instance: instance(1),
        version: "0.1.0".to_owned()
    }));
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_who_knocks_again_and_again_is_recorded_once() {
    let gateway = Gateway::start().await;
    for _ in 0..20 {
        assert_eq!(status(&gateway.refusal("kasbah_a_nobody").await), StatusCode::UNAUTHORIZED);
    }
    gateway.register(1).await;
    let agent = gateway.connect(1, 1).await;
    let journal = eventually(LIMIT, || async {
        let journal = gateway.journal().await;
        if journal.iter().any(|what| matches!(what, Observed::TunnelOpened { .. })) {
            Ok(journal)
        } else {
            Err("not opened")
        }
    })
    .await;
    assert_eq!(journal.len(), 2, "{journal:?}");
    drop(agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tunnel_of_a_revoked_token_closes_and_stays_closed() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    gateway.register(2).await;
    let (revoked, other) = (gateway.connect(1, 1).await, gateway.connect(2, 1).await);
    gateway.revoke(1).await;
    let end = timeout(LIMIT, revoked.link).await.unwrap().unwrap();
    assert_eq!(farewell(&end), Farewell { reason: "the token was revoked".to_owned(), again: Again::Slowly });
    // The stand-in for authz still knows the token: the gateway's own fold does not let it in.
    assert_eq!(status(&gateway.refusal(&secret(1)).await), StatusCode::UNAUTHORIZED);
    assert!(!other.link.is_finished());
    let journal = eventually(LIMIT, || async {
        let journal = gateway.journal().await;
        let closed = Observed::TunnelClosed {
            agent: agent_id(1),
            instance: instance(1),
            reason: "the token was revoked".to_owned(),
        };
        if journal.contains(&closed) { Ok(journal) } else { Err(format!("{journal:?}")) }
    })
    .await;
    assert!(!format!("{journal:?}").contains(&secret(1)), "no token in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tunnels_of_a_deleted_agent_close() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let (first, second) = (gateway.connect(1, 1).await, gateway.connect(1, 2).await);
    let deleted = Event::Directory(DirectoryEvent::AgentDeleted(AgentDeleted { agent: agent_id(1) }));
    gateway.append(AggregateRef::new(AggregateKind::Agent, agent_id(1)), 0, deleted).await;
    for agent in [first, second] {
        let end = timeout(LIMIT, agent.link).await.unwrap().unwrap();
        assert_eq!(farewell(&end).again, Again::Slowly);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_by_itself_and_its_tunnel_with_it() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let soon = Timestamp(gateway.world.clock.now_millis()).plus_millis(1_500);
    for principal in gateway.directory.lock().principals.values_mut() {
        principal.expires_at = Some(soon);
    }
    let agent = gateway.connect(1, 1).await;
    let end = timeout(LIMIT, agent.link).await.unwrap().unwrap();
    assert_eq!(farewell(&end).reason, "the token has expired");
    assert!(gateway.world.clock.now_millis() >= soon.0, "not before its time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_tunnel_takes_the_place_of_the_same_instance_and_an_agent_has_so_many_only() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let first = gateway.connect(1, 1).await;
    let mut open = vec![gateway.connect(1, 1).await];
    let end = timeout(LIMIT, first.link).await.unwrap().unwrap();
    assert!(farewell(&end).reason.contains("replaced by a newer tunnel"));
    for number in 2..=4 {
        open.push(gateway.connect(1, number).await);
    }
    let error = gateway.refusal(&secret(1)).await;
    assert_eq!(status(&error), StatusCode::SERVICE_UNAVAILABLE);
    assert!(open.iter().all(|agent| !agent.link.is_finished()));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_says_goodbye_after_what_is_under_way_is_durable() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = gateway.connect(1, 1).await;
    agent.lease().await;
    agent.until("not applier", |_| (gateway.delivery.lock().namings == 1).then_some(())).await;
    for first in 1..=50 {
        agent.report(1, first, vec![super::harness::health(1, first)]).await;
    }
    agent.acknowledged(1, 50).await;
    gateway.stop.request();
    let end = timeout(LIMIT, agent.link).await.unwrap().unwrap();
    assert_eq!(farewell(&end).again, Again::AtOnce);
    timeout(LIMIT, gateway.running).await.unwrap().unwrap().unwrap();
}

async fn listed(
    gateway: &Gateway,
    context: &RequestContext,
    agent: Option<u128>,
) -> Result<usize, RefusalKind> {
    let request = ListTunnels { agent: agent.map(agent_id), ..ListTunnels::default() };
    bus::ask(&gateway.bus, context, &request)
        .await
        .map(|tunnels| tunnels.items.len())
        .map_err(|refusal| refusal.kind)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_sees_nothing_of_tunnels_and_their_agents() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let agent = gateway.connect(1, 1).await;
    let context = |actor| bus::context_for(&gateway.world, actor, organization());
    let foreign = bus::context_for(&gateway.world, user(7), events::OrganizationId::SYSTEM);
    gateway.directory.lock().strangers = vec![user(7)];
    let request = DiffSource { agent: agent_id(1), source: source(1) };
    let subject = Subject::agent_request(DiffSource::NAME, agent_id(1));

    assert_eq!(listed(&gateway, &context(user(1)), None).await, Ok(1));
    assert_eq!(listed(&gateway, &context(user(1)), Some(1)).await, Ok(1));
    gateway.next(1, &super::harness::objects(3, "held"), "held").await;
    let diff = bus::ask_under(&gateway.bus, &subject, &context(user(1)), &request).await.unwrap();
    assert_eq!(diff.pending.as_deref(), Some("held"));
    assert_eq!(agent.state.lock().objects_put, 4, "a page and three objects, for the comparison only");
    // Nor does a comparison give it what is not its own.
    let others = super::harness::objects(1, "a secret of agent 2");
    gateway.desire(2, 1, &others, &[]).await;
    agent.state.lock().greedy = Some(Sha256::of(&others[0]));
    let refused = bus::ask_under(&gateway.bus, &subject, &context(user(1)), &request).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Unavailable);
    assert_eq!(agent.state.lock().objects_put, 4);

    for stranger in [context(user(7)), foreign] {
        assert_eq!(listed(&gateway, &stranger, None).await, Ok(0));
        assert_eq!(listed(&gateway, &stranger, Some(1)).await, Err(RefusalKind::NotFound));
        let refused = bus::ask_under(&gateway.bus, &subject, &stranger, &request).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::NotFound);
    }
    let others = DiffSource { agent: agent_id(1), source: source(2) };
    let refused = bus::ask_under(&gateway.bus, &subject, &context(user(1)), &others).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_text_wants_its_flag() {
    let gateway = Gateway::start().await;
    let deps = gateway.plain_text_deps().await;
    let (_stop, shutdown) = chassis::ShutdownTrigger::new();
    let error = tunnel_gateway::run(args(), deps, shutdown).await.unwrap_err();
    assert!(error.to_string().contains("--tunnel-insecure-plain-text"), "{error}");
}
