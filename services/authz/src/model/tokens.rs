//! Tokens: only hashes are known here.

use events::directory::{
    DirectoryEvent, Scope, TokenHolder, TokenIssued, TokenLifetimes, TokenLifetimesSet, TokenRevoked,
    TokenUsed,
};
use events::requests::authz::{Action, Admission, Decide, Principal};
use events::{
    Actor, AggregateKind, AggregateRef, OrganizationId, Refusal, RefusalKind, Sha256, Timestamp, TokenId,
    UserId,
};

use super::lookup::UserRef;
use super::{Asker, Decided, Directory, Token, aggregate};

/// Live tokens that one holder may have: enough for any rotation.
pub const MAXIMUM_LIVE_TOKENS: usize = 64;

const HOUR_MILLIS: i64 = 3_600_000;
const DAY_SECONDS: u64 = 24 * 3600;
/// What an organization may say of its tokens' lifetimes, in seconds: a minute at least, ten years at most.
const SHORTEST_LIFETIME: u64 = 60;
const MAXIMUM_LIFETIME: u64 = 3660 * DAY_SECONDS;

/// What is wanted with tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenUse {
    /// Issue one.
    Issue,
    /// See them.
    List,
    /// Revoke one.
    Revoke,
}

impl Token {
    /// Whether it opens anything at `now`.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

impl Directory {
    /// Who holds this token, if it is live at `now`, and good for Kasbah's own API.
    ///
    /// # Errors
    /// Unknown, revoked, expired, or for clusters only: each says so.
    pub fn authenticate(&self, hash: Sha256, now: Timestamp) -> Result<Principal, Refusal> {
        let principal = self.holder_of(hash, now)?;
        if self.tokens.get(&principal.token).is_some_and(|token| token.clusters_only) {
            let message =
                "this token is kubectl's, for clusters' APIs only: use the token that it was issued with";
            return Err(Refusal::new(RefusalKind::Denied, message));
        }
        Ok(principal)
    }

    /// As [`Directory::authenticate`], for the use of a cluster's API: tokens that are for nothing else are good here.
    ///
    /// # Errors
    /// Unknown, revoked or expired: each says so.
    pub fn holder_of(&self, hash: Sha256, now: Timestamp) -> Result<Principal, Refusal> {
        let refuse = |message: &str| Refusal::new(RefusalKind::Unauthenticated, message);
        let (id, token) = self
            .hashes
            .get(&hash)
            .and_then(|id| self.tokens.get(id).map(|token| (*id, token)))
            .ok_or_else(|| refuse("unknown token"))?;
        if token.revoked_at.is_some() {
            return Err(refuse("the token was revoked"));
        }
        if !token.is_live(now) {
            return Err(refuse("the token has expired"));
        }
        if let Some(message) = self.ended_with_a_person(token) {
            return Err(refuse(message));
        }
        let actor = match token.holder {
            TokenHolder::Agent(agent) => Actor::Agent(agent),
            TokenHolder::User(user) => Actor::User(user),
            TokenHolder::Job(job) => Actor::Job(job),
        };
        Ok(Principal { actor, organization: token.organization, token: id, expires_at: token.expires_at })
    }

    /// Why a token is dead, where that is because a user was disabled.
    fn ended_with_a_person(&self, token: &Token) -> Option<&'static str> {
        if matches!(token.holder, TokenHolder::User(user) if self.is_disabled(user)) {
            return Some("the user was disabled");
        }
        let Actor::User(maker) = token.made_by else { return None };
        let disabled = self.users.get(&maker)?.disabled?;
        let is_kept = disabled.keeps_agents_tokens && matches!(token.holder, TokenHolder::Agent(_));
        (!is_kept).then_some("the user who issued this token was disabled")
    }

    /// How long an organization's personal tokens live.
    #[must_use]
    pub fn token_lifetimes(&self, organization: OrganizationId) -> TokenLifetimes {
        self.lifetimes.get(&organization).copied().unwrap_or_default()
    }

    /// Says how long an organization's personal tokens live from now on.
    ///
    /// # Errors
    /// Not allowed, or times that do not go together.
    pub fn set_token_lifetimes(
        &self,
        asker: &Asker,
        lifetimes: TokenLifetimes,
    ) -> Result<Decided<()>, Refusal> {
        let organization = Scope::Organization(asker.organization);
        self.authorize(asker, Action::SetTokenLifetimes, organization, "organization")?;
        let TokenLifetimes { default_seconds, longest_seconds } = lifetimes;
        if !(SHORTEST_LIFETIME..=MAXIMUM_LIFETIME).contains(&longest_seconds) {
            let message = format!("must be {SHORTEST_LIFETIME} to {MAXIMUM_LIFETIME}");
            return Err(Refusal::invalid("longest_seconds", message));
        }
        if !(SHORTEST_LIFETIME..=longest_seconds).contains(&default_seconds) {
            let message =
                format!("must be {SHORTEST_LIFETIME} to {longest_seconds}, the longest lifetime; set both");
            return Err(Refusal::invalid("default_seconds", message));
        }
        if self.token_lifetimes(asker.organization) == lifetimes {
            return Ok(Decided::already(()));
        }
        let event = DirectoryEvent::TokenLifetimesSet(TokenLifetimesSet { lifetimes });
        let of = aggregate(AggregateKind::Organization, asker.organization);
        self.draft(asker.organization, of, vec![event], ())
    }

