use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use events::Timestamp;
use rustls::server::ProducesTickets as _;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

const DAY: i64 = 24 * 3600 * 1000;
const NINETY_DAYS: Duration = Duration::from_secs(90 * 24 * 3600);

struct ShiftedClock(world::clock::SystemClock, AtomicI64);

#[async_trait]
impl Clock for ShiftedClock {
    fn now_millis(&self) -> i64 {
        self.0.now_millis() + self.1.load(Ordering::Relaxed)
    }
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration).await;
    }
}

fn shifted(millis: i64) -> World {
    World { clock: shifted_clock(millis), ..World::real() }
}

fn shifted_clock(millis: i64) -> Arc<ShiftedClock> {
    Arc::new(ShiftedClock(world::clock::SystemClock::new(), AtomicI64::new(millis)))
}

fn names() -> Vec<String> {
    vec!["kasbah.example".to_owned(), "*.tunnels.example".to_owned(), "127.0.0.1".to_owned()]
}

fn issued_at(authority: &Authority, now: i64) -> Arc<ServerCertificate> {
    let issued = authority.issue(&names(), Timestamp(now), NINETY_DAYS).unwrap();
    ServerCertificate::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap()
}

/// One handshake and one byte each way over a real socket; the client's error if it fails.
async fn shake(
    server: &Arc<ServerCertificate>,
    client: &World,
    ca: &[u8],
    host: &str,
) -> Result<(), std::io::Error> {
    let world = World::real();
    let listener = world.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let port = listener.local_address().unwrap().port();
    let acceptor = TlsAcceptor::from(server.config(&world, &[b"http/1.1"]).unwrap());
    let connector = TlsConnector::from(client_config_trusting(client, ca, &[b"http/1.1"]).unwrap());
    let serving = async {
        let (socket, _) = listener.accept().await.unwrap();
        if let Ok(mut stream) = acceptor.accept(socket).await {
            let byte = stream.read_u8().await.unwrap();
            stream.write_u8(byte + 1).await.unwrap();
        }
    };
    let dialling = async {
        let socket = world.network.dial("127.0.0.1", port).await.unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut stream = connector.connect(name, socket).await?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        stream.write_u8(41).await?;
        assert_eq!(stream.read_u8().await?, 42);
        Ok(())
    };
    tokio::join!(serving, dialling).1
}

fn trouble(outcome: Result<(), std::io::Error>, host: &str) -> (CertificateProblem, String) {
    let trouble = explain(&outcome.unwrap_err(), host).expect("an explanation");
    let text = trouble.to_string();
    (trouble, text)
}

#[tokio::test]
async fn the_right_authority_and_any_of_the_names_are_accepted() {
    let world = World::real();
    let authority = Authority::generate(Timestamp(world.clock.now_millis())).unwrap();
    let server = ServerCertificate::issued(&world, &authority, &names()).unwrap();
    for host in ["kasbah.example", "one.tunnels.example", "127.0.0.1"] {
        shake(&server, &world, authority.certificate().as_bytes(), host).await.unwrap();
    }
}

#[tokio::test]
async fn an_authority_that_was_kept_issues_what_its_old_clients_accept() {
    let world = World::real();
    let before = Authority::generate(Timestamp(world.clock.now_millis())).unwrap();
    let after = Authority::from_pem(before.certificate().to_owned(), &before.key()).unwrap();
    let server = ServerCertificate::issued(&world, &after, &names()).unwrap();
    shake(&server, &world, before.certificate().as_bytes(), "kasbah.example").await.unwrap();
}

#[tokio::test]
async fn a_wrong_authority_is_named_as_such() {
    let world = World::real();
    let now = Timestamp(world.clock.now_millis());
    let authority = Authority::generate(now).unwrap();
    let other = Authority::generate(now).unwrap();
    let server = ServerCertificate::issued(&world, &authority, &names()).unwrap();
    let outcome = shake(&server, &world, other.certificate().as_bytes(), "kasbah.example").await;
    let (trouble, text) = trouble(outcome, "kasbah.example");
    assert_eq!(trouble, CertificateProblem::WrongAuthority { host: "kasbah.example".to_owned() });
    assert!(text.contains("--ca-file"), "{text}");
}

