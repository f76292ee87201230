//! Settings that more than one of the server's commands take, and what they come to.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bus::{Bus, LocalBus};
use chassis::Metrics;
use chassis::args::parse_duration;
use chassis::logs::LogArgs;
use chassis::tls::ServerTlsArgs;
use chassis::traces::TraceArgs;
use tunnel_gateway::Origin;
use world::World;

use super::Services;
use super::addresses::{self, Addresses};
use super::nats::NatsArgs;

/// How a process runs, whatever it does.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct ProcessArgs {
    /// Address for health probes and metrics, plain HTTP
    #[arg(long, env = "KASBAH_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8442")]
    pub admin_listen: SocketAddr,
    /// Time for open work to finish when the process is stopped
    #[arg(long, env = "KASBAH_DRAIN", value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub drain: Duration,
    /// What is logged.
    #[command(flatten)]
    pub logs: LogArgs,
    /// Where spans go.
    #[command(flatten)]
    pub traces: TraceArgs,
}

/// What a process leaves on its machine.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct FolderArgs {
    /// Folder for all data on this machine [default: kasbah in the user's data folder]
    #[arg(long, env = "KASBAH_DATA", value_name = "FOLDER")]
    pub data: Option<PathBuf>,
}

impl FolderArgs {
    /// The folder, absolute.
    pub(super) fn resolved(self) -> anyhow::Result<PathBuf> {
        let data = self.data.or_else(crate::folder::default_data_folder);
        let data = data.context("no data folder: set --data or KASBAH_DATA, as this user has no home")?;
        std::path::absolute(data).context("the data folder has no absolute path")
    }
}

/// What the first start makes.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct FirstStartArgs {
    /// Name of the organization that the first start creates
    #[arg(long, env = "KASBAH_ORGANIZATION", value_name = "NAME", default_value = "home")]
    pub organization: String,
    /// Login name of its owner
    #[arg(long, env = "KASBAH_OWNER", value_name = "NAME", default_value = "owner")]
    pub owner: String,
    /// Issue a new token for the owner, and revoke the former one
    #[arg(long)]
    pub new_owner_token: bool,
}

/// What is shown to those who dial this process.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct CertificateArgs {
    /// A further host name or IP address of this server, for its certificate; may be given more than once. With your own certificate:
    /// the name in it that clients use
    #[arg(long, env = "KASBAH_TLS_NAME", value_name = "NAME", value_delimiter = ',')]
    pub tls_name: Vec<String>,
    /// A certificate that comes from elsewhere.
    #[command(flatten)]
    pub tls: ServerTlsArgs,
}

/// The API's edge.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct ApiArgs {
    /// Address of the API, HTTPS
    #[arg(long, env = "KASBAH_API_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8440")]
    pub api_listen: SocketAddr,
    /// Address of the tunnel gateways for agents, host and port, if it is not this machine; printed by the command line
    #[arg(long, env = "KASBAH_AGENTS_DIAL", value_name = "HOST:PORT")]
    pub agents_dial: Option<String>,
    /// URL of clusters' APIs for users and jobs, if it is not this machine; printed by the command line. With `{agent}` in it, each
    /// agent has its own host name
    #[arg(long, env = "KASBAH_CLUSTERS_URL", value_name = "URL")]
    pub clusters_url: Option<String>,
    /// Of console.
    #[command(flatten)]
    pub console: console::Args,
}

/// All that a server process is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it is called: `kasbah` with all services, otherwise its only service.
    pub(super) name: &'static str,
    pub(super) process: ProcessArgs,
    pub(super) nats: NatsArgs,
    /// Absolute; `None` where nothing is left on the machine.
    pub(super) folder: Option<PathBuf>,
    pub(super) certificate: CertificateArgs,
    pub(super) services: Services,
}

impl Settings {
    /// The bus of this process: NATS, or its own.
    ///
    /// # Errors
    /// When NATS cannot be reached.
    pub async fn bus(&self, world: &World, metrics: &Metrics) -> anyhow::Result<Arc<dyn Bus>> {
        if !self.nats.is_given() {
            return Ok(Arc::new(LocalBus::new(world.clone())));
        }
        let bus = self.nats.bus(world, self.name).await?;
        super::metrics::watch_bus(metrics, bus.clone());
        Ok(Arc::new(bus))
    }

