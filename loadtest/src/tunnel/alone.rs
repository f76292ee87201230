//! The tunnel alone, before an API server that answers at once: what it costs the gateway and the agent.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use futures::future::try_join_all;
use serde_json::json;
use testkit::{Folder, GitServer, Installation, InstallationOptions, NatsServer, WorkTree, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::bare::{BULK_BYTES, Place, Program};
use super::stage::{self, Client, LIMIT, Pieces, Protocol};
use super::{Runs, many_of};
use crate::figure::{Figure, Target, percentile};
use crate::push::millis;
use crate::usage;

/// Between two looks at what a process has used.
const LOOK: Duration = Duration::from_millis(300);
const GATEWAY: &str = "tunnel-gateway-1";
/// Connections of users, and watches on each.
const CONNECTIONS: usize = 100;
const WATCHES: usize = 100;
/// Opened on all connections at once, so many on each.
const TOGETHER: usize = 5;
/// Round trips of a session.
const ECHOES: usize = 10_000;
/// Small requests one after the other.
const SMALL: usize = 2_000;
const WATCH: &str = "/api/v1/namespaces/a/configmaps?watch=1";

/// One run's values, each with its baseline.
#[derive(Default)]
pub struct Measured {
    pub requests: Runs,
    pub bytes: Runs,
    pub echo: Runs,
    pub gateway_watch: Runs,
    pub agent_watch: Runs,
}

impl Measured {
    pub fn figures(self) -> Vec<Figure> {
        let requests = "requests/core-second";
        vec![
            Figure::of("tunnel.requests-per-core", requests, Target::RatioAtLeast(0.5), self.requests),
            Figure::of("tunnel.bytes-per-core", "MB/core-second", Target::RatioAtLeast(0.6), self.bytes),
            Figure::of("tunnel.echo-p50", "ms", Target::AddsAtMost(0.3), self.echo),
            Figure::of("tunnel.idle-watch-gateway", "kB", Target::AtMost(25.0), self.gateway_watch),
            Figure::of("tunnel.idle-watch-agent", "kB", Target::AtMost(25.0), self.agent_watch),
        ]
    }
}

/// One gateway and an agent before such an API server, and a bare proxy before the same.
pub struct Alone {
    kasbah: Installation,
    agent: String,
    token: String,
    upstream: Program,
    proxy: Program,
    /// In front of that proxy.
    second_proxy: Program,
    _tree: WorkTree,
    _git: GitServer,
    _nats: NatsServer,
    _folder: Folder,
}

impl Alone {
    pub async fn start() -> anyhow::Result<Self> {
        let upstream = Program::upstream()?;
        let proxy = Program::proxy(&upstream.place)?;
        let second_proxy = Program::proxy(&proxy.place)?;
        let folder = Folder::temporary()?;
        let (kubeconfig, authority) = (folder.path().join("kubeconfig"), folder.path().join("ca.crt"));
        std::fs::write(&authority, &upstream.place.authority)?;
        testkit::write_private(&kubeconfig, &kubeconfig_of(&upstream.place, &authority))?;
        let nats = NatsServer::start_as_shipped().await?;
        let (git, tree, url) = stage::grants()?;
        let mut kasbah = Installation::start(InstallationOptions {
            each_service: Some((1, vec![nats.shipped_url("{service}")])),
            variables: stage::without_limits(),
            ..crate::push::options()
        })
        .await?;
        let agent = stage::register(&mut kasbah, &git, &url)?;
        kasbah.start_agent(stage::AGENT, stage::AGENT, &kubeconfig, "default")?;
        let token = std::fs::read_to_string(kasbah.replicas()?.owner_token()?)?.trim().to_owned();
        let mut alone = Self {
            kasbah,
            agent,
            token,
            upstream,
            proxy,
            second_proxy,
            _tree: tree,
            _git: git,
            _nats: nats,
            _folder: folder,
        };
        let client = alone.through(Protocol::Http1)?;
        eventually(LIMIT, || client.get("/version")).await;
        Ok(alone)
    }

    /// Each figure once.
    pub async fn measure(&mut self, all: &mut Measured) -> anyhow::Result<()> {
        // First: what was in use once a process keeps for later.
        let (gateway, agent) = self.watches().await.context("idle watches")?;
        all.gateway_watch.push((gateway, None));
        all.agent_watch.push((agent, None));
        self.rests().await?;
        all.requests.push(self.requests().await.context("requests")?);
        all.bytes.push(self.bytes().await.context("bytes")?);
        all.echo.push(self.echo().await.context("a session")?);
        self.bare_hops().await.context("bare hops")?;
        Ok(())
    }

    /// Waits until the gateway has done what came of the watches' end.
    async fn rests(&mut self) -> anyhow::Result<()> {
        let gateway = self.gateway()?;
        let mut looks = tokio::time::interval(LOOK);
        let deadline = Instant::now() + LIMIT;
        loop {
            looks.tick().await;
            let before = usage::processor_time(&[gateway])?;
            looks.tick().await;
            if usage::processor_time(&[gateway])? == before {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the gateway comes to no rest");
        }
    }

    fn gateway(&mut self) -> anyhow::Result<u32> {
        Ok(self.kasbah.replicas()?.process(GATEWAY).context("no gateway")?.pid())
    }

    fn through(&mut self, protocol: Protocol) -> anyhow::Result<Client> {
        let authority = std::fs::read(self.kasbah.authority())?;
        let gateways = self.kasbah.replicas()?.cluster_gateways();
        let gateway = gateways.first().context("no gateway")?;
        let root = format!("https://{gateway}/agents/{}", self.agent);
        Client::new(&authority, root, &self.token, protocol)
    }

    fn past(address: SocketAddr, place: &Place, protocol: Protocol) -> anyhow::Result<Client> {
        Client::new(place.authority.as_bytes(), format!("https://{address}"), "none", protocol)
    }

    /// What two processes that do nothing but pass on add to a small request, beside what gateway and agent add.
    async fn bare_hops(&mut self) -> anyhow::Result<()> {
        let (upstream, two) = (&self.upstream.place, &self.second_proxy.place);
        let direct = Self::past(upstream.address, upstream, Protocol::Http1)?;
        let passed_on = Self::past(two.address, two, Protocol::Http1)?;
        let clients = [direct, passed_on, self.through(Protocol::Http1)?];
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..SMALL {
            for (client, times) in clients.iter().zip(&mut times) {
                let begun = Instant::now();
                client.get("/version").await?;
                times.push(millis(begun.elapsed()));
            }
        }
        let [direct, passed_on, through] = times.map(|times| percentile(times, 50.0));
        println!(
            "    GET /version p50: {direct:.3} ms, + {:.3} ms through two bare proxies, + {:.3} ms through gateway and agent",
            passed_on - direct,
            through - direct
        );
        Ok(())
    }

    /// Small requests for a second of the gateway's processor time, beside the bare proxy's.
    async fn requests(&mut self) -> anyhow::Result<(f64, Option<f64>)> {
        let (gateway, proxy) = (self.gateway()?, self.proxy.pid());
        let through = (0..super::CLIENTS).map(|_| self.through(Protocol::Http1));
        let through = through.collect::<anyhow::Result<Vec<_>>>()?;
        let place = self.proxy.place.clone();
        let past = (0..super::CLIENTS).map(|_| Self::past(place.address, &place, Protocol::Http1));
        let past = past.collect::<anyhow::Result<Vec<_>>>()?;
        Ok((answered_for(gateway, &through).await?, Some(answered_for(proxy, &past).await?)))
    }

    /// Megabytes for a second of the gateway's processor time, beside a bare copy between two TLS connections.
    async fn bytes(&mut self) -> anyhow::Result<(f64, Option<f64>)> {
        let (gateway, proxy, place) = (self.gateway()?, self.proxy.pid(), self.proxy.place.clone());
        let through = self.through(Protocol::Http1)?;
        let past = Self::past(place.bytes, &place, Protocol::Http1)?;
        Ok((moved_for(gateway, &through).await?, Some(moved_for(proxy, &past).await?)))
    }

    /// Milliseconds until what was said in a session is back, in turns by both ways.
    async fn echo(&mut self) -> anyhow::Result<(f64, Option<f64>)> {
        let place = self.upstream.place.clone();
        let exec = "/api/v1/namespaces/a/pods/b/exec?command=cat&stdin=true&stdout=true";
        let mut through = self.through(Protocol::Http1)?.session(exec).await?;
        let mut direct = Self::past(place.address, &place, Protocol::Http1)?.session(exec).await?;
        let (mut times, mut baseline) = (Vec::new(), Vec::new());
        for _ in 0..ECHOES {
            for (session, times) in [(&mut through, &mut times), (&mut direct, &mut baseline)] {
                let begun = Instant::now();
                session.write_all(b"x").await?;
                session.flush().await?;
                session.read_u8().await?;
                times.push(millis(begun.elapsed()));
            }
        }
        Ok((percentile(times, 50.0), Some(percentile(baseline, 50.0))))
    }

    /// Kilobytes that the gateway and the agent hold for each of many watches that say nothing.
    async fn watches(&mut self) -> anyhow::Result<(f64, f64)> {
        let (gateway, agent) = (self.gateway()?, self.kasbah.agent(stage::AGENT)?.pid());
        let users = (0..CONNECTIONS).map(|_| self.through(Protocol::Http2));
        let users = users.collect::<anyhow::Result<Vec<_>>>()?;
        let before = (usage::resident(&[gateway])?, usage::resident(&[agent])?);
        let mut open = Vec::new();
        while open.len() < CONNECTIONS * WATCHES {
            let opening = users.iter().flat_map(|user| (0..TOGETHER).map(|_| begun(user)));
            open.extend(try_join_all(opening).await?);
        }
        let after = (usage::resident(&[gateway])?, usage::resident(&[agent])?);
        let each = |before: u64, after: u64| kilobytes(after.saturating_sub(before), open.len());
        let figures = (each(before.0, after.0), each(before.1, after.1));
        drop(open);
        Ok(figures)
    }
}

/// A watch that has said its first word.
async fn begun(user: &Client) -> anyhow::Result<Pieces> {
    let mut pieces = user.pieces(WATCH).await?;
    pieces.next().await.context("the watch ended")??;
    Ok(pieces)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn kilobytes(bytes: u64, count: usize) -> f64 {
    bytes as f64 / 1e3 / count as f64
}

async fn answered_for(pid: u32, clients: &[Client]) -> anyhow::Result<f64> {
    let before = usage::processor_time(&[pid])?;
    let count = many_of(clients).await?.0;
    let took = usage::processor_time(&[pid])?.saturating_sub(before);
    Ok(f64::from(count) / seconds(took)?)
}

async fn moved_for(pid: u32, client: &Client) -> anyhow::Result<f64> {
    let before = usage::processor_time(&[pid])?;
    let bytes = client.read("/bulk", false).await?;
    ensure!(bytes == BULK_BYTES, "{bytes} bytes came");
    let took = usage::processor_time(&[pid])?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let megabytes = bytes as f64 / 1e6;
    Ok(megabytes / seconds(took)?)
}

fn seconds(took: Duration) -> anyhow::Result<f64> {
    ensure!(!took.is_zero(), "too little to be measured");
    Ok(took.as_secs_f64())
}

fn kubeconfig_of(place: &Place, authority: &Path) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bare",
        "clusters": [{"name": "bare", "cluster": {
            "server": format!("https://{}", place.address),
            "certificate-authority": authority,
        }}],
        "users": [{"name": "bare", "user": {"token": "none"}}],
        "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "bare"}}],
    })
    .to_string()
}
