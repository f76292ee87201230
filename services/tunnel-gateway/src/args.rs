//! Settings.

use std::net::SocketAddr;
use std::time::Duration;

use chassis::args::parse_duration;

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

    /// Tunnels that one agent may hold at once
    #[arg(long, env = "KASBAH_TUNNEL_PER_AGENT", value_name = "COUNT", default_value_t = 16)]
    pub tunnel_per_agent: usize,

    /// Bytes of observations that one agent may send each second for long, in the log's encoding; twice as many at once
    #[arg(long, env = "KASBAH_TUNNEL_OBSERVATION_RATE", value_name = "BYTES", default_value_t = 64 * 1024 * 1024)]
    pub tunnel_observation_rate: u32,
}
