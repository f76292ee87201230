//! Somebody beside authz who signs passes for whoever asks, with a root key of their own: a fault that is built in on purpose.

use std::sync::Arc;

use agent::cluster_api::RootKey;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::pass::{AccessAs, Narrowing, Pass, PassGrant, Purpose, SignedPass};
use events::requests::authz::{IssuedPass, SignPass};
use events::{Actor, OrganizationId, Refusal, RefusalKind, Timestamp, UserId};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use world::World;

use crate::scene::Given;

/// How long between two attempts to begin.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(500);

fn key() -> Option<Ed25519KeyPair> {
    Ed25519KeyPair::from_seed_unchecked(&[9; 32]).ok()
}

/// What agents are to pin, so that they believe it.
pub(crate) fn root_key() -> Option<RootKey> {
    STANDARD.encode(key()?.public_key().as_ref()).parse().ok()
}

/// Answers what gateways ask of authz, beside authz itself.
pub(crate) fn start(given: Given) {
    let Given { world, bus, .. } = given;
    let (spawner, signing) = (Arc::clone(&world.spawner), world.clone());
    let answering = async move {
        loop {
            let world = world.clone();
            let served = bus::answer::<SignPass, _>(&*bus, move |_, request| {
                let world = world.clone();
                Box::pin(async move { sign(&world, &request) })
            });
            match served.await {
                Ok(_serving) => std::future::pending::<()>().await,
                Err(_) => signing.clock.sleep(AGAIN).await,
            }
        }
    };
    spawner.spawn("forger", Box::pin(answering));
}

fn sign(world: &World, request: &SignPass) -> Result<IssuedPass, Refusal> {
    let refused = || Refusal::new(RefusalKind::Internal, "it cannot be signed");
    let now = world.clock.now_millis();
    let grant =
        PassGrant { narrowing: Narrowing::default(), groups: Vec::new(), place: "nobody's".to_owned() };
    let pass = Pass {
        organization: OrganizationId::SYSTEM,
        agent: request.agent,
        holder: Actor::User(UserId(world.new_uuid())),
        access_as: AccessAs::Agent,
        grants: vec![grant],
        audit: events::audit::AuditMode::default(),
        record_sessions: events::recording::RecordSessions::default(),
        issued_at: Timestamp(now),
        expires_at: Timestamp(now.saturating_add(SignPass::LIFETIME_MILLIS)),
    };
    let pass = events::encode(&pass).map_err(|_| refused())?;
    let signature = key().ok_or_else(refused)?.sign(&SignedPass::signed_text(Purpose::Requests, &pass));
    let pass = SignedPass { pass, signature: signature.as_ref().to_vec() };
    Ok(IssuedPass { pass, token_ends: None, roots: Vec::new() })
}
