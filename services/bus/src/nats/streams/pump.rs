//! Hears what the other end says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use world::World;

use super::ALIVE;
use super::end::{End, Which};
use crate::nats::wire::{Message, StatusCode, Subscriber};

/// A silent end says this often that it is there.
const BEAT: Duration = Duration::from_secs(5);
/// Who was silent for so many times that long is taken for dead.
const SILENT: u32 = 4;

/// Runs until nothing can come of the stream any more.
pub(super) async fn run(
    end: Arc<End>,
    mut subscriber: Box<dyn Subscriber>,
    lost: impl Future<Output = ()> + Send,
    world: World,
) {
    let mut lost = std::pin::pin!(lost);
    let mut silent = 0;
    let mut beat = world.clock.sleep(BEAT);
    loop {
        tokio::select! {
            biased;
            () = &mut lost => {
                end.was_reset(Which::Both, "the connection to the bus was lost");
                return;
            }
            message = subscriber.next() => match message {
                Some(message) => {
                    silent = 0;
                    hear(&end, &message);
                    end.confirm_opening().await;
                }
                None => {
                    end.was_reset(Which::Both, "the connection to the bus was closed");
                    return;
                }
            },
            () = end.unsent.notified() => {}
            () = &mut beat => {
                beat = world.clock.sleep(BEAT);
                silent += 1;
                if silent > SILENT {
                    end.reset("the other side is silent");
                    end.confirm_opening().await;
                }
                end.say(ALIVE, 0, Bytes::new()).await;
            }
        }
        for (which, reason) in end.take_unsent() {
            end.say(&format!("reset.{}", which.as_str()), 0, Bytes::from(reason)).await;
        }
        if end.is_over() {
            return;
        }
    }
}

fn hear(end: &End, message: &Message) {
    if message.status == Some(StatusCode::NO_RESPONDERS) {
        end.was_reset(Which::Both, "the other side is gone");
        return;
    }
    let mut tokens = message.subject.as_str().rsplit('.');
    let (last, before) = (tokens.next().unwrap_or_default(), tokens.next().unwrap_or_default());
    let count = message.reply.as_ref().and_then(|reply| reply.as_str().rsplit('.').next()?.parse().ok());
    match (before, last, count) {
        ("reset", which, _) => {
            if let Some(which) = Which::parse(which) {
                end.was_reset(which, &String::from_utf8_lossy(&message.payload));
            }
        }
        (_, "data", Some(offset)) => {
            if let Err(reason) = end.took(offset, message.payload.clone()) {
                end.reset(reason);
            }
        }
        (_, "credit", Some(total)) => end.credited(total),
        (_, "end", Some(total)) => end.ended(total),
        _ => {}
    }
}
