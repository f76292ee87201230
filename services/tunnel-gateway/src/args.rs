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

    /// Accept tunnels without TLS: others can read tokens and manifests on the network
    #[arg(long, env = "KASBAH_TUNNEL_INSECURE_PLAIN_TEXT")]
    pub tunnel_insecure_plain_text: bool,

    /// Time for tunnels to finish when the process is stopped
    #[arg(long, env = "KASBAH_TUNNEL_DRAIN", value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub tunnel_drain: Duration,

    /// Address of clusters' APIs for users and jobs, HTTPS
    #[arg(long, env = "KASBAH_CLUSTERS_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    pub clusters_listen: SocketAddr,

    /// Domain below which each agent's id is a host name, which serves its cluster's API without a path prefix
    #[arg(long, env = "KASBAH_CLUSTERS_DOMAIN", value_name = "DOMAIN")]
    pub clusters_domain: Option<String>,

    /// Origins whose pages may use clusters' APIs from a browser, such as `https://console.example`; separate several with commas. A process
    /// that serves the web page as well lets that one in by default
    #[arg(long, env = "KASBAH_CLUSTERS_ORIGINS", value_name = "ORIGIN", value_delimiter = ',')]
    pub clusters_origins: Vec<Origin>,

    /// Requests to clusters' APIs that get an audit record. Without records, nobody can find out later who did what
    #[arg(long, env = "KASBAH_CLUSTERS_AUDIT", value_name = "WHICH", value_enum, default_value_t = Audited::All)]
    pub clusters_audit: Audited,

    /// Maximum number of tunnels of one agent
    #[arg(long, env = "KASBAH_TUNNEL_PER_AGENT", value_name = "COUNT", default_value_t = 16)]
    pub tunnel_per_agent: usize,

    /// Maximum number of connections beside its tunnel that one agent may open for requests to its cluster's API, each for about a
    /// thousand requests at a time; the agent opens them as needed
    #[arg(long, env = "KASBAH_TUNNEL_BULK_PER_AGENT", value_name = "COUNT", default_value_t = 16)]
    pub tunnel_bulk_per_agent: usize,

    /// Sustained bytes of observations per second of one agent, in the log's encoding; burst twice as many
    #[arg(long, env = "KASBAH_TUNNEL_OBSERVATION_RATE", value_name = "BYTES", default_value_t = 64 * 1024 * 1024)]
    pub tunnel_observation_rate: u32,

    /// Sustained bytes per second of object changes of one agent, in the log's encoding and with the bodies that travel apart; burst twice
    /// as many. An agent that has more to say replaces it by the latest and reports how much it left out
    #[arg(long, env = "KASBAH_TUNNEL_OBJECT_RATE", value_name = "BYTES", default_value_t = 8 * 1024 * 1024)]
    pub tunnel_object_rate: u32,

    /// The same for all agents of one organization together, at one gateway
    #[arg(long, env = "KASBAH_ORGANIZATION_OBJECT_RATE", value_name = "BYTES", default_value_t = 32 * 1024 * 1024)]
    pub organization_object_rate: u32,

    /// What one user, agent or organization may use of clusters' APIs.
    #[command(flatten)]
    pub cluster_limits: ClusterLimits,
}

/// Which requests to clusters' APIs are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Audited {
    /// All requests.
    All,
    /// Only requests to agents whose configuration has `audit: fail_closed`.
    FailClosed,
}

/// How much of clusters' APIs may be used through one gateway.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct ClusterLimits {
    /// Maximum number of open requests of one user to clusters' APIs at a gateway, including watches and sessions; 0 for no limit
    #[arg(long, env = "KASBAH_CLUSTERS_OPEN_PER_USER", value_name = "COUNT", default_value_t = Self::default().clusters_open_per_user)]
    pub clusters_open_per_user: u32,

    /// The same for all users of one agent's cluster together, where no user may hold more than is free; 0 for no limit
    #[arg(long, env = "KASBAH_CLUSTERS_OPEN_PER_AGENT", value_name = "COUNT", default_value_t = Self::default().clusters_open_per_agent)]
    pub clusters_open_per_agent: u32,

    /// The same for all users of one organization together; 0 for no limit
    #[arg(long, env = "KASBAH_CLUSTERS_OPEN_PER_ORGANIZATION", value_name = "COUNT", default_value_t = Self::default().clusters_open_per_organization)]
    pub clusters_open_per_organization: u32,

    /// Sustained requests per second of one user to clusters' APIs at a gateway; burst five times as many; 0 for no limit
    #[arg(long, env = "KASBAH_CLUSTERS_RATE_PER_USER", value_name = "COUNT", default_value_t = Self::default().clusters_rate_per_user)]
    pub clusters_rate_per_user: u32,

    /// The same for all users of one agent's cluster together; 0 for no limit
    #[arg(long, env = "KASBAH_CLUSTERS_RATE_PER_AGENT", value_name = "COUNT", default_value_t = Self::default().clusters_rate_per_agent)]
    pub clusters_rate_per_agent: u32,

    /// The same for all users of one organization together; 0 for no limit
    #[arg(long, env = "KASBAH_CLUSTERS_RATE_PER_ORGANIZATION", value_name = "COUNT", default_value_t = Self::default().clusters_rate_per_organization)]
    pub clusters_rate_per_organization: u32,

    /// Sustained bytes per second of one user to and from clusters' APIs at a gateway; burst twice as many; excess traffic is slowed
    /// down, not refused; 0 for no limit
    #[arg(long, env = "KASBAH_CLUSTERS_BYTES_PER_USER", value_name = "BYTES", default_value_t = Self::default().clusters_bytes_per_user)]
    pub clusters_bytes_per_user: u32,

    /// The same for all users of one organization together; 0 for no limit
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
