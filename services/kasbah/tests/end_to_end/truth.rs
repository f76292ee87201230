//! The status of a source beside the truth in its cluster, at every step of a run in which things go wrong: it never says that all is well
//! while something is not, and says so again once it is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Folder, Proxy, eventually};

use crate::scene::{AGENT, LIMIT, Scene};

/// A fact that was reported is in the status by then, and so is its end.
const REPORTED: Duration = Duration::from_secs(5);
/// An agent that says nothing is missed by then.
const SILENCE: Duration = Duration::from_secs(35);
/// For so long a wrong state is watched.
const WATCHED: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(200);

/// What is so, found out without the server.
struct Truth {
    scene: Scene,
    way: Proxy,
    kubeconfig: PathBuf,
    _folder: Folder,
    /// What Git has, by ConfigMap.
    values: BTreeMap<String, String>,
    /// The container's image, where a Deployment is in Git.
    image: Option<String>,
    runs: bool,
    reaches: bool,
    good_head: bool,
    /// Who held the Lease when the agent died.
    former: String,
    delays: Vec<(String, Duration)>,
}

impl Truth {
    async fn begin() -> Self {
        let cluster = testkit::shared_control_plane().await.unwrap();
        let upstream = cluster.server().trim_start_matches("https://").parse().unwrap();
        let way = Proxy::start(upstream).unwrap();
        let folder = Folder::temporary().unwrap();
        let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", way.address()));
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let mut scene = Scene::start_on(cluster, "    policies: {health_timeout: 10s}\n").await;
        scene.kasbah.stop_agent("agent").unwrap();
        let (values, delays) = (BTreeMap::new(), Vec::new());
        let mut truth = Self {
            scene,
            way,
            kubeconfig,
            _folder: folder,
            values,
            image: None,
            runs: false,
            reaches: true,
            good_head: true,
            former: String::new(),
            delays,
        };
        truth.start_agent();
        truth
    }

    fn start_agent(&mut self) {
        let namespace = self.scene.namespace.clone();
        self.scene.kasbah.start_agent("agent", AGENT, &self.kubeconfig, &namespace).unwrap();
        self.runs = true;
    }

