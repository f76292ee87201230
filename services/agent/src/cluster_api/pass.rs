//! Whether a request's pass is good here and now.

use std::collections::HashMap;
use std::sync::Arc;

use events::AgentId;
use events::pass::{Pass, PassError, Purpose, SignedPass};
use events::requests::authz::SignPass;
use events::root::RootLink;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tunnel::wire::cluster::{NoPass, PASS, pass_from_headers, roots_from_headers};

use super::roots::Roots;
use super::{RootKey, RootKeyFile};

/// How far this machine's clock and the signer's may differ, in milliseconds.
const LEEWAY_MILLIS: i64 = 30_000;
/// Passes whose signatures are not checked again.
const MAXIMUM_HELD: usize = 1024;

/// Why a request's pass does not let it through here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassFault {
    #[error(
        "this agent pins no root key: start it with --root-key-file, as the manifests of its registration do"
    )]
    NoRootKey,
    #[error("this agent does not know its identity yet")]
    NoAgent,
    #[error(transparent)]
    NoPass(#[from] NoPass),
    #[error(transparent)]
    NotSigned(#[from] PassError),
    #[error("the pass is for another agent")]
    AnotherAgent,
    #[error(
        "the pass expired {seconds} seconds ago; if it is new, the clock of the agent's machine is ahead"
    )]
    Ended { seconds: i64 },
    #[error(
        "the pass begins in {seconds} seconds: the clock of the agent's machine is behind, or the server's is ahead"
    )]
    NotBegun { seconds: i64 },
    #[error("the pass has a longer lifetime than allowed")]
    LivesTooLong,
}

/// Verifies passes.
pub(super) struct Passes {
    since_pinned: Mutex<Option<Arc<SincePinned>>>,
    file: Option<RootKeyFile>,
}

/// What came of the root key that is pinned; another one begins with nothing of it, whatever is being verified at that moment.
struct SincePinned {
    roots: Roots,
    /// Passes whose signatures are not checked again.
    verified: Mutex<HashMap<HeaderValue, Arc<Pass>>>,
}

impl Passes {
    /// Pins a root key; the file is looked at for another one.
    pub(super) fn new(root: Option<RootKey>, file: Option<RootKeyFile>) -> Self {
        Self { since_pinned: Mutex::new(root.map(SincePinned::new)), file }
    }

    /// The pass of a request to `agent`.
    pub(super) fn admit(
        &self,
        headers: &HeaderMap,
        agent: Option<AgentId>,
        now_millis: i64,
    ) -> Result<Arc<Pass>, PassFault> {
        let pinned = self.pinned(now_millis).ok_or(PassFault::NoRootKey)?;
        let agent = agent.ok_or(PassFault::NoAgent)?;
        let mut values = headers.get_all(PASS).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return Err(NoPass.into()) };
        let known = pinned.verified.lock().get(value).cloned();
        if let Some(pass) = known {
            check(&pass, agent, now_millis)?;
            return Ok(pass);
        }
        let links = roots_from_headers(headers);
        let pass = Arc::new(pinned.roots.verified(
            &pass_from_headers(headers)?,
            Purpose::Requests,
            &links,
            now_millis,
        )?);
        check(&pass, agent, now_millis)?;
        pinned.hold(value.clone(), Arc::clone(&pass), now_millis);
        Ok(pass)
    }

    /// The pass of a question to `agent` what its holder may list; one for requests is none. They are few, and none is held.
    pub(super) fn admit_review(
        &self,
        pass: &SignedPass,
        links: &[RootLink],
        agent: Option<AgentId>,
        now_millis: i64,
    ) -> Result<Pass, PassFault> {
        let pinned = self.pinned(now_millis).ok_or(PassFault::NoRootKey)?;
        let agent = agent.ok_or(PassFault::NoAgent)?;
        let pass = pinned.roots.verified(pass, Purpose::Review, links, now_millis)?;
        check(&pass, agent, now_millis)?;
        Ok(pass)
    }

    fn pinned(&self, now_millis: i64) -> Option<Arc<SincePinned>> {
        let mut pinned = self.since_pinned.lock();
        if let Some(another) = self.file.as_ref().and_then(|file| file.another(now_millis)) {
            tracing::info!("another root key is now pinned");
            *pinned = Some(SincePinned::new(another));
        }
        pinned.clone()
    }
}

impl SincePinned {
    fn new(root: RootKey) -> Arc<Self> {
        Arc::new(Self { roots: Roots::pinning(root), verified: Mutex::default() })
    }

    fn hold(&self, value: HeaderValue, pass: Arc<Pass>, now_millis: i64) {
        let mut verified = self.verified.lock();
        if verified.len() >= MAXIMUM_HELD {
            verified.retain(|_, pass| !has_ended(pass, now_millis));
        }
        if verified.len() < MAXIMUM_HELD {
            verified.insert(value, pass);
        }
    }
}

fn has_ended(pass: &Pass, now_millis: i64) -> bool {
    now_millis.saturating_sub(pass.expires_at.0) >= LEEWAY_MILLIS
}

