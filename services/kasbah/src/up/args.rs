//! Settings of `kasbah up`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use chassis::args::parse_duration;
use chassis::logs::LogArgs;
use chassis::tls::ServerTlsArgs;
use chassis::traces::TraceArgs;

use super::nats::NatsArgs;
use super::{Addresses, addresses};

/// Settings of `kasbah up`. Each service's own are among them.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
#[command(
    mut_arg("repositories", |option| option
        .required(false)
        .default_value("repositories")
        .help("Folder for what was fetched of repositories, a cache; inside the data folder if relative")),
    mut_arg("allow_private_addresses", |option| option
        .default_value("true")
        .help("Lets repositories lie on this machine and its networks; allowed unless the variable or file says false")),
)]
pub struct Args {
    /// Folder for everything that is kept [default: kasbah in the user's data folder]
    #[arg(long, env = "KASBAH_DATA", value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Address of the API, HTTPS
    #[arg(long, env = "KASBAH_API_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8440")]
    pub api_listen: SocketAddr,
    /// Address for health probes and metrics, plain HTTP
    #[arg(long, env = "KASBAH_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8442")]
    pub admin_listen: SocketAddr,
    /// A further host name or IP address under which this server is dialled, for its certificate; may be given more than once. Beside a certificate of your own: the name in it by which clients are to dial
    #[arg(long, env = "KASBAH_TLS_NAME", value_name = "NAME", value_delimiter = ',')]
    pub tls_name: Vec<String>,
    /// A certificate that comes from elsewhere.
    #[command(flatten)]
    pub tls: ServerTlsArgs,
    /// Name of the organization that the first start makes
    #[arg(long, env = "KASBAH_ORGANIZATION", value_name = "NAME", default_value = "home")]
    pub organization: String,
    /// Login name of its owner
    #[arg(long, env = "KASBAH_OWNER", value_name = "NAME", default_value = "owner")]
    pub owner: String,
    /// Issue a new token for the owner, and revoke the one of before
    #[arg(long)]
    pub new_owner_token: bool,
    /// Where everything is kept, when not in the folder.
    #[command(flatten)]
    pub nats: NatsArgs,
    /// Time for everything to finish when the process is asked to stop
    #[arg(long, env = "KASBAH_DRAIN", value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub drain: Duration,
    /// What is logged.
    #[command(flatten)]
    pub logs: LogArgs,
    /// Where spans go.
    #[command(flatten)]
    pub traces: TraceArgs,
    /// Of authz.
    #[command(flatten)]
    pub authz: authz::Args,
    /// Of config-fetcher.
    #[command(flatten)]
    pub config_fetcher: config_fetcher::Args,
    /// Of repo-poller.
    #[command(flatten)]
    pub repo_poller: repo_poller::Args,
    /// Of delivery.
    #[command(flatten)]
    pub delivery: delivery::Args,
    /// Of tunnel-gateway.
    #[command(flatten)]
    pub tunnel_gateway: tunnel_gateway::Args,
    /// Of console.
    #[command(flatten)]
    pub console: console::Args,
}

impl Args {
    /// With all folders absolute.
    pub(super) fn resolved(mut self) -> anyhow::Result<Self> {
        let data = self.data.or_else(crate::folder::default_data_folder);
        let data = data.context("no data folder: set --data or KASBAH_DATA, as this user has no home")?;
        let data = std::path::absolute(data).context("the data folder has no absolute path")?;
        self.repo_poller.repositories = data.join(&self.repo_poller.repositories);
        self.data = Some(data);
        Ok(self)
    }

    pub(super) fn folder(&self) -> anyhow::Result<&Path> {
        self.data.as_deref().context("the data folder is not resolved")
    }

    /// The name by which clients dial, where the certificate is not made for this machine's addresses.
    pub(super) fn dialled_name(&self) -> Option<&str> {
        let given = self.tls.tls_certificate_file.is_some();
        self.tls_name.first().filter(|_| given).map(String::as_str)
    }

    /// The same, or else the address by which clients on this machine dial.
    pub(super) fn dialled_host(&self) -> String {
        let address = || addresses::dialled(self.api_listen).ip().to_string();
        self.dialled_name().map_or_else(address, str::to_owned)
    }

    /// Under which names the server's certificate is to be valid: this machine's, those listened on, those given.
    pub(super) fn tls_names(&self, addresses: &Addresses) -> Vec<String> {
        let machine = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        let listened =
            [addresses.api.ip(), addresses.gateway.ip()].into_iter().filter(|ip| !ip.is_unspecified());
        let mut names: BTreeSet<String> = listened.map(|ip: IpAddr| ip.to_string()).collect();
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        names.extend(self.tls_name.iter().cloned());
        let plain = |name: &String| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
        };
        names.extend(Some(machine).filter(plain).filter(|name| !name.is_empty()));
        names.into_iter().collect()
    }
}
