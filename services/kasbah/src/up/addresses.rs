//! Where the process listens.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context;
use world::World;
use world::network::Listener;

use super::Args;
use crate::folder::{AUTHORITY_FILE, TOKEN_FILE};

/// Where a process of `kasbah up` is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The API, HTTPS.
    pub api: SocketAddr,
    /// Agents' tunnels, TLS.
    pub gateway: SocketAddr,
    /// Health and metrics, HTTP.
    pub admin: SocketAddr,
    /// The data folder.
    pub folder: PathBuf,
    /// By which name clients dial; this machine's addresses if none is given.
    pub name: Option<String>,
    /// There is a file with the authority that clients are to trust.
    pub has_authority: bool,
}

impl Addresses {
    /// URL of the API from this machine.
    #[must_use]
    pub fn api_url(&self) -> String {
        format!("https://{}", self.dialled(self.api))
    }

    /// `host:port` of the gateway from this machine.
    #[must_use]
    pub fn gateway_address(&self) -> String {
        self.dialled(self.gateway)
    }

    fn dialled(&self, address: SocketAddr) -> String {
        match &self.name {
            Some(name) if name.contains(':') => format!("[{name}]:{}", address.port()),
            Some(name) => format!("{name}:{}", address.port()),
            None => dialled(address).to_string(),
        }
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
        let folder = &self.folder;
        writeln!(f, "Kasbah is ready.")?;
        writeln!(f, "  API             {}", self.api_url())?;
        writeln!(f, "  agents dial     {}", self.gateway_address())?;
        writeln!(f, "  health          http://{}/readyz", dialled(self.admin))?;
        writeln!(f, "  data            {}", folder.display())?;
        if self.has_authority {
            writeln!(f, "  authority       {}", folder.join(AUTHORITY_FILE).display())?;
        }
        write!(f, "  owner's token   {}", folder.join(TOKEN_FILE).display())
    }
}

/// The sockets, taken before anything starts.
pub(super) struct Listeners {
    pub(super) admin: Box<dyn Listener>,
    pub(super) api: Box<dyn Listener>,
    pub(super) gateway: Box<dyn Listener>,
}

impl Listeners {
    pub(super) async fn bind(world: &World, args: &Args) -> anyhow::Result<Self> {
        Ok(Self {
            admin: bind(world, args.admin_listen, "--admin-listen").await?,
            api: bind(world, args.api_listen, "--api-listen").await?,
            gateway: bind(world, args.tunnel_gateway.tunnel_listen, "--tunnel-listen").await?,
        })
    }

    pub(super) fn addresses(&self, args: &Args, has_authority: bool) -> anyhow::Result<Addresses> {
        Ok(Addresses {
            api: self.api.local_address()?,
            gateway: self.gateway.local_address()?,
            admin: self.admin.local_address()?,
            folder: args.folder()?.to_owned(),
            name: args.dialled_name().map(str::to_owned),
            has_authority,
        })
    }
}

async fn bind(world: &World, address: SocketAddr, option: &str) -> anyhow::Result<Box<dyn Listener>> {
    let listening = world.network.listen(address).await;
    listening.with_context(|| format!("cannot listen on {address} ({option}): is something else there?"))
}
