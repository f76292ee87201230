//! Two gateways on NATS, a cluster with an agent, and ways to its API.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use http::StatusCode;
use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use testkit::{
    Cluster, ControlPlane, ControlPlaneOptions, GitServer, Installation, InstallationOptions, NatsServer,
    WorkTree, eventually,
};

const PROJECT: &str = "bench/clusters";
pub const AGENT: &str = "bench";
pub const LIMIT: Duration = Duration::from_secs(60);
/// Objects of the large list, and bytes of each.
const LARGE: usize = 60;
const LARGE_BYTES: usize = 880_000;

/// How a client reaches the API server.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// By itself.
    Direct,
    /// Through this gateway.
    Gateway(SocketAddr),
}

/// What a client speaks.
#[derive(Debug, Clone, Copy)]
pub enum Protocol {
    Http1,
    Http2,
}

pub struct Stage {
    plane: ControlPlane,
    kasbah: Installation,
    namespace: String,
    agent: String,
    token: String,
    tree: WorkTree,
    _git: GitServer,
    _nats: NatsServer,
}

/// One client with connections of its own.
pub struct Client {
    http: reqwest::Client,
    root: String,
    headers: HeaderMap,
}

/// Of an answer that comes.
pub type Pieces = futures::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>;

/// A watch that is open.
pub struct Watch {
    pieces: Pieces,
    text: String,
}

/// One user does here what a gateway is there for at most.
pub fn without_limits() -> Vec<(String, String)> {
    let limits = ["RATE_PER_USER", "RATE_PER_AGENT", "RATE_PER_ORGANIZATION"];
    let bytes = ["BYTES_PER_USER", "BYTES_PER_ORGANIZATION"];
    let limits =
        limits.into_iter().chain(bytes).chain(["OPEN_PER_USER", "OPEN_PER_AGENT", "OPEN_PER_ORGANIZATION"]);
    limits.map(|limit| (format!("KASBAH_CLUSTERS_{limit}"), "0".to_owned())).collect()
}

/// A repository whose configuration lets people in, and its URL.
pub fn grants() -> anyhow::Result<(GitServer, WorkTree, String)> {
    let git = GitServer::start()?;
    let url = git.create("clusters")?;
    let tree = WorkTree::clone(&url)?;
    write_grants(&tree, "")?;
    Ok((git, tree, url))
}

/// Lets people in, with `more` of the agent's configuration.
pub fn write_grants(tree: &WorkTree, more: &str) -> anyhow::Result<()> {
    let configuration = format!(
        "sources: []\n{more}user_access:\n  access_as: {{user: {{}}}}\n  projects:\n    - id: {PROJECT}\n"
    );
    tree.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration)?;
    tree.commit_and_push("let people in")?;
    Ok(())
}

/// Registers project and agent; agents dial the first gateway from then on, past the balancer, which is of the tests and not of
/// what is measured. Gives the agent's id.
pub fn register(kasbah: &mut Installation, git: &GitServer, url: &str) -> anyhow::Result<String> {
    kasbah.cli(["project", "create", PROJECT, "--repository", url])?;
    git.add_webhook("clusters", kasbah.webhook(PROJECT)?)?;
    let agent = kasbah.register_agent(AGENT, PROJECT)?;
    let gateway = kasbah.replicas()?.gateways().first().copied().context("no gateway")?;
    kasbah.let_agents_dial(gateway.to_string());
    Ok(agent)
}

