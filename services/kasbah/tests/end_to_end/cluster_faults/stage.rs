//! Where faults happen: an installation with two agents, one of which has whatever goes wrong, and people who ask both.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use reqwest::{Client, Response};
use serde_json::Value;
use testkit::{Installation, InstallationOptions, eventually};

use super::front::Front;
use crate::cluster_api::let_in;
use crate::scene::{LIMIT, PROJECT, Scene};

/// The agent that has what goes wrong; the other one is the scene's own.
pub const FAULTY: &str = "faulty";
/// Whose the canary's requests are.
const CANARY: &str = "canary";
/// glibc's allocator keeps an arena for each thread, and raises by itself how much free memory it keeps in each. How much that is
/// depends on chance, and is no leak.
const GIVES_MEMORY_BACK: [(&str, &str); 2] =
    [("MALLOC_ARENA_MAX", "2"), ("MALLOC_TRIM_THRESHOLD_", "131072")];
/// No request takes this long in any test, however slow the machine: what does hangs.
pub const HANGS: Duration = Duration::from_secs(50);

pub struct Stage {
    pub scene: Scene,
    pub front: Front,
    faulty: String,
    calm: String,
    canarys_token: String,
}

impl Stage {
    /// Everything but the faulty agent itself, which [`Stage::start_faulty`] starts.
    pub async fn prepare(options: InstallationOptions) -> Self {
        let cluster = testkit::shared_control_plane().await.unwrap();
        let front = Front::start(&cluster).await;
        let scene = Scene::start_as(options, cluster, "").await;
        let faulty = scene.kasbah.register_agent(FAULTY, PROJECT).unwrap();
        let grants = "user_access:\n  access_as: {user: {}}\n  projects:\n    - id: shop/deploy\n";
        let configuration = Scene::configuration(&scene.namespace, grants).replace("manifests", FAULTY);
        scene.tree.write(&format!(".kasbah/agents/{FAULTY}/config.yaml"), configuration).unwrap();
        scene.kasbah.cli(["user", "create", CANARY, "--role", "developer"]).unwrap();
        let (_, canarys_token) = issue_token(&scene.kasbah, CANARY);
        let_in(&scene, "").await;
        let calm = scene.agent_id(crate::scene::AGENT);
        Self { scene, front, faulty, calm, canarys_token }
    }

    /// One process of everything.
    pub async fn start() -> Self {
        Self::start_with(Vec::new()).await
    }

    /// The same with further options.
    pub async fn start_with(server: Vec<String>) -> Self {
        let mut stage = Self::prepare(InstallationOptions { server, ..InstallationOptions::default() }).await;
        stage.start_faulty();
        stage.faulty_answers(&stage.scene.kasbah.clusters()).await;
        stage
    }

    /// Starts the faulty agent, which dials where agents are let dial.
    pub fn start_faulty(&mut self) {
        let kasbah = &mut self.scene.kasbah;
        let mut command =
            kasbah.agent_command(FAULTY, self.front.kubeconfig(), &self.scene.namespace).unwrap();
        command.envs(GIVES_MEMORY_BACK);
        kasbah.start_agent_by(FAULTY, command).unwrap();
    }

    /// Waits until the faulty agent's API answers at a gateway.
    pub async fn faulty_answers(&self, gateway: &str) {
        let (asker, maps) = (self.asker_at(gateway), self.maps());
        eventually(LIMIT, || asker.reads(&maps)).await;
    }

    /// Somebody at the faulty agent.
    pub fn asker(&self) -> Asker {
        self.asker_at(&self.scene.kasbah.clusters())
    }

    /// The canary with another token, at the faulty agent, and that token's id.
    pub fn with_another_token(&self) -> (String, Asker) {
        self.with_another_token_at(&self.scene.kasbah.clusters())
    }

    pub fn with_another_token_at(&self, gateway: &str) -> (String, Asker) {
        let (id, token) = issue_token(&self.scene.kasbah, "another");
        (id, Asker::new(&self.scene.kasbah, gateway, &self.faulty, token))
    }

    /// The canary with a token that ends after this time.
    pub fn with_a_token_for(&self, time: &str) -> Asker {
        let kasbah = &self.scene.kasbah;
        let issued =
            kasbah.json(["token", "issue", "--user", CANARY, "--name", "short", "--expires", time]).unwrap();
        let token = issued["secret"].as_str().unwrap().to_owned();
        Asker::new(kasbah, &kasbah.clusters(), &self.faulty, token)
    }

    pub fn asker_at(&self, gateway: &str) -> Asker {
        Asker::new(&self.scene.kasbah, gateway, &self.faulty, owners_token(&self.scene.kasbah))
    }

    /// The other person, at the agent where nothing goes wrong, or at the faulty one itself.
    pub fn canary_at(&self, gateway: &str, at_the_faulty: bool) -> Asker {
        let agent = if at_the_faulty { &self.faulty } else { &self.calm };
        Asker::new(&self.scene.kasbah, gateway, agent, self.canarys_token.clone())
    }

