//! What goes wrong between agent and server, and what the agent says about it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use events::Timestamp;
use serde_json::Value;
use testkit::{Authority, eventually};

use crate::scene::{AGENT, LIMIT, PROJECT, Scene};

/// Waits until an agent's log has every one of these words in one line.
async fn agent_says(scene: &mut Scene, instance: &str, words: &[&str]) -> String {
    let log = scene.kasbah.agent(instance).unwrap().log().to_owned();
    eventually(LIMIT, || async {
        let text = std::fs::read_to_string(&log)?;
        let found = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
        found.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("no line with {words:?} in:\n{text}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_closes_the_tunnel_within_a_second_and_is_not_hammered_with() {
    let mut scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let commit = scene.tree.commit_and_push("one").unwrap();
    scene.synced(&commit).await;
    let tokens = scene.kasbah.json(["token", "list", "--agent", AGENT]).unwrap();
    let token = tokens[0]["id"].as_str().unwrap().to_owned();
    scene.kasbah.cli(["token", "revoke", &token]).unwrap();
    let revoked = Instant::now();
    let events = eventually(LIMIT, || async {
        let events = scene.kasbah.cli(["log", "tail", "-o", "json"])?;
        ensure!(events.contains("tunnel-closed"), "no tunnel was closed:\n{events}");
        Ok(events)
    })
    .await;
    println!("closed after {:?} with the command line's own time", revoked.elapsed());
    let time = |event_type: &str| {
        let line = events.lines().rev().find(|line| line.contains(event_type)).unwrap();
        let event: Value = serde_json::from_str(line).unwrap();
        let text = event["time"].as_str().unwrap().to_owned();
        text.parse::<jiff::Timestamp>().unwrap()
    };
    let after = time("tunnel-closed").duration_since(time("token.revoked"));
    assert!(after.as_millis() < 1_000, "the tunnel lived on for {after:?}");
    agent_says(&mut scene, "agent", &["revoked"]).await;
    let refused = || {
        let events = scene.kasbah.cli(["log", "tail", "-o", "json"]).unwrap();
        events.lines().filter(|line| line.contains("tunnel-refused")).count()
    };
    assert!(refused() <= 2, "the agent knocks again and again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_authority_is_named_and_what_to_do_about_it() {
    let mut scene = Scene::start().await;
    let other = Authority::new("somebody else").unwrap();
    let file = scene.kasbah.data().join("other-ca.crt");
    std::fs::write(&file, other.certificate()).unwrap();
    let kubeconfig = scene.cluster.kubeconfig().to_owned();
    let namespace = scene.namespace.clone();
    let mut command = scene.kasbah.agent_command(AGENT, &kubeconfig, &namespace).unwrap();
    command.arg("--ca-file").arg(&file);
    scene.kasbah.start_agent_by("distrustful", command).unwrap();
    let line = agent_says(&mut scene, "distrustful", &["authority"]).await;
    assert!(line.contains("--ca-file"), "{line}");
}

/// A certificate that somebody else's authority issues, for `names` and from `begins` days from now on for one day, put where
/// `kasbah up` reads it.
struct OwnCertificate {
    authority: chassis::tls::Authority,
    folder: PathBuf,
}

impl OwnCertificate {
    const DAY: i64 = 24 * 3600 * 1000;

    fn now() -> Timestamp {
        Timestamp(world::World::real().clock.now_millis())
    }

    fn new(folder: PathBuf) -> Self {
        let long_ago = Self::now().plus_millis(-30 * Self::DAY);
        let own = Self { authority: chassis::tls::Authority::generate(long_ago).unwrap(), folder };
        std::fs::write(own.file("own-ca.crt"), own.authority.certificate()).unwrap();
        own
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn put(&self, names: &[&str], begins: i64) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let moment = Self::now().plus_millis(begins * Self::DAY);
        let issued = self.authority.issue(&names, moment, Duration::from_secs(24 * 3600)).unwrap();
        std::fs::write(self.file("own.key"), issued.key.as_bytes()).unwrap();
        std::fs::write(self.file("own.crt"), issued.certificate.as_bytes()).unwrap();
    }

    fn options(&self) -> Vec<String> {
        let option = |name: &str, file: &str| format!("--tls-{name}-file={}", self.file(file).display());
        vec![
            option("certificate", "own.crt"),
            option("key", "own.key"),
            option("ca", "own-ca.crt"),
            "--tls-name=localhost".to_owned(),
        ]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_trouble_with_the_servers_own_certificate_is_named_and_ends_when_it_is_mended() {
    let mut scene = Scene::start().await;
    let kubeconfig = scene.cluster.kubeconfig().to_owned();
    let namespace = scene.namespace.clone();
    scene.kasbah.stop_agent("agent").unwrap();
    scene.kasbah.stop_server().unwrap();
    let own = OwnCertificate::new(scene.kasbah.data());
    own.put(&["localhost", "127.0.0.1"], -2);
    scene.kasbah.start_server_with(own.options()).await.unwrap();
    let said = scene.kasbah.cli(["source", "list"]).unwrap_err().to_string();
    assert!(said.contains("the certificate of localhost expired at"), "{said}");
    let troubles: [(&str, &[&str], i64, &str); 3] = [
        ("expired", &["localhost", "127.0.0.1"], -2, "the certificate of 127.0.0.1 expired at"),
        ("early", &["localhost", "127.0.0.1"], 1, "is not valid yet"),
        ("misnamed", &["kasbah.example"], 0, "is not for 127.0.0.1, only for kasbah.example"),
    ];
    for (instance, names, begins, words) in troubles {
        own.put(names, begins);
        scene.kasbah.start_agent(instance, AGENT, &kubeconfig, &namespace).unwrap();
        agent_says(&mut scene, instance, &[words]).await;
    }
    own.put(&["localhost", "127.0.0.1"], 0);
    // One of those who failed until now; each waits for its own time.
    let logs =
        ["expired", "early", "misnamed"].map(|name| scene.kasbah.agent(name).unwrap().log().to_owned());
    eventually(LIMIT, || async {
        let opened = logs
            .iter()
            .any(|log| std::fs::read_to_string(log).is_ok_and(|text| text.contains("tunnel open")));
        ensure!(opened, "nobody came back");
        Ok(())
    })
    .await;
    scene.write_config_map("one", "1");
    scene.tree.commit_and_push("one").unwrap();
    scene.value_becomes("one", "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_starts_before_its_server_connects_once_it_is_there() {
    let mut scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let commit = scene.tree.commit_and_push("one").unwrap();
    scene.synced(&commit).await;
    scene.kasbah.stop_agent("agent").unwrap();
    scene.kasbah.stop_server().unwrap();
    let kubeconfig = scene.cluster.kubeconfig().to_owned();
    scene.kasbah.start_agent("early", AGENT, &kubeconfig, &scene.namespace.clone()).unwrap();
    agent_says(&mut scene, "early", &["127.0.0.1"]).await;
    scene.kasbah.start_server().await.unwrap();
    scene.write_config_map("one", "2");
    scene.tree.commit_and_push("two").unwrap();
    scene.value_becomes("one", "2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_instances_one_applies_and_the_other_takes_over() {
    let mut scene = Scene::start().await;
    let kubeconfig = scene.cluster.kubeconfig().to_owned();
    let namespace = scene.namespace.clone();
    scene.write_config_map("one", "1");
    let commit = scene.tree.commit_and_push("one").unwrap();
    scene.synced(&commit).await;
    scene.kasbah.start_agent("second", AGENT, &kubeconfig, &namespace).unwrap();
    let tunnels = eventually(LIMIT, || async {
        let tunnels = scene.kasbah.json(["agent", "show", AGENT])?["tunnels"].clone();
        ensure!(tunnels.as_array().is_some_and(|tunnels| tunnels.len() == 2), "{tunnels}");
        Ok(tunnels)
    })
    .await;
    let appliers = tunnels.as_array().unwrap().iter().filter(|tunnel| tunnel["applier"] == true).count();
    assert_eq!(appliers, 1, "{tunnels}");

    scene.kasbah.stop_agent("agent").unwrap();
    let stopped = Instant::now();
    scene.write_config_map("one", "2");
    scene.tree.commit_and_push("two").unwrap();
    scene.value_becomes("one", "2").await;
    println!("took over {:?} after SIGTERM", stopped.elapsed());

    scene.kasbah.start_agent("third", AGENT, &kubeconfig, &namespace).unwrap();
    agent_says(&mut scene, "third", &["tunnel open"]).await;
    scene.kasbah.kill_agent("second");
    let killed = Instant::now();
    scene.write_config_map("one", "3");
    scene.tree.commit_and_push("three").unwrap();
    scene.value_becomes("one", "3").await;
    println!("took over {:?} after kill -9", killed.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_token_opens_no_tunnel_and_shows_nothing() {
    let scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let commit = scene.tree.commit_and_push("one").unwrap();
    scene.synced(&commit).await;
    let created = scene.kasbah.json(["organization", "create", "strangers", "--owner", "mallory"]).unwrap();
    let token = created.pointer("/owner_token/secret").and_then(Value::as_str).unwrap().to_owned();
    for arguments in [
        vec!["source", "list", "-o", "json"],
        vec!["agent", "list", "-o", "json"],
        vec!["project", "list", "-o", "json"],
        vec!["log", "tail", "-o", "json"],
    ] {
        let output = scene
            .kasbah
            .cli_command()
            .unwrap()
            .args(&arguments)
            .env("KASBAH_TOKEN", &token)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(
            !text.contains(AGENT) && !text.contains(PROJECT) && !text.contains(&commit),
            "{arguments:?}: {text}"
        );
    }
    let shown = scene
        .kasbah
        .cli_command()
        .unwrap()
        .args(["source", "show", "production/shop"])
        .env("KASBAH_TOKEN", &token)
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(3), "not found");
}