impl Stage {
    pub async fn start() -> anyhow::Result<Self> {
        let plane =
            ControlPlane::start(ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() })
                .await?;
        let namespace = plane.namespace("bench", false).await?;
        let nats = NatsServer::start_as_shipped().await?;
        let (git, tree, url) = grants()?;
        let mut kasbah = Installation::start(InstallationOptions {
            each_service: Some((2, vec![nats.shipped_url("{service}")])),
            variables: without_limits(),
            ..crate::push::options()
        })
        .await?;
        let agent = register(&mut kasbah, &git, &url)?;
        kasbah.start_agent(AGENT, AGENT, plane.kubeconfig(), &namespace)?;
        let token = std::fs::read_to_string(kasbah.replicas()?.owner_token()?)?.trim().to_owned();
        let stage = Self { plane, kasbah, namespace, agent, token, tree, _git: git, _nats: nats };
        stage.fill().await?;
        Ok(stage)
    }

    /// Everything that is read, and the right to.
    async fn fill(&self) -> anyhow::Result<()> {
        let group = json!({"kind": "Group", "name": "kasbah:user", "apiGroup": "rbac.authorization.k8s.io"});
        let binding = json!({
            "metadata": {"name": "people"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [group],
        });
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        self.plane.create_object(bindings, &binding).await?;
        for number in 0..LARGE {
            let labels = json!({"size": "large"});
            let map = json!({
                "metadata": {"name": format!("large-{number}"), "labels": labels},
                "data": {"value": "lorem ipsum ".repeat(LARGE_BYTES / 12)},
            });
            self.plane.create_object(&self.config_maps(), &map).await?;
        }
        let labels = json!({"size": "small"});
        let small = json!({"metadata": {"name": "watched", "labels": labels}, "data": {"value": "first"}});
        self.plane.create_object(&self.config_maps(), &small).await?;
        Ok(())
    }

    /// The gateway that has the agent's tunnel, and one that has not.
    pub async fn gateways(&mut self) -> anyhow::Result<(Way, Way)> {
        let replicas = self.kasbah.replicas()?;
        let doors = replicas.cluster_gateways();
        let [first, second] = doors[..] else { anyhow::bail!("two gateways are needed") };
        for gateway in [first, second] {
            let client = self.client(Way::Gateway(gateway), Protocol::Http1)?;
            eventually(LIMIT, || async { client.get("/version").await }).await;
        }
        let before = self.hops("tunnel-gateway-1")?;
        self.client(Way::Gateway(second), Protocol::Http1)?.get("/version").await?;
        let is_first = self.hops("tunnel-gateway-1")? > before;
        let (near, far) = if is_first { (first, second) } else { (second, first) };
        Ok((Way::Gateway(near), Way::Gateway(far)))
    }

    /// Requests that a gateway took over from another.
    fn hops(&mut self, gateway: &str) -> anyhow::Result<u64> {
        let admin = self.kasbah.replicas()?.admin(gateway).context("no such gateway")?;
        let page = testkit::admin_page(&admin.to_string(), "/metrics")?;
        let counted =
            page.lines().find_map(|line| line.strip_prefix("kasbah_tunnel_gateway_cluster_hops_total "));
        Ok(counted.context("hops are not counted")?.trim().parse()?)
    }

    pub fn client(&self, way: Way, protocol: Protocol) -> anyhow::Result<Client> {
        let (authority, root, token) = match way {
            Way::Direct => (
                self.plane.authority().as_bytes().to_vec(),
                self.plane.server().to_owned(),
                self.plane.token().to_owned(),
            ),
            Way::Gateway(gateway) => (
                std::fs::read(self.kasbah.authority())?,
                format!("https://{gateway}/agents/{}", self.agent),
                self.token.clone(),
            ),
        };
        let mut client = Client::new(&authority, root, &token, protocol)?;
        if matches!(way, Way::Direct) {
            for (name, value) in
                [("impersonate-user", "kasbah:user:owner"), ("impersonate-group", "kasbah:user")]
            {
                client.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
        }
        Ok(client)
    }

    /// Has gateways that record which requests, and gives the one with the agent's tunnel.
    pub async fn audits(&mut self, which: &str) -> anyhow::Result<Way> {
        let replicas = self.kasbah.replicas()?;
        for gateway in ["tunnel-gateway-1", "tunnel-gateway-2"] {
            replicas.set_variable(gateway, "KASBAH_CLUSTERS_AUDIT", which)?;
            replicas.stop(gateway)?;
        }
        for gateway in ["tunnel-gateway-1", "tunnel-gateway-2"] {
            replicas.start_again(gateway).await?;
        }
        Ok(self.gateways().await?.0)
    }

    /// From now on nothing goes on to the cluster before its record is durable, or it does.
    pub async fn records_first(&self, way: Way, does: bool) -> anyhow::Result<()> {
        write_grants(&self.tree, if does { "audit: fail_closed\n" } else { "" })?;
        let client = self.client(way, Protocol::Http1)?;
        eventually(LIMIT, || async {
            client.get("/version").await?;
            let shown = self.kasbah.cli(["audit", "--agent", AGENT, "--since", "10s"])?;
            let last = shown.lines().last().unwrap_or_default();
            ensure!(last.contains("asked") == does, "the last record is {last:?}");
            Ok(())
        })
        .await;
        Ok(())
    }

    pub fn cluster(&self) -> &Cluster {
        &self.plane
    }

    fn config_maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }

    pub fn large_list(&self) -> String {
        format!("{}?labelSelector=size%3Dlarge", self.config_maps())
    }

    #[expect(clippy::unused_self, clippy::cast_precision_loss, reason = "of this stage; far below 2^52")]
    pub fn large_list_megabytes(&self) -> f64 {
        (LARGE * LARGE_BYTES) as f64 / 1e6
    }

    pub fn watched(&self) -> String {
        format!("{}/watched", self.config_maps())
    }

    pub fn watched_list(&self) -> String {
        format!("{}?labelSelector=size%3Dsmall&watch=1", self.config_maps())
    }
}

