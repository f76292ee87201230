//! Getting an ID token from an identity provider (OpenID Connect Core 1.0), as an installed application without a secret of its own.
//!
//! Laws:
//! - What is asked goes to the issuer and to what its own metadata names, over TLS; in plain text only on this machine.
//! - No redirect is followed and no answer is read without an end.
//! - What a provider says is shown in one line, without anything that a terminal would obey.

mod browser;
mod callback;
mod device;
mod id_token;
mod provider_client;
mod trouble;

use events::requests::authz::ProviderView;
use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use world::World;

pub use browser::open;
pub use device::DeviceCode;
pub use id_token::IdToken;
pub use provider_client::ProviderClient;
pub use trouble::ProviderError;

use super::failure::Failure;
use super::settings::is_loopback;
use provider_client::Answer;

/// An identity provider that told where its parts are.
pub struct Provider {
    view: ProviderView,
    authorization: Url,
    token: Url,
    device: Option<Url>,
    /// Whether a secret may stand in a form (RFC 6749, section 2.3.1).
    takes_secret_in_form: bool,
    talk: ProviderClient,
    world: World,
}

/// What is used of its metadata (OpenID Connect Discovery 1.0, section 3; RFC 8628, section 4).
#[derive(Debug, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    device_authorization_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

/// What a token endpoint answers.
#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
}

impl Provider {
    /// Asks a provider where its parts are.
    ///
    /// # Errors
    /// When it cannot be asked, or is not who it should be.
    pub async fn discover(view: ProviderView, world: &World) -> Result<Self, Failure> {
        let talk = ProviderClient::new(view.certificate_authority.as_deref(), world)?;
        let issuer = view.issuer.clone();
        // Only a provider of this machine itself may be asked in plain text.
        let may_be_plain = Url::parse(&issuer).is_ok_and(|url| url.scheme() == "http" && is_loopback(&url));
        let part = |text: &str| part(text, &issuer, may_be_plain);
        let address = part(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')))?;
        let metadata: Metadata = talk.get(&address).await?.read(&address)?;
        if metadata.issuer != issuer {
            return Err(ProviderError::OtherIssuer { said: metadata.issuer, wanted: issuer }.into());
        }
        let methods = &metadata.token_endpoint_auth_methods_supported;
        Ok(Self {
            authorization: part(&metadata.authorization_endpoint)?,
            token: part(&metadata.token_endpoint)?,
            device: metadata.device_authorization_endpoint.as_deref().map(part).transpose()?,
            takes_secret_in_form: methods.iter().any(|method| method == "client_secret_post"),
            view,
            talk,
            world: world.clone(),
        })
    }

    /// Whether it lets people sign in on another device than the one that asks.
    #[must_use]
    pub fn has_device_flow(&self) -> bool {
        self.device.is_some()
    }

    fn client(&self) -> &str {
        &self.view.audience
    }

    /// What is asked for: `openid`, without which there is no ID token, and what the operator names.
    fn scope(&self) -> String {
        let more = self.view.scopes.iter().map(String::as_str).filter(|scope| *scope != "openid");
        std::iter::once("openid").chain(more).collect::<Vec<_>>().join(" ")
    }

    /// Asks the token endpoint or the like as this client.
    async fn ask(&self, url: &Url, form: &[(&str, &str)]) -> Result<Answer, Failure> {
        let mut form = form.to_vec();
        form.push(("client_id", self.client()));
        let in_header = match &self.view.client_secret {
            None => None,
            Some(secret) if self.takes_secret_in_form => {
                form.push(("client_secret", secret));
                None
            }
            // What holds where a provider does not say (OpenID Connect Discovery 1.0, section 3).
            Some(secret) => Some((self.client(), secret.as_str())),
        };
        self.talk.post(url, &form, in_header).await
    }

    fn id_token(&self, answer: &Answer) -> Result<IdToken, Failure> {
        let tokens: Tokens = answer.read(&self.token)?;
        let odd = |detail: &str| ProviderError::odd(&self.token, detail);
        let text = tokens.id_token.ok_or_else(|| odd("it returned no ID token"))?;
        Ok(IdToken::parse(text).ok_or_else(|| odd("its ID token is malformed"))?)
    }
}

/// A URL that a provider may be asked by.
fn part(text: &str, issuer: &str, may_be_plain: bool) -> Result<Url, ProviderError> {
    let url = Url::parse(text).map_err(|_| ProviderError::odd(issuer, format!("{text:?} is not a URL")))?;
    let is_plain_here = may_be_plain && url.scheme() == "http" && is_loopback(&url);
    if url.scheme() == "https" || is_plain_here {
        Ok(url)
    } else {
        Err(ProviderError::PlainText { url: url.to_string() })
    }
}

impl Answer {
    /// What stands in an answer that says yes; else why not.
    fn read<T: DeserializeOwned>(&self, asked: &Url) -> Result<T, ProviderError> {
        if let Some(refused) = self.refused() {
            return Err(refused.into());
        }
        if !self.status.is_success() {
            return Err(ProviderError::odd(asked, format!("HTTP status {}", self.status)));
        }
        serde_json::from_slice(&self.body).map_err(|error| ProviderError::odd(asked, error.to_string()))
    }
}

#[cfg(test)]
mod tests;
