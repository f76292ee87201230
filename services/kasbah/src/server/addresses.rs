//! Where the process listens.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context;
use world::World;
use world::network::Listener;

use super::Settings;
use crate::folder::{AUTHORITY_FILE, TOKEN_FILE};

/// The gateway's port where nothing else is said.
const GATEWAY_PORT: u16 = 8441;

/// Where a process of the server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// What the process is called.
    pub process: &'static str,
    /// The API, HTTPS.
    pub api: Option<SocketAddr>,
    /// Agents' tunnels, TLS.
    pub gateway: Option<SocketAddr>,
    /// Clusters' APIs, HTTPS.
    pub clusters: Option<SocketAddr>,
    /// Health and metrics, HTTP.
    pub admin: SocketAddr,
    /// The data folder.
    pub folder: Option<PathBuf>,
    /// By which name clients dial; this machine's addresses if none is given.
    pub name: Option<String>,
    /// `host:port` at which agents dial a gateway.
    pub agents_dial: String,
    /// URL under which people and jobs reach clusters' APIs.
    pub clusters_url: Option<String>,
    /// There is a file with the authority that clients are to trust.
    pub has_authority: bool,
    /// There is a file with the owner's token.
    pub has_token: bool,
}

impl Addresses {
    /// URL of the API from this machine.
    #[must_use]
    pub fn api_url(&self) -> Option<String> {
        self.api.map(|api| format!("https://{}", dialled_as(self.name.as_deref(), api)))
    }

    /// URL of the web page from this machine. On the loopback it is plain HTTP, as a browser would warn of this server's certificate.
    #[must_use]
    pub fn page_url(&self) -> Option<String> {
        let api = self.api?;
        match api.ip().is_loopback() && self.name.is_none() {
            true => Some(format!("http://{api}")),
            false => self.api_url(),
        }
    }

    /// Whether anybody dials it who wants to see a certificate.
    pub(super) const fn is_dialled(&self) -> bool {
        self.api.is_some() || self.gateway.is_some()
    }
}

fn dialled_as(name: Option<&str>, address: SocketAddr) -> String {
    match name {
        Some(name) if name.contains(':') => format!("[{name}]:{}", address.port()),
        Some(name) => format!("{name}:{}", address.port()),
        None => dialled(address).to_string(),
    }
}

/// Who listens everywhere is dialled on the loopback from this machine.
pub(super) fn dialled(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            "kasbah" => write!(f, "Kasbah is ready.")?,
            service => write!(f, "Kasbah's {service} is ready.")?,
        }
        if let Some(url) = self.api_url() {
            write!(f, "\n  API             {url}")?;
        }
        if let Some(url) = self.page_url() {
            write!(f, "\n  web page        {url}")?;
        }
        if self.gateway.is_some() {
            write!(f, "\n  agents dial     {}", self.agents_dial)?;
        }
        if let Some(url) = self.clusters_url.as_ref().filter(|_| self.clusters.is_some()) {
            write!(f, "\n  clusters        {url}")?;
        }
        write!(f, "\n  health          http://{}/readyz", dialled(self.admin))?;
        let Some(folder) = &self.folder else { return Ok(()) };
        write!(f, "\n  data            {}", folder.display())?;
        if self.api.is_some() && self.has_authority {
            write!(f, "\n  authority       {}", folder.join(AUTHORITY_FILE).display())?;
        }
        if self.has_token {
            write!(f, "\n  owner's token   {}", folder.join(TOKEN_FILE).display())?;
        }
        Ok(())
    }
}

/// The sockets, taken before anything starts.
pub(super) struct Listeners {
    pub(super) admin: Box<dyn Listener>,
    pub(super) api: Option<Box<dyn Listener>>,
    pub(super) gateway: Option<Box<dyn Listener>>,
    pub(super) clusters: Option<Box<dyn Listener>>,
}

impl Listeners {
    pub(super) async fn bind(world: &World, settings: &Settings) -> anyhow::Result<Self> {
        let api = settings.services.console.as_ref().map(|api| api.api_listen);
        let gateway = settings.services.tunnel_gateway.as_ref();
        Ok(Self {
            admin: bind(world, settings.process.admin_listen, "--admin-listen").await?,
            api: bind_some(world, api, "--api-listen").await?,
            gateway: bind_some(world, gateway.map(|args| args.tunnel_listen), "--tunnel-listen").await?,
            clusters: bind_some(world, gateway.map(|args| args.clusters_listen), "--clusters-listen").await?,
        })
    }

    pub(super) fn addresses(&self, settings: &Settings, has_authority: bool) -> anyhow::Result<Addresses> {
        let address = |listener: &Option<Box<dyn Listener>>| {
            listener.as_ref().map(|listener| listener.local_address()).transpose()
        };
        let (api, gateway, clusters) =
            (address(&self.api)?, address(&self.gateway)?, address(&self.clusters)?);
        let name = settings.dialled_name();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, GATEWAY_PORT));
        let given = settings.services.console.as_ref().and_then(|api| api.agents_dial.clone());
        let clusters_url = settings.services.console.as_ref().and_then(|api| api.clusters_url.clone());
        let here_url = clusters.map(|clusters| format!("https://{}", dialled_as(name, clusters)));
        Ok(Addresses {
            process: settings.name,
            api,
            gateway,
            clusters,
            clusters_url: clusters_url.or(here_url),
            admin: self.admin.local_address()?,
            folder: settings.folder.clone(),
            name: name.map(str::to_owned),
            agents_dial: given.unwrap_or_else(|| dialled_as(name, gateway.unwrap_or(here))),
            has_authority,
            has_token: settings.services.authz.is_some(),
        })
    }
}

async fn bind_some(
    world: &World,
    address: Option<SocketAddr>,
    option: &str,
) -> anyhow::Result<Option<Box<dyn Listener>>> {
    match address {
        Some(address) => Ok(Some(bind(world, address, option).await?)),
        None => Ok(None),
    }
}

async fn bind(world: &World, address: SocketAddr, option: &str) -> anyhow::Result<Box<dyn Listener>> {
    let listening = world.network.listen(address).await;
    listening.with_context(|| format!("cannot listen on {address} ({option}): is the port in use?"))
}
