//! The root that signs passes, as this agent knows it: the one that it pins, or a later one that earlier ones vouch for, link by link.
//!
//! An agent that knows a later root believes the one before it for a few minutes more, and no earlier one: whoever has stolen one that was
//! replaced gets nothing done here. After a restart, and once another one is pinned, it begins at that one and hears of the others with the
//! next request.

use events::pass::{Pass, PassError, Purpose, SignedPass};
use events::root::RootLink;
use parking_lot::Mutex;

use super::RootKey;

/// See the module.
pub(super) struct Roots(Mutex<Known>);

struct Known {
    newest: RootKey,
    /// The one before, and until when it counts.
    former: Option<(RootKey, i64)>,
}

impl Roots {
    pub(super) const fn pinning(pinned: RootKey) -> Self {
        Self(Mutex::new(Known { newest: pinned, former: None }))
    }

    /// The pass, if the newest root signed it for this that is known here or that `links` lead to; or the one before, for a while.
    pub(super) fn verified(
        &self,
        pass: &SignedPass,
        purpose: Purpose,
        links: &[RootLink],
        now_millis: i64,
    ) -> Result<Pass, PassError> {
        let mut known = self.0.lock();
        known.follow(links, now_millis);
        match (pass.verified(&known.newest.0, purpose), known.former) {
            (Err(PassError::Signature), Some((former, until))) if now_millis < until => {
                pass.verified(&former.0, purpose)
            }
            (verified, _) => verified,
        }
    }
}

impl Known {
    /// Goes on to the last root that `links` lead to from the newest one known. Links that lead elsewhere, or nowhere, change nothing.
    fn follow(&mut self, links: &[RootLink], now_millis: i64) {
        if links.len() > RootLink::MOST {
            return;
        }
        let from = links.iter().position(|link| link.public_key == self.newest.0).map_or(0, |at| at + 1);
        let (mut at, mut before) = (self.newest, None);
        let mut number = None;
        for link in links.iter().skip(from) {
            let follows = number.is_none_or(|number: u32| number.checked_add(1) == Some(link.number));
            let Ok(next) = <[u8; 32]>::try_from(link.public_key.as_slice()) else { return };
            if !follows || !link.is_signed_by(&at.0) {
                return;
            }
            number = Some(link.number);
            before = Some(at);
            at = RootKey(next);
        }
        if let Some(before) = before {
            tracing::info!(number, "passes are now signed by another root key");
            *self = Self {
                newest: at,
                former: Some((before, now_millis.saturating_add(RootLink::OVERLAP_MILLIS))),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use events::audit::AuditMode;
    use events::pass::AccessAs;
    use events::{Actor, AgentId, OrganizationId, Timestamp};
    use ring::signature::{Ed25519KeyPair, KeyPair as _};
    use uuid::Uuid;

    use super::*;

    const NOW: i64 = 1_700_000_000_000;
    const OVERLAP_MILLIS: i64 = RootLink::OVERLAP_MILLIS;

    fn key(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn public(seed: u8) -> Vec<u8> {
        key(seed).public_key().as_ref().to_vec()
    }

    fn link(number: u32, former: u8, next: u8) -> RootLink {
        let signature = key(former).sign(&RootLink::signed_text(number, &public(next))).as_ref().to_vec();
        RootLink { number, public_key: public(next), signature }
    }

    fn pinning(seed: u8) -> Roots {
        Roots::pinning(RootKey(public(seed).try_into().unwrap()))
    }

    fn signed_by(seed: u8) -> SignedPass {
        let pass = Pass {
            organization: OrganizationId(Uuid::from_u128(1)),
            agent: AgentId(Uuid::from_u128(7)),
            holder: Actor::service("test"),
            access_as: AccessAs::Agent,
            grants: Vec::new(),
            audit: AuditMode::default(),
            record_sessions: events::recording::RecordSessions::default(),
            issued_at: Timestamp(NOW),
            expires_at: Timestamp(NOW + 60_000),
        };
        let pass = events::encode(&pass).unwrap();
        let signature = key(seed).sign(&SignedPass::signed_text(Purpose::Requests, &pass)).as_ref().to_vec();
        SignedPass { pass, signature }
    }

    fn is_good(roots: &Roots, seed: u8, links: &[RootLink], now: i64) -> bool {
        roots.verified(&signed_by(seed), Purpose::Requests, links, now).is_ok()
    }

    #[test]
    fn whoever_pins_any_root_comes_to_the_newest_one() {
        let links = [link(1, 1, 2), link(2, 2, 3), link(3, 3, 4)];
        for pinned in 1..=4 {
            assert!(is_good(&pinning(pinned), 4, &links, NOW), "{pinned}");
            assert_eq!(is_good(&pinning(pinned), 4, &[], NOW), pinned == 4, "{pinned} without links");
        }
        // One after the other, as they come.
        let roots = pinning(1);
        for (count, newest) in [(1, 2), (2, 3), (3, 4)] {
            assert!(is_good(&roots, newest, &links[..count], NOW));
        }
    }

    #[test]
    fn the_former_root_counts_for_a_while_and_an_earlier_one_no_more() {
        let roots = pinning(1);
        let links = [link(1, 1, 2), link(2, 2, 3)];
        assert!(is_good(&roots, 1, &[], NOW));
        assert!(is_good(&roots, 3, &links, NOW));
        assert!(is_good(&roots, 2, &links, NOW + OVERLAP_MILLIS - 1), "as gateways still hold some");
        assert!(!is_good(&roots, 2, &links, NOW + OVERLAP_MILLIS), "it was replaced");
        assert!(!is_good(&roots, 1, &links, NOW), "long replaced");
        assert!(!is_good(&roots, 1, &[], NOW), "and keeping the links back changes nothing");
        assert!(is_good(&roots, 3, &[], NOW + OVERLAP_MILLIS));
    }

    #[test]
    fn nobody_leads_an_agent_to_a_root_of_their_own() {
        let good = [link(1, 1, 2), link(2, 2, 3)];
        let forged: [(&str, Vec<RootLink>); 7] = [
            ("signed by itself", vec![link(1, 9, 9)]),
            ("behind good ones", vec![good[0].clone(), good[1].clone(), link(3, 9, 9)]),
            ("with a good one left out", vec![good[1].clone(), link(3, 3, 9)]),
            ("in another order", vec![good[1].clone(), good[0].clone(), link(3, 3, 9)]),
            ("with a number left out", vec![good[0].clone(), link(4, 2, 9)]),
            ("of another length", vec![RootLink { public_key: vec![7; 31], ..link(1, 1, 9) }]),
            ("longer than any", (1..=65).map(|number| link(number, 1, 1)).chain([link(66, 1, 9)]).collect()),
        ];
        for (why, links) in forged {
            let roots = pinning(1);
            assert!(!is_good(&roots, 9, &links, NOW), "{why}");
            assert!(is_good(&roots, 1, &[], NOW), "{why}: nothing was changed");
        }
        // Who stole a root that was replaced leads nobody who has heard of its successor.
        let roots = pinning(1);
        assert!(is_good(&roots, 3, &good, NOW));
        assert!(!is_good(&roots, 9, &[link(1, 1, 9)], NOW));
        assert!(!is_good(&roots, 9, &[good[0].clone(), link(2, 2, 9)], NOW));
        assert!(is_good(&roots, 3, &[], NOW));
    }
}
