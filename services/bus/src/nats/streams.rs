//! Byte streams between two inboxes.
//!
//! Each end listens on `<inbox>.>` and says by the last tokens of the subject what a message is, so that bytes travel as they are.
//! The opener's first bytes travel with its request for an inbox, and count as sent; those of the other side, likewise, with the answer,
//! which waits a moment for them. So a short question with a short answer is two messages and needs no inbox. Otherwise the opener listens
//! once it knows the other's inbox, and says so by any word; before that the other side says nothing else.
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
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use world::World;

use super::headers;
use super::link::Link;
use super::serving::Answer;
use super::wire::{HeaderMap, Message};
use crate::contract::{BusError, ByteReader, ByteStream, ByteWriter, Opening};
use end::{End, Reader, Writer};

/// What the server's word about a lost other side is addressed to.
const GONE: &str = "gone";
/// A word that says nothing else.
const ALIVE: &str = "alive";
/// How long the answer to an opening waits for what is said first.
const WAITS_FOR_FIRST: Duration = Duration::from_millis(100);

/// The opener's end, once there is an answer to what it said.
pub(super) async fn opened(
    world: &World,
    link: &Link,
    near: String,
    (window, said): (u32, &Opening),
    answer: Message,
) -> Result<ByteStream, BusError> {
    let far = headers::inbox(answer.headers.as_ref());
    let heard = Opening { is_all: headers::is_complete(answer.headers.as_ref()), first: answer.payload };
    let is_whole = far.is_none();
    if is_whole && !(heard.is_all && said.is_all) {
        return Err(BusError::Away { detail: "no address of the stream's other side".to_owned() });
    }
    let addresses = (near.clone(), far.unwrap_or_default());
    let end = End::new(Arc::clone(&link.wire), addresses, window, heard).with_opening(said);
    if is_whole {
        return Ok(halves(&Arc::new(end.in_answer())));
    }
    let end = Arc::new(end);
    attend(world, link, &end, near).await?;
    end.say(ALIVE, 0, Bytes::new()).await;
    Ok(halves(&end))
}

/// Hands the other end of a stream to whoever takes it; gives what goes back to the opener.
pub(super) async fn accept(
    world: &World,
    link: &Link,
    opening: Message,
    handler: impl FnOnce(ByteStream) -> BoxFuture<'static, ()> + Send,
) -> Option<Answer> {
    let said = opening.headers.as_ref();
    let (far, window) = (headers::inbox(said)?, headers::window(said)?);
    let heard = Opening { is_all: headers::is_complete(said), first: opening.payload };
    let address = link.wire.new_inbox();
    let end = End::new(Arc::clone(&link.wire), (address.clone(), far), window, heard).in_answer();
    let end = Arc::new(end);
    let mut handling = handler(halves(&end));
    let mut waited = world.clock.sleep(WAITS_FOR_FIRST);
    let is_handled = loop {
        tokio::select! {
            biased;
            () = &mut handling => break true,
            () = end.unsent.notified() => if end.is_to_answer() { break false },
            () = &mut waited => break false,
        }
    };
    let mut headers = HeaderMap::new();
    let payload = match end.whole() {
        Some(whole) => {
            headers::for_answer(&mut headers, None, true);
            whole
        }
        None => {
            attend(world, link, &end, address.clone()).await.ok()?;
            let Opening { first, is_all } = end.answer();
            headers::for_answer(&mut headers, Some(&address), is_all);
            first
        }
    };
    if !is_handled {
        world.spawner.spawn("bus stream", handling);
    }
    Some(Answer { headers, payload })
}

/// Listens for the end of a stream at `near`.
async fn attend(world: &World, link: &Link, end: &Arc<End>, near: String) -> Result<(), BusError> {
    let lost = link.lost()?;
    let subscribed = link.wire.subscribe(format!("{near}.>"), None).await;
    let subscriber = subscribed.map_err(|error| BusError::Away { detail: error.to_string() })?;
    let pumping = pump::run(Arc::clone(end), subscriber, lost, world.clone());
    world.spawner.spawn("nats stream", Box::pin(pumping));
    Ok(())
}

fn halves(end: &Arc<End>) -> ByteStream {
    ByteStream {
        reader: ByteReader(Box::new(Reader { end: Arc::clone(end) })),
        writer: ByteWriter(Box::new(Writer { end: Arc::clone(end) })),
    }
}
