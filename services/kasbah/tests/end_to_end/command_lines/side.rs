//! One of the two ways to a cluster, and what command lines say there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use testkit::{Cluster, Installation, Tools};
use tokio::process::Command;
use tokio::time::Instant;

use super::list::{Group, Line};
use super::normal;
use crate::scene::AGENT;

/// Seconds that one line may take on a slow machine; then it is ended with all that it started, and fails.
const LINE_LIMIT: &str = "75";
/// What takes longer is told, for whoever wants to know where the time goes.
const SLOW: Duration = Duration::from_secs(10);
/// How long a new namespace may take to get its service account.
const READY: Duration = Duration::from_secs(60);
/// What comes and goes by itself; and what the cluster's parts write about themselves, at their own pace.
const NOT_COMPARED: &[&str] = &[
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "componentstatuses",
    "apiservices.apiregistration.k8s.io",
    "ipaddresses.networking.k8s.io",
];

/// A way to a cluster.
pub struct Side {
    /// A word that tells it from the other.
    name: &'static str,
    /// The cluster itself, as its administrator.
    cluster: Cluster,
    way: Way,
    folder: tempfile::TempDir,
}

enum Way {
    /// At the API server, as the user whom the tunnel would name.
    Direct { user: Value },
    /// Through the tunnel, as `kasbah kubeconfig` sets it up, with what names the gateway's address.
    Tunnel { kubeconfig: Value },
}

/// What a line printed, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub succeeded: bool,
    pub text: String,
}

impl Side {
    /// Straight to the API server. `whoami` is the `userInfo` that the other way has there.
    pub fn direct(cluster: &Cluster, whoami: &Value, kubectl: &Path) -> Self {
        Self::new("direct", cluster, Way::Direct { user: user_there(cluster, whoami) }, kubectl)
    }

    /// Through the tunnel, as the owner.
    pub fn tunnel(cluster: &Cluster, kasbah: &Installation, kubectl: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let mut command = kasbah.cli_command().unwrap();
        command.args(["kubeconfig", "--agent", AGENT, "--clusters", &kasbah.clusters(), "--file"]).arg(&file);
        let written = command.output().unwrap();
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let kubeconfig = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        Self::new("tunnel", cluster, Way::Tunnel { kubeconfig }, kubectl)
    }

    fn new(name: &'static str, cluster: &Cluster, way: Way, kubectl: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let side = Self { name, cluster: cluster.clone(), way, folder };
        let programs = side.folder.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        let helm = Tools::find().unwrap().path("helm").unwrap();
        for (program, path) in [("kubectl", kubectl), ("helm", &helm)] {
            std::os::unix::fs::symlink(path, programs.join(program)).unwrap();
        }
        side
    }

    /// A kubeconfig whose requests go into one namespace.
    fn kubeconfig(&self, namespace: &str) -> PathBuf {
        let mut text = match &self.way {
            Way::Tunnel { kubeconfig } => kubeconfig.clone(),
            Way::Direct { user } => {
                let own = std::fs::read_to_string(self.cluster.kubeconfig()).unwrap();
                let mut own: Value = serde_json::from_str(&own).unwrap();
                own["users"][0]["user"] = user.clone();
                own
            }
        };
        text["contexts"][0]["context"]["namespace"] = namespace.into();
        let path = self.folder.path().join(format!("{namespace}.kubeconfig"));
        std::fs::write(&path, text.to_string()).unwrap();
        path
    }

    /// Where this side's clients believe the API to be.
    fn server(&self) -> &str {
        match &self.way {
            Way::Direct { .. } => self.cluster.server(),
            Way::Tunnel { kubeconfig } => {
                kubeconfig.pointer("/clusters/0/cluster/server").and_then(Value::as_str).unwrap()
            }
        }
    }

    /// The namespace of a group: where both sides lead to the same cluster, each has its own, of names equally long.
    pub fn namespace(&self, group: &Group, shared: bool) -> String {
        if shared { format!("{}-{}", group.name, self.name) } else { group.name.to_owned() }
    }

