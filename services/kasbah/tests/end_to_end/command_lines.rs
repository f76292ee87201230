//! What people type says and does the same through the tunnel as at the API server itself, with the real kubectl and the
//! real helm. The lists of what they type are `any_cluster.txt` and `real_node.txt` in this module's folder.

mod list;
mod normal;
mod older_kubectl;
pub mod side;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::Value;
use similar::TextDiff;
use testkit::{
    Authority, Cluster, ControlPlane, ControlPlaneOptions, FakeNodes, Image, Node, Tools, cluster_node,
    eventually,
};
use tokio::time::Instant;

use crate::cluster_api::{Person, let_in};
use crate::pods::BUSYBOX;
use crate::scene::{AGENT, LIMIT, Scene};
use list::Group;
use side::{Said, Side};

const ANY_CLUSTER: &str = include_str!("command_lines/any_cluster.txt");
const REAL_NODE: &str = include_str!("command_lines/real_node.txt");
/// As many as a machine with two processors bears: each group keeps two clients busy.
const GROUPS_AT_ONCE: usize = 2;
/// How long controllers on a slow machine may need to finish what the lines began.
const SETTLED: Duration = Duration::from_secs(60);

/// Both ways to a cluster, or to two of the same content.
struct Ways {
    direct: Side,
    tunnel: Side,
    /// Both lead to the same cluster.
    shared: bool,
    /// The namespace that the agent is in.
    of_the_agent: String,
    files: tempfile::TempDir,
}

impl Ways {
    /// Lets people into the cluster behind the tunnel, and the same people straight into the other.
    async fn open(scene: &Scene, other: &Cluster, shared: bool, kubectl: &Path) -> Self {
        for cluster in [&scene.cluster, other] {
            let people = include_str!("command_lines/people.yaml");
            cluster.kubectl_with_input(["apply", "-f", "-"], people).await.unwrap();
        }
        let_in(scene, "").await;
        let owner = Person::owner(&scene.kasbah, AGENT);
        let whoami = eventually(LIMIT, || owner.kubectl(&["auth", "whoami", "-o", "json"])).await;
        let whoami: Value = serde_json::from_str(&whoami).unwrap();
        let direct = Side::direct(other, &whoami["status"]["userInfo"], kubectl);
        let tunnel = Side::tunnel(&scene.cluster, &scene.kasbah, kubectl);
        Self { direct, tunnel, shared, of_the_agent: scene.namespace.clone(), files: files() }
    }

    /// Runs all groups, the first by itself, and tells everything that differs.
    async fn differences(&self, groups: &[Group]) -> Vec<String> {
        let (first, others) = groups.split_first().unwrap();
        let mut found = self.differences_of(first).await;
        let others: Vec<_> = others.iter().map(|group| self.differences_of(group)).collect();
        let mut others = futures::stream::iter(others).buffer_unordered(GROUPS_AT_ONCE);
        while let Some(more) = others.next().await {
            found.extend(more);
        }
        found
    }

    async fn differences_of(&self, group: &Group) -> Vec<String> {
        let begun = Instant::now();
        let files = self.files.path();
        let namespaces = [&self.direct, &self.tunnel].map(|side| side.namespace(group, self.shared));
        let [direct, tunnel] = &namespaces;
        let (said_directly, said_through) =
            tokio::join!(self.direct.run(group, files, direct), self.tunnel.run(group, files, tunnel));
        let mut found = Vec::new();
        for (line, said) in group.lines.iter().zip(said_directly.iter().zip(&said_through)) {
            let what = difference(line.has_to_succeed, said.0, said.1);
            found.extend(what.map(|what| format!("[{}] {}\n{what}", group.name, line.text)));
        }
        let objects = namespaces.each_ref().map(|namespace| Some((namespace.as_str(), group)));
        let ran = begun.elapsed();
        found.extend(self.differing_objects(objects).await);
        println!(
            "{}: {} lines in {ran:.1?}, at rest after {:.1?}",
            group.name,
            group.lines.len(),
            begun.elapsed()
        );
        found
    }

