//! Who is believed by a server, and what it gives for what they say: the two questions that need no token.

use events::request::RefusalKind;
use events::requests::authz::{ProviderView, SignIn, SignedIn};
use reqwest::{Method, Url};

use super::api::Api;
use super::failure::Failure;

/// The identity providers that the server's operator allows.
///
/// # Errors
/// When the server cannot be asked.
pub async fn providers(api: &Api) -> Result<Vec<ProviderView>, Failure> {
    api.get(&["sign-in"], &[]).await
}

/// Gives an ID token for a token of Kasbah; an ID token is good for this once.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn sign_in(api: &Api, server: &Url, wanted: &SignIn) -> Result<SignedIn, Failure> {
    api.send(Method::POST, &["sign-in"], wanted).await.map_err(|failure| match failure {
        // Who shows an ID token is not helped by advice on other tokens.
        Failure::Refused { refusal, .. } if refusal.kind == RefusalKind::Unauthenticated => {
            let server = server.as_str().trim_end_matches('/').to_owned();
            Failure::NotLetIn { server, reason: refusal.message }
        }
        other => other,
    })
}
