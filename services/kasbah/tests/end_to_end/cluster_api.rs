//! A cluster's API through the tunnel, with the real kubectl.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::{InstallationOptions, NatsServer, Tools, eventually};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::scene::{AGENT, LIMIT, Scene};

/// People with a kubeconfig of ours.
pub struct Person {
    folder: tempfile::TempDir,
    variables: Vec<(String, PathBuf)>,
    kubectl: PathBuf,
}

impl Person {
    /// Whoever holds the owner's token.
    pub fn owner(kasbah: &testkit::Installation, agent: &str) -> Self {
        Self::at(kasbah, agent, &kasbah.clusters())
    }

    /// The same, who dials one gateway.
    pub fn at(kasbah: &testkit::Installation, agent: &str, clusters: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let written = kasbah
            .cli_command()
            .unwrap()
            .args(["kubeconfig", "--agent", agent, "--clusters", clusters, "--file"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let variables = vec![("XDG_CACHE_HOME".to_owned(), folder.path().join("cache"))];
        let kubectl = Tools::find().unwrap().path("kubectl").unwrap();
        Self { folder, variables, kubectl }
    }

    /// From now on with another personal token, and whatever kubectl gets by it.
    pub fn holds(&mut self, token: &str) {
        let file = self.folder.path().join("token");
        std::fs::write(&file, token).unwrap();
        let text = std::fs::read_to_string(self.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        let arguments = config["users"][0]["user"]["exec"]["args"].as_array_mut().unwrap();
        match arguments.iter().position(|argument| argument == "--token-file") {
            Some(at) => arguments[at + 1] = json!(file),
            None => arguments.extend([json!("--token-file"), json!(file)]),
        }
        std::fs::write(self.kubeconfig(), config.to_string()).unwrap();
    }

    /// From now on with a kubectl of another release.
    pub fn takes_kubectl(&mut self, program: &Path) {
        program.clone_into(&mut self.kubectl);
    }

    /// A folder of their own.
    pub fn home(&self) -> &Path {
        self.folder.path()
    }

    /// What their programs find in their surroundings.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_path()))
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// kubectl, to be changed before it runs.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments).kill_on_drop(true);
        command.env("HOME", self.folder.path()).envs(self.variables());
        command.stdin(Stdio::null());
        command
    }

    pub async fn output(&self, arguments: &[&str]) -> Output {
        self.kubectl_command(arguments).output().await.unwrap()
    }

    /// Standard output; an error with what kubectl said when it fails.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = self.output(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {}: {said}", arguments.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What kubectl says when it fails, as it has to.
    pub async fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        assert!(!output.status.success(), "kubectl {} went through", arguments.join(" "));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Starts one that goes on, and its lines.
    pub fn start(&self, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut command = self.kubectl_command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    }
}

/// Lets the project's people in, as themselves, and the cluster lets them do everything in one namespace.
pub async fn let_in(scene: &Scene, more: &str) {
    let grants =
        format!("user_access:\n  access_as: {{user: {{}}}}\n  projects:\n    - id: shop/deploy\n{more}");
    let configuration = Scene::configuration(&scene.namespace, &grants);
    scene.tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration).unwrap();
    scene.tree.commit_and_push("let people in").unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "people"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "Group", "name": "kasbah:user", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings", scene.namespace);
    scene.cluster.create_object(&path, &binding).await.unwrap();
    eventually(LIMIT, || async {
        scene.kasbah.cli([
            "access",
            "can-i",
            "list",
            "pods",
            "--agent",
            AGENT,
            "--namespace",
            &scene.namespace,
        ])
    })
    .await;
}

/// The next line, which comes in time.
pub async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let line = tokio::time::timeout(LIMIT, lines.next_line()).await.expect("a line in time").unwrap();
    line.expect("a line")
}

