//! Real manifests: what becomes of each file stands in `fixtures.tsv`, beside what kubectl says to it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testkit::{
    ControlPlane, ControlPlaneOptions, FakeNodes, GitServer, Installation, InstallationOptions, WorkTree,
    eventually,
};

use crate::scene::{AGENT, PROJECT};

/// How long a whole round may take on a slow machine before it is wrong.
const LIMIT: Duration = Duration::from_secs(180);
/// Files with definitions of kinds that other files have objects of: they come when all others have got their answers.
const DEFINITIONS: [&str; 3] = [
    "argocd-examples/crd-creation/crd.yaml",
    "cert-manager/cert-manager.yaml",
    "prometheus-operator/bundle.yaml",
];
/// Files that have the same objects as those in `argocd-examples/crd-creation`: they come when those have left.
const LAST: [&str; 2] = [
    "argocd-examples/duplicated-resources/duplicates-cluster.yaml",
    "argocd-examples/duplicated-resources/duplicates-namespaced.yaml",
];
const BEFORE_LAST: &str = "argocd-examples/crd-creation/";
/// Files that leave when the definitions come. One has an object in common with `cert-manager.yaml`. To the other's kind a
/// webhook comes along that nobody answers here: what the API server says then hangs on which of both it knows first.
const ONLY_FIRST: [&str; 2] = [
    "kustomize-helm/flux2-example/infrastructure/configs/cluster-issuers.yaml",
    "kustomize-helm/flux2-example/infrastructure/controllers/cert-manager.yaml",
];
/// What comes and goes by itself, is the agent's own, or outlives a StatefulSet on purpose.
const NOT_COMPARED: [&str; 4] =
    ["events", "events.events.k8s.io", "leases.coordination.k8s.io", "persistentvolumeclaims"];

/// The API server hands out the first ports of its range last. Those that files ask for, 30900 and 30903, are among these, so that no
/// Service of another file has one by chance.
const NODE_PORTS: &str = "--service-node-port-range=30880-32767";

/// One file of the table.
struct Row {
    file: &'static str,
    /// Name of the file's source, and of the namespace that its objects go to.
    source: String,
    kubectl: bool,
    /// `applied healthy`, `applied waits`, `awaits <line>`: a kind, `poller <line>` or `api-server <line>`; all but the first with part of the message.
    answer: &'static str,
    /// The answer once the definitions are there.
    later: Option<&'static str>,
    reason: &'static str,
}

impl Row {
    fn answer_in(&self, round: usize) -> &'static str {
        self.later.filter(|_| round > 0).unwrap_or(self.answer)
    }

    /// Whether the file is in the agent's configuration.
    fn is_in(&self, round: usize) -> bool {
        match round {
            0 => !DEFINITIONS.contains(&self.file) && !LAST.contains(&self.file),
            1 => !ONLY_FIRST.contains(&self.file) && !LAST.contains(&self.file),
            2 | 3 if ONLY_FIRST.contains(&self.file) || self.file.starts_with(BEFORE_LAST) => false,
            2 => !LAST.contains(&self.file),
            3 => true,
            _ => false,
        }
    }

    fn path(&self) -> String {
        format!("manifests/{}", self.file)
    }

    /// What is accepted here is accepted by kubectl as well, and the other way round.
    fn agrees_with_kubectl(&self) -> bool {
        [Some(self.answer), self.later]
            .into_iter()
            .flatten()
            .all(|answer| answer.starts_with("applied") == self.kubectl)
    }
}

fn table() -> Vec<Row> {
    let lines =
        include_str!("fixtures.tsv").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let row = |(number, line): (usize, &'static str)| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [file, kubectl, answer, later, reason] = columns[..] else { panic!("five columns: {line}") };
        let stem = Path::new(file).file_stem().unwrap().to_str().unwrap().to_lowercase();
        let stem: String = stem
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .take(40)
            .collect();
        Row {
            file,
            source: format!("fx-{number:03}-{}", stem.trim_matches('-')),
            kubectl: kubectl == "accepted",
            answer,
            later: (later != "-").then_some(later),
            reason: if reason == "-" { "" } else { reason },
        }
    };
    lines.enumerate().map(row).collect()
}

/// The manifests' folder; `None`, with a word about it, where it is missing.
fn manifests() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/manifests");
    if !root.is_dir() {
        println!("skipped: {} is not there", root.display());
        return None;
    }
    Some(root)
}

