//! What kubectl shows where it gets no further: no agent, an agent that refuses, a user who was disabled.

use std::time::{Duration, Instant};

use testkit::eventually;

use crate::cluster_api::{Person, let_in};
use crate::scene::{AGENT, LIMIT, Scene};

/// kubectl looks for groups of kinds a few times; with a time to come back at it would take most of a minute.
const AT_ONCE: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_at_once_why_it_gets_no_further() {
    let mut scene = Scene::start().await;
    let_in(&scene, "").await;
    let namespace = scene.namespace.clone();
    let lists = ["get", "configmaps", "-n", &namespace];
    let owner = Person::owner(&scene.kasbah, AGENT);
    eventually(LIMIT, || owner.kubectl(&lists)).await;
    scene.kasbah.kill_agent("agent");

    // One who was there a moment ago is waited for, and then no more.
    owner.refused(&lists).await;
    for person in [&owner, &Person::owner(&scene.kasbah, AGENT)] {
        let began = Instant::now();
        let said = person.refused(&lists).await;
        assert!(said.contains("the agent is not connected"), "{said}");
        assert!(began.elapsed() < AT_ONCE, "{:?}: {said}", began.elapsed());
    }

    let key = scene.kasbah.token_file(AGENT).with_file_name(format!("{AGENT}.root-key"));
    std::fs::rename(&key, key.with_extension("elsewhere")).unwrap();
    let kubeconfig = scene.cluster.kubeconfig().to_owned();
    scene.kasbah.start_agent("agent", AGENT, &kubeconfig, &namespace).unwrap();
    let fresh = Person::owner(&scene.kasbah, AGENT);
    eventually(LIMIT, || async {
        let said = fresh.refused(&lists).await;
        if said.contains("pins no root key") { Ok(()) } else { Err(said) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_open_ends_when_its_user_is_disabled() {
    let scene = Scene::start().await;
    let_in(&scene, "").await;
    let namespace = scene.namespace.clone();
    scene.kasbah.cli(["user", "create", "ann", "--role", "developer"]).unwrap();
    let issue = ["token", "issue", "--user", "ann", "--name", "laptop", "--token-only"];
    let token = scene.kasbah.cli(issue).unwrap();
    let mut ann = Person::owner(&scene.kasbah, AGENT);
    ann.holds(token.trim());
    let lists = ["get", "configmaps", "-n", &namespace];
    eventually(LIMIT, || ann.kubectl(&lists)).await;
    let (mut watch, mut lines) = ann.start(&["get", "configmaps", "-n", &namespace, "--watch"]);
    assert!(tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().is_some());
    let said = scene.kasbah.cli(["user", "disable", "ann"]).unwrap();
    assert!(said.contains("disabled"), "{said}");
    tokio::time::timeout(LIMIT, watch.wait()).await.expect("the watch ends").unwrap();
    let refused = ann.refused(&lists).await;
    assert!(
        refused.contains("Unauthorized") || refused.contains("logged in") || refused.contains("credentials"),
        "{refused}"
    );
}
