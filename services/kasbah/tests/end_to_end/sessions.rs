//! Sessions with containers through the tunnel: exec, logs, cp, port-forward, with the real kubectl and a real node.

use std::process::Stdio;

use anyhow::ensure;
use serde_json::json;
use testkit::{
    Cluster, ControlPlane, ControlPlaneOptions, Image, InstallationOptions, NatsServer, Node, Tools,
    cluster_node, eventually, free_port,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster_api::{Person, let_in};
use crate::pods::BUSYBOX;
use crate::scene::{AGENT, LIMIT, Scene};

/// A pod that serves what it is given, and everything around it.
struct Ground {
    scene: Scene,
    /// One at each gateway.
    people: Vec<Person>,
    _node: Node,
    _plane: ControlPlane,
}

/// Somebody, where the pod is.
struct There<'a> {
    person: &'a Person,
    namespace: &'a str,
}

impl Ground {
    async fn start(options: InstallationOptions) -> Self {
        let host = Some(cluster_node::HOST.into());
        let reachable = ControlPlaneOptions { reachable_at: host, ..ControlPlaneOptions::default() };
        let plane = ControlPlane::start(reachable).await.unwrap();
        let busybox = Tools::find().unwrap().node_parts().unwrap().join("busybox");
        let node = Node::start(&plane, &[Image::of_busybox(BUSYBOX, &busybox).unwrap()]).await.unwrap();
        let cluster = Cluster::open(plane.kubeconfig()).unwrap();
        let mut scene = Scene::start_as(options, cluster, "").await;
        let_in(&scene, "").await;
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", scene.namespace);
        eventually(LIMIT, || scene.cluster.get(&account)).await;
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web"},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "web",
                    "image": BUSYBOX,
                    "imagePullPolicy": "Never",
                    "command": ["sh", "-c", "echo begun; mkdir /www; echo hello > /www/index.html; httpd -f -p 8080 -h /www"],
                }],
            },
        });
        scene
            .cluster
            .create_object(&format!("/api/v1/namespaces/{}/pods", scene.namespace), &pod)
            .await
            .unwrap();
        let gateways = scene.kasbah.replicas().map(|replicas| replicas.cluster_gateways());
        let people = match gateways {
            Ok(gateways) => gateways
                .iter()
                .map(|gateway| Person::at(&scene.kasbah, AGENT, &format!("https://{gateway}")))
                .collect(),
            Err(_one_process) => vec![Person::owner(&scene.kasbah, AGENT)],
        };
        Self { scene, people, _node: node, _plane: plane }
    }
}

impl<'a> There<'a> {
    fn in_namespace(&self, arguments: &[&'a str]) -> Vec<&'a str> {
        ["-n", self.namespace].iter().chain(arguments).copied().collect()
    }

    async fn kubectl(&self, arguments: &[&'a str]) -> anyhow::Result<String> {
        self.person.kubectl(&self.in_namespace(arguments)).await
    }

    /// What a command in the pod makes of its input, and its exit code.
    async fn exec(&self, command: &'a str, input: &[u8], spdy: bool) -> (Vec<u8>, Option<i32>) {
        let mut kubectl = self
            .person
            .kubectl_command(&self.in_namespace(&["exec", "-i", "web", "--", "sh", "-c", command]));
        kubectl.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", if spdy { "false" } else { "true" });
        let mut child =
            kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        let writing = tokio::spawn(async move {
            stdin.write_all(&input).await.unwrap();
        });
        let output = child.wait_with_output().await.unwrap();
        writing.await.unwrap();
        (output.stdout, output.status.code())
    }

    async fn runs_commands(&self) {
        for spdy in [false, true] {
            let bytes: Vec<u8> =
                (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let (echoed, code) = self.exec("cat", &bytes, spdy).await;
            assert_eq!(
                (echoed.len(), code),
                (bytes.len(), Some(0)),
                "spdy {spdy}: the end of the input ends it"
            );
            assert!(echoed == bytes, "spdy {spdy}: byte for byte");
            let (_, code) = self.exec("exit 7", b"", spdy).await;
            assert_eq!(code, Some(7), "spdy {spdy}");
        }
        let logs = self.kubectl(&["logs", "web"]).await.unwrap();
        assert_eq!(logs.trim(), "begun");
        let nowhere = self.person.refused(&self.in_namespace(&["exec", "nobody", "--", "true"])).await;
        assert!(nowhere.contains("pods \"nobody\" not found"), "{nowhere}");
    }

    async fn copies_files(&self) {
        let folder = tempfile::tempdir().unwrap();
        let (there, back) = (folder.path().join("there"), folder.path().join("back"));
        let content: Vec<u8> =
            (0..20_000_000_u32).map(|number| (number.wrapping_mul(747_796_405) >> 24) as u8).collect();
        std::fs::write(&there, &content).unwrap();
        let arguments = ["-n", self.namespace, "cp", there.to_str().unwrap(), "web:/tmp/copy"];
        self.person.kubectl(&arguments).await.unwrap();
        let arguments = ["-n", self.namespace, "cp", "web:/tmp/copy", back.to_str().unwrap()];
        self.person.kubectl(&arguments).await.unwrap();
        assert!(std::fs::read(&back).unwrap() == content, "copied there and back");
    }

    async fn forwards_a_port(&self) {
        let port = free_port().unwrap();
        let forward = format!("{port}:8080");
        let arguments = ["-n", self.namespace, "port-forward", "pod/web", &forward];
        let (_forwarding, mut lines) = self.person.start(&arguments);
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await.expect("it listens in time").unwrap();
        assert!(line.is_some_and(|line| line.contains("Forwarding from")));
        let fetch = move || async move {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).await?;
            socket.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await?;
            ensure!(answer.ends_with("hello\n"), "{answer}");
            anyhow::Ok(())
        };
        let fetching: Vec<_> = (0..20).map(|_| tokio::spawn(fetch())).collect();
        for one in fetching {
            one.await.unwrap().unwrap();
        }
    }
}

/// Everything that people do with containers, from each gateway.
async fn sessions_work(options: InstallationOptions) {
    let ground = Ground::start(options).await;
    for person in &ground.people {
        let there = There { person, namespace: &ground.scene.namespace };
        let ready = ["wait", "--for=condition=Ready", "pod/web", "--timeout=1s"];
        eventually(LIMIT, || async { there.kubectl(&ready).await }).await;
        there.runs_commands().await;
        there.copies_files().await;
        there.forwards_a_port().await;
    }
    eventually(LIMIT, || async {
        let audit = ground.scene.kasbah.cli(["audit"])?;
        let has =
            |words: &str| audit.lines().any(|line| line.contains("create pods/exec") && line.contains(words));
        ensure!(has("  101  began") && has(" B in, 3"), "{audit}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_with_a_real_node_are_as_they_are_without_a_tunnel() {
    match Node::possible() {
        Ok(()) => sessions_work(InstallationOptions::default()).await,
        Err(skipped) => println!("{skipped}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_with_a_real_node_go_through_any_gateway() {
    if let Err(skipped) = Node::possible() {
        println!("{skipped}");
        return;
    }
    let nats = NatsServer::start_as_shipped().await.unwrap();
    let each_service = Some((2, vec![nats.shipped_url("{service}")]));
    sessions_work(InstallationOptions { each_service, ..InstallationOptions::default() }).await;
}
