//! k9s at a terminal, straight at the API server and through the tunnel: what somebody does with it all day.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::ensure;
use regex::Regex;
use serde_json::{Value, json};
use testkit::{Cluster, K9S, NatsServer, Node, Skipped, Tools, eventually, free_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster_api::Person;
use crate::command_lines::side::user_there;
use crate::pods::BUSYBOX;
use crate::scene::{LIMIT, Scene};
use crate::sessions::{Ground, over_hops};
use crate::terminal::{COLUMNS, ROWS, Terminal};

const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";
const TAB: &str = "\t";
const CTRL_D: &str = "\x04";
const SHIFT_F: &str = "F";
/// The pod that this is about, and one that goes again.
const MADE: &str = "made";
const PASSING: &str = "passing";
/// What a container says when it starts.
const BEGUN: &str = "begun to serve";
/// What k9s writes into its log: when, how grave, and what.
static LOGGED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^\S+ ([A-Z]{3} .*)$").unwrap());
static COLOURS: LazyLock<Regex> = LazyLock::new(|| Regex::new("\x1b\\[[0-9;]*m").unwrap());

/// Somebody with k9s and the kubectl that it calls.
struct Walk<'a> {
    scene: &'a Scene,
    /// Where the pod serves, in its container and, forwarded, on this machine.
    port: u16,
    folder: tempfile::TempDir,
    terminal: Terminal,
}

impl<'a> Walk<'a> {
    fn begin(scene: &'a Scene, program: &Path, kubeconfig: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (programs, settings) = (folder.path().join("bin"), folder.path().join("config.yaml"));
        std::fs::create_dir(&programs).unwrap();
        let kubectl = Tools::find().unwrap().path("kubectl").unwrap();
        std::os::unix::fs::symlink(kubectl, programs.join("kubectl")).unwrap();
        // It would ask the internet whether there is a newer one.
        std::fs::write(settings, "k9s: {skipLatestRevCheck: true}\n").unwrap();
        let command = pty_process::Command::new(program)
            .args(["--namespace", &scene.namespace, "--command", "pods", "--splashless"])
            .env("KUBECONFIG", kubeconfig)
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .envs(
                ["K9S_CONFIG_DIR", "K9S_LOGS_DIR", "HOME", "XDG_CACHE_HOME"]
                    .map(|name| (name, folder.path())),
            )
            .envs([("TERM", "xterm-256color"), ("LANG", "C.UTF-8")]);
        let terminal = Terminal::start(command);
        Self { scene, port: free_port().unwrap(), folder, terminal }
    }

    /// Everything, from the first screen to the last, and what k9s says of it in its log.
    async fn goes(mut self) -> BTreeSet<String> {
        self.sees_pods_come_and_go().await;
        self.finds_one().await;
        self.reads_its_log().await;
        self.describes_it().await;
        self.opens_a_shell_in_it().await;
        self.forwards_its_port().await;
        self.deletes_it().await;
        self.terminal.types(&format!(":q{ENTER}")).await;
        let ended = self.terminal.ends().await;
        assert_eq!(ended.code(), Some(0), "{ended}");
        let log = std::fs::read_to_string(self.folder.path().join("k9s.log")).unwrap();
        let log = COLOURS.replace_all(&log, "").replace(&self.port.to_string(), "<port>");
        LOGGED.captures_iter(&log).map(|line| line[1].to_owned()).collect()
    }

    async fn sees_pods_come_and_go(&self) {
        self.terminal.shows_row(&["web", "1/1", "Running"]).await;
        self.create(MADE).await;
        self.create(PASSING).await;
        self.terminal.shows_row(&[MADE, "1/1", "Running"]).await;
        self.terminal.shows_row(&[PASSING, "1/1", "Running"]).await;
        let delete = ["delete", "pod", PASSING, "--now", "-n", &self.scene.namespace];
        self.scene.cluster.kubectl(delete).await.unwrap();
        self.terminal.becomes("end of the pod", |screen| !screen.contains(PASSING)).await;
    }

    /// So that what comes next is about this one.
    async fn finds_one(&mut self) {
        self.terminal.types(&format!("/{MADE}{ENTER}")).await;
        self.is_at_the_list().await;
    }

    async fn is_at_the_list(&self) {
        let title = format!("pods({})[1] </{MADE}>", self.scene.namespace);
        self.terminal.becomes(&title, |screen| screen.contains(&title) && !screen.contains("web")).await;
    }

    async fn goes_back(&mut self) {
        self.terminal.types(ESCAPE).await;
        self.is_at_the_list().await;
    }

