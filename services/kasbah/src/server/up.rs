//! Settings of `kasbah up`: all services in one process.

use super::retention::RetentionArgs;
use super::settings::{ApiArgs, CertificateArgs, FirstStartArgs, FolderArgs, ProcessArgs, Settings};
use super::{NatsArgs, Services};

/// Settings of `kasbah up`. Each service's own are among them.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
#[command(
    mut_arg("repositories", |option| option
        .required(false)
        .default_value("repositories")
        .help("Folder for fetched repositories, a cache; relative paths are inside the data folder")),
    mut_arg("index", |option| option
        .default_value("resource-index")
        .help("Folder for the index of objects, which is made anew from the log where it is missing; relative paths are inside the data \
            folder")),
)]
pub struct UpArgs {
    /// What is left on this machine.
    #[command(flatten)]
    pub folder: FolderArgs,
    /// The API and the console.
    #[command(flatten)]
    pub api: ApiArgs,
    /// What those who dial are shown.
    #[command(flatten)]
    pub certificate: CertificateArgs,
    /// What the first start makes.
    #[command(flatten)]
    pub first_start: FirstStartArgs,
    /// How long what need not be kept for good is kept.
    #[command(flatten)]
    pub retention: RetentionArgs,
    /// Where everything is kept, when not in the folder.
    #[command(flatten)]
    pub nats: NatsArgs,
    /// How the process runs.
    #[command(flatten)]
    pub process: ProcessArgs,
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
    /// Of resource-indexer.
    #[command(flatten)]
    pub resource_indexer: resource_indexer::Args,
    /// Of event-relay.
    #[command(flatten)]
    pub event_relay: event_relay::Args,
    /// Of tunnel-gateway.
    #[command(flatten)]
    pub tunnel_gateway: tunnel_gateway::Args,
}

impl UpArgs {
    /// What they come to.
    ///
    /// # Errors
    /// When there is no folder.
    pub fn settings(self) -> anyhow::Result<Settings> {
        let folder = self.folder.resolved()?;
        let mut repo_poller = self.repo_poller;
        repo_poller.repositories = folder.join(&repo_poller.repositories);
        let mut resource_indexer = self.resource_indexer;
        resource_indexer.index = resource_indexer.index.map(|index| folder.join(index));
        let services = Services {
            authz: Some((self.authz, self.first_start)),
            retention: Some(self.retention),
            config_fetcher: Some(self.config_fetcher),
            repo_poller: Some(repo_poller),
            delivery: Some(self.delivery),
            resource_indexer: Some(resource_indexer),
            event_relay: Some(self.event_relay),
            tunnel_gateway: Some(self.tunnel_gateway),
            console: Some(self.api),
        };
        let (process, nats, certificate) = (self.process, self.nats, self.certificate);
        Ok(Settings { name: "kasbah", process, nats, folder: Some(folder), certificate, services })
    }
}
