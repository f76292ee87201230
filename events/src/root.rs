//! The roots that sign passes, each of which names the next one.

use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

/// Stands in front of what is signed, so that a signature over a link is one over nothing else.
const SIGNED_AS: &[u8] = b"kasbah root 1\0";

/// One root's word for the next: whoever pins an earlier root comes to a later one link by link.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootLink {
    /// Of the next root: the installation's first one is 0.
    pub number: u32,
    /// The next root's public half (Ed25519), 32 bytes.
    #[serde(with = "serde_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<u8>"))]
    pub public_key: Vec<u8>,
    /// The former root's signature over [`RootLink::signed_text`], 64 bytes.
    #[serde(with = "serde_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<u8>"))]
    pub signature: Vec<u8>,
}

impl RootLink {
    /// So many links there are at most.
    pub const MOST: usize = 64;
    /// How long passes of the former root count at an agent that has heard of the next one, in milliseconds: gateways hold theirs for half a
    /// minute, and not all authz' replicas hear at once. The root is rotated no more often than that.
    pub const OVERLAP_MILLIS: i64 = 5 * 60 * 1000;

    /// What a root signs of the next one.
    #[must_use]
    pub fn signed_text(number: u32, public_key: &[u8]) -> Vec<u8> {
        [SIGNED_AS, &number.to_be_bytes(), public_key].concat()
    }

    /// Whether the root with this public half signed it.
    #[must_use]
    pub fn is_signed_by(&self, former: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, former);
        key.verify(&Self::signed_text(self.number, &self.public_key), &self.signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    #[test]
    fn a_link_is_good_under_the_former_root_alone_and_as_it_was_signed() {
        let key = |seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        let (former, next) = (key(1), key(2).public_key().as_ref().to_vec());
        let signature = former.sign(&RootLink::signed_text(3, &next)).as_ref().to_vec();
        let link = RootLink { number: 3, public_key: next.clone(), signature };
        let public = former.public_key().as_ref();
        assert!(link.is_signed_by(public));
        assert!(!link.is_signed_by(&next));
        assert!(!RootLink { number: 4, ..link.clone() }.is_signed_by(public));
        assert!(
            !RootLink { public_key: key(3).public_key().as_ref().to_vec(), ..link.clone() }
                .is_signed_by(public)
        );
        assert!(!RootLink { signature: former.sign(&next).as_ref().to_vec(), ..link }.is_signed_by(public));
    }
}