    async fn reads_its_log(&mut self) {
        self.terminal.types("l").await;
        self.terminal.shows(&format!("Logs({}/{MADE}:{MADE})", self.scene.namespace)).await;
        self.terminal.shows(BEGUN).await;
        let say =
            ["exec", "-n", &self.scene.namespace, MADE, "--", "sh", "-c", "echo and more > /proc/1/fd/1"];
        self.scene.cluster.kubectl(say).await.unwrap();
        self.terminal.shows("and more").await;
        self.goes_back().await;
    }

    async fn describes_it(&mut self) {
        self.terminal.types("d").await;
        self.terminal.shows(&format!("Describe({}/{MADE})", self.scene.namespace)).await;
        self.terminal.shows(&format!("Image:         {BUSYBOX}")).await;
        self.goes_back().await;
    }

    /// The shell is kubectl's, at the same terminal.
    async fn opens_a_shell_in_it(&mut self) {
        self.terminal.types("s").await;
        self.terminal.shows("/ # ").await;
        self.terminal.types(&format!("echo $((6 * 7)) in $HOSTNAME of $(stty size){ENTER}")).await;
        self.terminal.shows(&format!("42 in {MADE} of {ROWS} {COLUMNS}")).await;
        self.terminal.types(&format!("exit{ENTER}")).await;
        self.is_at_the_list().await;
    }

    async fn forwards_its_port(&mut self) {
        self.terminal.types(SHIFT_F).await;
        self.terminal.shows(&format!("Container Port: {MADE}::{}", self.port)).await;
        self.terminal.types(&format!("{}{ENTER}", TAB.repeat(3))).await;
        let fetched = eventually(LIMIT, || async {
            let mut socket = TcpStream::connect(("127.0.0.1", self.port)).await?;
            socket.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await?;
            ensure!(!answer.is_empty(), "{}", self.terminal.screen());
            anyhow::Ok(answer)
        });
        let fetched = fetched.await;
        assert!(fetched.ends_with("served\n"), "{fetched}");
    }

    async fn deletes_it(&mut self) {
        self.terminal.types(CTRL_D).await;
        self.terminal.shows(&format!("Delete pods {}/{MADE}?", self.scene.namespace)).await;
        // From Cancel to OK.
        self.terminal.types(&format!("{TAB}{ENTER}")).await;
        let path = format!("/api/v1/namespaces/{}/pods/{MADE}", self.scene.namespace);
        eventually(LIMIT, || async {
            ensure!(
                !self.scene.cluster.exists(&path).await?,
                "it is still there:\n{}",
                self.terminal.screen()
            );
            Ok(())
        })
        .await;
        self.terminal.shows(&format!("pods({})[0]", self.scene.namespace)).await;
    }

    async fn create(&self, name: &str) {
        let script = format!(
            "echo {BEGUN}; mkdir /www; echo served > /www/index.html; httpd -f -p {} -h /www",
            self.port
        );
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": name,
                    "image": BUSYBOX,
                    "imagePullPolicy": "Never",
                    "ports": [{"containerPort": self.port}],
                    "command": ["sh", "-c", script],
                }],
            },
        });
        let pods = format!("/api/v1/namespaces/{}/pods", self.scene.namespace);
        self.scene.cluster.create_object(&pods, &pod).await.unwrap();
    }
}

/// A kubeconfig that names things as the person's does, and leads straight to the API server as whom the tunnel names there.
async fn straight(person: &Person, cluster: &Cluster) -> Value {
    let text = std::fs::read_to_string(person.kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    let own: Value = serde_json::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let whoami = person.kubectl(&["auth", "whoami", "-o", "json"]).await.unwrap();
    let whoami: Value = serde_json::from_str(&whoami).unwrap();
    kubeconfig["clusters"][0]["cluster"] = own["clusters"][0]["cluster"].clone();
    kubeconfig["users"][0]["user"] = user_there(cluster, &whoami["status"]["userInfo"]);
    kubeconfig
}

fn possible() -> Result<PathBuf, Skipped> {
    Node::possible()?;
    K9S.path()
}

#[tokio::test(flavor = "multi_thread")]
async fn k9s_at_a_real_node_does_through_any_gateway_what_it_does_without_a_tunnel() {
    let program = match possible() {
        Ok(program) => program,
        Err(skipped) => {
            println!("{skipped}");
            return;
        }
    };
    let nats = NatsServer::start_as_shipped().await.unwrap();
    let ground = Ground::start(over_hops(2, &nats)).await;
    ground.is_ready().await;
    let kubeconfig = ground.people[0].home().join("straight");
    let text = straight(&ground.people[0], &ground.scene.cluster).await.to_string();
    std::fs::write(&kubeconfig, text).unwrap();
    let said_directly = Walk::begin(&ground.scene, &program, &kubeconfig).goes().await;
    for person in &ground.people {
        let said = Walk::begin(&ground.scene, &program, &person.kubeconfig()).goes().await;
        assert_eq!(said, said_directly);
    }
}
