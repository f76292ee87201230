//! Records that go into the log however long it takes.

use std::time::Duration;

use store::{AppendError, EventLog, NewBatch};
use world::World;

const PAUSE: Duration = Duration::from_millis(500);

/// Appends a record, again and again while what the log says `is_transient`. It may be there twice then.
pub(crate) async fn append_until_stored(
    world: &World,
    log: &dyn EventLog,
    record: NewBatch,
    is_transient: impl Fn(&AppendError) -> bool,
) -> Result<(), AppendError> {
    loop {
        match log.append_batch(record.clone()).await {
            Ok(_) => return Ok(()),
            Err(error) if is_transient(&error) => {
                tracing::warn!(stream = record.stream.as_str(), %error, "record may not be stored, retrying");
                world.clock.sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}
