//! Repositories over HTTPS.

use std::net::{IpAddr, Ipv4Addr};

use events::repository::{FetchFailure, RepositoryEvent};
use testkit::{Authority, TlsFront};

use crate::harness::{Harness, config_map, source};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The harness' Git server behind TLS, and the file with the authority of its certificate.
fn secured(harness: &Harness, names: &[&str], addresses: &[IpAddr]) -> (TlsFront, std::path::PathBuf) {
    let authority = Authority::new("a Git server's").unwrap();
    let shown = authority.server(names, addresses).unwrap();
    let file = harness.folder().join("git-ca.crt");
    std::fs::write(&file, authority.certificate()).unwrap();
    (TlsFront::start(harness.git.address(), &shown).unwrap(), file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_of_an_authority_that_the_operator_names_is_read() {
    let mut harness = Harness::new().await;
    let (url, _tree, commit) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let (front, authority) = secured(&harness, &["localhost"], &[LOOPBACK]);
    harness.args.git_ca_file = Some(authority);
    for host in ["localhost", "127.0.0.1"] {
        let project = harness.project(&front.url(&url, host)).await;
        let agent = harness.agent(project).await;
        harness.configure(agent, vec![source(agent, host, project, &["a"])]).await;
    }
    let _running = harness.start().await;
    for (_, event) in harness.wait_said(2).await {
        let RepositoryEvent::SourceAdvanced(advanced) = event else { panic!("{event:?}") };
        assert_eq!(advanced.commit.to_string(), commit);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_not_trusted_says_what_to_do() {
    let harness = Harness::new().await;
    let (url, _tree, _) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let (front, _) = secured(&harness, &["localhost"], &[]);
    let said = failure(harness, &front.url(&url, "localhost")).await;
    assert!(said.contains("localhost comes from an authority") && said.contains("--git-ca-file"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_for_another_name_says_for_which() {
    let mut harness = Harness::new().await;
    let (url, _tree, _) = harness.repository("shop", &[("a/one.yaml", &config_map("one", "1"))]);
    let (front, authority) = secured(&harness, &["git.example"], &[]);
    harness.args.git_ca_file = Some(authority);
    let said = failure(harness, &front.url(&url, "localhost")).await;
    assert!(said.contains("localhost is not for that name, only for git.example"), "{said}");
}

async fn failure(harness: Harness, url: &str) -> String {
    let project = harness.project(url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["a"])]).await;
    let _running = harness.start().await;
    let said = harness.wait_said(1).await;
    let Some((_, RepositoryEvent::FetchFailed(failed))) = said.into_iter().next() else {
        panic!("no failure")
    };
    assert_eq!(failed.failure, FetchFailure::Unreachable);
    failed.message
}
