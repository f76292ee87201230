//! Identity providers that the operator allows, and what their ID tokens say (OpenID Connect Core 1.0).
//!
//! Laws:
//! - Only the operator's file names providers; nothing that an organization or a token says is ever dialled.
//! - A token is taken with a signature by a key of the one provider whose issuer and audience it names, in time, by the
//!   world's clock.
//! - No part of a token stands in a refusal or in a log, but for an issuer that is not known.

mod claims;
mod code;
mod file;
mod keys;
mod signatures;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use events::directory::JobFacts;
use events::requests::authz::{ProviderKind, ProviderView};
use events::{Refusal, Sha256};
use tokio::sync::Semaphore;
use world::{Clock, World};

use crate::model::identity::JobClaims;
use file::Settings;
use keys::Keys;

pub use file::ProvidersError;

/// The identity providers of an installation.
#[derive(Debug, Default)]
pub struct IdentityProviders {
    providers: Vec<Provider>,
}

/// An identity provider.
pub struct Provider {
    /// What the operator calls it.
    pub name: String,
    /// Whom it speaks of.
    pub kind: ProviderKind,
    /// How long the tokens live that Kasbah gives for its word.
    pub token_lifetime: Duration,
    settings: Settings,
    keys: Keys,
    clock: Arc<dyn Clock>,
    /// Codes that may be exchanged at once.
    exchanges: Semaphore,
}

/// What an ID token says, after its signature and times were found right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Name of the provider.
    pub provider: String,
    /// Whom the provider speaks of.
    pub kind: ProviderKind,
    /// For whom the token is.
    pub audiences: Vec<String>,
    /// The nonce that it was requested with.
    pub nonce: Option<String>,
    /// The same for the same token alone, whoever brings it and however often.
    pub once: Sha256,
    /// The provider's own id of the person or job.
    pub subject: String,
    /// How long the token lives that Kasbah gives for it.
    pub token_lifetime: Duration,
    /// Of whom.
    pub said: TokenSubject,
}

/// Of whom an ID token speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSubject {
    /// Of a CI job.
    Job {
        /// Whose it is.
        claims: JobClaims,
        /// What is known of it.
        facts: JobFacts,
    },
    /// Of a person.
    Person {
        /// Their login name.
        login: String,
    },
}

impl IdentityProviders {
    /// An installation without any.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Those of the operator's file. Dials nobody yet.
    ///
    /// # Errors
    /// What in the file is wrong, and what to do.
    pub fn load(path: &Path, world: &World) -> Result<Self, ProvidersError> {
        let mut providers: Vec<Provider> = Vec::new();
        for settings in file::read(path, world)? {
            let name = settings.name.clone();
            let wrong = |detail: String| ProvidersError::Provider {
                path: path.to_owned(),
                provider: name.clone(),
                detail,
            };
            providers.push(Provider::new(settings, world).map_err(wrong)?);
        }
        Ok(Self { providers })
    }

    /// What everybody may know of them, in the order of the file.
    #[must_use]
    pub fn views(&self) -> Vec<ProviderView> {
        self.providers.iter().map(Provider::view).collect()
    }

    /// The one of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.name == name)
    }

    /// What an ID token says, if one of these providers signed it for Kasbah and its time is now.
    ///
    /// # Errors
    /// `Unauthenticated` with what is wrong with the token, or `Unavailable` when the provider's keys cannot be fetched.
    pub async fn verify(&self, id_token: &str) -> Result<Verified, Refusal> {
        verify::verify(&self.providers, id_token.trim()).await
    }
}

impl Provider {
    fn new(settings: Settings, world: &World) -> Result<Self, String> {
        Ok(Self {
            name: settings.name.clone(),
            kind: settings.kind,
            token_lifetime: settings.token_lifetime,
            keys: Keys::new(&settings, world)?,
            settings,
            clock: Arc::clone(&world.clock),
            exchanges: Semaphore::new(code::MOST_EXCHANGES),
        })
    }

    /// What everybody may know of it; nothing is said of who believes it.
    #[must_use]
    pub fn view(&self) -> ProviderView {
        ProviderView {
            name: self.name.clone(),
            kind: self.kind,
            issuer: self.settings.issuer.clone(),
            audience: self.settings.audience.clone(),
            scopes: self.settings.scopes.clone(),
            client_secret: self.settings.client_secret.clone(),
            on_page: self.settings.page.is_some(),
            certificate_authority: self.settings.certificate_authority.clone(),
            trust: None,
        }
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("issuer", &self.settings.issuer)
            .field("audience", &self.settings.audience)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
