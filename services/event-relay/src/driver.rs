//! Follows the log, and runs what is this replica's.

use std::sync::Arc;

use anyhow::Context as _;
use bus::{Bus, Presence};
use chassis::Metrics;
use store::{EventLog, ExportConsumers, Following, KeyRing, Snapshots};
use world::World;

use crate::args::Args;
use crate::deliverer::Deliverer;
use crate::exporter::Exporter;
use crate::handlers;
use crate::metrics::Counts;
use crate::model::State;
use crate::sender::Sender;

/// The name under which this service acts.
pub(crate) const SERVICE: &str = "event-relay";

/// What event-relay works with.
#[derive(Clone)]
pub struct Deps {
    /// Clock and ids.
    pub world: World,
    /// The event log.
    pub log: Arc<dyn EventLog>,
    /// The organizations' keys, from which the secrets of webhooks derive.
    pub keys: Arc<dyn KeyRing>,
    /// Snapshots of the fold, and checkpoints.
    pub snapshots: Arc<dyn Snapshots>,
    /// Consumers on NATS, if the log is there.
    pub consumers: Option<Arc<dyn ExportConsumers>>,
    /// The other services.
    pub bus: Arc<dyn Bus>,
    /// Says when this service is ready.
    pub readiness: chassis::Readiness,
    /// What is counted.
    pub metrics: Metrics,
}

/// Runs until shutdown.
///
/// # Errors
/// When the log cannot be read or the bus is away at the start.
pub async fn run(args: Args, deps: Deps, shutdown: chassis::Shutdown) -> anyhow::Result<()> {
    let ready = deps.readiness.register(SERVICE);
    let fold: Following<State> =
        store::follow_projection(Arc::clone(&deps.log), Arc::clone(&deps.snapshots), deps.world.clone());
    let ended = shutdown.clone();
    let folding = fold.clone().drive(async move { ended.requested().await });
    let counts = Counts::register(&deps.metrics);
    let exporter = Exporter { fold: fold.clone(), deps: deps.clone(), counts: counts.clone() };
    let sender = Sender::new(
        &deps.world,
        args.webhooks_allow_private_addresses,
        args.webhooks_allow_plain_http,
        args.webhooks_ca_file.as_deref(),
    )?;
    let messages = (args.page_url, args.alerts_after);
    let deliverer = Arc::new(Deliverer::new(deps.clone(), fold.clone(), counts, sender, messages));
    let relaying = async {
        fold.caught_up().await?;
        let presence = Presence::join(&deps.bus, &deps.world, SERVICE).await?;
        let _serving = handlers::serve(&deliverer).await?;
        ready.set(true);
        let ended = tokio::select! {
            biased;
            () = shutdown.requested() => Ok(()),
            result = exporter.export_for_ever(presence.live()) => result,
            result = deliverer.deliver_for_ever(presence.live()) => result,
            result = deliverer.ends.follow_for_ever(&deps) => result,
            result = deliverer.readers.hear_for_ever(&deps) => result,
            result = deliverer.consumers.keep_for_ever(presence.live()) => result,
        };
        deliverer.save().await;
        ended
    };
    let folding = async { folding.await.context("event-relay cannot follow the log") };
    tokio::try_join!(folding, relaying).map(|_| ())
}
