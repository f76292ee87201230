//! The suite finds what it is to find: a bus with one fault breaks the law that names it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use events::request::RequestContext;
use events::subject::Subject;
use tokio::sync::mpsc;
use world::World;

use super::{notices, requests, streams};
use crate::contract::*;
use crate::local::LocalBus;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    DeliversTwice,
    ForgetsTraceparent,
    CutsLongMessages,
    ServesAfterLeaving,
    PublishesTwice,
    MiscountsLosses,
    SwallowsResets,
    GivesCreditWithoutEnd,
    ChangesWhatCameWithAnOpening,
    ForgetsThatAnOpeningIsAll,
}

struct FaultyBus {
    inner: LocalBus,
    world: World,
    fault: Fault,
}

#[async_trait]
impl Bus for FaultyBus {
    async fn request(
        &self,
        subject: &Subject,
        context: &RequestContext,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        let mut context = context.clone();
        let mut body = body;
        match self.fault {
            Fault::DeliversTwice => drop(self.inner.request(subject, &context, body.clone()).await),
            Fault::ForgetsTraceparent => context.traceparent = None,
            Fault::CutsLongMessages => body.truncate(1024),
            _ => {}
        }
        self.inner.request(subject, &context, body).await
    }

    async fn serve(&self, subject: &Subject, group: &str, handler: Handler) -> Result<Serving, BusError> {
        let serving = self.inner.serve(subject, group, handler).await?;
        if self.fault == Fault::ServesAfterLeaving {
            std::mem::forget(serving);
            return Ok(Serving(Box::new(())));
        }
        Ok(serving)
    }

    async fn publish(&self, subject: &Subject, body: Bytes) -> Result<(), BusError> {
        if self.fault == Fault::PublishesTwice {
            self.inner.publish(subject, body.clone()).await?;
        }
        self.inner.publish(subject, body).await
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, BusError> {
        let mut subscription = self.inner.subscribe(subject).await?;
        if self.fault != Fault::MiscountsLosses {
            return Ok(subscription);
        }
        let (sender, receiver) = mpsc::channel(1);
        let forward = async move {
            let _guard = subscription.guard;
            while let Some(notice) = subscription.receiver.recv().await {
                let notice = match notice {
                    Received::Lost(count) => Received::Lost(count + 1),
                    message => message,
                };
                if sender.send(notice).await.is_err() {
                    return;
                }
            }
        };
        self.world.spawner.spawn("forward", Box::pin(forward));
        Ok(Subscription { receiver, guard: Box::new(()) })
    }

    async fn open_stream(
        &self,
        subject: &Subject,
        context: &RequestContext,
        window: u32,
        mut opening: Opening,
    ) -> Result<ByteStream, RequestError> {
        let window = if self.fault == Fault::GivesCreditWithoutEnd { u32::MAX } else { window };
        match self.fault {
            Fault::ChangesWhatCameWithAnOpening => opening.first = vec![0; opening.first.len()].into(),
            Fault::ForgetsThatAnOpeningIsAll => opening.is_all = false,
            _ => {}
        }
        self.inner.open_stream(subject, context, window, opening).await
    }

    async fn serve_streams(
        &self,
        subject: &Subject,
        group: &str,
        handler: StreamHandler,
    ) -> Result<Serving, BusError> {
        if self.fault != Fault::SwallowsResets {
            return self.inner.serve_streams(subject, group, handler).await;
        }
        let swallowing: StreamHandler = Arc::new(move |context, stream| {
            let reader = ByteReader(Box::new(Swallowing(stream.reader)));
            handler(context, ByteStream { reader, writer: stream.writer })
        });
        self.inner.serve_streams(subject, group, swallowing).await
    }
}

struct Swallowing(ByteReader);

#[async_trait]
impl ReadBytes for Swallowing {
    async fn read(&mut self) -> Result<Option<Bytes>, StreamReset> {
        Ok(self.0.0.read().await.unwrap_or(None))
    }

    fn has_ended(&self) -> bool {
        self.0.0.has_ended()
    }
}

macro_rules! breaks {
    ($($test:ident: $fault:ident breaks $group:ident :: $law:ident;)*) => {$(
        #[tokio::test]
        async fn $test() {
            let world = World::real();
            let inner = LocalBus::new(world.clone());
            let bus = Arc::new(FaultyBus { inner, world: world.clone(), fault: Fault::$fault });
            let outcome = $group::$law(bus, world).await;
            assert!(outcome.is_err(), "the law did not notice");
        }
    )*};
}

breaks! {
    a_request_for_two_members: DeliversTwice breaks requests::one_member_of_a_group_gets_a_request;
    a_context_without_its_trace: ForgetsTraceparent breaks requests::the_context_arrives_as_it_was_sent;
    a_cut_message: CutsLongMessages breaks requests::a_message_over_the_limit_is_refused;
    a_member_that_never_leaves: ServesAfterLeaving breaks requests::a_member_that_left_gets_no_more;
    a_doubled_notice: PublishesTwice breaks notices::every_subscriber_gets_each_notice_once_and_in_order;
    a_wrong_count_of_losses: MiscountsLosses breaks notices::a_slow_subscriber_loses_and_is_told;
    an_end_instead_of_a_reset: SwallowsResets breaks streams::a_dropped_writer_is_not_an_orderly_end;
    credit_without_end: GivesCreditWithoutEnd breaks streams::a_writer_waits_for_credit;
    changed_first_bytes: ChangesWhatCameWithAnOpening
        breaks streams::what_is_said_with_the_opening_is_read_first_and_needs_credit;
    an_opening_without_its_end: ForgetsThatAnOpeningIsAll breaks streams::an_opening_may_be_all_that_is_said;
}
