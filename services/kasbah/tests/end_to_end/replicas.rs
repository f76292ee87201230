//! Two replicas of everything on NATS: whoever is asked answers, and one that goes takes nothing with it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::{
    Balancer, Cluster, GitServer, Installation, InstallationOptions, NatsServer, Push, WorkTree, eventually,
};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::task::JoinHandle;

use crate::scene::{AGENT, LIMIT, PROJECT, Scene};

/// More than anybody creates while a test lasts.
const MOST_GROUPS: usize = 2000;

fn has(groups: &str, name: &str) -> anyhow::Result<()> {
    ensure!(groups.split_whitespace().any(|word| word == name), "{name} is not in {groups}");
    Ok(())
}

/// Two replicas behind a balancer, and an agent that dials it.
struct Replicas {
    one: Installation,
    two: Installation,
    tree: WorkTree,
    cluster: Cluster,
    namespace: String,
    git: GitServer,
    _balancer: Balancer,
    nats: NatsServer,
    _folder: tempfile::TempDir,
}

impl Replicas {
    async fn start() -> Self {
        let cluster = testkit::shared_control_plane().await.unwrap();
        let namespace = cluster.namespace("replicas", false).await.unwrap();
        let git = GitServer::start().unwrap();
        let url = git.create("deploy").unwrap();
        let tree = WorkTree::clone(&url).unwrap();
        let configuration = Scene::configuration(&namespace, "");
        tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration).unwrap();
        tree.commit_and_push("configure the agent").unwrap();
        let nats = NatsServer::start_as_shipped().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("master.key");
        std::fs::write(&key, [7; 32]).unwrap();
        let (one, two) = (testkit::free_port().unwrap(), testkit::free_port().unwrap());
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let balancer = Balancer::start(vec![at(one), at(two)]).unwrap();
        let options = |tunnel: u16| InstallationOptions {
            tunnel_port: Some(tunnel),
            agents_dial: Some(balancer.address().to_string()),
            server: ["--nats", &nats.shipped_url("kasbah"), "--master-key-file", &key.display().to_string()]
                .map(str::to_owned)
                .to_vec(),
            ..InstallationOptions::default()
        };
        let mut one = Installation::start(options(one)).await.unwrap();
        let two = Installation::start(options(two)).await.unwrap();
        // The owner's token is where the first replica was started.
        assert!(!two.data().join("owner-token").exists(), "a second token was issued");
        std::fs::copy(one.data().join("owner-token"), two.data().join("owner-token")).unwrap();
        two.cli(["project", "create", PROJECT, "--repository", &url]).unwrap();
        for replica in [&one, &two] {
            git.add_webhook("deploy", replica.webhook(PROJECT).unwrap()).unwrap();
        }
        one.register_agent(AGENT, PROJECT).unwrap();
        one.start_agent("agent", AGENT, cluster.kubeconfig(), &namespace).unwrap();
        Self { one, two, tree, cluster, namespace, git, _balancer: balancer, nats, _folder: folder }
    }

    /// Pushes a ConfigMap's value, and waits until the cluster has it; the commit.
    async fn push(&self, value: &str, asked: &Installation) -> String {
        let commit = self.begin_push(value);
        self.arrives(value, &commit, asked).await;
        commit
    }

    /// Pushes a ConfigMap's value; the commit.
    fn begin_push(&self, value: &str) -> String {
        self.tree.write("manifests/one.yaml", Scene::config_map("one", value)).unwrap();
        self.tree.commit_and_push(value).unwrap()
    }

    /// Waits until the cluster has what was pushed.
    async fn arrives(&self, value: &str, commit: &str, asked: &Installation) {
        let path = format!("/api/v1/namespaces/{}/configmaps/one", self.namespace);
        let why = || {
            asked
                .cli(["source", "show", &format!("{AGENT}/shop")])
                .unwrap_or_else(|error| format!("{error:#}"))
        };
        eventually(LIMIT, || async {
            let found = self.cluster.get(&path).await.with_context(why)?;
            let now = found.pointer("/data/value").and_then(Value::as_str).unwrap_or_default().to_owned();
            ensure!(now == value, "it is {now:?}, not {value:?}; {}", why());
            Ok(())
        })
        .await;
        eventually(LIMIT, || async {
            let source = asked.json(["source", "show", &format!("{AGENT}/shop")])?;
            ensure!(source["synced_commit"] == commit, "not at {commit}: {source:#}");
            Ok(())
        })
        .await;
    }
}

