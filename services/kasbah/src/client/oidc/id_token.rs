//! ID tokens, as far as whoever asked for one looks into them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use zeroize::Zeroizing;

/// An ID token. Its signature is not verified here: it came from the token endpoint over TLS (OpenID Connect Core 1.0, section
/// 3.1.3.7), and the server that it is shown to verifies it.
pub struct IdToken {
    text: Zeroizing<String>,
    claims: Claims,
}

#[derive(Debug, Deserialize)]
struct Claims {
    nonce: Option<String>,
    email: Option<String>,
    preferred_username: Option<String>,
}

impl IdToken {
    /// Takes it apart; `None` if it is none.
    #[must_use]
    pub fn parse(text: String) -> Option<Self> {
        let text = Zeroizing::new(text);
        let mut parts = text.split('.');
        let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
            return None;
        };
        let claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        Some(Self { text, claims })
    }

    /// As it is shown to a server.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it was made for the request that had this nonce.
    #[must_use]
    pub fn is_for(&self, nonce: &str) -> bool {
        self.claims.nonce.as_deref() == Some(nonce)
    }

    /// What people call whoever signed in.
    #[must_use]
    pub fn login(&self) -> Option<&str> {
        self.claims.email.as_deref().or(self.claims.preferred_username.as_deref())
    }
}
