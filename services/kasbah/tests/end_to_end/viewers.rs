//! Where people use a cluster as themselves, the index shows each what the cluster's own RBAC lets them list: on a real API server, with
//! people's own tokens.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Cluster, ControlPlane, ControlPlaneOptions, Installation, eventually};

use crate::index::no_query_tells;
use crate::scene::{AGENT, LIMIT, Scene};

const ACCESS: &str = "user_access:\n  access_as: {user: {}}\n  projects:\n    - id: shop/deploy\n";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// A namespace in which only some have rights.
const HIDDEN: &str = "hidden";
/// Two commands that each wait for a cluster, on a slow machine. The agent's tunnel counts as open for longer.
const HANGS: Duration = Duration::from_secs(15);

/// A person with a token of their own.
struct Viewer<'a> {
    kasbah: &'a Installation,
    name: &'static str,
    token: String,
}

impl<'a> Viewer<'a> {
    /// One who is let in by the agent's configuration.
    fn developer(kasbah: &'a Installation, name: &'static str) -> Self {
        kasbah.cli(["user", "create", name, "--role", "developer"]).unwrap();
        let token = kasbah.cli(["token", "issue", "--user", name, "--name", "t", "--token-only"]).unwrap();
        Self { kasbah, name, token: token.trim().to_owned() }
    }

