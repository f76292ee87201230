//! Many replicas on NATS instead of one on its own folder.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bus::{NatsBus, NatsOptions};
use store::MasterKey;
use store::jetstream::{JetStreamStore, Options};
use world::World;
use zeroize::Zeroizing;

use super::CREATED_BY;

/// Settings of a replica on NATS.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct NatsArgs {
    /// A NATS server, such as nats://nats-0:4222; may be given more than once. All state is then stored on NATS, and any number of
    /// replicas share it
    #[arg(
        long = "nats",
        env = "KASBAH_NATS",
        value_name = "URL",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub servers: Vec<String>,
    /// File with the master key of the key ring, 32 bytes, raw or in base64; the same for all replicas. `head -c 32 /dev/urandom`
    /// creates one
    #[arg(long, env = "KASBAH_MASTER_KEY_FILE", value_name = "FILE", requires = "servers")]
    pub master_key_file: Option<PathBuf>,
    /// PEM file with the certificate authorities of NATS servers with tls:// addresses [default: the authorities that this machine
    /// trusts]
    #[arg(long, env = "KASBAH_NATS_CA_FILE", value_name = "FILE", requires = "servers")]
    pub nats_ca_file: Option<PathBuf>,
    /// Accept NATS servers that acknowledge writes before they sync them, or do not report it: acknowledged facts may be lost when a
    /// machine stops
    #[arg(long, env = "KASBAH_NATS_ACCEPT_WEAK_DURABILITY", requires = "servers")]
    pub nats_accept_weak_durability: bool,
}

impl NatsArgs {
    /// Whether everything is kept on NATS.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        !self.servers.is_empty()
    }

    /// How the servers' monitoring names this process.
    fn name(process: &str) -> String {
        format!("{process} on {}", rustix::system::uname().nodename().to_string_lossy())
    }

    pub(super) async fn bus(&self, world: &World, process: &str) -> anyhow::Result<NatsBus> {
        let options = NatsOptions {
            servers: self.servers.clone(),
            name: Self::name(process),
            process: process.to_owned(),
            ca_file: self.nats_ca_file.clone(),
        };
        NatsBus::connect(world.clone(), &options).await.context("--nats: cannot reach the bus")
    }

    pub(crate) async fn store(
        &self,
        world: &World,
        process: &str,
        makes_log: bool,
    ) -> anyhow::Result<JetStreamStore> {
        let options = self.store_options(world, process, makes_log)?;
        store::jetstream::open(world, options).await.context("--nats")
    }

    /// How a process opens the log.
    pub(crate) fn store_options(
        &self,
        world: &World,
        process: &str,
        makes_log: bool,
    ) -> anyhow::Result<Options> {
        Ok(Options {
            servers: self.servers.clone(),
            name: format!("{} (log)", Self::name(process)),
            process: process.to_owned(),
            ca_file: self.nats_ca_file.clone(),
            makes_log,
            master_key: self.master_key(world)?,
            partitions: None,
            accept_weak_durability: self.nats_accept_weak_durability,
            created_by: CREATED_BY.to_owned(),
        })
    }

    fn master_key(&self, world: &World) -> anyhow::Result<MasterKey> {
        let path = self.master_key_file.as_ref().context(
            "--master-key-file is missing: all replicas on NATS share one; `head -c 32 /dev/urandom > FILE` creates it",
        )?;
        let bytes = world.disk.read(path);
        let bytes = Zeroizing::new(bytes.with_context(|| format!("--master-key-file {}", path.display()))?);
        if let Ok(key) = <[u8; 32]>::try_from(bytes.as_slice()) {
            return Ok(Zeroizing::new(key));
        }
        let decoded = Zeroizing::new(STANDARD.decode(bytes.trim_ascii()).unwrap_or_default());
        let key = <[u8; 32]>::try_from(decoded.as_slice());
        ensure!(
            key.is_ok(),
            "--master-key-file {} holds {} bytes, not 32 bytes raw or in base64",
            path.display(),
            bytes.len()
        );
        Ok(Zeroizing::new(key.unwrap_or_default()))
    }
}
