//! One service by itself, on NATS: `kasbah delivery --nats …`.

use std::path::PathBuf;

use super::retention::RetentionArgs;
use super::settings::{ApiArgs, CertificateArgs, FirstStartArgs, FolderArgs, ProcessArgs, Settings};
use super::{NatsArgs, Services};

/// What each service by itself needs.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
#[command(mut_arg("servers", |option| option
    .required(true)
    .help("A NATS server, such as nats://nats-0:4222; may be given more than once. The other services are there too")))]
pub struct ReplicaArgs {
    /// Where everything is kept, and the others are.
    #[command(flatten)]
    pub nats: NatsArgs,
    /// How the process runs.
    #[command(flatten)]
    pub process: ProcessArgs,
}

/// A command that runs one service.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum SingleService {
    /// Run authz alone: users, agents, tokens, roles and permissions
    Authz(AuthzArgs),
    /// Run config-fetcher alone: reads and checks agents' configuration files
    ConfigFetcher(ConfigFetcherArgs),
    /// Run repo-poller alone: watches repositories and builds bundles of their manifests
    RepoPoller(RepoPollerArgs),
    /// Run delivery alone: decides the desired state of each agent
    Delivery(DeliveryArgs),
    /// Run resource-indexer alone: folds what agents observe, and answers what runs in the clusters
    ResourceIndexer(ResourceIndexerArgs),
    /// Run event-relay alone: exports events for programs outside, and sends webhooks
    EventRelay(EventRelayArgs),
    /// Run tunnel-gateway alone: accepts the agents' tunnels
    TunnelGateway(TunnelGatewayArgs),
    /// Run console alone: the HTTP API
    Console(ConsoleArgs),
}

/// Settings of `kasbah authz`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct AuthzArgs {
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    first_start: FirstStartArgs,
    #[command(flatten)]
    retention: RetentionArgs,
    #[command(flatten)]
    authz: authz::Args,
}

/// Settings of `kasbah config-fetcher`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct ConfigFetcherArgs {
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    config_fetcher: config_fetcher::Args,
}

/// Settings of `kasbah repo-poller`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct RepoPollerArgs {
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    repo_poller: repo_poller::Args,
}

/// Settings of `kasbah delivery`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct DeliveryArgs {
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    delivery: delivery::Args,
}

/// Settings of `kasbah resource-indexer`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct ResourceIndexerArgs {
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    resource_indexer: resource_indexer::Args,
}

/// Settings of `kasbah event-relay`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct EventRelayArgs {
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    event_relay: event_relay::Args,
}

/// Settings of `kasbah tunnel-gateway`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct TunnelGatewayArgs {
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    certificate: CertificateArgs,
    #[command(flatten)]
    tunnel_gateway: tunnel_gateway::Args,
}

/// Settings of `kasbah console`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct ConsoleArgs {
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    certificate: CertificateArgs,
    #[command(flatten)]
    api: ApiArgs,
}

impl SingleService {
    /// What the settings come to.
    ///
    /// # Errors
    /// When there is no folder for what is left on the machine.
    pub fn settings(self) -> anyhow::Result<Settings> {
        let none = Services::default();
        match self {
            Self::Authz(args) => {
                let services = Services {
                    authz: Some((args.authz, args.first_start)),
                    retention: Some(args.retention),
                    ..none
                };
                let settings = args.replica.settings("authz", services);
                Ok(Settings { folder: Some(args.folder.resolved()?), ..settings })
            }
            Self::ConfigFetcher(args) => {
                let services = Services { config_fetcher: Some(args.config_fetcher), ..none };
                Ok(args.replica.settings("config-fetcher", services))
            }
            Self::RepoPoller(mut args) => {
                let repositories: &mut PathBuf = &mut args.repo_poller.repositories;
                *repositories = std::path::absolute(&*repositories)?;
                let services = Services { repo_poller: Some(args.repo_poller), ..none };
                Ok(args.replica.settings("repo-poller", services))
            }
            Self::Delivery(args) => {
                let services = Services { delivery: Some(args.delivery), ..none };
                Ok(args.replica.settings("delivery", services))
            }
            Self::ResourceIndexer(mut args) => {
                let folder: &mut Option<PathBuf> = &mut args.resource_indexer.index;
                *folder = folder.as_ref().map(std::path::absolute).transpose()?;
                let services = Services { resource_indexer: Some(args.resource_indexer), ..none };
                Ok(args.replica.settings("resource-indexer", services))
            }
            Self::EventRelay(args) => {
                let services = Services { event_relay: Some(args.event_relay), ..none };
                Ok(args.replica.settings("event-relay", services))
            }
            Self::TunnelGateway(args) => {
                let services = Services { tunnel_gateway: Some(args.tunnel_gateway), ..none };
                let settings = args.replica.settings("tunnel-gateway", services);
                Ok(Settings { certificate: args.certificate, ..settings })
            }
            Self::Console(args) => {
                let services = Services { console: Some(args.api), ..none };
                let settings = args.replica.settings("console", services);
                let folder = Some(args.folder.resolved()?);
                Ok(Settings { folder, certificate: args.certificate, ..settings })
            }
        }
    }
}

impl ReplicaArgs {
    fn settings(self, name: &'static str, services: Services) -> Settings {
        let (process, nats) = (self.process, self.nats);
        let certificate = CertificateArgs::default();
        Settings { name, process, nats, folder: None, certificate, services }
    }
}