    /// Seconds that a personal token lives for which so many are wanted.
    ///
    /// # Errors
    /// More than the organization allows.
    pub fn personal_lifetime(
        &self,
        organization: OrganizationId,
        wanted: Option<u64>,
    ) -> Result<u64, Refusal> {
        let TokenLifetimes { default_seconds, longest_seconds } = self.token_lifetimes(organization);
        match wanted {
            None => Ok(default_seconds),
            Some(seconds) if (1..=longest_seconds).contains(&seconds) => Ok(seconds),
            Some(_) => {
                let message = format!(
                    "must be 1 to {longest_seconds} ({} days), the longest lifetime of the organization's personal tokens",
                    longest_seconds / DAY_SECONDS
                );
                Err(Refusal::invalid("lifetime_seconds", message))
            }
        }
    }

    /// Whether the holder of this token may open a tunnel.
    #[must_use]
    pub fn admit(&self, hash: Sha256, now: Timestamp) -> Admission {
        let holder = match self.authenticate(hash, now) {
            Ok(holder) => holder,
            Err(refusal) => return Admission::Refused(refusal),
        };
        let Actor::Agent(agent) = holder.actor else {
            let message = "this is not an agent's token: issue one with `kasbah token issue --agent`";
            return Admission::Refused(Refusal::new(RefusalKind::Denied, message));
        };
        let decision = self.decide_access(&Decide {
            actor: holder.actor.clone(),
            organization: holder.organization,
            action: Action::ConnectAgent,
            scope: Scope::Agent(agent),
        });
        if decision.allowed {
            return Admission::Admitted { holder, agent };
        }
        let refusal = Refusal::new(RefusalKind::Denied, decision.reason);
        Admission::Denied { holder, agent, refusal }
    }

    /// Whose tokens the asker means: an agent's, a user's, or their own.
    ///
    /// # Errors
    /// Not found or not allowed.
    pub fn token_holder(
        &self,
        asker: &Asker,
        usage: TokenUse,
        agent: Option<&str>,
        user: Option<UserRef>,
    ) -> Result<TokenHolder, Refusal> {
        if usage == TokenUse::Issue && matches!(asker.actor, Actor::Agent(_) | Actor::Job(_)) {
            let message = "agents and jobs cannot issue tokens: such tokens would outlive their own";
            return Err(Refusal::new(RefusalKind::Denied, message));
        }
        let holder = match (agent, user) {
            (Some(_), Some(_)) => return Err(Refusal::invalid("user", "name an agent or a user, not both")),
            (Some(agent), None) => TokenHolder::Agent(self.visible_agent(asker, agent)?.0),
            (None, Some(user)) => TokenHolder::User(self.user_for_tokens(asker, user)?),
            (None, None) => match &asker.actor {
                Actor::User(user) => TokenHolder::User(*user),
                _ => return Err(Refusal::invalid("agent", "name the owner of the tokens")),
            },
        };
        self.may_use_tokens(asker, usage, holder)?;
        Ok(holder)
    }

    /// To those who may not manage users' tokens, all others are unknown.
    fn user_for_tokens(&self, asker: &Asker, user: UserRef) -> Result<UserId, Refusal> {
        let found = self.find_user(asker, user)?;
        let own = asker.actor == Actor::User(found);
        if !own && !self.may(asker, Action::ManageUserTokens, Scope::Organization(asker.organization)) {
            return Err(Refusal { field: Some("user".to_owned()), ..Refusal::not_found("user") });
        }
        Ok(found)
    }

    fn may_use_tokens(&self, asker: &Asker, usage: TokenUse, holder: TokenHolder) -> Result<(), Refusal> {
        match holder {
            TokenHolder::Agent(agent) => {
                let action = match usage {
                    TokenUse::Issue => Action::IssueAgentToken,
                    TokenUse::List => Action::ReadTokens,
                    TokenUse::Revoke => Action::RevokeToken,
                };
                self.authorize(asker, action, Scope::Agent(agent), "agent")
            }
            TokenHolder::Job(job) => {
                let missing = || Refusal::not_found("job");
                let project = self.jobs.get(&job).ok_or_else(missing)?.project;
                self.authorize(asker, Action::ManageJobTokens, Scope::Project(project), "job")
            }
            TokenHolder::User(user) if asker.actor == Actor::User(user) => Ok(()),
            TokenHolder::User(user) => {
                let organization = Scope::Organization(asker.organization);
                self.authorize(asker, Action::ManageUserTokens, organization, "user")?;
                let asker_is_operator = matches!(&asker.actor, Actor::User(id) if self.is_operator(*id));
                if self.is_operator(user) && !asker_is_operator {
                    let message = "this user is an operator: only operators manage their tokens";
                    return Err(Refusal::new(RefusalKind::Denied, message));
                }
                Ok(())
            }
        }
    }

