//! Settings.

use std::net::SocketAddr;
use std::time::Duration;

use chassis::args::parse_duration;

use crate::cluster_api::Origin;

/// Settings of the gateway.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Address for agents' tunnels
    #[arg(long, env = "KASBAH_TUNNEL_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8441")]
    pub tunnel_listen: SocketAddr,

    /// Take tunnels without TLS: tokens and manifests can then be read on the way
    #[arg(long, env = "KASBAH_TUNNEL_INSECURE_PLAIN_TEXT")]
    pub tunnel_insecure_plain_text: bool,

    /// Time for tunnels to finish when the process is asked to stop
    #[arg(long, env = "KASBAH_TUNNEL_DRAIN", value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub tunnel_drain: Duration,

    /// Address under which people and jobs reach clusters' APIs, HTTPS
    #[arg(long, env = "KASBAH_CLUSTERS_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    pub clusters_listen: SocketAddr,

    /// Domain below which each agent's id is the name of a host: its cluster's API at the root of the paths there
    #[arg(long, env = "KASBAH_CLUSTERS_DOMAIN", value_name = "DOMAIN")]
    pub clusters_domain: Option<String>,

    /// Origins whose pages may use clusters' APIs from a browser, such as `https://console.example`; each by itself, with commas between them
    #[arg(long, env = "KASBAH_CLUSTERS_ORIGINS", value_name = "ORIGIN", value_delimiter = ',')]
    pub clusters_origins: Vec<Origin>,

    /// Which requests to clusters' APIs leave an audit record. Without records nobody can say afterwards who did what
    #[arg(long, env = "KASBAH_CLUSTERS_AUDIT", value_name = "WHICH", value_enum, default_value_t = Audited::All)]
    pub clusters_audit: Audited,

    /// Tunnels that one agent may hold at once
    #[arg(long, env = "KASBAH_TUNNEL_PER_AGENT", value_name = "COUNT", default_value_t = 16)]
    pub tunnel_per_agent: usize,

    /// Connections beside its tunnel that one agent may hold for requests to its cluster's API, each for about a thousand at a time; the
    /// agent opens them as they are needed
    #[arg(long, env = "KASBAH_TUNNEL_BULK_PER_AGENT", value_name = "COUNT", default_value_t = 16)]
    pub tunnel_bulk_per_agent: usize,

    /// Bytes of observations that one agent may send each second for long, in the log's encoding; twice as many at once
    #[arg(long, env = "KASBAH_TUNNEL_OBSERVATION_RATE", value_name = "BYTES", default_value_t = 64 * 1024 * 1024)]
    pub tunnel_observation_rate: u32,

    /// What one user, agent or organization may use of clusters' APIs.
    #[command(flatten)]
    pub cluster_limits: ClusterLimits,
}

/// Which requests to clusters' APIs are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Audited {
    /// All of them.
    All,
    /// Only those to agents whose configuration has `audit: fail_closed`.
    FailClosed,
}

/// How much of clusters' APIs may be used through one gateway.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct ClusterLimits {
    /// Requests to clusters' APIs, watches and sessions among them, that one user may have open at a gateway; 0 for any number
    #[arg(long, env = "KASBAH_CLUSTERS_OPEN_PER_USER", value_name = "COUNT", default_value_t = Self::default().clusters_open_per_user)]
    pub clusters_open_per_user: u32,

    /// The same of all users together at one agent's cluster, where nobody may hold more than are free; 0 for any number
    #[arg(long, env = "KASBAH_CLUSTERS_OPEN_PER_AGENT", value_name = "COUNT", default_value_t = Self::default().clusters_open_per_agent)]
    pub clusters_open_per_agent: u32,

    /// The same of all users of one organization; 0 for any number
    #[arg(long, env = "KASBAH_CLUSTERS_OPEN_PER_ORGANIZATION", value_name = "COUNT", default_value_t = Self::default().clusters_open_per_organization)]
    pub clusters_open_per_organization: u32,

    /// Requests to clusters' APIs that one user may make each second for long at a gateway, five times as many at once; 0 for any number
    #[arg(long, env = "KASBAH_CLUSTERS_RATE_PER_USER", value_name = "COUNT", default_value_t = Self::default().clusters_rate_per_user)]
    pub clusters_rate_per_user: u32,

    /// The same of all users together at one agent's cluster; 0 for any number
    #[arg(long, env = "KASBAH_CLUSTERS_RATE_PER_AGENT", value_name = "COUNT", default_value_t = Self::default().clusters_rate_per_agent)]
    pub clusters_rate_per_agent: u32,

    /// The same of all users of one organization; 0 for any number
    #[arg(long, env = "KASBAH_CLUSTERS_RATE_PER_ORGANIZATION", value_name = "COUNT", default_value_t = Self::default().clusters_rate_per_organization)]
    pub clusters_rate_per_organization: u32,

    /// Bytes that one user may move each second for long to and from clusters' APIs at a gateway, twice as many at once; what is over is
    /// slowed down, not refused; 0 for any number
    #[arg(long, env = "KASBAH_CLUSTERS_BYTES_PER_USER", value_name = "BYTES", default_value_t = Self::default().clusters_bytes_per_user)]
    pub clusters_bytes_per_user: u32,

    /// The same of all users of one organization; 0 for any number
    #[arg(long, env = "KASBAH_CLUSTERS_BYTES_PER_ORGANIZATION", value_name = "BYTES", default_value_t = Self::default().clusters_bytes_per_organization)]
    pub clusters_bytes_per_organization: u32,
}

impl Default for ClusterLimits {
    fn default() -> Self {
        Self {
            clusters_open_per_user: 1000,
            clusters_open_per_agent: 8000,
            clusters_open_per_organization: 10_000,
            clusters_rate_per_user: 400,
            clusters_rate_per_agent: 2000,
            clusters_rate_per_organization: 5000,
            clusters_bytes_per_user: 256 * 1024 * 1024,
            clusters_bytes_per_organization: 1024 * 1024 * 1024,
        }
    }
}
