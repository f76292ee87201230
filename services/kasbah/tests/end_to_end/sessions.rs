//! Sessions with containers through the tunnel: exec, logs, cp, port-forward, with the real kubectl and a real node.

use std::process::Stdio;

use anyhow::ensure;
use serde_json::json;
use testkit::{
    Cluster, ControlPlane, ControlPlaneOptions, Image, Node, Tools, cluster_node, eventually, free_port,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster_api::{Person, let_in};
use crate::pods::BUSYBOX;
use crate::scene::{AGENT, LIMIT, Scene};

/// A pod that serves what it is given, and everything around it.
struct Ground {
    scene: Scene,
    person: Person,
    _node: Node,
    _plane: ControlPlane,
}

impl Ground {
    async fn start() -> Self {
        let host = Some(cluster_node::HOST.into());
        let options = ControlPlaneOptions { reachable_at: host, ..ControlPlaneOptions::default() };
        let plane = ControlPlane::start(options).await.unwrap();
        let busybox = Tools::find().unwrap().node_parts().unwrap().join("busybox");
        let node = Node::start(&plane, &[Image::of_busybox(BUSYBOX, &busybox).unwrap()]).await.unwrap();
        let cluster = Cluster::open(plane.kubeconfig()).unwrap();
        let scene = Scene::start_on(cluster, "").await;
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
        let person = Person::owner(&scene.kasbah, AGENT);
        let ground = Self { scene, person, _node: node, _plane: plane };
        let ready = ["wait", "--for=condition=Ready", "pod/web", "--timeout=1s"];
        eventually(LIMIT, || async { ground.kubectl(&ready).await }).await;
        ground
    }

    fn in_namespace<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        ["-n", self.scene.namespace.as_str()].iter().chain(arguments).copied().collect()
    }

    async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.person.kubectl(&self.in_namespace(arguments)).await
    }

    /// What a command in the pod makes of its input, and its exit code.
    async fn exec(&self, command: &str, input: &[u8], spdy: bool) -> (Vec<u8>, Option<i32>) {
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
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_with_containers_are_as_they_are_without_a_tunnel() {
    if let Err(skipped) = Node::possible() {
        println!("{skipped}");
        return;
    }
    let ground = Ground::start().await;
    for spdy in [false, true] {
        let bytes: Vec<u8> =
            (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (echoed, code) = ground.exec("cat", &bytes, spdy).await;
        assert_eq!((echoed.len(), code), (bytes.len(), Some(0)), "spdy {spdy}: the end of the input ends it");
        assert!(echoed == bytes, "spdy {spdy}: byte for byte");
        let (_, code) = ground.exec("exit 7", b"", spdy).await;
        assert_eq!(code, Some(7), "spdy {spdy}");
    }

    let logs = ground.kubectl(&["logs", "web"]).await.unwrap();
    assert_eq!(logs.trim(), "begun");
    let nowhere = ground.person.refused(&ground.in_namespace(&["exec", "nobody", "--", "true"])).await;
    assert!(nowhere.contains("pods \"nobody\" not found"), "{nowhere}");

    let folder = tempfile::tempdir().unwrap();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    let content: Vec<u8> =
        (0..20_000_000_u32).map(|number| (number.wrapping_mul(747_796_405) >> 24) as u8).collect();
    std::fs::write(&there, &content).unwrap();
    ground.kubectl(&["cp", there.to_str().unwrap(), "web:/tmp/copy"]).await.unwrap();
    ground.kubectl(&["cp", "web:/tmp/copy", back.to_str().unwrap()]).await.unwrap();
    assert!(std::fs::read(&back).unwrap() == content, "copied there and back");

    let port = free_port().unwrap();
    let forward = format!("{port}:8080");
    let arguments = ground.in_namespace(&["port-forward", "pod/web", &forward]);
    let (_forwarding, mut lines) = ground.person.start(&arguments);
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