    /// Issues a token for a holder of the asker's organization. Who may is asked by [`Directory::token_holder`].
    ///
    /// # Errors
    /// Too many live ones, or the holder is gone.
    pub fn issue_token(
        &self,
        asker: &Asker,
        token: &TokenIssued,
        now: Timestamp,
    ) -> Result<Decided<()>, Refusal> {
        self.has_room_for_token(token.holder, now)?;
        if matches!(token.holder, TokenHolder::User(user) if self.is_disabled(user)) {
            return Err(Refusal::new(RefusalKind::Conflict, "the user is disabled; enable them first"));
        }
        let gone = matches!(token.holder, TokenHolder::Agent(id) if self.agents.get(&id).is_none_or(|agent| agent.deleted));
        if gone {
            return Err(Refusal::not_found("agent"));
        }
        let events = vec![DirectoryEvent::TokenIssued(token.clone())];
        self.draft(asker.organization, holder_aggregate(token.holder), events, ())
    }

    /// Refuses when the holder has as many live tokens as anybody may.
    pub(super) fn has_room_for_token(&self, holder: TokenHolder, now: Timestamp) -> Result<(), Refusal> {
        let live = self.held_by(holder).filter(|(_, other)| other.is_live(now)).count();
        if live < MAXIMUM_LIVE_TOKENS {
            return Ok(());
        }
        let message = format!("there are already {live} valid tokens; revoke some first");
        Err(Refusal::new(RefusalKind::Conflict, message))
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// Not found, also when it is not theirs to see; or not allowed.
    pub fn revoke_token(&self, asker: &Asker, id: TokenId) -> Result<Decided<()>, Refusal> {
        let missing = || Refusal { field: Some("token".to_owned()), ..Refusal::not_found("token") };
        let token = self
            .tokens
            .get(&id)
            .filter(|token| token.organization == asker.organization)
            .ok_or_else(missing)?;
        self.may_use_tokens(asker, TokenUse::List, token.holder).map_err(|_| missing())?;
        self.may_use_tokens(asker, TokenUse::Revoke, token.holder)?;
        self.revoke(id)
    }

    /// Revokes a token, whoever asks.
    ///
    /// # Errors
    /// Not found.
    pub fn revoke(&self, id: TokenId) -> Result<Decided<()>, Refusal> {
        let token = self.tokens.get(&id).ok_or_else(|| Refusal::not_found("token"))?;
        if token.revoked_at.is_some() {
            return Ok(Decided::already(()));
        }
        let event = DirectoryEvent::TokenRevoked(TokenRevoked { token: id, holder: token.holder });
        self.draft(token.organization, holder_aggregate(token.holder), vec![event], ())
    }

    /// Notes a use, to the hour; nothing when that hour is noted already.
    ///
    /// # Errors
    /// Not found.
    pub fn use_token(&self, id: TokenId, now: Timestamp) -> Result<Decided<()>, Refusal> {
        let token = self.tokens.get(&id).ok_or_else(|| Refusal::not_found("token"))?;
        let at = hour(now);
        if token.last_used_at.is_some_and(|last| last >= at) || token.revoked_at.is_some() {
            return Ok(Decided::already(()));
        }
        let event = DirectoryEvent::TokenUsed(TokenUsed { token: id, at });
        self.draft(token.organization, holder_aggregate(token.holder), vec![event], ())
    }

    /// Whether a use at `now` is to be noted.
    #[must_use]
    pub fn use_is_news(&self, id: TokenId, now: Timestamp) -> bool {
        self.tokens.get(&id).is_some_and(|token| token.last_used_at.is_none_or(|last| last < hour(now)))
    }

    /// Tokens of others that a user made and that were not revoked.
    pub fn made_by(&self, user: UserId) -> impl Iterator<Item = (TokenId, &Token)> {
        let own = TokenHolder::User(user);
        self.tokens.iter().map(|(id, token)| (*id, token)).filter(move |(_, token)| {
            token.made_by == Actor::User(user) && token.holder != own && token.revoked_at.is_none()
        })
    }

    /// Whether the holder has a token that is live at `now`.
    #[must_use]
    pub fn has_live_token(&self, holder: TokenHolder, now: Timestamp) -> bool {
        self.held_by(holder).any(|(_, token)| token.is_live(now))
    }

    /// The tokens of a holder, also those that are dead.
    pub(super) fn held_by(&self, holder: TokenHolder) -> impl Iterator<Item = (TokenId, &Token)> {
        let held = self.holders.get(&holder).into_iter().flatten();
        held.filter_map(|id| Some((*id, self.tokens.get(id)?)))
    }
}

fn hour(at: Timestamp) -> Timestamp {
    Timestamp(at.0 - at.0.rem_euclid(HOUR_MILLIS))
}

pub(super) fn holder_aggregate(holder: TokenHolder) -> AggregateRef {
    match holder {
        TokenHolder::Agent(agent) => aggregate(AggregateKind::Agent, agent),
        TokenHolder::User(user) => aggregate(AggregateKind::User, user),
        TokenHolder::Job(job) => aggregate(AggregateKind::Job, job),
    }
}
