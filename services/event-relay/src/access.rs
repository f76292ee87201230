//! What this service may do on NATS.

use events::access::{Access, Keys};
use events::requests::authz::{Decide, FindProject};
use events::requests::index::{ExplainHealth, ListEnvironmentHealth};
use events::requests::subscriptions::EventReaders;
use events::{AggregateKind, Notice as _, Request as _, Stream};
use store::Projection as _;

use crate::cursors::NAMES;
use crate::exporter::CHECKPOINT;
use crate::model::State;

/// Everything that is saved: the fold, the checkpoint of the exports, and the cursors.
const SAVED: [&str; NAMES.len() + 2] = {
    let mut saved = [State::NAME; NAMES.len() + 2];
    let mut index = 0;
    while index < NAMES.len() {
        #[allow(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
        {
            saved[index] = NAMES[index];
        }
        index += 1;
    }
    #[allow(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
    {
        saved[NAMES.len()] = CHECKPOINT;
    }
    saved
};

/// What it says and hears: its permissions on NATS are made of this.
pub const ACCESS: Access = Access {
    asks: &[Decide::NAME, FindProject::NAME, ListEnvironmentHealth::NAME, ExplainHealth::NAME],
    hears: &[EventReaders::NAME],
    shares_work: true,
    decides: &[AggregateKind::Subscription],
    appends: &[Stream::Exports],
    reads: &[Stream::Observations, Stream::Exports],
    keys: &[Keys::Organizations],
    projections: &SAVED,
    makes_consumers: true,
    ..Access::of("event-relay")
};