fn check(pass: &Pass, agent: AgentId, now_millis: i64) -> Result<(), PassFault> {
    if pass.agent != agent {
        return Err(PassFault::AnotherAgent);
    }
    if pass.expires_at.millis_since(pass.issued_at) > SignPass::LIFETIME_MILLIS {
        return Err(PassFault::LivesTooLong);
    }
    if has_ended(pass, now_millis) {
        return Err(PassFault::Ended { seconds: now_millis.saturating_sub(pass.expires_at.0) / 1000 });
    }
    let ahead = pass.issued_at.0.saturating_sub(now_millis);
    if ahead > LEEWAY_MILLIS {
        return Err(PassFault::NotBegun { seconds: ahead / 1000 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use events::pass::AccessAs;
    use events::{Actor, OrganizationId, Timestamp};
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use tunnel::wire::cluster::{ROOTS, pass_to_header, roots_to_header};
    use uuid::Uuid;
    use world::World;

    use super::*;
    use crate::cluster_api::root_key::LOOK_EVERY_MILLIS;

    const NOW: i64 = 1_700_000_000_000;
    const AGENT: AgentId = AgentId(Uuid::from_u128(7));

    fn key(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn root_key(seed: u8) -> RootKey {
        RootKey(key(seed).public_key().as_ref().try_into().unwrap())
    }

    fn held(passes: &Passes) -> usize {
        passes.pinned(NOW).unwrap().verified.lock().len()
    }

    fn passes(seed: u8) -> Passes {
        Passes::new(Some(root_key(seed)), None)
    }

    fn pass(issued_at: i64, expires_at: i64) -> Pass {
        Pass {
            organization: OrganizationId(Uuid::from_u128(1)),
            agent: AGENT,
            holder: Actor::service("test"),
            access_as: AccessAs::Agent,
            grants: Vec::new(),
            audit: events::audit::AuditMode::default(),
            record_sessions: events::recording::RecordSessions::default(),
            issued_at: Timestamp(issued_at),
            expires_at: Timestamp(expires_at),
        }
    }

    fn signed(pass: &Pass) -> SignedPass {
        signed_by(1, pass)
    }

    fn signed_by(seed: u8, pass: &Pass) -> SignedPass {
        let pass = events::encode(pass).unwrap();
        let signature = key(seed).sign(&SignedPass::signed_text(Purpose::Requests, &pass)).as_ref().to_vec();
        SignedPass { pass, signature }
    }

    fn headers(pass: &SignedPass) -> HeaderMap {
        HeaderMap::from_iter([(PASS, pass_to_header(pass).unwrap())])
    }

    fn refused(passes: &Passes, headers: &HeaderMap, now: i64) -> PassFault {
        passes.admit(headers, Some(AGENT), now).expect_err("refused")
    }

    #[test]
    fn what_the_root_signed_for_this_agent_is_let_in_while_it_lives() {
        let passes = passes(1);
        let good = headers(&signed(&pass(NOW, NOW + 60_000)));
        for now in [NOW - 30_000, NOW, NOW + 60_000, NOW + 89_999] {
            assert_eq!(passes.admit(&good, Some(AGENT), now).unwrap().agent, AGENT, "{now}");
        }
        assert_eq!(held(&passes), 1);
        // Held ones are looked at as well.
        let PassFault::Ended { seconds: 31 } = refused(&passes, &good, NOW + 91_000) else { panic!() };
        let PassFault::NotBegun { seconds: 31 } = refused(&passes, &good, NOW - 31_000) else { panic!() };
        let other = passes.admit(&good, Some(AgentId(Uuid::nil())), NOW);
        assert!(matches!(other, Err(PassFault::AnotherAgent)));
        assert!(matches!(passes.admit(&good, None, NOW), Err(PassFault::NoAgent)));
    }

    #[test]
    fn passes_that_this_root_did_not_sign_are_refused() {
        let good = signed(&pass(NOW, NOW + 60_000));
        let fault = |passes: &Passes, headers: &HeaderMap| refused(passes, headers, NOW);
        let signature = |fault| matches!(fault, PassFault::NotSigned(PassError::Signature));
        assert!(signature(fault(&passes(2), &headers(&good))), "another root");
        for at in 0..good.pass.len() {
            let mut changed = good.clone();
            changed.pass[at] ^= 1;
            assert!(signature(fault(&passes(1), &headers(&changed))), "byte {at}");
        }
        for signature_of in [vec![0; 64], Vec::new(), good.signature[..63].to_vec()] {
            let changed = SignedPass { signature: signature_of, ..good.clone() };
            assert!(signature(fault(&passes(1), &headers(&changed))));
        }
        let unprefixed = SignedPass { signature: key(1).sign(&good.pass).as_ref().to_vec(), ..good.clone() };
        assert!(signature(fault(&passes(1), &headers(&unprefixed))), "a signature of something else");
        let mut two = headers(&good);
        two.append(PASS, pass_to_header(&good).unwrap());
        for none in [HeaderMap::new(), two] {
            assert!(matches!(fault(&passes(1), &none), PassFault::NoPass(_)));
        }
        assert!(matches!(fault(&Passes::new(None, None), &headers(&good)), PassFault::NoRootKey));
    }

    #[test]
    fn a_pass_for_requests_is_none_for_a_review_and_the_other_way_round() {
        let passes = passes(1);
        let body = events::encode(&pass(NOW, NOW + 60_000)).unwrap();
        let signed = |purpose| {
            let signature = key(1).sign(&SignedPass::signed_text(purpose, &body)).as_ref().to_vec();
            SignedPass { pass: body.clone(), signature }
        };
        let (request, review) = (signed(Purpose::Requests), signed(Purpose::Review));
        let reviewed = |pass: &SignedPass, agent, now| passes.admit_review(pass, &[], Some(agent), now);
        assert_eq!(reviewed(&review, AGENT, NOW).unwrap().agent, AGENT);
        passes.admit(&headers(&request), Some(AGENT), NOW).unwrap();
        let fault = reviewed(&request, AGENT, NOW);
        assert!(matches!(fault, Err(PassFault::NotSigned(PassError::Signature))), "{fault:?}");
        let fault = refused(&passes, &headers(&review), NOW);
        assert!(matches!(fault, PassFault::NotSigned(PassError::Signature)), "{fault}");
        let fault = reviewed(&review, AgentId(Uuid::nil()), NOW);
        assert!(matches!(fault, Err(PassFault::AnotherAgent)), "{fault:?}");
        assert!(matches!(reviewed(&review, AGENT, NOW + 91_000), Err(PassFault::Ended { .. })));
    }

    #[test]
    fn times_that_no_pass_has_are_refused_and_the_clock_is_named() {
        let fault = |issued, expires| refused(&passes(1), &headers(&signed(&pass(issued, expires))), NOW);
        assert!(matches!(fault(NOW, NOW + 60_001), PassFault::LivesTooLong));
        assert!(matches!(fault(i64::MIN, i64::MAX), PassFault::LivesTooLong));
        for fault in [fault(NOW - 95_000, NOW - 35_000), fault(NOW + 31_000, NOW + 32_000)] {
            assert!(fault.to_string().contains("clock"), "{fault}");
        }
    }

    #[test]
    fn only_so_many_are_held_and_those_that_ended_make_room() {
        let passes = passes(1);
        for number in 0..=MAXIMUM_HELD {
            let number = i64::try_from(number).unwrap();
            let one = headers(&signed(&pass(NOW - number, NOW + 10_000)));
            passes.admit(&one, Some(AGENT), NOW).unwrap();
        }
        assert_eq!(held(&passes), MAXIMUM_HELD);
        let later = NOW + 50_000;
        passes.admit(&headers(&signed(&pass(later, later + 60_000))), Some(AGENT), later).unwrap();
        assert_eq!(held(&passes), 1);
    }

    #[test]
    fn who_was_led_astray_comes_back_once_the_root_key_is_pinned_anew() {
        let folder = testkit::Folder::temporary().unwrap();
        let path = folder.path().join("root-key");
        let file = RootKeyFile::new(World::real(), path.clone(), root_key(1));
        let passes = Passes::new(Some(root_key(1)), Some(file));
        let linked = |number, former: u8, next: u8, now| {
            let public_key = key(next).public_key().as_ref().to_vec();
            let signature = key(former).sign(&RootLink::signed_text(number, &public_key)).as_ref().to_vec();
            let mut headers = headers(&signed_by(next, &pass(now, now + 60_000)));
            let links = [RootLink { number, public_key, signature }];
            headers.insert(ROOTS, roots_to_header(&links).unwrap().unwrap());
            headers
        };
        let pin = |seed: u8| std::fs::write(&path, STANDARD.encode(key(seed).public_key())).unwrap();
        let is_let_in = |headers: &HeaderMap, now| passes.admit(headers, Some(AGENT), now).is_ok();
        pin(1);
        // The thief has root 1 and vouches for a root of their own before anybody rotates.
        let thiefs = |now| linked(1, 1, 9, now);
        assert!(is_let_in(&thiefs(NOW), NOW));
        let later = NOW + RootLink::OVERLAP_MILLIS;
        let good = |now| linked(1, 1, 2, now);
        assert!(!is_let_in(&good(later), later), "led astray");
        let held = thiefs(later);
        assert!(is_let_in(&held, later) && is_let_in(&held, later + LOOK_EVERY_MILLIS));
        pin(2);
        assert!(is_let_in(&held, later + LOOK_EVERY_MILLIS + 1), "it was looked at a moment ago");
        let now = later + 2 * LOOK_EVERY_MILLIS;
        assert!(!is_let_in(&held, now), "what was verified before is looked at again");
        assert!(!is_let_in(&thiefs(now), now) && is_let_in(&good(now), now));
        // Links that lead on from the pinned one are followed, and the file that stays as it is takes nothing back.
        let next = linked(2, 2, 3, now);
        assert!(is_let_in(&next, now) && is_let_in(&next, now + LOOK_EVERY_MILLIS));
        assert!(is_let_in(&headers(&signed_by(3, &pass(now, now + 50_000))), now + 2 * LOOK_EVERY_MILLIS));
    }
}