impl Client {
    /// Trusts `authority`, and shows `token`.
    pub fn new(authority: &[u8], root: String, token: &str, protocol: Protocol) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}"))?);
        let mut tls = testkit::tls_trusting(authority)?;
        let builder = reqwest::Client::builder().no_proxy();
        let builder = match protocol {
            Protocol::Http1 => {
                tls.alpn_protocols = vec![b"http/1.1".to_vec()];
                builder.http1_only()
            }
            Protocol::Http2 => {
                tls.alpn_protocols = vec![b"h2".to_vec()];
                builder.http2_prior_knowledge()
            }
        };
        Ok(Self { http: builder.tls_backend_preconfigured(tls).build()?, root, headers })
    }

    /// The pieces of an answer.
    pub async fn pieces(&self, path: &str) -> anyhow::Result<Pieces> {
        Ok(self.send(path, false).await?.bytes_stream().boxed())
    }

    /// A connection that became another protocol.
    pub async fn session(&self, path: &str) -> anyhow::Result<reqwest::Upgraded> {
        let request = self.http.post(format!("{}{path}", self.root)).headers(self.headers.clone());
        let answer = request.header("connection", "Upgrade").header("upgrade", "SPDY/3.1").send().await?;
        ensure!(answer.status() == StatusCode::SWITCHING_PROTOCOLS, "{path}: {}", answer.status());
        Ok(answer.upgrade().await?)
    }

    async fn send(&self, path: &str, gzip: bool) -> anyhow::Result<reqwest::Response> {
        let mut request = self.http.get(format!("{}{path}", self.root)).headers(self.headers.clone());
        if gzip {
            request = request.header(ACCEPT_ENCODING, "gzip");
        }
        let answer = request.send().await?;
        let status = answer.status();
        ensure!(status.is_success(), "{path}: {status}: {}", answer.text().await.unwrap_or_default());
        Ok(answer)
    }

    /// A small answer.
    pub async fn get(&self, path: &str) -> anyhow::Result<()> {
        self.send(path, false).await?.bytes().await?;
        Ok(())
    }

    /// A large answer, piece by piece; its bytes as they came.
    pub async fn read(&self, path: &str, gzip: bool) -> anyhow::Result<usize> {
        let mut pieces = self.send(path, gzip).await?.bytes_stream();
        let mut bytes = 0;
        while let Some(piece) = pieces.next().await {
            bytes += piece?.len();
        }
        Ok(bytes)
    }

    pub async fn watch(&self, path: &str) -> anyhow::Result<Watch> {
        Ok(Watch { pieces: self.pieces(path).await?, text: String::new() })
    }
}

impl Watch {
    /// When an event with this value was there.
    pub async fn sees(&mut self, value: &str) -> anyhow::Result<Instant> {
        loop {
            while let Some(end) = self.text.find('\n') {
                let line: String = self.text.drain(..=end).collect();
                let event: Value = serde_json::from_str(&line)?;
                if event.pointer("/object/data/value").and_then(Value::as_str) == Some(value) {
                    return Ok(Instant::now());
                }
            }
            let piece = self.pieces.next().await.context("the watch ended")??;
            self.text.push_str(std::str::from_utf8(&piece)?);
        }
    }
}