fn manifest_files(root: &Path) -> BTreeSet<String> {
    let mut folders = vec![root.to_owned()];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "json") {
                found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn the_table_has_each_file_and_gives_each_deviation_from_kubectl_a_reason() {
    let rows = table();
    for row in &rows {
        let plain = row.agrees_with_kubectl() && !row.answer.starts_with("applied waits");
        assert!(plain || !row.reason.is_empty(), "{}: why is that so?", row.file);
    }
    let plain = |accepted: bool| {
        rows.iter()
            .filter(|row| row.kubectl == accepted && !row.file.ends_with("/kustomization.yaml"))
            .count()
    };
    assert_eq!((plain(true), plain(false)), (129, 62), "what the fixtures' own description counts");
    if let Some(root) = manifests() {
        let files: BTreeSet<String> = rows.iter().map(|row| row.file.to_owned()).collect();
        assert_eq!(files, manifest_files(&root));
    }
}

/// A cluster with fake nodes, a repository, a server and an agent that is not started yet.
struct World {
    kasbah: Installation,
    _git: GitServer,
    tree: WorkTree,
    _nodes: FakeNodes,
    plane: ControlPlane,
}

impl World {
    async fn start() -> Self {
        let options = ControlPlaneOptions {
            api_server_flags: vec![NODE_PORTS.to_owned()],
            ..ControlPlaneOptions::default()
        };
        let plane = ControlPlane::start(options).await.unwrap();
        let nodes = FakeNodes::start(&plane, 3, &[]).await.unwrap();
        let git = GitServer::start().unwrap();
        let url = git.create("deploy").unwrap();
        let tree = WorkTree::clone(&url).unwrap();
        tree.write("README.md", "Manifests.\n").unwrap();
        tree.commit_and_push("begin").unwrap();
        let kasbah = Installation::start(InstallationOptions::default()).await.unwrap();
        kasbah.cli(["project", "create", PROJECT, "--repository", &url]).unwrap();
        git.add_webhook("deploy", kasbah.webhook(PROJECT).unwrap()).unwrap();
        kasbah.register_agent(AGENT, PROJECT).unwrap();
        Self { kasbah, _git: git, tree, _nodes: nodes, plane }
    }

    /// Namespaces in which pods can be made.
    async fn create_namespaces(&self, names: &[&str]) {
        for name in names {
            self.plane
                .create_object("/api/v1/namespaces", &json!({"metadata": {"name": name}}))
                .await
                .unwrap();
        }
        eventually(LIMIT, || async {
            let accounts =
                self.plane.get("/api/v1/serviceaccounts?fieldSelector=metadata.name%3Ddefault").await?;
            let maps =
                self.plane.get("/api/v1/configmaps?fieldSelector=metadata.name%3Dkube-root-ca.crt").await?;
            let count = |list: &Value| list["items"].as_array().map_or(0, Vec::len);
            ensure!(count(&accounts).min(count(&maps)) >= names.len() + 4, "namespaces are not ready");
            Ok(())
        })
        .await;
    }

    fn start_agent(&mut self, namespace: &str) {
        let kubeconfig = self.plane.kubeconfig().to_owned();
        self.kasbah.start_agent("agent", AGENT, &kubeconfig, namespace).unwrap();
    }

    fn configure(&self, sources: &str) -> String {
        let text =
            if sources.is_empty() { "sources: []\n".to_owned() } else { format!("sources:\n{sources}") };
        self.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), text).unwrap();
        self.tree.commit_and_push("configure the agent").unwrap()
    }

    fn sources(&self) -> Result<BTreeMap<String, Value>> {
        let list = self.kasbah.json(["source", "list", "--agent", AGENT])?;
        let sources = list.as_array().context("no list")?;
        let name = |source: &Value| source["configuration"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(sources.iter().map(|source| (name(source), source.clone())).collect())
    }

    /// Every object in the cluster that does not come and go by itself.
    async fn objects(&self) -> Result<BTreeSet<String>> {
        let kinds = self
            .plane
            .kubectl(["api-resources", "--verbs=list,delete", "-o", "name", "--cached=false"])
            .await?;
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !NOT_COMPARED.contains(kind)).collect();
        let each = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}";
        let listed = self.plane.kubectl(["get", &kinds.join(","), "-A", "-o", each]).await?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// What was to be pruned and stayed, with the reasons.
    fn kept(&self) -> Result<String> {
        let pruned = self.kasbah.cli([
            "log",
            "tail",
            "-n",
            "500",
            "--type",
            "observed.object-pruned",
            "-o",
            "json",
        ])?;
        let kept = pruned.lines().filter(|line| !line.contains("\"kept\":null"));
        Ok(kept.filter_map(|line| line.split("\"identity\"").nth(1)).collect::<Vec<_>>().join("\n"))
    }

    async fn is_as_before(&self, before: &BTreeSet<String>) {
        eventually(LIMIT, || async {
            let now = self.objects().await?;
            let changed: Vec<_> = now.symmetric_difference(before).collect();
            ensure!(changed.is_empty(), "the cluster is not as before: {changed:#?}; kept: {}", self.kept()?);
            Ok(())
        })
        .await;
    }
}