#[tokio::test]
async fn an_expired_certificate_says_since_when() {
    let world = World::real();
    let now = world.clock.now_millis();
    let authority = Authority::generate(Timestamp(now - 200 * DAY)).unwrap();
    let server = issued_at(&authority, now - 100 * DAY);
    let outcome = shake(&server, &world, authority.certificate().as_bytes(), "kasbah.example").await;
    let (trouble, text) = trouble(outcome, "kasbah.example");
    let CertificateProblem::Expired { not_after: Some(end), .. } = trouble else { panic!("{trouble:?}") };
    assert_eq!(end.0 / 1000, (now - 10 * DAY) / 1000);
    assert!(text.contains("expired at ") && text.contains("clock"), "{text}");
}

#[tokio::test]
async fn what_is_open_outlives_its_certificate_and_nothing_new_comes_before_the_next_one() {
    let clock = shifted_clock(0);
    let world = World { clock: clock.clone(), ..World::real() };
    let now = world.clock.now_millis();
    let authority = Authority::generate(Timestamp(now)).unwrap();
    let server = issued_at(&authority, now);
    let acceptor = TlsAcceptor::from(server.config(&world, &[]).unwrap());
    let trusting = client_config_trusting(&world, authority.certificate().as_bytes(), &[]).unwrap();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from("kasbah.example").unwrap();
    let connector = TlsConnector::from(trusting);
    let (near, far) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    let (mut near, mut far) = (near.unwrap(), far.unwrap());

    clock.1.store(91 * DAY, Ordering::Relaxed);
    for byte in 0..10 {
        near.write_u8(byte).await.unwrap();
        near.flush().await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), byte, "it goes on");
    }
    let shaken =
        async |server| shake(&server, &world, authority.certificate().as_bytes(), "kasbah.example").await;
    let (trouble, _) = trouble(shaken(server).await, "kasbah.example");
    assert!(matches!(trouble, CertificateProblem::Expired { .. }), "{trouble:?}");
    shaken(issued_at(&authority, now + 90 * DAY)).await.unwrap();
}

#[tokio::test]
async fn a_client_clock_a_day_behind_is_told_to_set_its_clock() {
    let authority_world = World::real();
    let now = authority_world.clock.now_millis();
    let authority = Authority::generate(Timestamp(now - DAY * 30)).unwrap();
    let server = issued_at(&authority, now);
    let outcome = shake(&server, &shifted(-DAY), authority.certificate().as_bytes(), "kasbah.example").await;
    let (trouble, text) = trouble(outcome, "kasbah.example");
    let CertificateProblem::NotYetValid { not_before: Some(begin), now: Some(here), .. } = trouble else {
        panic!("{trouble:?}")
    };
    assert!(here < begin);
    assert!(text.contains("set this machine's clock"), "{text}");
}

#[tokio::test]
async fn a_client_clock_a_day_ahead_still_connects() {
    let world = World::real();
    let authority = Authority::generate(Timestamp(world.clock.now_millis())).unwrap();
    let server = ServerCertificate::issued(&world, &authority, &names()).unwrap();
    shake(&server, &shifted(DAY), authority.certificate().as_bytes(), "kasbah.example").await.unwrap();
}

#[tokio::test]
async fn a_wrong_host_name_is_shown_with_the_right_ones() {
    let world = World::real();
    let authority = Authority::generate(Timestamp(world.clock.now_millis())).unwrap();
    let server = ServerCertificate::issued(&world, &authority, &names()).unwrap();
    for host in ["kasbah.elsewhere", "127.0.0.2"] {
        let outcome = shake(&server, &world, authority.certificate().as_bytes(), host).await;
        let (trouble, text) = trouble(outcome, host);
        assert_eq!(trouble, CertificateProblem::WrongName { host: host.to_owned(), presented: names() });
        assert!(text.contains(&format!("--tls-name {host}")), "{text}");
    }
}

