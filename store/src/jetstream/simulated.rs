//! The store over a server that is simulated: all but the connection is what ships.

use std::sync::Arc;

use serde_json::{Map, Value};
use world::World;

use super::checkpoints::Checkpoints;
use super::keyring::KeyStream;
use super::{OpenError, Options, further_streams, keys_stream, meta, meta_stream, parts};
use crate::Parts;

pub use super::server::{Ack, Copied, Extent, Live, Page, Piece, Publish, PublishError, Server};
pub use super::server::{ServerError, Stored};

/// A stream that the store makes on a real server: its name, and its settings as the JetStream API names them.
pub type StreamSettings = (String, Map<String, Value>);

/// All streams of a store.
#[must_use]
pub fn streams(partitions: u16) -> Vec<StreamSettings> {
    let all = [meta_stream(), keys_stream()].into_iter().chain(further_streams(partitions));
    all.map(|wanted| (wanted.name, wanted.settings)).collect()
}

/// Opens the store over a server that has all [`streams`] already, or makes it; as often as it takes.
///
/// # Errors
/// As [`super::open`].
pub async fn open(world: &World, server: Arc<dyn Server>, options: &Options) -> Result<Parts, OpenError> {
    loop {
        match open_once(world, &server, options).await {
            Err(OpenError::Away { detail }) => {
                tracing::debug!(detail, "waiting for the simulated log");
                world.clock.sleep(super::START_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

async fn open_once(world: &World, server: &Arc<dyn Server>, options: &Options) -> Result<Parts, OpenError> {
    let keys = KeyStream::open(Arc::clone(server), world, &options.master_key).await?;
    let meta = meta(world, server, options, &keys, None).await?;
    let checkpoints = Checkpoints::new(Arc::clone(server), world.clone(), meta.partitions);
    if options.makes_log {
        checkpoints.keep_up();
    }
    Ok(parts(world, server, keys, &meta, &checkpoints))
}
