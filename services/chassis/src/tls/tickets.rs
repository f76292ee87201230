//! Tickets by which who was here resumes TLS.

use std::sync::Arc;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use rustls::ServerConfig;
use rustls::server::ProducesTickets;
use world::World;

/// For how long a ticket is good, in days: the most that RFC 8446, section 4.6.1, allows.
const GOOD_DAYS: u32 = 7;
const DAY_SECONDS: u32 = 24 * 3600;

/// Seals tickets (RFC 8446, section 4.6.1) under keys that all servers with the same secret have, one for each day, so that who comes
/// back resumes at whichever of them it finds. For TLS 1.3 only, in which each connection agrees on new keys all the same: of TLS 1.2
/// a ticket holds what a recorded connection is read with.
///
/// ```text
/// 0   8  the day, since 1970 and in UTC, big-endian
/// 8   12 nonce
/// 20     ChaCha20-Poly1305 over the session, with the day as associated data
/// ```
pub struct SharedTickets {
    world: World,
    secret: hkdf::Prk,
}

impl std::fmt::Debug for SharedTickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedTickets")
    }
}

impl SharedTickets {
    /// Tickets of all who have this secret.
    #[must_use]
    pub fn new(world: &World, secret: &[u8]) -> Arc<Self> {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"kasbah tickets").extract(secret);
        Arc::new(Self { world: world.clone(), secret })
    }

    /// The same configuration, giving out one ticket to each who comes in.
    #[must_use]
    pub fn given_out_by(self: Arc<Self>, config: Arc<ServerConfig>) -> Arc<ServerConfig> {
        let mut config = Arc::unwrap_or_clone(config);
        config.send_tls13_tickets = 1;
        config.ticketer = self;
        Arc::new(config)
    }

    fn today(&self) -> i64 {
        self.world.clock.now_millis().div_euclid(i64::from(DAY_SECONDS) * 1000)
    }

    fn key(&self, day: [u8; 8]) -> Option<LessSafeKey> {
        let of_day = [day.as_slice()];
        let key = self.secret.expand(&of_day, &CHACHA20_POLY1305).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(key)))
    }
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        GOOD_DAYS * DAY_SECONDS
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        if !is_of_1_3(session) {
            return None;
        }
        let day = self.today().to_be_bytes();
        let mut nonce = [0_u8; 12];
        self.world.random.fill(&mut nonce);
        let mut sealed = session.to_vec();
        let key = self.key(day)?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(day), &mut sealed)
            .ok()?;
        Some([day.as_slice(), &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (day, rest) = ticket.split_first_chunk::<8>()?;
        let (nonce, sealed) = rest.split_first_chunk::<12>()?;
        let today = self.today();
        // Another server's clock may be ahead.
        if !(today - i64::from(GOOD_DAYS)..=today + 1).contains(&i64::from_be_bytes(*day)) {
            return None;
        }
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key(*day)?.open_in_place(nonce, Aad::from(*day), &mut sealed).ok()?.len();
        sealed.truncate(length);
        Some(sealed)
    }
}

/// Whether a session is of TLS 1.3. As rustls writes it, it begins with the server's name, if the client said one, and the version.
fn is_of_1_3(session: &[u8]) -> bool {
    let behind_name = match session.split_first() {
        Some((0, rest)) => Some(rest),
        Some((1, rest)) => rest.split_first().and_then(|(length, rest)| rest.get(usize::from(*length)..)),
        _ => None,
    };
    behind_name.is_some_and(|rest| rest.starts_with(&[3, 4]))
}
