//! Who asks: from the bearer token, or a page's session, to the actor that authz names.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use bus::Bus;
use chassis::server::bearer_token;
use events::id::derived_uuid;
use events::requests::authz::{Authenticate, Principal};
use events::{Actor, OrganizationId, Refusal, RefusalKind, Sha256, TokenId};
use parking_lot::Mutex;
use world::World;

use crate::session;

/// How long an answer of authz counts here; revocations are heard of sooner.
const REMEMBERED: Duration = Duration::from_secs(3);
/// How many answers are remembered.
const MAXIMUM_REMEMBERED: usize = 4096;
/// Longest token that is looked at, in bytes.
const MAXIMUM_TOKEN: usize = 256;

/// Answers of authz, for a moment. Only hashes of tokens are kept.
#[derive(Debug, Default)]
pub struct Callers {
    remembered: Mutex<BTreeMap<Sha256, (Principal, Duration)>>,
}

impl Callers {
    /// Who holds the token of these headers, or of the session in them.
    ///
    /// # Errors
    /// No token, or none that is live; or authz is away.
    pub async fn identify(
        &self,
        world: &World,
        bus: &dyn Bus,
        headers: &HeaderMap,
    ) -> Result<(Sha256, Principal), Refusal> {
        let hash = token_hash(headers)?;
        self.holder(world, bus, hash).await.map(|principal| (hash, principal))
    }

    /// Whether the token with this hash still counts. While authz is away, the last answer does.
    pub async fn is_live(&self, world: &World, bus: &dyn Bus, hash: Sha256) -> bool {
        let holder = self.holder(world, bus, hash).await;
        !holder.is_err_and(|refusal| refusal.kind == RefusalKind::Unauthenticated)
    }

    /// Who holds the token with this hash.
    ///
    /// # Errors
    /// Nobody, or authz is away.
    pub async fn holder(&self, world: &World, bus: &dyn Bus, hash: Sha256) -> Result<Principal, Refusal> {
        let now = world.clock.monotonic();
        let known = self.remembered.lock().get(&hash).filter(|(_, until)| now < *until).cloned();
        if let Some((principal, _)) = known
            && principal.expires_at.is_none_or(|end| world.clock.now_millis() < end.0)
        {
            return Ok(principal);
        }
        let context = bus::context_for_service(world, "console", OrganizationId::SYSTEM);
        let principal = bus::ask(bus, &context, &Authenticate { hash }).await?;
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAXIMUM_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(hash, (principal.clone(), now + REMEMBERED));
        Ok(principal)
    }

    /// Forgets all answers: something about tokens or users changed.
    pub fn forget(&self) {
        self.remembered.lock().clear();
    }
}

/// Nobody: who asks without a token what needs none, on behalf of the console, in no organization.
#[must_use]
pub fn stranger() -> (Sha256, Principal) {
    let (actor, organization) = (Actor::Service("console".to_owned()), OrganizationId::SYSTEM);
    let token = TokenId(derived_uuid(&[b"no token"]));
    (Sha256::of(b""), Principal { actor, organization, token, expires_at: None })
}

fn token_hash(headers: &HeaderMap) -> Result<Sha256, Refusal> {
    let refuse = |message: &str| Refusal::new(RefusalKind::Unauthenticated, message);
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let token = session::token(headers)?;
        let token = token.filter(|token| token.len() <= MAXIMUM_TOKEN);
        let token = token.ok_or_else(|| refuse("send a token as `Authorization: Bearer`"))?;
        return Ok(Sha256::of(token.as_bytes()));
    };
    let token = bearer_token(value, MAXIMUM_TOKEN);
    let token = token.ok_or_else(|| refuse("the authorization header holds no bearer token"))?;
    Ok(Sha256::of(token.as_bytes()))
}
