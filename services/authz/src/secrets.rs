//! Secrets that authz makes: tokens, and the root key that agents pin.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use events::{Refusal, RefusalKind, RootId, Sha256};
use store::{KeyRing, RootKey, RootKeyError};
use world::Random;
use zeroize::Zeroizing;

use crate::personal::away;

/// A token that was just made: `kasbah_`, a letter for its kind, `_`, and 256 random bits in base64url.
pub struct NewToken {
    /// What is shown once.
    pub secret: String,
    /// SHA-256 over the whole text: what is stored.
    pub hash: Sha256,
}

/// What a token is for; a letter in its text, so that people and scanners tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// An agent's.
    Agent,
    /// A user's.
    Personal,
    /// A job's.
    Job,
}

impl NewToken {
    /// Makes one.
    #[must_use]
    pub fn make(random: &dyn Random, kind: TokenKind) -> Self {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        random.fill(bytes.as_mut_slice());
        let letter = match kind {
            TokenKind::Agent => 'a',
            TokenKind::Personal => 'p',
            TokenKind::Job => 'j',
        };
        let secret = format!("kasbah_{letter}_{}", URL_SAFE_NO_PAD.encode(bytes.as_slice()));
        let hash = Sha256::of(secret.as_bytes());
        Self { secret, hash }
    }
}

/// The first root key, or the later one with that id; nothing when the key ring has none.
///
/// # Errors
/// When the key ring is away or holds something else.
pub async fn root_key(keys: &dyn KeyRing, later: Option<RootId>) -> Result<Option<RootKey>, Refusal> {
    store::root_key(keys, later).await.map_err(|error| unusable(&error))
}

/// A root that is to take the place of the one that signs now.
///
/// # Errors
/// As [`root_key`].
pub async fn new_root_key(keys: &dyn KeyRing, id: RootId) -> Result<RootKey, Refusal> {
    store::new_root_key(keys, id).await.map_err(|error| unusable(&error))
}

fn unusable(error: &RootKeyError) -> Refusal {
    match error {
        RootKeyError::KeyRing(error) => away(error),
        RootKeyError::Malformed => Refusal::new(RefusalKind::Internal, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_256_random_bits_and_says_its_kind() {
        let random = world::random::SystemRandom::new();
        let one = NewToken::make(&random, TokenKind::Agent);
        let other = NewToken::make(&random, TokenKind::Personal);
        assert_eq!(one.secret.len(), "kasbah_a_".len() + 43);
        assert!(one.secret.starts_with("kasbah_a_") && other.secret.starts_with("kasbah_p_"));
        assert_ne!(one.secret.get(9..), other.secret.get(9..));
        assert_eq!(one.hash, Sha256::of(one.secret.as_bytes()));
    }
}
