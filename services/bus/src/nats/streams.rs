//! Byte streams between two inboxes.
//!
//! Each end listens on `<inbox>.>` and says by the last tokens of the subject what a message is, so that bytes travel as they are.
//! The opener's first bytes travel with its request for an inbox, and count as sent.
//! What the server says when the other end is gone is addressed to the reply subject `<inbox of who speaks>.gone.<count>`. The count
//! stands there because the server looks a subject up anew each time that it changes, and no reply subject:
//!
//! | subject behind the inbox | count | payload | meaning |
//! |---|---|---|---|
//! | `data` | offset | bytes | the bytes from there on; anything but the next offset means that something was lost |
//! | `credit` | total | | so many bytes were read; as many more may be sent |
//! | `end` | total | | there are no more bytes than that |
//! | `reset.<which>` | | reason | `forward`: this direction, `back`: the other one, `both` |
//! | `alive` | | | nothing to say |

mod end;
mod pump;

use std::sync::Arc;

use world::World;

use super::link::Link;
use super::wire::{Subscriber, WireError};
use crate::contract::{BusError, ByteReader, ByteStream, ByteWriter};
pub(in crate::nats) use end::Opening;
use end::{End, Reader, Writer};

/// What the server's word about a lost other side is addressed to.
const GONE: &str = "gone";

/// One end's address, listening.
pub(super) struct Inbox {
    pub(super) address: String,
    subscriber: Box<dyn Subscriber>,
}

impl Inbox {
    pub(super) async fn open(link: &Link) -> Result<Self, WireError> {
        let address = link.wire.new_inbox();
        let subscriber = link.wire.subscribe(format!("{address}.>"), None).await?;
        Ok(Self { address, subscriber })
    }
}

/// The end of a stream that listens at `near` and speaks to `far`.
pub(super) fn start(
    world: &World,
    link: &Link,
    near: Inbox,
    far: String,
    (window, opening): (u32, Opening),
) -> Result<ByteStream, BusError> {
    let end = Arc::new(End::new(Arc::clone(&link.wire), near.address, far, window));
    end.opened(opening);
    let lost = link.lost()?;
    let pumping = pump::run(Arc::clone(&end), near.subscriber, lost, world.clone());
    world.spawner.spawn("nats stream", Box::pin(pumping));
    Ok(ByteStream {
        reader: ByteReader(Box::new(Reader { end: Arc::clone(&end) })),
        writer: ByteWriter(Box::new(Writer { end })),
    })
}
