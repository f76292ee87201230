//! Clock, randomness, ids, spawning, disk and network: every external input of a Kasbah process.
//!
//! Purpose: a simulation runs the shipped code and replaces only the parts behind these traits.
//!
//! Laws:
//! - No other crate reads the system clock, generates random numbers or ids, spawns tasks, or opens files or sockets by itself
//!   (`redb`, `gix`, TLS and the Kubernetes client are the listed exceptions).
//! - The clock of the same world ends a sleep.
//!
//! Deliberately absent: the simulated world, which no shipped binary contains (crate `simulation`).
#![warn(missing_docs)]

pub mod clock;
pub mod disk;
pub mod network;
pub mod random;
pub mod runtime;
pub mod spawn;

use std::sync::Arc;

pub use clock::Clock;
pub use disk::Disk;
pub use network::Network;
pub use random::Random;
pub use runtime::{WorldTasks, WorldTimer};
pub use spawn::Spawner;

/// One world, cheap to clone.
#[derive(Clone)]
pub struct World {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness and ids.
    pub random: Arc<dyn Random>,
    /// Tasks.
    pub spawner: Arc<dyn Spawner>,
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Sockets.
    pub network: Arc<dyn Network>,
}

impl World {
    /// The real one. Call inside a tokio runtime.
    #[must_use]
    pub fn real() -> Self {
        Self {
            clock: Arc::new(clock::SystemClock::new()),
            random: Arc::new(random::SystemRandom::new()),
            spawner: Arc::new(spawn::TokioSpawner),
            disk: Arc::new(disk::RealDisk),
            network: Arc::new(network::TcpNetwork),
        }
    }

    /// A fresh UUID of version 7, by this world's clock and randomness.
    #[must_use]
    pub fn new_uuid(&self) -> uuid::Uuid {
        let millis = u64::try_from(self.clock.now_millis()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &self.random.id()).into_uuid()
    }
}
