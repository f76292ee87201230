//! Logs that no server is asked for: the folder of one that is stopped, or NATS. Where one is read, and where one is made.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueHint;
use events::OrganizationId;
use store::Parts;
use store::copy::{Copies, CopyOf};
use store::embedded::EmbeddedStore;
use store::jetstream::JetStreamStore;
use world::World;

use crate::client::failure::Failure;
use crate::server::{CREATED_BY, NatsArgs};

/// As which process of NATS' users a log is read or made: the one of `kasbah up`.
const PROCESS: &str = "kasbah";

/// Where a log is that is read.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct FromArgs {
    /// Log to read: the data folder of a stopped server, or nats://host:port
    #[arg(long, env = "KASBAH_LOG_FROM", value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub from: Option<String>,
    #[command(flatten)]
    pub reach: ReachArgs,
}

/// How logs on NATS are reached.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct ReachArgs {
    /// With nats://: file with the master key of the key ring
    #[arg(long, env = "KASBAH_MASTER_KEY_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub master_key_file: Option<PathBuf>,
    /// With tls://: file with the certificate authorities of the servers
    #[arg(long, env = "KASBAH_NATS_CA_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub nats_ca_file: Option<PathBuf>,
    /// With nats://: accept servers that acknowledge writes before they sync them
    #[arg(long, env = "KASBAH_NATS_ACCEPT_WEAK_DURABILITY")]
    pub nats_accept_weak_durability: bool,
}

/// A log that is open.
pub struct Opened {
    /// The log and what belongs to it.
    pub parts: Parts,
    /// Where it is kept.
    pub store: Store,
}

/// A store of either kind.
pub enum Store {
    /// In a folder.
    Embedded(EmbeddedStore),
    /// On NATS.
    OnNats(JetStreamStore),
}

fn is_on_nats(place: &str) -> bool {
    place.starts_with("nats://") || place.starts_with("tls://")
}

impl FromArgs {
    /// Opens the log; makes none.
    ///
    /// # Errors
    /// When there is none, or another process has it.
    pub async fn open(&self, world: &World) -> Result<Opened, Failure> {
        let from = self.from.as_deref().ok_or_else(|| {
            let message = "name a log: the data folder of a stopped server, or nats://host:port";
            Failure::usage("--from", message)
        })?;
        let failed = |error: &anyhow::Error| Failure::Unsuccessful(format!("--from {from}: {error:#}"));
        if is_on_nats(from) {
            let nats = self.reach.nats(from);
            let store = nats.store(world, PROCESS, false).await.map_err(|error| failed(&error))?;
            return Ok(Opened::on_nats(store));
        }
        let folder = Path::new(from);
        if world.disk.read(&folder.join("log/meta")).is_err() {
            let message = format!(
                "{} holds no log: expected the data folder of `kasbah up`, or nats://host:port",
                folder.display()
            );
            return Err(Failure::usage("--from", message));
        }
        let options = store::embedded::Options { created_by: CREATED_BY.to_owned(), ..Default::default() };
        let store = store::embedded::open(world, folder, options).map_err(|error| failed(&error.into()))?;
        Ok(Opened::embedded(store))
    }
}

impl ReachArgs {
    fn nats(&self, server: &str) -> NatsArgs {
        NatsArgs {
            servers: vec![server.to_owned()],
            master_key_file: self.master_key_file.clone(),
            nats_ca_file: self.nats_ca_file.clone(),
            nats_accept_weak_durability: self.nats_accept_weak_durability,
        }
    }

    /// Makes a log that is a copy, or opens what was begun before.
    ///
    /// # Errors
    /// When there is another log, or another process has it.
    pub async fn make(
        &self,
        to: &str,
        copy: &CopyOf,
        partitions: u16,
        world: &World,
    ) -> Result<Opened, Failure> {
        let failed = |error: anyhow::Error| Failure::Unsuccessful(format!("--to {to}: {error:#}"));
        if is_on_nats(to) {
            let options = self.nats(to).store_options(world, PROCESS, true).map_err(failed)?;
            let options = store::jetstream::Options { partitions: Some(partitions), ..options };
            let made = store::jetstream::open_copy(world, options, copy).await;
            return made.map(Opened::on_nats).map_err(|error| failed(error.into()));
        }
        let options = store::embedded::Options {
            created_by: CREATED_BY.to_owned(),
            partitions: Some(partitions),
            ..Default::default()
        };
        let made = store::embedded::open_copy(world, Path::new(to), options, copy);
        made.map(Opened::embedded).map_err(|error| failed(error.into()))
    }
}

/// The id of an organization, as people give it to commands that ask no server.
///
/// # Errors
/// When it is none.
pub fn organization(text: &str) -> Result<OrganizationId, String> {
    match text {
        "system" => Ok(OrganizationId::SYSTEM),
        text => text.parse().map_err(|error: events::id::ParseIdError| {
            format!("{error}; `kasbah organization list -o json` shows ids")
        }),
    }
}

impl Opened {
    fn embedded(store: EmbeddedStore) -> Self {
        Self { parts: store.parts(), store: Store::Embedded(store) }
    }

    fn on_nats(store: JetStreamStore) -> Self {
        Self { parts: store.parts.clone(), store: Store::OnNats(store) }
    }

    /// All that is in it, and the way into it.
    pub const fn copies(&self) -> &dyn Copies {
        match &self.store {
            Store::Embedded(store) => store,
            Store::OnNats(store) => store,
        }
    }

    /// Lets the log go.
    pub async fn close(self) {
        if let Store::Embedded(store) = self.store {
            let store = Arc::new(store);
            if let Err(error) = tokio::task::spawn_blocking(move || store.close()).await {
                tracing::warn!(%error, "log was not closed cleanly");
            }
        }
    }
}