/// Groups that somebody creates one after the other, and which of these commands were acknowledged.
struct Creating {
    stop: Arc<AtomicBool>,
    running: JoinHandle<Vec<(String, bool)>>,
}

impl Creating {
    fn begin(at: &Installation) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let command = |number: usize| {
            let name = format!("group-{number}");
            let mut command = at.cli_command().unwrap();
            command.args(["group", "create", &name]);
            (name, command)
        };
        let commands: Vec<_> = (0..MOST_GROUPS).map(command).collect();
        let stopped = Arc::clone(&stop);
        let running = tokio::task::spawn_blocking(move || {
            let still = commands.into_iter().take_while(|_| !stopped.load(Ordering::Relaxed));
            still.map(|(name, mut command)| (name, command.output().unwrap().status.success())).collect()
        });
        Self { stop, running }
    }

    /// Ends it: those that were acknowledged, and whether some were not.
    async fn end(self) -> (BTreeSet<String>, bool) {
        self.stop.store(true, Ordering::Relaxed);
        let all = self.running.await.unwrap();
        let some_refused = all.iter().any(|(_, acknowledged)| !acknowledged);
        (
            all.into_iter().filter(|(_, acknowledged)| *acknowledged).map(|(name, _)| name).collect(),
            some_refused,
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_or_stopped_takes_nothing_with_it() {
    let mut replicas = Replicas::start().await;
    replicas.push("both run", &replicas.two).await;
    replicas.one.kill_server();
    replicas.push("one is killed", &replicas.two).await;
    replicas.one.start_server().await.unwrap();
    replicas.two.stop_server().unwrap();
    replicas.push("one is back, and the other stopped", &replicas.one).await;
    replicas.two.start_server().await.unwrap();
    replicas.push("both run again", &replicas.two).await;
    assert_eq!(replicas.one.json(["log", "verify"]).unwrap()["ok"], true);
    // Both replicas saw each push; each is one decision.
    let source = replicas.one.json(["source", "show", &format!("{AGENT}/shop")]).unwrap();
    let id = source["id"].as_str().unwrap();
    let history = replicas.two.json(["log", "show", &format!("source/{id}")]).unwrap();
    let events = history["events"].as_array().unwrap();
    let desired = events.iter().filter(|event| event["type"] == "kasbah.bundle.desired");
    let commits: Vec<&str> = desired.map(|event| event["data"]["commit"].as_str().unwrap()).collect();
    assert_eq!(commits.iter().collect::<BTreeSet<_>>().len(), commits.len(), "doubled: {commits:?}");
    assert!(commits.len() >= 4, "{history:#}");
}

/// As a forge tells of a push.
fn pushed(commit: &str) -> Push {
    Push {
        repository: "deploy".to_owned(),
        reference: "refs/heads/main".to_owned(),
        before: String::new(),
        after: commit.to_owned(),
        hook_started: SystemTime::now(),
    }
}

/// How NATS is away.
#[derive(Clone, Copy)]
enum Away {
    Killed,
    Silent,
}

/// `kasbah log tail -f`, which somebody leaves open.
struct Feed {
    lines: Lines<BufReader<ChildStdout>>,
    _tail: Child,
}

impl Feed {
    fn open(at: &Installation) -> Self {
        let mut tail = tokio::process::Command::from(at.cli_command().unwrap());
        tail.args(["log", "tail", "--follow", "-o", "json"]);
        let mut tail = tail.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        Self { lines: BufReader::new(tail.stdout.take().unwrap()).lines(), _tail: tail }
    }

    /// Waits until it says something of that.
    async fn says(&mut self, what: &str) {
        let said = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(what) {
                    return;
                }
            }
            panic!("the feed ended before it said anything of {what}");
        };
        tokio::time::timeout(LIMIT, said).await.unwrap_or_else(|_| panic!("the feed says nothing of {what}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_goes_on_across_a_restart_of_its_server() {
    let mut replicas = Replicas::start().await;
    let mut feed = Feed::open(&replicas.one);
    feed.says(&replicas.push("before", &replicas.one).await).await;
    replicas.one.stop_server().unwrap();
    let meanwhile = replicas.push("meanwhile", &replicas.two).await;
    replicas.one.start_server().await.unwrap();
    feed.says(&meanwhile).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nats_is_away_commands_end_soon_and_then_everything_goes_on() {
    nats_is_away(Away::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nats_is_silent_commands_end_soon_and_then_everything_goes_on() {
    nats_is_away(Away::Silent).await;
}

async fn nats_is_away(how: Away) {
    let mut replicas = Replicas::start().await;
    let mut feed = Feed::open(&replicas.one);
    feed.says(&replicas.push("before", &replicas.two).await).await;
    let creating = Creating::begin(&replicas.two);
    let webhook = replicas.one.webhook(PROJECT).unwrap();
    eventually(LIMIT, || async {
        replicas.one.cli(["group", "list"]).and_then(|groups| has(&groups, "group-2"))
    })
    .await;
    match how {
        Away::Killed => replicas.nats.kill(),
        Away::Silent => replicas.nats.freeze(),
    }
    for command in [
        &["project", "create", "later/project", "--repository", "https://git.test/x"][..],
        &["agent", "list"],
        &["source", "show", &format!("{AGENT}/shop")],
        &["log", "ls"],
    ] {
        // Each ends by itself, long before a client would give up.
        let mut asking = tokio::process::Command::from(replicas.one.cli_command().unwrap());
        let asking = asking.args(command).kill_on_drop(true).output();
        let refused = tokio::time::timeout(LIMIT / 2, asking).await.expect("it ends").unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("retry"), "{command:?}: {said}");
    }
    let meanwhile = replicas.begin_push("meanwhile");
    let told = webhook.call(pushed(&meanwhile), replicas.git.url("deploy"), Vec::new());
    let status = tokio::time::timeout(LIMIT / 2, told).await.expect("it is answered").unwrap();
    assert_eq!(status.as_u16(), 503, "a forge hears that it was not heard");
    // The agent still keeps what it has.
    let path = format!("/api/v1/namespaces/{}/configmaps/one", replicas.namespace);
    let deleted = replicas.cluster.send(http::Method::DELETE, &path, None).await.unwrap();
    assert!(deleted.status.is_success());
    eventually(LIMIT, || async {
        ensure!(replicas.cluster.exists(&path).await?, "drift is not corrected");
        Ok(())
    })
    .await;
    match how {
        Away::Killed => replicas.nats.start_again().await.unwrap(),
        Away::Silent => replicas.nats.thaw(),
    }
    // No webhook was heard; the repository is looked at all the same.
    replicas.arrives("meanwhile", &meanwhile, &replicas.one).await;
    // The same feed is still open.
    feed.says(&meanwhile).await;
    replicas.push("after", &replicas.one).await;
    replicas.push("and on the other", &replicas.two).await;
    let (acknowledged, some_refused) = creating.end().await;
    assert!(some_refused, "nothing was asked while nobody could answer");
    let groups = replicas.one.cli(["group", "list"]).unwrap();
    for group in acknowledged {
        has(&groups, &group).unwrap();
    }
    assert_eq!(replicas.one.json(["log", "verify"]).unwrap()["ok"], true);
    for replica in [&mut replicas.one, &mut replicas.two] {
        replica.server().unwrap().must_run().unwrap();
    }
}
