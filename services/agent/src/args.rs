//! Settings.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

use crate::cluster_api::RootKey;

/// kasbah-agent: makes this cluster match the desired state from its server.
#[derive(Debug, Clone, Parser)]
#[command(name = "kasbah-agent", version)]
pub struct Args {
    /// Server address for tunnels, `host:port`
    #[arg(long, env = "KASBAH_SERVER", value_name = "HOST:PORT", value_parser = parse_server)]
    pub server: Server,
    /// File with the agent's token
    #[arg(long, env = "KASBAH_TOKEN_FILE", value_name = "FILE", required_unless_present = "token")]
    pub token_file: Option<PathBuf>,
    /// The agent's token; a file is safer
    #[arg(long = "token", env = "KASBAH_AGENT_TOKEN", hide_env_values = true, hide = true)]
    pub token: Option<String>,
    /// File with the public root key that verifies passes for this cluster's API; without a key, the agent refuses all requests
    #[arg(long, env = "KASBAH_ROOT_KEY_FILE", value_name = "FILE")]
    pub root_key_file: Option<PathBuf>,
    /// The public root key itself
    #[arg(long, env = "KASBAH_ROOT_KEY", value_name = "BASE64")]
    pub root_key: Option<RootKey>,
    /// Whom to trust
    #[command(flatten)]
    pub tls: chassis::tls::ClientTlsArgs,
    /// Kubeconfig of the cluster; by default the pod's service account
    #[arg(long, env = "KASBAH_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; by default its current one
    #[arg(long, env = "KASBAH_CONTEXT", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Namespace of the agent's Lease; by default the pod's or the context's
    #[arg(long, env = "KASBAH_NAMESPACE")]
    pub namespace: Option<String>,
    /// Connect to the server without TLS: others can read the token and manifests on the network
    #[arg(long, env = "KASBAH_INSECURE_PLAIN_TEXT")]
    pub insecure_plain_text: bool,
    /// Address for health probes and metrics; none by default
    #[arg(long, env = "KASBAH_ADMIN_LISTEN", value_name = "ADDRESS")]
    pub admin_listen: Option<SocketAddr>,
    /// Logs
    #[command(flatten)]
    pub logs: chassis::logs::LogArgs,
    /// Traces
    #[command(flatten)]
    pub traces: chassis::traces::TraceArgs,
    /// A file with settings
    #[command(flatten)]
    pub file: chassis::args::ConfigArgs,
}

impl Args {
    /// Those of an agent that speaks to its server without TLS.
    #[must_use]
    pub fn plain_text(server: Server, token_file: PathBuf) -> Self {
        Self {
            server,
            token_file: Some(token_file),
            token: None,
            root_key_file: None,
            root_key: None,
            tls: chassis::tls::ClientTlsArgs::default(),
            kubeconfig: None,
            context: None,
            namespace: None,
            insecure_plain_text: true,
            admin_listen: None,
            logs: chassis::logs::LogArgs {
                log_level: "info".to_owned(),
                log_format: chassis::logs::LogFormat::Auto,
            },
            traces: chassis::traces::TraceArgs { otlp_endpoint: None, trace_ratio: 1.0 },
            file: chassis::args::ConfigArgs::default(),
        }
    }
}

/// Where the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

fn parse_server(text: &str) -> Result<Server, String> {
    let expected = "expected host:port, such as kasbah.example.com:8441";
    let (host, port) = text.rsplit_once(':').ok_or(expected)?;
    let port = port.parse().map_err(|_| expected.to_owned())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.contains('/') {
        return Err(expected.to_owned());
    }
    Ok(Server { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read() {
        let server = |host: &str, port| Ok(Server { host: host.into(), port });
        assert_eq!(parse_server("a.example.com:8441"), server("a.example.com", 8441));
        assert_eq!(parse_server("[::1]:1"), server("::1", 1));
        for wrong in ["", "a", "a:b", ":1", "https://a:1", "a:99999"] {
            assert!(parse_server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_root_key_that_is_none_is_refused_by_the_settings_name() {
        let refused = ["kasbah-agent", "--server", "a:1", "--token-file", "t", "--root-key", "short"];
        let said = Args::try_parse_from(refused).unwrap_err().to_string();
        assert!(said.contains("--root-key") && said.contains("32 bytes"), "{said}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
