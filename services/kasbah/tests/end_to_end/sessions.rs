//! Sessions with containers through the tunnel: exec, logs, cp, port-forward, with the real kubectl and a real node.

mod client_library;
mod crowd;
mod gapless;
mod host_name;
mod older_kubectl;
mod recorded;

use std::process::Stdio;

use anyhow::ensure;
use serde_json::json;
use testkit::{
    Cluster, ControlPlane, ControlPlaneOptions, Image, InstallationOptions, NatsServer, Node, Tools,
    cluster_node, eventually, free_port, tests_are_long,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::cluster_api::{Person, let_in};
use crate::pods::BUSYBOX;
use crate::scene::{AGENT, LIMIT, Scene};

/// A pod that serves what it is given, and everything around it.
pub struct Ground {
    pub scene: Scene,
    /// One at each gateway.
    pub people: Vec<Person>,
    _node: Node,
    _plane: ControlPlane,
}

/// Somebody, where the pod is.
struct There<'a> {
    person: &'a Person,
    namespace: &'a str,
}

impl Ground {
    pub async fn start(options: InstallationOptions) -> Self {
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

    /// Waits until everybody may use the pod.
    pub async fn is_ready(&self) {
        let ready = ["wait", "--for=condition=Ready", "pod/web", "--timeout=1s"];
        for person in &self.people {
            let there = There { person, namespace: &self.scene.namespace };
            eventually(LIMIT, || async { there.kubectl(&ready).await }).await;
        }
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
        given(kubectl, input).await
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

    /// The program in the container sees the size of the terminal, also when it changes.
    async fn follows_a_terminal(&self) {
        let folder = tempfile::tempdir().unwrap();
        let command =
            self.person.kubectl_command(&self.in_namespace(&["exec", "-it", "web", "--", "sh", "-c"]));
        let command = command.as_std();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let kubectl = words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ");
        // The terminal has no size at first: its client tells it.
        let within = r#"is() { [ "$(stty size 2>&1)" = "$1" ]; }; until is "31 97"; do :; done; stty size; until is "40 120"; do :; done; stty size"#;
        let script = format!(
            "stty rows 31 cols 97\n(until grep -q '31 97' seen; do sleep 0.1; done; stty rows 40 cols 120 </dev/tty) &\n{kubectl} '{within}'\n"
        );
        std::fs::write(folder.path().join("script"), script).unwrap();
        let mut at_a_terminal = Command::new("script");
        at_a_terminal.args(["-qefc", "sh script", "seen"]).current_dir(folder.path()).kill_on_drop(true);
        at_a_terminal.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        // Somebody who types nothing is still there.
        let mut at_a_terminal = at_a_terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let _typing = at_a_terminal.stdin.take();
        let ended = tokio::time::timeout(LIMIT, at_a_terminal.wait()).await;
        let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
        assert!(ended.is_ok_and(|status| status.unwrap().success()), "{seen}");
        assert!(seen.contains("31 97\r\n40 120\r\n"), "{seen}");
    }

    /// Copies a file into the pod and back.
    async fn copies(&self, megabytes: usize) {
        let folder = tempfile::tempdir().unwrap();
        let (there, back) = (folder.path().join("there"), folder.path().join("back"));
        let mut file = std::io::BufWriter::new(std::fs::File::create(&there).unwrap());
        for number in 0..megabytes {
            let seed = u32::try_from(number).unwrap();
            let block: Vec<u8> = (0..1_000_000_u32)
                .map(|place| ((place ^ seed).wrapping_mul(747_796_405) >> 24) as u8)
                .collect();
            std::io::Write::write_all(&mut file, &block).unwrap();
        }
        std::io::Write::flush(&mut file).unwrap();
        let arguments = ["-n", self.namespace, "cp", there.to_str().unwrap(), "web:/tmp/copy"];
        self.person.kubectl(&arguments).await.unwrap();
        let back = back.to_str().unwrap();
        self.copies_back(back).await;
        let same = Command::new("cmp").args([there.to_str().unwrap(), back]).status().await.unwrap();
        assert!(same.success(), "{megabytes} MB copied there and back");
        self.kubectl(&["exec", "web", "--", "rm", "/tmp/copy"]).await.unwrap();
    }

    /// When the container's program has ended, the API server closes the connection; a ping of kubectl's that reaches it afterwards makes
    /// its kernel reset the connection and drop what a slow client has not taken yet, with or without a tunnel. That fails, and copies
    /// nothing wrong.
    async fn copies_back(&self, back: &str) {
        let arguments = ["-n", self.namespace, "cp", "web:/tmp/copy", back];
        for _ in 0..10 {
            match self.person.kubectl(&arguments).await {
                Ok(_) => return,
                Err(error) => assert!(format!("{error:#}").contains("unexpected EOF"), "{error:#}"),
            }
        }
        panic!("each of ten copies broke off");
    }

    async fn forwards_a_port(&self, spdy: bool) {
        let port = free_port().unwrap();
        let forward = format!("{port}:8080");
        let arguments = ["-n", self.namespace, "port-forward", "pod/web", &forward];
        let mut command = self.person.kubectl_command(&arguments);
        command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", if spdy { "false" } else { "true" });
        let mut forwarding = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(forwarding.stdout.take().unwrap()).lines();
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
        let fetching: Vec<_> = (0..100).map(|_| tokio::spawn(fetch())).collect();
        for one in fetching {
            one.await.unwrap().unwrap();
        }
    }
}

/// What a command makes of its input, and its exit code.
async fn given(mut command: Command, input: &[u8]) -> (Vec<u8>, Option<i32>) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    let writing = tokio::spawn(async move {
        stdin.write_all(&input).await.unwrap();
    });
    let output = child.wait_with_output().await.unwrap();
    writing.await.unwrap();
    (output.stdout, output.status.code())
}

/// So many processes of each service, where all that comes to a gateway without the tunnel takes a hop.
pub fn over_hops(each: usize, nats: &NatsServer) -> InstallationOptions {
    // With connections beside the tunnel most of it would take no hop.
    let variables = vec![("KASBAH_TUNNEL_BULK_PER_AGENT".to_owned(), "0".to_owned())];
    let each_service = Some((each, vec![nats.shipped_url("{service}")]));
    InstallationOptions { each_service, variables, ..InstallationOptions::default() }
}

/// Everything that people do with containers, from each gateway.
async fn sessions_work(options: InstallationOptions) {
    let ground = Ground::start(options).await;
    let watches = gapless::Watches::begin(&ground).await;
    ground.is_ready().await;
    for person in &ground.people {
        let there = There { person, namespace: &ground.scene.namespace };
        there.runs_commands().await;
        there.follows_a_terminal().await;
        there.copies(20).await;
        there.forwards_a_port(false).await;
        there.forwards_a_port(true).await;
        client_library::works(&there).await;
    }
    crowd::runs_many_commands(&ground).await;
    if ground.people.len() == 1 {
        There { person: &ground.people[0], namespace: &ground.scene.namespace }
            .copies(if tests_are_long() { 1000 } else { 100 })
            .await;
    }
    watches.saw_the_same().await;
    recorded::sessions_are_recorded(&ground).await;
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
    sessions_work(over_hops(if tests_are_long() { 3 } else { 2 }, &nats)).await;
}