    /// What each line of a group says.
    pub async fn run(&self, group: &Group, files: &Path, namespace: &str) -> Vec<Said> {
        let object = json!({"metadata": {"name": namespace}});
        self.cluster.create_object("/api/v1/namespaces", &object).await.unwrap();
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        testkit::eventually(READY, || self.cluster.get(&account)).await;
        let folder = self.folder.path().join(namespace);
        copy(files, &folder);
        let kubeconfig = self.kubeconfig(namespace);
        let mut said = Vec::new();
        for line in &group.lines {
            let output = self.output(*line, &folder, &kubeconfig).await;
            said.push(self.said(&output, namespace, group));
        }
        said
    }

    async fn output(&self, line: Line, folder: &Path, kubeconfig: &Path) -> Output {
        let mut command = Command::new("timeout");
        command.args([LINE_LIMIT, "bash", "-o", "pipefail", "-c", line.text]);
        command.current_dir(folder).env_clear();
        let programs = self.folder.path().join("bin");
        command.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        command.env("KUBECONFIG", kubeconfig).env("HOME", self.folder.path());
        // kubectl edit leaves behind what was refused.
        command.env("TMPDIR", self.folder.path());
        command.env("TZ", "UTC").env("LANG", "C").env("TERM", "dumb");
        let begun = Instant::now();
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
        if begun.elapsed() > SLOW {
            println!("{}: {:.0?} for {}", self.name, begun.elapsed(), line.text);
        }
        output
    }

    fn said(&self, output: &Output, namespace: &str, group: &Group) -> Said {
        let text = format!(
            "{}{}exit code {:?}\n",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            output.status.code()
        );
        Said {
            succeeded: output.status.success(),
            text: normal::text(&self.without_places(&text, namespace, group)),
        }
    }

    /// The gateway's address is not the API server's, and each side has a folder and perhaps a namespace of its own.
    fn without_places(&self, text: &str, namespace: &str, group: &Group) -> String {
        let folder = self.folder.path().to_str().unwrap();
        // What the API server says of its own address.
        let port = self.cluster.server().trim_start_matches("https://127.0.0.1");
        text.replace(self.server(), "https://server")
            .replace(port, ":port")
            .replace(namespace, group.name)
            .replace(folder, "~")
    }

    /// Every object of a namespace, or every one that is in none, without what varies, by kind and name; those whose
    /// names are made up stand together.
    pub async fn objects(&self, namespace: Option<(&str, &Group)>) -> Result<BTreeMap<String, String>> {
        let whether = format!("--namespaced={}", namespace.is_some());
        let kinds = self.cluster.kubectl(["api-resources", "--verbs=list", "-o", "name", &whether]).await?;
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !NOT_COMPARED.contains(kind)).collect();
        let kinds = kinds.join(",");
        let mut arguments = vec!["get", &kinds, "-o", "json", "--show-managed-fields"];
        arguments.extend(namespace.iter().flat_map(|(name, _)| ["-n", name]));
        let list: Value = serde_json::from_str(&self.cluster.kubectl(arguments).await?)?;
        let mut objects: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for object in list["items"].as_array().context("a list")? {
            let name = object["metadata"]["name"].as_str().context("a name")?;
            let (mut name, mut text) = (normal::text(name), normal::object(object));
            if let Some((namespace, group)) = namespace {
                name = self.without_places(&name, namespace, group);
                text = self.without_places(&text, namespace, group);
            }
            objects.entry(format!("{} {name}", object["kind"])).or_default().push(text);
        }
        let joined = objects.into_iter().map(|(name, mut texts)| {
            texts.sort();
            (name, texts.join("\n") + "\n")
        });
        Ok(joined.collect())
    }
}

/// A kubeconfig's user, who is at the API server itself whom the tunnel names there.
pub fn user_there(cluster: &Cluster, whoami: &Value) -> Value {
    let mut user = json!({"token": cluster.token(), "as": whoami["username"], "as-groups": whoami["groups"]});
    for (from, to) in [("uid", "as-uid"), ("extra", "as-user-extra")] {
        if !whoami[from].is_null() {
            user[to] = whoami[from].clone();
        }
    }
    user
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
