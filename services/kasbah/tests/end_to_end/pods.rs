//! The agent as a cluster has it: pods on a real node, installed by what `agent register --manifests` prints.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testkit::{
    ControlPlane, ControlPlaneOptions, GitServer, Image, Installation, InstallationOptions, Node, Tools,
    WorkTree, cluster_node, eventually, static_agent,
};

/// Containers have to start, images to be unpacked, a dead holder's Lease to run out.
const LIMIT: Duration = Duration::from_secs(180);
pub const BUSYBOX: &str = "docker.io/library/busybox:1.36";
const AGENT_IMAGE: &str = "docker.io/library/kasbah-agent:0.1.0";
const NAMESPACE: &str = "kasbah-agent";
const PODS: &str = "/api/v1/namespaces/kasbah-agent/pods";

/// A node on which the shop and the agent's image can run, and everything around it.
struct Yard {
    kasbah: Installation,
    node: Node,
    plane: ControlPlane,
    tree: WorkTree,
    _git: GitServer,
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_on_a_real_node_sync_the_shop_and_one_survives_the_other() {
    if let Err(skipped) = Node::possible() {
        println!("{skipped}");
        return;
    }
    let yard = Yard::start().await;
    let manifests = yard.register();
    yard.plane.kubectl_with_input(["apply", "--warnings-as-errors", "-f", "-"], &manifests).await.unwrap();
    let rollout = ["rollout", "status", "deployment/kasbah-agent-demo", "-n", NAMESPACE, "--timeout=120s"];
    yard.plane.kubectl(rollout).await.unwrap();
    for source in ["staging", "production"] {
        yard.healthy(source).await;
    }
    assert!(yard.greeting().await.unwrap().contains("souk"));
    let pods = yard.pods().await.unwrap();
    assert_eq!(pods.len(), 2, "{pods:?}");
    yard.tunnels_become(2).await;

    let applier = yard.applier(&pods).await;
    yard.kill_container(&applier);
    let path = "staging/storefront.yaml";
    let text = std::fs::read_to_string(yard.tree.path().join(path)).unwrap();
    assert!(text.contains("souk"));
    yard.tree.write(path, text.replace("souk", "bazaar")).unwrap();
    yard.tree.commit_and_push("another greeting").unwrap();
    eventually(LIMIT, || async {
        let map = yard.plane.get("/api/v1/namespaces/shop-staging/configmaps/storefront").await?;
        ensure!(map["data"].to_string().contains("bazaar"), "{}", yard.why("staging"));
        Ok(())
    })
    .await;
    let survivor = yard.applier(&pods).await;
    assert_ne!(survivor, applier, "the other pod took over");
    yard.healthy("staging").await;

    // The killed one came back as the one that stands by.
    eventually(LIMIT, || async {
        let pod = yard.plane.get(&format!("{PODS}/{applier}")).await?;
        let status = &pod["status"]["containerStatuses"][0];
        ensure!(status["restartCount"] == 1 && status["ready"] == true, "{status}");
        Ok(())
    })
    .await;
    yard.tunnels_become(2).await;
}

impl Yard {
    async fn start() -> Self {
        let host = Some(cluster_node::HOST.into());
        let options = ControlPlaneOptions { reachable_at: host, ..ControlPlaneOptions::default() };
        let plane = ControlPlane::start(options).await.unwrap();
        let busybox = Tools::find().unwrap().node_parts().unwrap().join("busybox");
        let images = [
            Image::of_busybox(BUSYBOX, &busybox).unwrap(),
            Image::of_program(AGENT_IMAGE, &static_agent().unwrap()),
        ];
        let node = Node::start(&plane, &images).await.unwrap();
        let git = GitServer::start().unwrap();
        let url = git.create("shop").unwrap();
        let tree = WorkTree::clone(&url).unwrap();
        tree.copy_from(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/demo/shop"), ".").unwrap();
        tree.commit_and_push("the shop opens").unwrap();
        let kasbah =
            Installation::start(InstallationOptions { reachable_at: host, ..InstallationOptions::default() })
                .await
                .unwrap();
        kasbah.cli(["project", "create", "demo/shop", "--repository", &url]).unwrap();
        git.add_webhook("shop", kasbah.webhook("demo/shop").unwrap()).unwrap();
        Self { kasbah, node, plane, tree, _git: git }
    }

    fn register(&self) -> String {
        let gateway = format!("{}:{}", cluster_node::HOST, self.kasbah.tunnel_port());
        let register =
            ["agent", "register", "demo", "--project", "demo/shop", "--manifests", "--gateway", &gateway];
        self.kasbah.cli(register).unwrap()
    }

    fn why(&self, source: &str) -> String {
        let shown = self.kasbah.json(["source", "show", &format!("demo/{source}")]);
        shown.map_or_else(|error| format!("{error:#}"), |source| format!("the source: {source:#}"))
    }

    /// Applied and healthy: each deployment has its pods, and they run.
    async fn healthy(&self, source: &str) {
        let deployments = format!("/apis/apps/v1/namespaces/shop-{source}/deployments");
        eventually(LIMIT, || async {
            let shown = self.kasbah.json(["source", "show", &format!("demo/{source}")])?;
            ensure!(shown["why"].is_null() && !shown["synced_commit"].is_null(), "{shown:#}");
            let list = self.plane.get(&deployments).await?;
            let items = list["items"].as_array().context("no list")?;
            let ready = |one: &&Value| one["status"]["availableReplicas"] == one["spec"]["replicas"];
            let available = items.iter().filter(ready).count();
            ensure!(available == 12, "{available} of {} deployments are available", items.len());
            Ok(())
        })
        .await;
    }

    /// What the shop's own container serves.
    async fn greeting(&self) -> Result<String> {
        let fetch = ["wget", "-q", "-O", "-", "http://127.0.0.1:8080/greeting.txt"];
        let exec = ["exec", "-n", "shop-staging", "deploy/storefront", "--"];
        self.plane.kubectl(exec.into_iter().chain(fetch)).await
    }

    async fn pods(&self) -> Result<Vec<String>> {
        let list = self.plane.get(PODS).await?;
        let names = list["items"].as_array().context("no list")?.iter();
        Ok(names.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect())
    }

    async fn tunnels_become(&self, count: usize) {
        eventually(LIMIT, || async {
            let shown = self.kasbah.json(["agent", "show", "demo"])?;
            let tunnels = shown["tunnels"].as_array().context("no tunnels")?;
            let appliers = tunnels.iter().filter(|tunnel| tunnel["applier"] == true).count();
            ensure!(tunnels.len() == count && appliers == 1, "{shown:#}");
            Ok(())
        })
        .await;
    }

    /// The pod whose running container said last that it applies.
    async fn applier(&self, pods: &[String]) -> String {
        eventually(LIMIT, || async {
            for pod in pods {
                let log = self.plane.kubectl(["logs", "-n", NAMESPACE, pod]).await?;
                if log.contains("this instance is now the applier") {
                    return Ok(pod.clone());
                }
            }
            anyhow::bail!("no pod applies")
        })
        .await
    }

    /// kill -9 on the one process of a pod's container, as the kernel does it when memory runs out.
    fn kill_container(&self, pod: &str) {
        let script = format!(
            "for process in /proc/[0-9]*; do
               tr '\\0' '\\n' < $process/environ 2>/dev/null > /tmp/environ || continue
               grep -qx HOSTNAME={pod} /tmp/environ && grep -q '^KASBAH_SERVER=' /tmp/environ || continue
               kill -9 ${{process#/proc/}} && echo killed
             done"
        );
        let output = self.node.command("sh").unwrap().args(["-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), "killed", "{}", String::from_utf8_lossy(&output.stderr));
    }
}