    /// What a command answers, and what it says beside.
    fn ask(&self, arguments: &[&str]) -> Result<(Value, String)> {
        let mut command = self.kasbah.cli_command()?;
        let output =
            command.env("KASBAH_TOKEN", &self.token).args(arguments).args(["-o", "json"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{} {arguments:?}: {}: {said}", self.name, output.status);
        Ok((serde_json::from_slice(&output.stdout)?, said))
    }

    /// The objects that are found, as `namespace/Kind/name`.
    fn found(&self, arguments: &[&str]) -> Result<BTreeSet<String>> {
        let (found, _) = self.ask(&[&["get"], arguments].concat())?;
        let line = |object: &Value| {
            let text = |field: &str| object["identity"][field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}/{}", text("namespace"), text("kind"), text("name"))
        };
        Ok(found.as_array().into_iter().flatten().map(line).collect())
    }

    /// What is known of the one cluster.
    fn coverage(&self, more: &[&str]) -> Result<Value> {
        let (coverage, _) = self.ask(&[&["coverage"], more].concat())?;
        ensure!(coverage["agents"].as_array().is_some_and(|agents| agents.len() == 1), "{coverage:#}");
        Ok(coverage["agents"][0].clone())
    }

    /// Waits until an object is found.
    async fn sees(&self, object: &str, arguments: &[&str]) -> BTreeSet<String> {
        eventually(LIMIT, || async {
            let found = self.found(arguments)?;
            ensure!(found.contains(object), "{} does not see {object}: {found:?}", self.name);
            Ok(found)
        })
        .await
    }

    /// What is counted is what is found; gives the cluster's coverage.
    async fn counts_what_is_found(&self) -> Value {
        eventually(LIMIT, || async {
            let (found, coverage) = (self.found(&[])?, self.coverage(&[])?);
            ensure!(coverage["objects"] == found.len(), "{found:?} are counted as {coverage:#}");
            Ok(coverage)
        })
        .await
    }

    /// Each way to ask shows nothing; gives what the cluster's coverage says.
    fn sees_nothing(&self, namespace: &str) -> Value {
        for list in [&["get"][..], &["get", "ns"], &["get", "secret"], &["history"]] {
            assert_eq!(self.ask(list).unwrap().0, json!([]), "{list:?}");
        }
        for one in ["tree", "why", "show"] {
            let object = format!("ns/{namespace}");
            let said = self.ask(&[one, &object]).unwrap_err().to_string();
            assert!(said.contains("exit status: 3"), "{one}: {said}");
        }
        let coverage = self.coverage(&[]).unwrap();
        assert_eq!((&coverage["objects"], &coverage["kinds"]), (&json!(0), &json!(0)), "{coverage:#}");
        assert_eq!(coverage["blind_count"], 0, "{coverage:#}");
        coverage
    }
}

/// Lets a person do what a role says, in one namespace or everywhere.
async fn bind(cluster: &Cluster, user: &str, (kind, role): (&str, &str), namespace: Option<&str>) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" },
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": format!("kasbah:user:{user}"), "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let path = match namespace {
        Some(namespace) => format!("{RBAC}/namespaces/{namespace}/rolebindings"),
        None => format!("{RBAC}/clusterrolebindings"),
    };
    cluster.create_object(&path, &binding).await.unwrap();
}

/// A ConfigMap and a Secret of that name.
async fn put(cluster: &Cluster, namespace: &str, name: &str) {
    for kind in [&["configmap"][..], &["secret", "generic"]] {
        let arguments = [&["create"], kind, &[name, "-n", namespace, "--from-literal=a=b"]].concat();
        cluster.kubectl(&arguments).await.unwrap();
    }
}

/// Its agent hangs with an open tunnel: each answer comes soon and says that the rights are not known. Once it goes on, all is shown again.
async fn a_hanging_agent_is_waited_for_a_moment_only(scene: &mut Scene) {
    scene.kasbah.agent("agent").unwrap().signal(Signal::STOP);
    {
        let token =
            scene.kasbah.cli(["token", "issue", "--user", "vic", "--name", "h", "--token-only"]).unwrap();
        let vic = Viewer { kasbah: &scene.kasbah, name: "vic", token: token.trim().to_owned() };
        // What the cluster said before does not count: it is asked anew.
        let began = Instant::now();
        let coverage = vic.coverage(&["--fresh"]).unwrap();
        let unknown = coverage["rights_unknown"].as_str().unwrap_or_default();
        assert!(unknown.contains("has not answered"), "{coverage:#}");
        assert_eq!(coverage["objects"], 0, "{coverage:#}");
        let (found, said) = vic.ask(&["get"]).unwrap();
        assert_eq!(found, json!([]));
        assert!(said.contains(&format!("warning: {AGENT}: rights unknown: ")), "{said}");
        assert!(began.elapsed() < HANGS, "two commands took {:?}", began.elapsed());
    }
    scene.kasbah.agent("agent").unwrap().signal(Signal::CONT);
    let token = scene.kasbah.cli(["token", "issue", "--user", "vic", "--name", "c", "--token-only"]).unwrap();
    let vic = Viewer { kasbah: &scene.kasbah, name: "vic", token: token.trim().to_owned() };
    vic.sees(&format!("{HIDDEN}/ConfigMap/private"), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_sees_what_the_cluster_lets_them_list_and_nothing_where_that_is_not_known() {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let mut scene = Scene::start_on(Cluster::clone(&plane), ACCESS).await;
    let namespace = scene.namespace.clone();
    plane.kubectl(["create", "namespace", HIDDEN]).await.unwrap();
    put(&plane, &namespace, "open").await;
    put(&plane, HIDDEN, "private").await;
    let maps = ["create", "role", "maps", "--verb=list", "--resource=configmaps", "-n", &namespace];
    plane.kubectl(maps).await.unwrap();
    let (role, everything) = (("Role", "maps"), ("ClusterRole", "view"));
    bind(&plane, "ann", role, Some(&namespace)).await;
    bind(&plane, "vic", everything, None).await;

    {
        let viewers = ["ann", "vic", "bob"].map(|name| Viewer::developer(&scene.kasbah, name));
        let [ann, vic, bob] = &viewers;
        // One namespace, one kind.
        let (open, private) = (format!("{namespace}/ConfigMap/open"), format!("{HIDDEN}/ConfigMap/private"));
        let seen = ann.sees(&open, &[]).await;
        let is_hers = |object: &String| object.starts_with(&format!("{namespace}/ConfigMap/"));
        assert!(seen.iter().all(is_hers), "{seen:?}");
        let coverage = ann.counts_what_is_found().await;
        assert!(coverage.get("rights_unknown").is_none(), "{coverage:#}");

        // Everything but Secrets, RBAC and what is in no namespace, as the aggregated role has it.
        let seen = vic.sees(&private, &[]).await;
        assert!(seen.contains(&open) && seen.contains(&format!("/Namespace/{HIDDEN}")), "{seen:?}");
        let never = ["/Secret/", "/Role/", "/ClusterRole/"];
        assert!(!seen.iter().any(|object| never.iter().any(|kind| object.contains(kind))), "{seen:?}");
        vic.counts_what_is_found().await;
        let asked_anew = vic.coverage(&["--fresh"]).unwrap();
        assert!(asked_anew["objects"].as_u64() > Some(10) && asked_anew.get("rights_unknown").is_none());
        let (objects, _) = vic.ask(&["get"]).unwrap();
        let uids: Vec<&str> =
            objects.as_array().into_iter().flatten().filter_map(|object| object["uid"].as_str()).collect();

        // Let in by the configuration, and by nothing in the cluster.
        let coverage = bob.sees_nothing(&namespace);
        assert!(coverage.get("rights_unknown").is_none(), "it is known to be nothing: {coverage:#}");
        no_query_tells(&scene, &bob.token, Some(&vic.token), &uids);

        // What is taken away is gone as soon as the index sees that, and not only once the cluster is asked anew.
        plane.kubectl(["delete", "rolebinding", "ann", "-n", &namespace]).await.unwrap();
        eventually(LIMIT / 2, || async {
            let found = ann.found(&[])?;
            ensure!(found.is_empty(), "ann still sees {found:?}");
            Ok(())
        })
        .await;
        ann.sees_nothing(&namespace);
    }

    a_hanging_agent_is_waited_for_a_moment_only(&mut scene).await;

    scene.kasbah.stop_agent("agent").unwrap();
    let token = scene.kasbah.cli(["token", "issue", "--user", "vic", "--name", "u", "--token-only"]).unwrap();
    let vic = Viewer { kasbah: &scene.kasbah, name: "vic", token: token.trim().to_owned() };
    eventually(LIMIT, || async {
        let coverage = vic.coverage(&[])?;
        let unknown = coverage["rights_unknown"].as_str().unwrap_or_default();
        ensure!(unknown.contains("not connected"), "{coverage:#}");
        Ok(())
    })
    .await;
    vic.sees_nothing(&namespace);
    let (_, said) = vic.ask(&["get"]).unwrap();
    assert!(said.contains(&format!("warning: {AGENT}: rights unknown: ")), "{said}");
    let named = vic.ask(&["get", "--agent", AGENT]).unwrap_err().to_string();
    assert!(named.contains("rights unknown: its agent is not connected"), "{named}");
}