    fn map(&mut self, name: &str, value: &str) {
        self.scene.write_config_map(name, value);
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// A Deployment whose pods find a node, or none.
    fn deployment(&mut self, image: &str, selector: &str) {
        let text = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 1\n  selector:\n    matchLabels: {{app: web}}\n  template:\n    metadata:\n      labels: {{app: web}}\n    spec:\n      {selector}\n      containers:\n        - {{name: web, image: \"{image}\"}}\n"
        );
        self.scene.tree.write("manifests/web.yaml", text).unwrap();
        self.image = Some(image.to_owned());
    }

    fn push(&self, message: &str) -> String {
        self.scene.tree.commit_and_push(message).unwrap()
    }

    async fn holder(&self) -> Result<String> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.scene.namespace);
        let leases = self.scene.cluster.get(&path).await?;
        Ok(leases["items"][0]["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
    }

    /// Whether everything is as Git has it, healthy, and looked after; else what is not.
    async fn is_well(&self) -> Result<()> {
        ensure!(self.runs, "the agent does not run");
        ensure!(self.reaches, "the agent does not reach its API server");
        ensure!(self.good_head, "the newest commit is rejected");
        let holder = self.holder().await?;
        ensure!(!holder.is_empty() && holder != self.former, "no living instance holds the Lease");
        for (name, value) in &self.values {
            let found = self.scene.cluster.get(&self.scene.path(name)).await?;
            ensure!(found["data"]["value"] == value.as_str(), "{name} is another: {found}");
        }
        let Some(image) = &self.image else { return Ok(()) };
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/web", self.scene.namespace);
        let web = self.scene.cluster.get(&path).await?;
        ensure!(web["spec"]["template"]["spec"]["containers"][0]["image"] == image.as_str(), "another image");
        ensure!(
            web["status"]["observedGeneration"] == web["metadata"]["generation"],
            "not seen by its controller"
        );
        for count in ["replicas", "updatedReplicas", "availableReplicas"] {
            ensure!(web["status"][count] == 1, "{count} of web: {}", web["status"]);
        }
        Ok(())
    }

    fn status(&self) -> Result<Value> {
        Ok(self.scene.source()?["status"].clone())
    }

    /// The status, and in how many of the three ways it is claimed that all is well: by the headline, by every condition, and to
    /// a pipeline that waits for it.
    fn claims(&self) -> Result<(Value, usize)> {
        let status = self.status()?;
        let named = format!("{AGENT}/shop");
        let wait = ["source", "wait", &named, "--for", "healthy", "--timeout", "1ms"];
        let is_healthy = self.scene.kasbah.cli(wait).is_ok();
        let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let are_well = conditions.iter().all(|condition| condition["state"] == "in-sync");
        let claims = [status["state"] == "in-sync", are_well, is_healthy];
        Ok((status, claims.into_iter().filter(|claimed| *claimed).count()))
    }

    /// Waits until so many claims are made, and gives that status. A status that is asked for later than the limit has to make them.
    async fn claimed(&self, what: &str, expected: usize, since: Instant, limit: Duration) -> Value {
        loop {
            let late = since.elapsed();
            let (status, claims) = self.claims().unwrap();
            if claims == expected {
                return status;
            }
            assert!(
                late <= limit,
                "{what}: {late:?} later it makes {claims} claims, not {expected}: {status:#}"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Something is not well from now on: the status says so in time, and goes on saying so while it is not.
    async fn breaks(&mut self, what: &str, limit: Duration) -> Value {
        let began = Instant::now();
        eventually(LIMIT, || async {
            match self.is_well().await {
                Ok(()) => bail!("{what}: all is well"),
                Err(_) => Ok(()),
            }
        })
        .await;
        let bad = Instant::now();
        let status = self.claimed(what, 0, bad, limit).await;
        self.delays.push((format!("{what}: said so"), bad.elapsed()));
        println!(
            "{what}: not well after {:?}, said {:?} later: {}",
            bad - began,
            bad.elapsed(),
            status["message"]
        );
        let watched = Instant::now();
        while watched.elapsed() < WATCHED {
            let (status, claims) = self.claims().unwrap();
            let is_well = self.is_well().await;
            assert!(
                is_well.is_ok() || claims == 0,
                "{what}: {:?}, and it makes {claims} claims: {status:#}",
                is_well.err()
            );
            tokio::time::sleep(PAUSE).await;
        }
        status
    }

    /// Waits until the status says why.
    async fn because(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(LIMIT, || async {
            let status = self.status()?;
            ensure!(is(&status), "{what}: not {status:#}");
            Ok(status)
        })
        .await
    }

    /// Once all is well the status says so in time, and not before.
    async fn mends(&mut self, what: &str) {
        let end = Instant::now() + LIMIT;
        let good = loop {
            let (said, truth) = (self.claims(), self.is_well().await);
            match (said, truth) {
                (_, Ok(())) => break Instant::now(),
                // What is said was so a moment before.
                (Ok((status, claims)), Err(error)) if claims > 0 && self.is_well().await.is_err() => {
                    panic!("{what}: {error:#}, and it makes {claims} claims: {status:#}")
                }
                (_, Err(error)) => assert!(Instant::now() < end, "{what}: not well in time: {error:#}"),
            }
            tokio::time::sleep(PAUSE).await;
        };
        self.claimed(what, 3, good, REPORTED).await;
        self.delays.push((format!("{what}: said that it ended"), good.elapsed()));
        println!("{what}: well again, said {:?} later", good.elapsed());
    }

    fn quota(&self) -> String {
        format!("/api/v1/namespaces/{}/resourcequotas", self.scene.namespace)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_source_is_the_truth_at_every_step() {
    let mut truth = Truth::begin().await;
    truth.map("a", "1");
    truth.map("b", "1");
    truth.deployment("web:1", "terminationGracePeriodSeconds: 0");
    let first = truth.push("three objects");
    truth.mends("the first commit").await;
    truth.scene.synced(&first).await;

    corrections_that_a_quota_forbids(&mut truth).await;
    an_image_that_is_broken(&mut truth).await;
    a_commit_that_is_rejected(&mut truth).await;
    an_api_server_that_is_lost(&mut truth).await;
    an_agent_that_is_killed(&mut truth).await;
    an_agent_that_falls_silent(&mut truth).await;
    for (what, delay) in &truth.delays {
        println!("{:>8} ms  {what}", delay.as_millis());
    }
}

async fn corrections_that_a_quota_forbids(truth: &mut Truth) {
    let none = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"count/configmaps": "0"}}});
    truth.scene.cluster.create_object(&truth.quota(), &none).await.unwrap();
    let in_force = format!("{}/none", truth.quota());
    eventually(LIMIT, || async {
        let quota = truth.scene.cluster.get(&in_force).await?;
        ensure!(quota["status"]["hard"]["count/configmaps"] == "0", "not in force yet");
        Ok(())
    })
    .await;
    let namespace = truth.scene.namespace.clone();
    truth.scene.cluster.kubectl(["delete", "configmap", "a", "-n", &namespace]).await.unwrap();
    truth.breaks("a correction that a quota forbids", REPORTED).await;
    let status = truth.because("the quota", |status| status["reason"] == "correction-failed").await;
    assert!(status["message"].as_str().unwrap().contains("quota"), "{status:#}");
    assert!(status["since"].is_string() || status["since"].is_number(), "{status:#}");
    assert_eq!(status["not_well"][0]["identity"]["name"], "a", "{status:#}");
    truth.scene.cluster.kubectl(["delete", "resourcequota", "none", "-n", &namespace]).await.unwrap();
    truth.mends("a correction that a quota forbids").await;
}

async fn an_image_that_is_broken(truth: &mut Truth) {
    truth.deployment("no-such:1", "nodeSelector: {kubernetes.io/hostname: no-such-node}");
    truth.push("an image that does not exist");
    truth.breaks("a broken image", REPORTED).await;
    truth.scene.fail_to_pull("no-such:1").await;
    let status = truth.because("the image", |status| status["state"] == "degraded").await;
    assert!(status["message"].as_str().unwrap().contains("ErrImagePull"), "{status:#}");
    assert_eq!(status["not_well"][0]["health"]["status"], "degraded", "{status:#}");
    let objects = truth.scene.kasbah.cli(["source", "objects", &format!("{AGENT}/shop")]).unwrap();
    assert!(objects.contains("ErrImagePull"), "{objects}");
    truth.deployment("web:2", "terminationGracePeriodSeconds: 0");
    truth.push("an image that exists");
    truth.mends("a broken image").await;
}

async fn a_commit_that_is_rejected(truth: &mut Truth) {
    truth
        .scene
        .tree
        .write("manifests/broken.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x\n")
        .unwrap();
    let rejected = truth.push("no YAML");
    truth.good_head = false;
    truth.breaks("a rejected commit", REPORTED).await;
    let status = truth.because("the rejection", |status| status["state"] == "rejected").await;
    assert_eq!(status["reason"], "commit-rejected");
    let source = truth.scene.source().unwrap();
    assert_eq!(source["newest_commit"], rejected.as_str());
    assert_ne!(source["newest_good_commit"], rejected.as_str());
    let named = format!("{AGENT}/shop");
    let wait = ["source", "wait", &named, "--for", "synced", "--commit", &rejected, "--timeout", "30s"];
    let error = truth.scene.kasbah.cli(wait).unwrap_err().to_string();
    assert!(error.contains("rejected"), "{error}");
    truth.scene.tree.remove("manifests/broken.yaml").unwrap();
    let good = truth.push("YAML again");
    truth.good_head = true;
    let wait = ["source", "wait", &named, "--for", "healthy", "--commit", &good[..12], "--timeout", "60s"];
    truth.scene.kasbah.cli(wait).unwrap();
    truth.mends("a rejected commit").await;
}

async fn an_api_server_that_is_lost(truth: &mut Truth) {
    truth.way.shut(true);
    truth.way.cut();
    truth.reaches = false;
    truth.breaks("a lost API server", REPORTED).await;
    let status = truth.because("the API server", |status| status["reason"] == "api-server-unreachable").await;
    assert_eq!(status["state"], "unknown", "{status:#}");
    let agents = truth.scene.kasbah.cli(["agent", "list"]).unwrap();
    assert!(agents.contains("not reached"), "{agents}");
    let shown = truth.scene.kasbah.json(["agent", "show", AGENT]).unwrap();
    assert_eq!(shown["status"]["api_server_reachable"], false, "{shown:#}");
    truth.way.shut(false);
    truth.reaches = true;
    truth.mends("a lost API server").await;
}

async fn an_agent_that_is_killed(truth: &mut Truth) {
    truth.former = truth.holder().await.unwrap();
    truth.scene.kasbah.kill_agent("agent");
    truth.runs = false;
    let status = truth.breaks("a killed agent", REPORTED).await;
    assert_eq!((&status["state"], &status["reason"]), (&json!("stale"), &json!("agent-gone")), "{status:#}");
    let agents = truth.scene.kasbah.cli(["agent", "list"]).unwrap();
    assert!(agents.contains("disconnected"), "{agents}");
    truth.start_agent();
    truth.mends("a killed agent").await;
}

async fn an_agent_that_falls_silent(truth: &mut Truth) {
    truth.scene.kasbah.agent("agent").unwrap().signal(Signal::STOP);
    truth.runs = false;
    let status = truth.breaks("a silent agent", SILENCE).await;
    assert_eq!(status["state"], "stale", "{status:#}");
    truth.scene.kasbah.agent("agent").unwrap().signal(Signal::CONT);
    truth.runs = true;
    truth.mends("a silent agent").await;
}