    pub(super) fn folder(&self) -> anyhow::Result<&Path> {
        self.folder.as_deref().context("this process has no data folder")
    }

    /// The name by which clients dial, where the certificate is not made for this machine's addresses.
    pub(super) fn dialled_name(&self) -> Option<&str> {
        let given = self.certificate.tls.tls_certificate_file.is_some();
        self.certificate.tls_name.first().filter(|_| given).map(String::as_str)
    }

    /// This process's own web page uses clusters' APIs where nobody named others.
    pub(super) fn let_own_page_in(&mut self, addresses: &Addresses) {
        if let Some(api) = &mut self.services.console {
            api.console.clusters_url = addresses.clusters_url.clone();
        }
        let page = self.page_origins(addresses);
        let gateway = self.services.tunnel_gateway.as_mut();
        if let Some(gateway) = gateway.filter(|args| args.clusters_origins.is_empty()) {
            gateway.clusters_origins = page;
        }
    }

    /// Under which origins people open that page.
    fn page_origins(&self, addresses: &Addresses) -> Vec<Origin> {
        let given = self.services.console.as_ref().and_then(|api| api.console.api_url.clone());
        let here = addresses.page_url().filter(|url| url.starts_with("http://"));
        let by_name = here.as_ref().and(addresses.api).map(|api| format!("http://localhost:{}", api.port()));
        let urls = [given, addresses.api_url(), here, by_name].into_iter().flatten();
        let origins: BTreeSet<String> = urls.map(|url| origin_of(&url)).collect();
        origins.iter().filter_map(|origin| origin.parse().ok()).collect()
    }

    /// The same, or else the address by which clients on this machine dial.
    pub(super) fn dialled_host(&self) -> Option<String> {
        let api = self.services.console.as_ref().map(|api| api.api_listen);
        let gateway = self.services.tunnel_gateway.as_ref().map(|gateway| gateway.tunnel_listen);
        let address = addresses::dialled(api.or(gateway)?).ip().to_string();
        Some(self.dialled_name().map_or(address, str::to_owned))
    }

    fn clusters_domain(&self) -> Option<&str> {
        self.services.tunnel_gateway.as_ref()?.clusters_domain.as_deref()
    }

    /// Under which names the server's certificate is to be valid: this machine's, those listened on, those given.
    pub(super) fn tls_names(&self, addresses: &Addresses) -> Vec<String> {
        let machine = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        let listened = [addresses.api, addresses.gateway, addresses.clusters]
            .into_iter()
            .flatten()
            .map(|address| address.ip());
        let listened = listened.filter(|ip| !ip.is_unspecified());
        let mut names: BTreeSet<String> = listened.map(|ip: IpAddr| ip.to_string()).collect();
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        names.extend(self.certificate.tls_name.iter().cloned());
        let plain = |name: &String| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
        };
        names.extend(self.clusters_domain().map(|domain| format!("*.{domain}")));
        names.extend(Some(machine).filter(plain).filter(|name| !name.is_empty()));
        names.into_iter().collect()
    }
}

/// A URL's origin as browsers write it.
fn origin_of(url: &str) -> String {
    let end = url.find("://").and_then(|scheme| Some(scheme + 3 + url.get(scheme + 3..)?.find('/')?));
    let origin = end.and_then(|end| url.get(..end)).unwrap_or(url).to_ascii_lowercase();
    let default = if origin.starts_with("https://") { ":443" } else { ":80" };
    origin.strip_suffix(default).map_or(origin.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_url_without_its_path_and_the_port_that_goes_without_saying() {
        for (url, origin) in [
            ("https://127.0.0.1:8440", "https://127.0.0.1:8440"),
            ("https://Kasbah.example:443/", "https://kasbah.example"),
            ("https://kasbah.example/kasbah", "https://kasbah.example"),
            ("http://localhost:80", "http://localhost"),
        ] {
            assert_eq!(origin_of(url), origin);
        }
    }
}
