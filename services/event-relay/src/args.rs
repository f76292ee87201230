//! Settings.

use std::path::PathBuf;
use std::time::Duration;

use chassis::args::parse_duration;

/// Settings of event-relay.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Let webhooks be on private addresses: this machine, its networks, a cloud's metadata
    #[arg(long, env = "KASBAH_WEBHOOKS_ALLOW_PRIVATE_ADDRESSES")]
    pub webhooks_allow_private_addresses: bool,
    /// Let webhooks use plain HTTP, so that others can read events on the network
    #[arg(long, env = "KASBAH_WEBHOOKS_ALLOW_PLAIN_HTTP")]
    pub webhooks_allow_plain_http: bool,
    /// PEM file with certificate authorities of webhooks, besides the machine's
    #[arg(long, env = "KASBAH_WEBHOOKS_CA_FILE", value_name = "FILE")]
    pub webhooks_ca_file: Option<PathBuf>,
    /// URL of the web page, for links in messages to webhooks; without it, messages have no links
    #[arg(long, env = "KASBAH_PAGE_URL", value_name = "URL")]
    pub page_url: Option<String>,
    /// How long an environment is degraded, or well again, before messages say so
    #[arg(long, env = "KASBAH_ALERTS_AFTER", value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub alerts_after: Duration,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            webhooks_allow_private_addresses: false,
            webhooks_allow_plain_http: false,
            webhooks_ca_file: None,
            page_url: None,
            alerts_after: Duration::from_secs(60),
        }
    }
}
