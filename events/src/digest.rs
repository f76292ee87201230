//! Fixed-size digests: bytes in MessagePack, hexadecimal for people.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: expected 64 hexadecimal digits")]
pub struct ParseDigestError;

macro_rules! digest {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), hex::encode(self.0))
            }
        }

        impl FromStr for $name {
            type Err = ParseDigestError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let mut bytes = [0_u8; 32];
                hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseDigestError)?;
                Ok(Self(bytes))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    serde_bytes::Bytes::new(&self.0).serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    serde_bytes::ByteArray::<32>::deserialize(deserializer).map(|bytes| Self(bytes.into_array()))
                }
            }
        }
    )*};
}

digest! {
    /// SHA-256 over exact bytes.
    Sha256;
    /// The address of a blob: keyed with a secret of its organization, so that nobody can test whether a known content is stored.
    BlobDigest;
    /// SHA-256 over an aggregate's stored commit: the link of its chain.
    ChainHash;
}

impl Sha256 {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }
}

impl ChainHash {
    /// The link over one stored commit.
    #[must_use]
    pub fn of(stored: &[u8]) -> Self {
        Self(sha256(stored))
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0_u8; 32];
    for (to, from) in out.iter_mut().zip(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref()) {
        *to = *from;
    }
    out
}
