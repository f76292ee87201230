//! Signatures of JSON web tokens, checked by ring.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature as checked;

/// What signatures may be made with.
pub(super) const TAKEN: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(unsupported()),
    verifier_factory: |algorithm, key| {
        if !TAKEN.contains(algorithm) || key.family() != algorithm.family() {
            return Err(unsupported());
        }
        Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
    },
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(unsupported()),
        rsa_pub_components_from_public_key: |_| Err(unsupported()),
        ec_pub_components_from_private_key: |_, _| Err(unsupported()),
        ed_pub_components_from_private_key: |_, _| Err(unsupported()),
        compute_digest: |_, _| Err(unsupported()),
    },
};

static INSTALLED: Once = Once::new();

/// Makes ring check signatures in this process.
pub(super) fn install() {
    INSTALLED.call_once(|| {
        if PROVIDER.install_default().is_err() {
            tracing::warn!("signatures of ID tokens are checked by another library than ring");
        }
    });
}

fn unsupported() -> Error {
    new_error(ErrorKind::UnsupportedAlgorithm)
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let is_right = match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                rsa_of(self.algorithm).is_some_and(|parameters| {
                    checked::RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
                })
            }
            DecodingKeyKind::SecretOrDer(point) => curve_of(self.algorithm).is_some_and(|algorithm| {
                checked::UnparsedPublicKey::new(algorithm, point).verify(message, signature).is_ok()
            }),
        };
        if is_right { Ok(()) } else { Err(signature::Error::new()) }
    }
}

/// RSA keys of 2048 to 8192 bits.
fn rsa_of(algorithm: Algorithm) -> Option<&'static checked::RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&checked::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&checked::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&checked::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&checked::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&checked::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&checked::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn curve_of(algorithm: Algorithm) -> Option<&'static dyn checked::VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&checked::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&checked::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&checked::ED25519),
        _ => None,
    }
}