#[tokio::test]
async fn plain_text_is_recognized() {
    let world = World::real();
    let listener = world.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let port = listener.local_address().unwrap().port();
    let authority = Authority::generate(Timestamp(world.clock.now_millis())).unwrap();
    let config = client_config_trusting(&world, authority.certificate().as_bytes(), &[]).unwrap();
    let serving = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        socket
    };
    let dialling = async {
        let socket = world.network.dial("127.0.0.1", port).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(config).connect(name, socket).await.map(drop)
    };
    let (_socket, outcome) = tokio::join!(serving, dialling);
    assert_eq!(trouble(outcome, "127.0.0.1").0, CertificateProblem::NotTls { host: "127.0.0.1".to_owned() });
}

/// Real milliseconds plus what tokio's paused clock slept.
struct PausedClock(tokio::time::Instant, i64);

impl PausedClock {
    fn new() -> Self {
        Self(tokio::time::Instant::now(), World::real().clock.now_millis())
    }
}

#[async_trait]
impl Clock for PausedClock {
    fn now_millis(&self) -> i64 {
        self.1 + i64::try_from(self.0.elapsed().as_millis()).unwrap()
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_replaced_long_before_it_expires() {
    let world = World { clock: Arc::new(PausedClock::new()), ..World::real() };
    let authority = Arc::new(Authority::generate(Timestamp(world.clock.now_millis())).unwrap());
    let server = ServerCertificate::issued(&world, &authority, &names()).unwrap();
    let (trigger, shutdown) = crate::ShutdownTrigger::new();
    let renewing = Arc::clone(&server).keep_renewed(world.clone(), Arc::clone(&authority), names(), shutdown);
    let year = async {
        world.clock.sleep(Duration::from_secs(365 * 24 * 3600)).await;
        trigger.request();
    };
    tokio::join!(async { renewing.await.unwrap() }, year);
    let later = shifted(365 * DAY);
    shake(&server, &later, authority.certificate().as_bytes(), "kasbah.example").await.unwrap();
}

#[test]
fn a_ca_file_without_a_certificate_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    let missing = client_config(&World::real(), Some(&path), &[]).unwrap_err().to_string();
    assert!(missing.starts_with(&format!("cannot read {}: ", path.display())), "{missing}");
    std::fs::write(&path, "not a certificate").unwrap();
    let empty = client_config(&World::real(), Some(&path), &[]).unwrap_err().to_string();
    assert_eq!(empty, format!("{} holds no certificate in PEM form", path.display()));
}

#[test]
fn a_name_that_is_none_is_refused() {
    let authority = Authority::generate(Timestamp(World::real().clock.now_millis())).unwrap();
    for name in ["", "no spaces", "http://x", "-"] {
        let outcome = authority.issue(&[name.to_owned()], Timestamp(0), NINETY_DAYS);
        assert!(matches!(outcome, Err(TlsError::BadName { .. })), "{name}");
    }
}

fn write(files: &CertificateFiles, issued: &Issued) {
    std::fs::write(&files.key, issued.key.as_bytes()).unwrap();
    std::fs::write(&files.certificate, issued.certificate.as_bytes()).unwrap();
}

fn given(folder: &std::path::Path) -> CertificateFiles {
    CertificateFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") }
}

#[tokio::test(start_paused = true)]
async fn files_that_change_are_shown_and_what_is_of_no_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let files = given(folder.path());
    let world = World { clock: Arc::new(PausedClock::new()), ..World::real() };
    let now = Timestamp(world.clock.now_millis());
    let authorities = [Authority::generate(now).unwrap(), Authority::generate(now).unwrap()];
    let [first, second] = authorities.each_ref().map(|authority| authority.issue(&names(), now, NINETY_DAYS));
    let second = second.unwrap();
    write(&files, &first.unwrap());
    let server = ServerCertificate::from_files(&world, &files).unwrap();
    let (trigger, shutdown) = crate::ShutdownTrigger::new();
    let reading = Arc::clone(&server).keep_reading(world.clone(), files.clone(), shutdown);
    let accepted_by = async |authority: &Authority| {
        let ca = authority.certificate().as_bytes();
        shake(&server, &World::real(), ca, "kasbah.example").await.is_ok()
    };
    let changing = async {
        let minute = || world.clock.sleep(Duration::from_secs(60));
        std::fs::write(&files.certificate, second.certificate.as_bytes()).unwrap();
        minute().await;
        assert!(accepted_by(&authorities[0]).await, "half of a change is none");
        std::fs::remove_file(&files.key).unwrap();
        minute().await;
        assert!(accepted_by(&authorities[0]).await, "what is gone is not shown");
        write(&files, &second);
        minute().await;
        assert!(accepted_by(&authorities[1]).await);
        trigger.request();
    };
    tokio::join!(async { reading.await.unwrap() }, changing);
}

