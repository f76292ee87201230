//! The authorization code flow with PKCE, for people who sign in on the web page (OpenID Connect Core 1.0, section 3.1; RFC 7636).
//!
//! Nothing is kept between the beginning of a sign-in and its end: what both have to know lies in the person's browser, and the console
//! brings it along.

use events::requests::authz::{BeginSignIn, ExchangeCode};
use events::{Refusal, RefusalKind};
use serde::Deserialize;

use super::file::{PageClient, shortened};
use super::{IdentityProviders, Provider};

/// Codes of one provider that are exchanged at once; strangers may bring any.
pub(super) const MOST_EXCHANGES: usize = 16;

/// What a token endpoint answers.
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// What it answers instead (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct Denied {
    error: String,
    error_description: Option<String>,
}

/// Why somebody is not signed in. It is not of a kind that is tried again: a code is good for one exchange.
fn refused(message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::Invalid, message)
}

impl IdentityProviders {
    /// The address at a provider where somebody signs in.
    ///
    /// # Errors
    /// No such provider signs people in on the page, or it does not say where.
    pub async fn sign_in_address(&self, wanted: &BeginSignIn) -> Result<String, Refusal> {
        let (provider, page) = self.for_page(&wanted.provider)?;
        let mut url = provider.keys.endpoints().await?.authorization;
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &page.id),
            ("redirect_uri", &wanted.redirect),
            ("scope", &provider.scope()),
            ("state", &wanted.state),
            ("nonce", &wanted.nonce),
            ("code_challenge", &wanted.challenge),
            ("code_challenge_method", "S256"),
        ]);
        Ok(url.into())
    }

    /// The ID token for a code: signed by the provider that was asked, for the page, and for this sign-in alone.
    ///
    /// # Errors
    /// What is wrong, and `Unavailable` when the provider cannot be asked.
    pub async fn exchange(&self, given: &ExchangeCode) -> Result<String, Refusal> {
        let (provider, page) = self.for_page(&given.provider)?;
        // A provider that names itself beside the code has to be the one that was asked (RFC 9207).
        if given.issuer.as_ref().is_some_and(|issuer| *issuer != provider.settings.issuer) {
            return Err(refused("the answer is of another identity provider than the one that was asked"));
        }
        let id_token = provider.id_token(page, given).await?;
        let verified = self.verify(&id_token).await;
        let verified = verified.map_err(|refusal| match refusal.kind {
            RefusalKind::Unavailable => refusal,
            _ => refused(refusal.message),
        })?;
        let is_ours = verified.provider == provider.name && verified.audiences.contains(&page.id);
        if !is_ours || verified.nonce.as_deref() != Some(given.nonce.as_str()) {
            return Err(refused("the ID token is of another sign-in"));
        }
        Ok(id_token)
    }

    fn for_page(&self, name: &str) -> Result<(&Provider, &PageClient), Refusal> {
        let provider = self.get(name);
        let found = provider.and_then(|provider| Some((provider, provider.settings.page.as_ref()?)));
        found.ok_or_else(|| {
            let message = "must be one that the operator allows on the web page (page_client_id)";
            Refusal::invalid("provider", message)
        })
    }
}

impl Provider {
    /// What is asked for: `openid`, without which there is no ID token, and what the operator names.
    fn scope(&self) -> String {
        let more = self.settings.scopes.iter().map(String::as_str).filter(|scope| *scope != "openid");
        std::iter::once("openid").chain(more).collect::<Vec<_>>().join(" ")
    }

    async fn id_token(&self, page: &PageClient, given: &ExchangeCode) -> Result<String, Refusal> {
        let endpoints = self.keys.endpoints().await?;
        let Ok(_turn) = self.exchanges.try_acquire() else {
            let message = format!("too many people sign in with {} at once; try again", self.name);
            return Err(Refusal::new(RefusalKind::Unavailable, message));
        };
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", given.code.as_str()),
            ("redirect_uri", given.redirect.as_str()),
            ("code_verifier", given.verifier.as_str()),
            ("client_id", page.id.as_str()),
        ];
        let secret = page.secret.as_ref().map(|secret| secret.as_str());
        let in_header = secret.filter(|_| !endpoints.takes_secret_in_form).map(|secret| (&*page.id, secret));
        if let (Some(secret), None) = (secret, in_header) {
            form.push(("client_secret", secret));
        }
        let answered = self.keys.post(&endpoints.token, &form, in_header).await;
        let (status, body) = answered.map_err(|failure| {
            let message = format!("the identity provider {} cannot be asked: {failure}", self.name);
            Refusal::new(RefusalKind::Unavailable, message)
        })?;
        if status.is_success() {
            let tokens: Result<Tokens, _> = serde_json::from_slice(&body);
            let none =
                |_| refused(format!("the identity provider {} answered without an ID token", self.name));
            return tokens.map(|tokens| tokens.id_token).map_err(none);
        }
        let why = match serde_json::from_slice::<Denied>(&body) {
            Ok(denied) => shortened(&denied.error_description.unwrap_or(denied.error)),
            Err(_) => format!("HTTP status {}", status.as_u16()),
        };
        Err(refused(format!("the identity provider {} refused the code: {why}", self.name)))
    }
}
