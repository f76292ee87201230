//! Bodies: what is sent, and what an agent's answers are read through.

mod coalesced;
mod guarded;
mod held;
mod outgoing;
mod replay;
mod small_frames;

pub use coalesced::Coalesced;
pub use guarded::{BodyFault, Guard, GuardedBody};
pub use held::Held;
pub use outgoing::{EventBody, EventSender, SendError, event_body};
pub use replay::Replay;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

use crate::BoxError;

/// Body of a request to an agent.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// All of `bytes`; nothing at all when they are empty.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> RequestBody {
    let bytes = bytes.into();
    if bytes.is_empty() { empty() } else { Full::new(bytes).map_err(|never| match never {}).boxed_unsync() }
}

/// No body.
#[must_use]
pub fn empty() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
