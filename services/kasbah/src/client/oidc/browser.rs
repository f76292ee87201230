//! The authorization code flow with PKCE, answered to a port of this machine (RFC 8252, RFC 7636).

use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use events::Sha256;
use reqwest::Url;
use world::World;

use super::callback::{Callback, WAIT};
use super::{IdToken, Provider, ProviderError};
use crate::client::failure::Failure;

/// What is known of a request for a code, beside the provider.
struct Attempt {
    state: String,
    nonce: String,
    /// Whoever has the code without this has nothing.
    verifier: String,
}

impl Attempt {
    fn new(world: &World) -> Self {
        let random = || {
            let mut bytes = [0_u8; 32];
            world.random.fill(&mut bytes);
            URL_SAFE_NO_PAD.encode(bytes)
        };
        Self { state: random(), nonce: random(), verifier: random() }
    }

    fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::of(self.verifier.as_bytes()).0)
    }
}

impl Provider {
    /// Lets somebody sign in with a browser on this machine; `show` is given the address that it is to open.
    ///
    /// # Errors
    /// When the provider refuses, or nobody signs in.
    pub async fn by_browser(
        &self,
        show: impl FnOnce(&Url) -> Result<(), Failure>,
    ) -> Result<IdToken, Failure> {
        let attempt = Attempt::new(&self.world);
        let callback = Callback::listen(&self.world).await.map_err(ProviderError::Listen)?;
        let redirect = callback.address().map_err(ProviderError::Listen)?;
        show(&self.address(&attempt, &redirect))?;
        let said = tokio::select! {
            said = callback.answer(&attempt.state) => said.map_err(ProviderError::Listen)?,
            () = self.world.clock.sleep(WAIT) => {
                return Err(ProviderError::TooLate { minutes: WAIT.as_secs() / 60 }.into());
            }
        };
        // A provider that names itself in the answer has to be the one that was asked (RFC 9207).
        if said.issuer.is_some_and(|issuer| issuer != self.view.issuer) {
            return Err(ProviderError::OtherSignIn.into());
        }
        let code = said.code.map_err(ProviderError::Refused)?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &redirect),
            ("code_verifier", &attempt.verifier),
        ];
        let answer = self.ask(&self.token, &form).await?;
        let token = self.id_token(&answer)?;
        if token.is_for(&attempt.nonce) { Ok(token) } else { Err(ProviderError::OtherSignIn.into()) }
    }

    fn address(&self, attempt: &Attempt, redirect: &str) -> Url {
        let mut url = self.authorization.clone();
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", self.client()),
            ("redirect_uri", redirect),
            ("scope", &self.scope()),
            ("state", &attempt.state),
            ("nonce", &attempt.nonce),
            ("code_challenge", &attempt.challenge()),
            ("code_challenge_method", "S256"),
        ]);
        url
    }
}

/// Opens an address in the person's browser, where there is a program that does; whether there was one.
#[must_use]
pub fn open(url: &Url) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(url.as_str()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7636, appendix B.
    #[test]
    fn a_challenge_is_made_as_the_standard_says() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let attempt = Attempt { state: String::new(), nonce: String::new(), verifier };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