    /// Path of the namespace's ConfigMaps.
    pub fn maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.scene.namespace)
    }

    /// Path of a ConfigMap that is a fault.
    pub fn fault(&self, name: &str) -> String {
        format!("{}/fault-{name}", self.maps())
    }

    /// Path of a pod that is a fault: its log, or a command in it.
    pub fn pod(&self, name: &str, subresource: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/fault-{name}/{subresource}", self.scene.namespace)
    }

    /// Waits until nothing more is sent: every buffer on the way is full.
    pub async fn everything_is_full(&self) {
        let mut before = (0, 0);
        eventually(LIMIT, || {
            let sent = self.front.sent();
            before = if before.0 == sent { (sent, before.1 + 1) } else { (sent, 0) };
            let same = before.1;
            async move {
                ensure!(sent > 0 && same > 20, "{sent} bytes were sent, and there are more");
                Ok(())
            }
        })
        .await;
    }

    /// Waits until the front has so many answers of faults that go on.
    pub async fn open_at_the_front(&self, count: usize) {
        eventually(LIMIT, || async {
            let open = self.front.open();
            ensure!(open == count, "{open} are open, not {count}");
            Ok(())
        })
        .await;
    }
}

/// Its id, and the token.
fn issue_token(kasbah: &Installation, name: &str) -> (String, String) {
    let issued = kasbah.json(["token", "issue", "--user", CANARY, "--name", name]).unwrap();
    let text = |place: &str| issued.pointer(place).and_then(Value::as_str).unwrap().to_owned();
    (text("/view/id"), text("/secret"))
}

fn owners_token(kasbah: &Installation) -> String {
    let command = kasbah.cli_command().unwrap();
    let mut variables = command.get_envs();
    let named = variables.find_map(|(name, value)| (name == "KASBAH_TOKEN_FILE").then_some(value?));
    let file = named.map_or_else(|| kasbah.data().join("owner-token"), Into::into);
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// A person with a program of their own.
#[derive(Clone)]
pub struct Asker {
    http1: Client,
    http2: Client,
    root: String,
    token: String,
}

/// What was answered.
#[derive(Debug)]
pub struct Told {
    pub code: StatusCode,
    pub body: Value,
}

impl Told {
    /// Fails unless it is a `Status` with this code, and these words in its message.
    pub fn is_status(&self, code: u16, words: &str) {
        let (kind, message) = (&self.body["kind"], self.body["message"].as_str().unwrap_or_default());
        let is_so = self.code == code && kind == "Status" && message.contains(words);
        assert!(is_so, "not {code} with {words:?}: {self:?}");
    }
}

impl Asker {
    fn new(kasbah: &Installation, gateway: &str, agent: &str, token: String) -> Self {
        let authority = std::fs::read(kasbah.authority()).unwrap();
        let http1 = client(&authority, &[b"http/1.1"]);
        let http2 = client(&authority, &[b"h2"]);
        Self { http1, http2, root: format!("{gateway}/agents/{agent}"), token }
    }

    /// The same with connections of its own.
    pub fn on_other_connections(&self, kasbah: &Installation) -> Self {
        let authority = std::fs::read(kasbah.authority()).unwrap();
        let (http1, http2) = (client(&authority, &[b"http/1.1"]), client(&authority, &[b"h2"]));
        Self { http1, http2, ..self.clone() }
    }

    pub fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.http1.request(method, format!("{}{path}", self.root)).bearer_auth(&self.token)
    }

    /// Opens what goes on; the head of the answer is there.
    pub async fn open(&self, path: &str) -> Result<Response> {
        answered(self.request(reqwest::Method::GET, path)).await
    }

    /// The same on the one connection that many share.
    pub async fn open_on_http2(&self, path: &str) -> Result<Response> {
        answered(self.http2.get(format!("{}{path}", self.root)).bearer_auth(&self.token)).await
    }

    /// Asks, and reads the answer whole.
    pub async fn ask(&self, path: &str) -> Result<Told> {
        told(self.open(path).await?).await
    }

    /// Asks for what is to be there.
    pub async fn reads(&self, path: &str) -> Result<Value> {
        let Told { code, body } = self.ask(path).await?;
        ensure!(code == 200, "{path}: {code}: {body}");
        Ok(body)
    }

    /// A connection that became another protocol.
    pub async fn session(&self, path: &str) -> Result<reqwest::Upgraded> {
        let request = self.request(reqwest::Method::POST, path);
        let request = request.header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
        let answer = answered(request).await?;
        ensure!(answer.status() == 101, "{path}: {}", answer.status());
        answer.upgrade().await.context("no upgrade")
    }
}

fn client(authority: &[u8], protocols: &[&[u8]]) -> Client {
    let mut tls = testkit::tls_trusting(authority).unwrap();
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Client::builder().no_proxy().tls_backend_preconfigured(tls).build().unwrap()
}

pub async fn answered(request: reqwest::RequestBuilder) -> Result<Response> {
    let sent = tokio::time::timeout(HANGS, request.send()).await;
    sent.context("hangs: no answer")?.context("no answer")
}

pub async fn told(answer: Response) -> Result<Told> {
    let code = answer.status();
    let read = tokio::time::timeout(HANGS, answer.text()).await.context("hangs: half an answer")?;
    let text = read.context("half an answer")?;
    Ok(Told { code, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
}