#[test]
fn files_that_do_not_fit_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (files, world) = (given(folder.path()), World::real());
    let refused = || ServerCertificate::from_files(&world, &files).unwrap_err().to_string();
    let (certificate, key) = (files.certificate.display(), files.key.display());
    assert!(refused().starts_with(&format!("cannot read {certificate}: ")));
    let now = Timestamp(world.clock.now_millis());
    let authority = Authority::generate(now).unwrap();
    write(&files, &authority.issue(&names(), now, NINETY_DAYS).unwrap());
    let other = authority.issue(&names(), now, NINETY_DAYS).unwrap();
    std::fs::write(&files.key, other.key.as_bytes()).unwrap();
    assert_eq!(refused(), format!("{key} is not the private key of {certificate}"));
    std::fs::write(&files.key, "nothing").unwrap();
    assert_eq!(refused(), format!("{key} holds no private key in PEM form"));
    std::fs::write(&files.certificate, "nothing").unwrap();
    assert_eq!(refused(), format!("{certificate} holds no certificate in PEM form"));
}

#[test]
fn a_certificate_says_when_it_ends() {
    let now = World::real().clock.now_millis();
    let authority = Authority::generate(Timestamp(now)).unwrap();
    let certificate = issued_at(&authority, now);
    assert_eq!(certificate.ends_at(), Some(now / 1000 + i64::try_from(NINETY_DAYS.as_secs()).unwrap()));
    let metrics = crate::Metrics::new();
    certificate.show_end(&metrics);
    let shown =
        format!("kasbah_tls_certificate_expiry_timestamp_seconds {}\n", certificate.ends_at().unwrap());
    assert!(metrics.encode().contains(&shown), "{}", metrics.encode());
}

/// No server's name, TLS 1.3, and the rest.
const SESSION: &[u8] = b"\x00\x03\x04 and the rest";

#[test]
fn a_ticket_is_good_for_a_week_at_each_server_with_the_same_secret() {
    let of = |secret: &[u8], days: i64| SharedTickets::new(&shifted(days * DAY), secret);
    let sealed = of(b"one", 0).encrypt(SESSION).unwrap();
    for (days, expected) in [(-2, None), (-1, Some(SESSION.to_vec())), (7, Some(SESSION.to_vec())), (8, None)]
    {
        assert_eq!(of(b"one", days).decrypt(&sealed), expected, "after {days} days");
    }
    let named = b"\x01\x03abc\x03\x04";
    assert_eq!(of(b"one", 0).decrypt(&of(b"one", 0).encrypt(named).unwrap()), Some(named.to_vec()));
    for other in
        [&b"\x00\x03\x03"[..], b"\x01\x03abc\x03\x03", b"\x01\x09abc\x03\x04", b"\x02\x03\x04", b"\x01", b""]
    {
        assert_eq!(of(b"one", 0).encrypt(other), None, "{other:?}");
    }
    assert_eq!(of(b"one", 0).lifetime(), 7 * 24 * 3600);
    assert_eq!(of(b"two", 0).decrypt(&sealed), None);
    assert_ne!(of(b"one", 0).encrypt(SESSION).unwrap(), sealed, "two are never alike");
    for at in 0..sealed.len() {
        let mut flipped = sealed.clone();
        flipped[at] ^= 1;
        assert_eq!(of(b"one", 0).decrypt(&flipped), None, "at {at}");
    }
    assert_eq!(of(b"one", 0).decrypt(&sealed[..19]), None);
}
