//! What every writer of commits does: give events their ids, and resolve an append whose outcome is unknown.

use std::time::Duration;

use events::{EncodeError, Event, EventId, NewEvent};
use world::World;

use crate::log::{AppendError, Appended, EventLog, NewCommit};

/// How often an append with unknown outcome is tried again before the caller is told.
const UNKNOWN_ATTEMPTS: u32 = 10;

/// Encodes events and gives each a fresh id.
///
/// # Errors
/// See [`Event::encode`].
pub fn new_events(world: &World, events: impl IntoIterator<Item = Event>) -> Result<Vec<NewEvent>, EncodeError> {
    events
        .into_iter()
        .map(|event| Ok(NewEvent { id: EventId(world.new_uuid()), body: event.encode()? }))
        .collect()
}

/// Appends; an unknown outcome is resolved by appending the same commit again, which never doubles it.
///
/// # Errors
/// As [`EventLog::append`]; `Unknown` only when the log stays away.
pub async fn append_known(world: &World, log: &dyn EventLog, commit: NewCommit) -> Result<Appended, AppendError> {
    let mut pause = Duration::from_millis(20);
    for _ in 1..UNKNOWN_ATTEMPTS {
        match log.append(commit.clone()).await {
            Err(AppendError::Unknown { detail }) => {
                tracing::warn!(commit = %commit.id, %detail, "append has no answer, trying again");
                world.clock.sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            answered => return answered,
        }
    }
    log.append(commit).await
}
