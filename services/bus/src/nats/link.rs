//! What the parts of the bus share: the wire, and how its losses are noticed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::sync::watch;
use world::World;

use super::wire::{HeaderMap, Wire, WireError};
use crate::contract::BusError;

const SETTLE_TIME: Duration = Duration::from_secs(10);

/// A wire; cheap to clone.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) wire: Arc<dyn Wire>,
    settling: Arc<Mutex<Settling>>,
}

type Settled = Shared<BoxFuture<'static, Result<(), BusError>>>;

/// Questions whether the server has heard what was said.
#[derive(Default)]
struct Settling {
    /// Sent, and perhaps answered.
    asked: Option<Settled>,
    /// To be sent when that one is answered.
    next: Option<Settled>,
}

impl Link {
    pub(super) fn new(wire: Arc<dyn Wire>) -> Self {
        Self { wire, settling: Arc::default() }
    }

    /// Changes whenever messages may have been lost.
    pub(super) fn interruptions(&self) -> watch::Receiver<u64> {
        let mut interruptions = self.wire.interruptions();
        interruptions.mark_unchanged();
        interruptions
    }

    /// Ends when messages may have been lost from now on; an error when the connection is lost already.
    pub(super) fn lost(&self) -> Result<impl Future<Output = ()> + Send + use<>, BusError> {
        let mut interruptions = self.interruptions();
        if !self.wire.is_connected() {
            return Err(BusError::Away { detail: "no server is connected".to_owned() });
        }
        Ok(async move {
            // An error means that the client is gone, and with it the connection.
            let _gone = interruptions.changed().await;
        })
    }

    /// Waits until the server has heard all that was said so far. Those who come while a question is under way share the next one: of
    /// thousands of agents that come at once, each waits for this.
    pub(super) async fn settled(&self, world: &World) -> Result<(), BusError> {
        let settled = {
            let mut settling = self.settling.lock();
            let Settling { asked, next } = &mut *settling;
            next.get_or_insert_with(|| self.clone().ask_next(asked.clone(), world.clone())).clone()
        };
        settled.await
    }

    fn ask_next(self, before: Option<Settled>, world: World) -> Settled {
        let asking = async move {
            if let Some(before) = before {
                let _answered = before.await;
            }
            {
                let mut settling = self.settling.lock();
                settling.asked = settling.next.take();
            }
            self.ask_server(&world).await
        };
        asking.boxed().shared()
    }

    /// A question that nobody answers comes back from the server, behind all that was said before it.
    async fn ask_server(&self, world: &World) -> Result<(), BusError> {
        let away = |detail: &str| BusError::Away { detail: detail.to_owned() };
        let lost = self.lost()?;
        let question = self.wire.request(self.wire.new_inbox(), HeaderMap::new(), Bytes::new());
        tokio::select! {
            biased;
            answer = question => match answer {
                Err(WireError::Failed(detail)) => Err(away(&detail)),
                Ok(_) | Err(WireError::Nobody) => Ok(()),
            },
            () = world.clock.sleep(SETTLE_TIME) => Err(away("the server does not answer")),
            () = lost => Err(away("the connection was lost")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::super::wire::{Message, Subscriber};
    use super::*;

    /// A server that answers as often as it is let.
    struct Held {
        asked: AtomicUsize,
        answers: Semaphore,
        interruptions: watch::Sender<u64>,
    }

    #[async_trait]
    impl Wire for Held {
        async fn publish(
            &self,
            _: String,
            _: Option<String>,
            _: HeaderMap,
            _: Bytes,
        ) -> Result<(), WireError> {
            Ok(())
        }

        async fn request(&self, _: String, _: HeaderMap, _: Bytes) -> Result<Message, WireError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.answers.acquire().await.unwrap().forget();
            Err(WireError::Nobody)
        }

        async fn subscribe(&self, _: String, _: Option<String>) -> Result<Box<dyn Subscriber>, WireError> {
            Err(WireError::Nobody)
        }

        fn new_inbox(&self) -> String {
            "inbox".to_owned()
        }

        fn is_connected(&self) -> bool {
            true
        }

        fn connects(&self) -> u64 {
            1
        }

        fn interruptions(&self) -> watch::Receiver<u64> {
            self.interruptions.subscribe()
        }
    }

    #[tokio::test]
    async fn whoever_comes_while_a_question_is_under_way_waits_for_one_of_later() {
        let held = Arc::new(Held {
            asked: AtomicUsize::new(0),
            answers: Semaphore::new(0),
            interruptions: watch::Sender::new(0),
        });
        let (link, world) = (Link::new(Arc::clone(&held) as Arc<dyn Wire>), World::real());
        let asked = || held.asked.load(Ordering::SeqCst);
        let mut first = Box::pin(link.settled(&world));
        assert!(futures::poll!(&mut first).is_pending());
        assert_eq!(asked(), 1);
        let mut others = Box::pin(join_all((0..100).map(|_| link.settled(&world))));
        assert!(futures::poll!(&mut others).is_pending());
        assert_eq!(asked(), 1, "the server may have read the first before what they said");
        held.answers.add_permits(1);
        first.await.unwrap();
        assert!(futures::poll!(&mut others).is_pending());
        assert_eq!(asked(), 2);
        held.answers.add_permits(1);
        assert!(others.await.iter().all(Result::is_ok));
        assert_eq!(asked(), 2, "one question for all of them");
        held.answers.add_permits(1);
        link.settled(&world).await.unwrap();
        assert_eq!(asked(), 3, "an old answer is none");
    }
}
