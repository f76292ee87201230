//! The agent that ships, as a process of the simulation.

use std::path::{Path, PathBuf};

use agent::args::{Args, Server};
use agent::cluster_api::RootKey;
use agent::kubernetes::{ApiServer, Connections};
use agent::{Deps, run};
use chassis::{Metrics, Readiness, Shutdown};
use events::InstanceId;
use world::{Disk, World};

use crate::cluster::Cluster;
use crate::disk::MemoryDisk;
use crate::executor::Life;

/// The port of the gateways.
pub const PORT: u16 = 8441;

const TOKEN_FILE: &str = "/token";
/// Where an agent's Lease is.
const NAMESPACE: &str = "kube-system";

/// A token in a file that all instances of an agent see, and that somebody may replace.
#[derive(Clone)]
pub struct SharedSecret(MemoryDisk);

impl SharedSecret {
    /// A file with this token.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        let shared = Self(MemoryDisk::default());
        shared.replace(secret);
        shared
    }

    /// Puts another token there; gives the one before.
    pub fn replace(&self, secret: &str) -> String {
        let before = self.read();
        // A disk in memory takes everything.
        let _written = self.0.replace(Path::new(TOKEN_FILE), secret.as_bytes(), true);
        before
    }

    /// The token.
    #[must_use]
    pub fn read(&self) -> String {
        let bytes = self.0.read(Path::new(TOKEN_FILE)).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Where it lies.
    #[must_use]
    pub fn disk(&self) -> MemoryDisk {
        self.0.clone()
    }
}

/// Runs one instance, which pins this root key. `always_holds`: it is told that it has the Lease, whatever becomes of it.
pub fn start(
    world: World,
    life: Life,
    cluster: &Cluster,
    root_key: RootKey,
    always_holds: bool,
    readiness: Readiness,
    shutdown: Shutdown,
) -> impl Future<Output = anyhow::Result<()>> + Send + 'static {
    let instance = InstanceId(world.new_uuid());
    cluster.knows(life, instance);
    let door = cluster.server.door(life, always_holds);
    let api_server = ApiServer::in_plain_text(world.clone(), &cluster.authority(), cluster.speaks_http2());
    let connections = Connections::over(&door, NAMESPACE).reaching(api_server);
    let server = Server { host: "gateways".to_owned(), port: PORT };
    let args = Args { root_key: Some(root_key), ..Args::plain_text(server, PathBuf::from(TOKEN_FILE)) };
    run(args, Deps { world, connections, readiness, metrics: Metrics::new(), instance }, shutdown)
}

#[cfg(test)]
mod tests;