    /// What differs between the objects of two namespaces, or between those in none, once all has come to rest. The
    /// agent's own namespace is only in its cluster.
    async fn differing_objects(&self, of: [Option<(&str, &Group)>; 2]) -> Vec<String> {
        let end = Instant::now() + SETTLED;
        let mut ticks = tokio::time::interval(Duration::from_millis(250));
        loop {
            ticks.tick().await;
            let [direct, tunnel] = of;
            let objects = tokio::try_join!(self.direct.objects(direct), self.tunnel.objects(tunnel));
            let (direct, mut tunnel) = objects.unwrap();
            tunnel.remove(&format!("\"Namespace\" {}", normal::text(&self.of_the_agent)));
            if direct == tunnel || Instant::now() > end {
                return differing(&direct, &tunnel);
            }
        }
    }
}

/// What is wrong with what one line said on both sides.
fn difference(has_to_succeed: bool, direct: &Said, tunnel: &Said) -> Option<String> {
    if direct != tunnel {
        return Some(changes(&direct.text, &tunnel.text));
    }
    (direct.succeeded != has_to_succeed).then(|| {
        let expected = if has_to_succeed { "success" } else { "failure" };
        format!("both alike, but expected {expected}:\n{}", direct.text)
    })
}

fn differing(direct: &BTreeMap<String, String>, tunnel: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = direct.keys().chain(tunnel.keys()).collect();
    let text =
        |objects: &BTreeMap<String, String>, name: &String| objects.get(name).cloned().unwrap_or_default();
    let both = names.into_iter().map(|name| (name, text(direct, name), text(tunnel, name)));
    let unequal = both.filter(|(_, direct, tunnel)| direct != tunnel);
    unequal.map(|(name, direct, tunnel)| format!("object {name}\n{}", changes(&direct, &tunnel))).collect()
}

fn changes(direct: &str, tunnel: &str) -> String {
    let diff = TextDiff::from_lines(direct, tunnel);
    diff.unified_diff().context_radius(2).header("directly", "through the tunnel").to_string()
}

/// What the lines find in their folder: what is checked in, and a certificate with a key, which never is.
fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/command_lines/files");
    side::copy(&source, folder.path());
    let authority = Authority::new("shop").unwrap();
    authority.server(&["shop.example"], &[]).unwrap().write(folder.path(), "tls").unwrap();
    folder
}

fn report(groups: &[Group], found: &[String]) {
    println!("{} command lines compared", list::count(groups));
    assert!(found.is_empty(), "{} differences:\n\n{}", found.len(), found.join("\n"));
}

/// The one that comes with the control plane.
fn newest_kubectl() -> PathBuf {
    Tools::find().unwrap().path("kubectl").unwrap()
}

/// Compares the lines at two clusters without real nodes.
async fn same_at_any_cluster(groups: &[Group], kubectl: &Path) {
    let start = || ControlPlane::start(ControlPlaneOptions::default());
    let (other, plane) = tokio::try_join!(start(), start()).unwrap();
    let _nodes =
        tokio::try_join!(FakeNodes::start(&other, 1, &[]), FakeNodes::start(&plane, 1, &[])).unwrap();
    let scene = Scene::start_on(Cluster::clone(&plane), "").await;
    let ways = Ways::open(&scene, &other, false, kubectl).await;
    let mut found = ways.differences(groups).await;
    found.extend(ways.differing_objects([None, None]).await);
    report(groups, &found);
}

/// Compares the lines at a cluster with a real node, which this machine can have.
async fn same_at_a_real_node(groups: &[Group], kubectl: &Path) {
    let host = Some(cluster_node::HOST.into());
    let plane =
        ControlPlane::start(ControlPlaneOptions { reachable_at: host, ..ControlPlaneOptions::default() });
    let plane = plane.await.unwrap();
    let busybox = Tools::find().unwrap().node_parts().unwrap().join("busybox");
    let _node = Node::start(&plane, &[Image::of_busybox(BUSYBOX, &busybox).unwrap()]).await.unwrap();
    let scene = Scene::start_on(Cluster::clone(&plane), "").await;
    let ways = Ways::open(&scene, &plane, true, kubectl).await;
    report(groups, &ways.differences(groups).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn command_lines_say_and_do_the_same_through_the_tunnel() {
    let groups = list::groups(ANY_CLUSTER);
    assert!(list::count(&groups) >= 150, "the list has become short");
    same_at_any_cluster(&groups, &newest_kubectl()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_lines_at_a_real_node_say_and_do_the_same_through_the_tunnel() {
    if let Err(skipped) = Node::possible() {
        println!("{skipped}");
        return;
    }
    let groups = list::groups(REAL_NODE);
    assert!(list::count(&groups) >= 50, "the list has become short");
    same_at_a_real_node(&groups, &newest_kubectl()).await;
}
