//! Settings.

/// Settings of config-fetcher.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Seconds between two polls of an agent's configuration file without a notice of a change.
    #[arg(
        long,
        env = "KASBAH_CONFIGURATION_INTERVAL",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(5..=86_400),
        value_name = "SECONDS"
    )]
    pub configuration_interval: u32,
}

impl Default for Args {
    fn default() -> Self {
        Self { configuration_interval: 60 }
    }
}
