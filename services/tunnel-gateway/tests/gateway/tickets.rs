//! Who comes back resumes its TLS.

use std::sync::Arc;

use chassis::{Metrics, ShutdownTrigger};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use store::embedded::Options;
use testkit::eventually;
use tunnel::agent::{Target, Transport};
use tunnel_gateway::Deps;

use super::agent::TestAgent;
use super::harness::{Gateway, LIMIT, args, instance, ready, secret, spawn, tls};

/// Another gateway of the same installation, with a certificate of its own.
struct Other {
    port: u16,
    metrics: Metrics,
    _stop: ShutdownTrigger,
}

impl Other {
    async fn start(first: &Gateway, change: impl FnOnce(Deps) -> Deps) -> Self {
        let (tls, _) = tls(&first.world, &first.authority);
        let deps = change(Deps { tls: Some(tls), ..first.plain_text_deps().await });
        let (readiness, metrics) = (deps.readiness.clone(), deps.metrics.clone());
        let port = deps.listener.local_address().unwrap().port();
        let (stop, shutdown) = ShutdownTrigger::new();
        spawn(tunnel_gateway::run(args(), deps, shutdown));
        eventually(LIMIT, || async { ready(&readiness) }).await;
        Self { port, metrics, _stop: stop }
    }

    fn target(&self, like: &Target) -> Target {
        Target { port: self.port, ..like.clone() }
    }

    fn counted(&self, tls: &str) -> bool {
        self.metrics
            .encode()
            .contains(&format!("kasbah_tunnel_gateway_connections_total{{tls=\"{tls}\"}} 1\n"))
    }
}

async fn comes_and_goes(gateway: &Gateway, target: &Target) {
    let agent = TestAgent::connect(&gateway.world, target, &secret(1), instance(1)).await;
    agent.link.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_resumes_at_whichever_gateway_it_finds() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let other = Other::start(&gateway, |deps| deps).await;
    comes_and_goes(&gateway, &gateway.target()).await;
    comes_and_goes(&gateway, &other.target(&gateway.target())).await;
    assert!(other.counted("resumed"), "{}", other.metrics.encode());

    // Of another installation nobody has tickets: TLS begins from the beginning.
    let folder = tempfile::tempdir().unwrap();
    let keys = store::embedded::open(&gateway.world, folder.path(), Options::default()).unwrap().keys;
    let stranger = Other::start(&gateway, |deps| Deps { keys, ..deps }).await;
    comes_and_goes(&gateway, &stranger.target(&gateway.target())).await;
    assert!(stranger.counted("full"), "{}", stranger.metrics.encode());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_an_older_version_comes_in_and_gets_no_ticket() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(gateway.authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let older = Target { transport: Transport::Tls(Arc::new(client)), ..gateway.target() };
    comes_and_goes(&gateway, &older).await;
    let other = Other::start(&gateway, |deps| deps).await;
    comes_and_goes(&gateway, &other.target(&older)).await;
    assert!(other.counted("full"), "{}", other.metrics.encode());
}
