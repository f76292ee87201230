//! An agent as thin as it can be: the shipped end of the link, a Lease, an outbox, and a loop that makes the cluster match what
//! it was told.

mod lease;
mod link;
mod outbox;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use events::desired::DesiredState;
use events::{InstanceId, Sha256};
use parking_lot::Mutex;
use tokio::sync::watch;
use world::World;

use crate::cluster::Cluster;
use crate::forge::Forge;
use outbox::Outbox;

/// The port of the gateways.
pub const PORT: u16 = 8441;

/// A token that somebody may replace.
pub type SharedSecret = Arc<Mutex<String>>;

/// One instance of an agent.
#[derive(Clone)]
pub struct Instance {
    world: World,
    cluster: Cluster,
    forge: Forge,
    secret: SharedSecret,
    id: InstanceId,
    ignores_epochs: bool,
    state: Arc<State>,
}

struct State {
    desired: watch::Sender<Option<Arc<DesiredState>>>,
    objects: Mutex<BTreeMap<Sha256, Bytes>>,
    outbox: Outbox,
    /// Until when this instance may write, by the monotonic clock; zero: it does not hold the Lease.
    holding: watch::Sender<bool>,
}

impl Instance {
    /// An instance; `ignores_epochs`: it goes on although another one was named.
    #[must_use]
    pub fn new(
        world: World,
        cluster: Cluster,
        forge: Forge,
        secret: SharedSecret,
        ignores_epochs: bool,
    ) -> Self {
        let id = InstanceId(world.new_uuid());
        let state = State {
            desired: watch::Sender::new(None),
            objects: Mutex::default(),
            outbox: Outbox::default(),
            holding: watch::Sender::new(false),
        };
        Self { world, cluster, forge, secret, id, ignores_epochs, state: Arc::new(state) }
    }

    /// Runs until its process ends.
    pub fn start(&self) {
        let (leasing, linking, working) = (self.clone(), self.clone(), self.clone());
        let spawner = &self.world.spawner;
        spawner.spawn("agent-lease", Box::pin(async move { leasing.lease().await }));
        spawner.spawn("agent-link", Box::pin(async move { linking.link().await }));
        spawner.spawn("agent-work", Box::pin(async move { working.work().await }));
    }
}