/// What a source says about its file: the answer in the table's form, and every message for it.
fn found(source: &Value) -> (String, Vec<String>) {
    let entries = |value: &Value| {
        let mut all: Vec<(u64, String)> = value
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| {
                (
                    entry["line"].as_u64().unwrap_or(0),
                    entry["message"].as_str().unwrap_or_default().to_owned(),
                )
            })
            .collect();
        all.sort();
        all
    };
    let told = |who: &str, all: Vec<(u64, String)>| {
        (
            format!("{who} {}", all.first().map_or(0, |(line, _)| *line)),
            all.into_iter().map(|(line, text)| format!("{line}: {text}")).collect(),
        )
    };
    if !source["rejected"].is_null() {
        return told("poller", entries(&source["rejected"]["findings"]));
    }
    let sync = &source["sync"];
    let failures = entries(&sync["failures"]);
    match sync["outcome"].as_str() {
        // What nothing defines yet waits, and everything else is applied.
        Some("succeeded") if sync["counts"]["waiting"].as_u64() > Some(0) => told("awaits", failures),
        Some("succeeded") => ("applied healthy".to_owned(), Vec::new()),
        Some("unhealthy") => {
            ("applied waits".to_owned(), failures.into_iter().map(|(_, text)| text).collect())
        }
        Some("failed") => told("api-server", failures),
        _ => (format!("nothing yet: {}", source["why"]), Vec::new()),
    }
}

/// Whether a sync goes on, so that there is no answer.
fn is_under_way(source: &Value) -> bool {
    source["rejected"].is_null() && source["sync"]["outcome"].is_null()
}

/// Whether a source gives an answer of the table, for the right file.
fn gives(source: &Value, file: &str, answer: &str) -> bool {
    let (place, words) = answer.split_once(": ").unwrap_or((answer, ""));
    let (said, messages) = found(source);
    let places = [&source["rejected"]["findings"], &source["sync"]["failures"]];
    let files = places
        .iter()
        .filter_map(|places| places.as_array())
        .flatten()
        .filter_map(|entry| entry["file"].as_str());
    said == place
        && (words.is_empty() || messages.iter().any(|message| message.contains(words)))
        && files.into_iter().all(|named| named == file)
}