fn user_names(text: &str) -> Value {
    let shown: Value = serde_json::from_str(text).unwrap();
    shown["status"]["userInfo"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn people_use_the_cluster_as_themselves_with_an_unmodified_kubectl() {
    let scene = Scene::start().await;
    let namespace = scene.namespace.as_str();
    let person = Person::owner(&scene.kasbah, AGENT);
    let nobody = person.refused(&["get", "pods", "-n", namespace]).await;
    assert!(nobody.contains("permits no user to use the cluster's API"), "{nobody}");
    let_in(&scene, "").await;

    // What was refused a moment ago is not refused for long.
    let whoami = eventually(LIMIT, || person.kubectl(&["auth", "whoami", "-o", "json"])).await;
    let user = user_names(&whoami);
    assert_eq!(user["username"], "kasbah:user:owner");
    let groups = user["groups"].to_string();
    assert!(groups.contains("kasbah:user") && groups.contains(":owner"), "{groups}");

    let (mut watching, mut lines) = person.start(&[
        "get",
        "configmaps",
        "-n",
        namespace,
        "--watch-only",
        "-o",
        "name",
        "--field-selector",
        "metadata.name=seen",
    ]);
    let map = Scene::config_map("seen", "1");
    let file = scene.tree.path().join("seen.yaml");
    std::fs::write(&file, map).unwrap();
    let path = file.to_str().unwrap();
    person.kubectl(&["apply", "--server-side", "-n", namespace, "-f", path]).await.unwrap();
    assert_eq!(next(&mut lines).await, "configmap/seen");
    person.kubectl(&["diff", "--server-side", "-n", namespace, "-f", path]).await.unwrap();
    let through = person.kubectl(&["get", "configmap", "seen", "-n", namespace, "-o", "json"]).await.unwrap();
    let direct =
        scene.cluster.kubectl(["get", "configmap", "seen", "-n", namespace, "-o", "json"]).await.unwrap();
    assert_eq!(through, direct);
    let table = person.kubectl(&["get", "configmap", "seen", "-n", namespace]).await.unwrap();
    assert!(table.starts_with("NAME"), "{table}");
    let explained = person.kubectl(&["explain", "deployment.spec"]).await.unwrap();
    assert!(explained.contains("DeploymentSpec"), "{explained}");

    // The cluster has its own word, and nobody says who they are themselves.
    let elsewhere = person.refused(&["get", "secrets", "-n", "kube-system"]).await;
    assert!(elsewhere.contains("\"kasbah:user:owner\" cannot list resource \"secrets\""), "{elsewhere}");
    let other = person.refused(&["get", "pods", "-n", namespace, "--as", "system:admin"]).await;
    assert!(other.contains("remove --as"), "{other}");

    watching.start_kill().unwrap();
    what_was_done_is_recorded(&scene).await;
}

/// Each use was recorded, the refused ones too, and the watch twice.
async fn what_was_done_is_recorded(scene: &Scene) {
    let namespace = scene.namespace.as_str();
    let audit = ["audit", "--agent", AGENT, "--user", "owner", "--since", "1h"];
    eventually(LIMIT, || async {
        let audit = scene.kasbah.cli(audit)?;
        let has = |words: &str| {
            ensure!(audit.contains(words), "{words:?} is not in\n{audit}");
            Ok(())
        };
        has(&format!("owner  {AGENT}  watch configmaps {namespace}/seen  200  began"))?;
        has(&format!("owner  {AGENT}  patch configmaps {namespace}/seen"))?;
        has("list secrets kube-system  403")?;
        has("remove --as")?;
        let whats = |phase: &str| {
            audit.lines().filter(|line| line.contains("  watch ") && line.contains(phase)).count()
        };
        ensure!(whats("  began  ") == 1 && whats(" B out") == 1, "{audit}");
        Ok(())
    })
    .await;
    let nobody = scene.kasbah.cli(["audit", "--user", "nobody"]).unwrap_err();
    assert!(format!("{nobody:#}").contains("user not found"), "{nobody:#}");
    let later = scene.kasbah.cli(["audit", "--since", "0s"]).unwrap();
    assert!(later.is_empty(), "{later}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_kept_to_its_namespace_and_what_is_open_ends_with_it() {
    let scene = Scene::start().await;
    let namespace = scene.namespace.as_str();
    let_in(&scene, &format!("      namespaces: [{namespace}]\n")).await;
    let person = Person::owner(&scene.kasbah, AGENT);
    eventually(LIMIT, || async { person.kubectl(&["get", "configmaps", "-n", namespace]).await }).await;
    let all = person.refused(&["get", "configmaps", "-A"]).await;
    assert!(all.contains("name one of them, as with --namespace") && all.contains("config.yaml:"), "{all}");
    let can_i = person.kubectl(&["auth", "can-i", "list", "pods", "-n", namespace]).await.unwrap();
    assert_eq!(can_i.trim(), "yes");

    let (mut watching, mut lines) = person.start(&["get", "configmaps", "-n", namespace, "-w", "-o", "name"]);
    let first = next(&mut lines).await;
    assert!(first.starts_with("configmap/"), "{first}");
    scene
        .tree
        .write(&format!(".kasbah/agents/{AGENT}/config.yaml"), Scene::configuration(namespace, ""))
        .unwrap();
    scene.tree.commit_and_push("nobody any more").unwrap();
    let ended = tokio::time::timeout(LIMIT, watching.wait()).await.expect("the watch ends").unwrap();
    // kubectl ends in order when a watch breaks off; what counts is that it ended and cannot begin again.
    assert!(ended.code().is_some(), "{ended}");
    let gone = person.refused(&["get", "configmaps", "-n", namespace]).await;
    assert!(gone.contains("permits no user to use the cluster's API"), "{gone}");
}

/// An HTTP client without a kubeconfig, which sends what it likes.
struct Raw {
    client: reqwest::Client,
    /// The cluster's API.
    root: String,
    token: String,
}

/// What was answered: the code, and kind and message of a `Status`.
#[derive(Debug)]
struct Told {
    code: u16,
    kind: Option<String>,
    message: String,
}

impl Raw {
    fn of(scene: &Scene) -> Self {
        let authority = std::fs::read(scene.kasbah.authority()).unwrap();
        let token = std::fs::read_to_string(scene.kasbah.data().join("owner-token")).unwrap();
        Self {
            client: testkit::client_trusting(&authority).unwrap(),
            root: format!("{}/agents/{}", scene.kasbah.clusters(), scene.agent_id(AGENT)),
            token: token.trim().to_owned(),
        }
    }

    /// With the owner's token, and one more header if it has a name.
    async fn ask(&self, url: &str, (name, value): (&'static str, &str)) -> Told {
        let request = self.client.get(url).bearer_auth(&self.token);
        Self::told(if name.is_empty() { request } else { request.header(name, value) }).await
    }

    async fn told(request: reqwest::RequestBuilder) -> Told {
        let answer = request.send().await.unwrap();
        let code = answer.status().as_u16();
        let status: Value = answer.json().await.unwrap_or_default();
        let text = |name: &str| status[name].as_str().map(str::to_owned);
        Told { code, kind: text("kind"), message: text("message").unwrap_or_default() }
    }

    /// Waits until it is answered with this code.
    async fn becomes(&self, url: &str, code: u16) -> Told {
        eventually(LIMIT, || async {
            let told = self.ask(url, ("", "")).await;
            ensure!(told.code == code, "{told:?}");
            Ok(told)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_are_not_let_in_are_told_so_in_the_form_that_clients_read() {
    let mut scene = Scene::start().await;
    let_in(&scene, "").await;
    let raw = Raw::of(&scene);
    let (root, namespace) = (raw.root.clone(), scene.namespace.clone());
    let pods = format!("{root}/api/v1/namespaces/{namespace}/pods");
    raw.becomes(&pods, 200).await;
    let nobodys = |token: &str| raw.client.get(&pods).bearer_auth(token);
    let in_query = raw.client.get(format!("{pods}?access_token={}", raw.token));
    for (request, words) in [
        (raw.client.get(&pods), "send one token"),
        (nobodys("kasbah_p_nobody"), "unknown token"),
        (nobodys(&raw.token).header("authorization", "Bearer other"), "send one token"),
        (in_query, "send one token"),
    ] {
        let told = Raw::told(request).await;
        assert_eq!((told.code, told.kind.as_deref()), (401, Some("Status")), "{told:?}");
        assert!(told.message.contains(words) && told.message.contains("trace "), "{told:?}");
    }
    let clusters = scene.kasbah.clusters();
    for (url, header, code, words) in [
        (pods.clone(), ("impersonate-user", "system:admin"), 403, "remove --as"),
        (pods.clone(), ("impersonate-extra-a", "b"), 403, "remove --as"),
        (format!("{root}//api/v1/namespaces/{namespace}/pods"), ("", ""), 400, "empty segment"),
        (format!("{root}/api/v1/namespaces/{namespace}%2fpods"), ("", ""), 400, "encoded slash"),
        (format!("{root}/api/v1/namespaces/%2e%2e%2fa/pods"), ("", ""), 400, "another place"),
        (format!("{clusters}/agents/none/api"), ("", ""), 404, "names no agent"),
        (format!("{clusters}/api/v1/pods"), ("", ""), 404, "names no agent"),
        (format!("{clusters}/agents/01a20945-0000-7508-b575-0fdafa0c3680/api"), ("", ""), 404, "agent"),
    ] {
        let told = raw.ask(&url, header).await;
        assert_eq!((told.code, told.kind.as_deref()), (code, Some("Status")), "{url}: {told:?}");
        assert!(told.message.contains(words) && told.message.contains("trace "), "{url}: {told:?}");
    }

    scene.kasbah.stop_agent("agent").unwrap();
    let told = raw.becomes(&pods, 503).await;
    assert!(told.message.starts_with("Kasbah's tunnel: the agent is not connected"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_says_of_who_it_is_changes_nothing() {
    let scene = Scene::start().await;
    let_in(&scene, "").await;
    let raw = Raw::of(&scene);
    raw.becomes(&format!("{}/version", raw.root), 200).await;
    let review = raw
        .client
        .post(format!("{}/apis/authentication.k8s.io/v1/selfsubjectreviews", raw.root))
        .bearer_auth(&raw.token)
        .header("x-remote-user", "system:admin")
        .header("x-remote-group", "system:masters")
        .header("kasbah-pass", "forged")
        .json(&json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}));
    let review = review.send().await.unwrap().text().await.unwrap();
    assert_eq!(user_names(&review)["username"], "kasbah:user:owner", "{review}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_is_put_beside_what_is_there_and_calls_back_for_short_lived_tokens() {
    let scene = Scene::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(
        &file,
        "apiVersion: v1\nkind: Config\ncurrent-context: other\nclusters:\n- name: other\n  cluster:\n    server: https://other\n",
    )
    .unwrap();
    let kasbah = |arguments: &[&str], file: Option<&Path>| {
        let mut command = scene.kasbah.cli_command().unwrap();
        command.args(arguments).env("XDG_CACHE_HOME", folder.path()).env_remove("KUBECONFIG");
        if let Some(file) = file {
            command.env("KUBECONFIG", file);
        }
        let output = command.output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let before = std::fs::read_to_string(&file).unwrap();
    let home = folder.path().display().to_string();
    let apart = ["kubeconfig", "--agent", AGENT, "--namespace", "a"];
    let mut command = scene.kasbah.cli_command().unwrap();
    let output = command.args(apart).env("HOME", &home).env("KUBECONFIG", &file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("is current in {home}/.kube/kasbah.yaml")), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before, "what is not ours stays as it is");
    let merge = ["kubeconfig", "--agent", AGENT, "--namespace", "a", "--merge"];
    let (done, said) = kasbah(&merge, Some(&file));
    assert!(done && said.contains("The current context is unchanged"), "{said}");
    let (done, said) = kasbah(&[&merge[..], &["--use"]].concat(), Some(&file));
    assert!(done && said.contains("shop/deploy:production is current"), "{said}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("https://other") && text.contains(&scene.kasbah.clusters()), "{text}");
    assert!(!text.contains("kasbah_p_"), "no token stands in it: {text}");
    let (done, said) = kasbah(&["kubeconfig", "--agent", "nobody"], Some(&file));
    assert!(!done && said.contains("nobody"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "what goes wrong changes nothing");

    let credential = || {
        let (done, said) = kasbah(&["credential", "kubectl"], None);
        assert!(done, "{said}");
        let credential: Value = serde_json::from_str(&said).unwrap();
        credential["status"]["token"].as_str().context("a token").unwrap().to_owned()
    };
    let first = credential();
    assert!(first.starts_with("kasbah_p_"));
    assert_eq!(credential(), first, "it is used again while it lives");
    let tokens = scene.kasbah.cli(["token", "list"]).unwrap();
    assert_eq!(tokens.matches("kubectl").count(), 1, "{tokens}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_root_signs_and_agents_that_pin_the_first_one_follow() {
    let mut scene = Scene::start().await;
    let_in(&scene, "").await;
    let owner = Person::owner(&scene.kasbah, AGENT);
    let namespace = scene.namespace.clone();
    let lists = ["get", "configmaps", "-n", &namespace];
    eventually(LIMIT, || owner.kubectl(&lists)).await;
    let root = |scene: &Scene, command: &str| scene.kasbah.json(["root", command]).unwrap();
    let first = root(&scene, "show");
    let pinned = scene.kasbah.token_file(AGENT).with_file_name(format!("{AGENT}.root-key"));
    assert_eq!((first["number"].as_u64(), pinned.exists()), (Some(0), true), "{}", pinned.display());
    let rotated = root(&scene, "rotate");
    assert_eq!(rotated["number"].as_u64(), Some(1));
    let refused = scene.kasbah.cli(["root", "rotate"]).unwrap_err().to_string();
    assert!(refused.contains("it can be rotated again at"), "{refused}");
    // What changes who may do what has gateways ask for passes anew.
    scene.kasbah.cli(["user", "create", "somebody", "--role", "viewer"]).unwrap();
    owner.kubectl(&lists).await.unwrap();
    // Whoever starts anew, too: the agent begins at the root that it pins.
    scene.kasbah.stop_agent("agent").unwrap();
    let kubeconfig = scene.cluster.kubeconfig().to_owned();
    scene.kasbah.start_agent("agent", AGENT, &kubeconfig, &namespace).unwrap();
    eventually(LIMIT, || owner.kubectl(&lists)).await;
    scene.kasbah.stop_server().unwrap();
    scene.kasbah.start_server().await.unwrap();
    eventually(LIMIT, || owner.kubectl(&lists)).await;
    let newest = root(&scene, "show");
    assert_eq!(newest, rotated);
    // Who pins another one in the file starts no agent anew.
    std::fs::write(&pinned, STANDARD.encode([7; 32])).unwrap();
    eventually(LIMIT, || async {
        let said = owner.kubectl(&["get", "--raw", "/version"]).await.err().context("let in")?.to_string();
        ensure!(said.contains("not signed by the root key that is pinned here"), "{said}");
        Ok(())
    })
    .await;
    std::fs::write(&pinned, newest["public_key"].as_str().unwrap()).unwrap();
    eventually(LIMIT, || owner.kubectl(&lists)).await;
    let registered = scene.kasbah.json(["agent", "register", "newer", "--project", crate::scene::PROJECT]);
    assert_eq!(registered.unwrap()["root_key"], newest["public_key"]);
    assert_ne!(newest["public_key"], first["public_key"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_gateway_leads_to_every_cluster_and_one_that_dies_is_left_behind() {
    let nats = NatsServer::start_as_shipped().await.unwrap();
    let each_service = Some((2, vec![nats.shipped_url("{service}")]));
    let options = InstallationOptions { each_service, ..InstallationOptions::default() };
    let cluster = testkit::shared_control_plane().await.unwrap();
    let mut scene = Scene::start_as(options, cluster, "").await;
    let namespace = scene.namespace.clone();
    let_in(&scene, "").await;
    let gateways = scene.kasbah.replicas().unwrap().cluster_gateways();
    let people: Vec<Person> = gateways
        .iter()
        .map(|gateway| Person::at(&scene.kasbah, AGENT, &format!("https://{gateway}")))
        .collect();
    let large = scene.tree.path().join("large.yaml");
    std::fs::write(&large, Scene::config_map("large", &"x".repeat(900_000))).unwrap();
    for (number, person) in people.iter().enumerate() {
        eventually(LIMIT, || async { person.kubectl(&["get", "configmaps", "-n", &namespace]).await }).await;
        let whoami = person.kubectl(&["auth", "whoami", "-o", "json"]).await.unwrap();
        assert_eq!(user_names(&whoami)["username"], "kasbah:user:owner", "gateway {number}");
        let path = large.to_str().unwrap();
        person.kubectl(&["apply", "--server-side", "-n", &namespace, "-f", path]).await.unwrap();
        let through =
            person.kubectl(&["get", "configmap", "large", "-n", &namespace, "-o", "json"]).await.unwrap();
        assert!(through.len() > 900_000, "gateway {number}");
        let nowhere = person.refused(&["exec", "nobody", "-n", &namespace, "--", "true"]).await;
        assert!(nowhere.contains("pods \"nobody\" not found"), "gateway {number}: {nowhere}");
    }

    let watch = ["get", "configmaps", "-n", &namespace, "--watch-only", "-o", "name"];
    let mut watching: Vec<_> = people.iter().map(|person| person.start(&watch)).collect();
    let mut seen = 0;
    // A watch that has begun tells of the next change: until each has, there are more of them.
    for (_, lines) in &mut watching {
        loop {
            scene
                .cluster
                .kubectl_with_input(
                    ["apply", "-n", &namespace, "-f", "-"],
                    &Scene::config_map("seen", &seen.to_string()),
                )
                .await
                .unwrap();
            seen += 1;
            let told = tokio::time::timeout(std::time::Duration::from_secs(1), lines.next_line()).await;
            if told.is_ok_and(|line| line.unwrap().is_some_and(|line| line == "configmap/seen")) {
                break;
            }
        }
    }

    // The one with the tunnel dies: the agent comes to the other, and so do requests.
    scene.kasbah.replicas().unwrap().kill("tunnel-gateway-1").unwrap();
    let survivor = people.get(1).unwrap();
    eventually(LIMIT, || async { survivor.kubectl(&["get", "configmaps", "-n", &namespace]).await }).await;
    scene.kasbah.replicas().unwrap().start_again("tunnel-gateway-1").await.unwrap();
    scene.kasbah.replicas().unwrap().kill("tunnel-gateway-2").unwrap();
    let other = people.first().unwrap();
    eventually(LIMIT, || async { other.kubectl(&["get", "configmaps", "-n", &namespace]).await }).await;
}