fn configuration(rows: &[Row], round: usize) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| row.is_in(round)) {
        let others = if row.file.ends_with("kustomization.yaml") {
            ""
        } else {
            "    exclude: [\"**/kustomization.yaml\"]\n"
        };
        // A source that is known to wait for ever is not waited for.
        let patience = if [Some(row.answer), row.later]
            .into_iter()
            .flatten()
            .any(|answer| answer.starts_with("applied waits"))
        {
            "2s"
        } else {
            "10m"
        };
        write!(
            text,
            "  - name: {}\n    include: [\"{}\"]\n{others}    namespace: {}\n    interval: 1h\n    policies: {{on_removal: prune, health_timeout: {patience}}}\n",
            row.source, row.path(), row.source,
        )
        .unwrap();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fixture_gets_its_answer_and_leaves_nothing_behind() {
    let Some(root) = manifests() else { return };
    let rows = table();
    let mut world = World::start().await;
    world.tree.copy_from(&root, "manifests").unwrap();
    let mut names: Vec<&str> = rows.iter().map(|row| row.source.as_str()).collect();
    names.push("fx-agent");
    world.create_namespaces(&names).await;
    let before = world.objects().await.unwrap();
    world.start_agent("fx-agent");
    for round in 0..4 {
        world.configure(&configuration(&rows, round));
        let answered = RefCell::new(BTreeSet::new());
        eventually(LIMIT, || async {
            let sources = world.sources()?;
            let mut wrong = String::new();
            for row in rows.iter().filter(|row| row.is_in(round)) {
                let answer = row.answer_in(round);
                match sources.get(&row.source) {
                    Some(source) if gives(source, &row.path(), answer) => {
                        answered.borrow_mut().insert(row.file);
                    }
                    // What was refused is tried again from time to time.
                    Some(source) if is_under_way(source) && answered.borrow().contains(row.file) => {}
                    Some(source) => writeln!(wrong, "{}\t{}\t{:?}", row.file, answer, found(source))?,
                    None => writeln!(wrong, "{}\t{answer}\tno source", row.file)?,
                }
            }
            ensure!(wrong.is_empty(), "round {round}:\n{wrong}");
            let more: Vec<_> =
                rows.iter().filter(|row| !row.is_in(round) && sources.contains_key(&row.source)).collect();
            ensure!(more.is_empty(), "round {round}: {} sources should have left", more.len());
            Ok(())
        })
        .await;
    }
    world.configure("");
    world.is_as_before(&before).await;
}

/// Sets that are applied as one source each.
const WHOLE: [&str; 4] = ["cert-manager", "guestbook", "online-boutique", "prometheus-operator"];

/// Waits until a set is at a commit, confirming what is held on the way.
async fn set_is_at(world: &World, set: &str, commit: &str) -> Value {
    let name = format!("{AGENT}/{set}");
    eventually(LIMIT, || async {
        let source = world.kasbah.json(["source", "show", &name])?;
        if source["held"]["commit"] == commit {
            world.kasbah.cli(["source", "confirm", &name, "--commit", commit])?;
        }
        let done = source["synced_commit"] == commit && source["sync"]["outcome"] == "succeeded";
        ensure!(done, "{set} is not at {commit}: {source:#}");
        Ok(source)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_becomes_healthy_as_a_whole_and_goes_file_by_file() {
    let Some(root) = manifests() else { return };
    let mut world = World::start().await;
    let namespaces = WHOLE.map(|set| format!("fx-{set}"));
    let mut names: Vec<&str> = namespaces.iter().map(String::as_str).collect();
    names.push("fx-agent");
    world.create_namespaces(&names).await;
    let before = world.objects().await.unwrap();
    world.start_agent("fx-agent");
    let mut sources = String::new();
    for (set, namespace) in WHOLE.iter().zip(&namespaces) {
        world.tree.copy_from(&root.join(set), &format!("manifests/{set}")).unwrap();
        writeln!(sources, "  - {{name: {set}, include: [manifests/{set}], namespace: {namespace}}}").unwrap();
    }
    let mut commit = world.configure(&sources);
    let mut inventories = BTreeMap::new();
    for set in WHOLE {
        let source = set_is_at(&world, set, &commit).await;
        inventories.insert(set, source["inventory"].as_u64().unwrap());
    }
    assert_eq!(
        inventories,
        BTreeMap::from([
            ("cert-manager", 46),
            ("guestbook", 6),
            ("online-boutique", 35),
            ("prometheus-operator", 27)
        ])
    );
    // What needs other files comes after them in the order of their names, so it goes before them.
    let mut files: BTreeMap<&str, Vec<String>> =
        WHOLE.map(|set| (set, manifest_files(&root.join(set)).into_iter().collect())).into();
    while files.values().any(|files| !files.is_empty()) {
        let mut touched = Vec::new();
        for (set, files) in &mut files {
            if let Some(file) = files.pop() {
                world.tree.remove(&format!("manifests/{set}/{file}")).unwrap();
                touched.push((*set, file));
            }
        }
        commit = world.tree.commit_and_push("remove a file of each set").unwrap();
        for (set, file) in touched {
            let source = set_is_at(&world, set, &commit).await;
            let left = source["inventory"].as_u64().unwrap();
            let pruned = source["sync"]["counts"]["pruned"].as_u64().unwrap();
            assert!(pruned > 0, "{set}/{file}: {source:#}");
            assert_eq!(inventories.insert(set, left), Some(left + pruned), "{set}/{file}: {source:#}");
        }
    }
    assert!(inventories.values().all(|left| *left == 0), "{commit}: {inventories:?}");
    world.is_as_before(&before).await;
}
