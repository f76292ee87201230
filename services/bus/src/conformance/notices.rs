//! Laws of notices.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use events::subject::Subject;
use world::World;

use super::{fresh_name, patiently};
use crate::contract::{Bus, BusError, MAXIMUM_MESSAGE_BYTES, NOTICE_QUEUE, Received, Subscription};

async fn next(world: &World, subscription: &mut Subscription) -> Result<Received> {
    patiently(world, "a notice", subscription.receiver.recv()).await?.context("the subscription ended")
}

fn numbered(number: usize) -> Bytes {
    Bytes::from(number.to_string())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn every_subscriber_gets_each_notice_once_and_in_order(
    bus: Arc<dyn Bus>,
    world: World,
) -> Result<()> {
    let subject = Subject::notice(&fresh_name(&world, "order"));
    let mut subscriptions = [bus.subscribe(&subject).await?, bus.subscribe(&subject).await?];
    for number in 0..500 {
        bus.publish(&subject, numbered(number)).await?;
    }
    for subscription in &mut subscriptions {
        for number in 0..500 {
            let notice = next(&world, subscription).await?;
            ensure!(notice == Received::Message(numbered(number)), "{notice:?} instead of {number}");
        }
    }
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_late_subscriber_gets_nothing_from_before(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::notice(&fresh_name(&world, "late"));
    bus.publish(&subject, Bytes::from_static(b"before")).await?;
    let mut subscription = bus.subscribe(&subject).await?;
    bus.publish(&subject, Bytes::from_static(b"after")).await?;
    let notice = next(&world, &mut subscription).await?;
    ensure!(notice == Received::Message(Bytes::from_static(b"after")), "{notice:?}");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn other_subjects_are_not_heard(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let name = fresh_name(&world, "subject");
    let mut subscription = bus.subscribe(&Subject::notice(&name)).await?;
    for other in [format!("{name}.more"), format!("{name}x"), "conformance".to_owned()] {
        bus.publish(&Subject::notice(&other), Bytes::from_static(b"other")).await?;
    }
    bus.publish(&Subject::notice(&name), Bytes::from_static(b"own")).await?;
    let notice = next(&world, &mut subscription).await?;
    ensure!(notice == Received::Message(Bytes::from_static(b"own")), "{notice:?}");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_slow_subscriber_loses_and_is_told(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::notice(&fresh_name(&world, "slow"));
    let mut subscription = bus.subscribe(&subject).await?;
    let total = NOTICE_QUEUE * 3;
    for number in 0..total {
        bus.publish(&subject, numbered(number)).await?;
    }
    let (mut number, mut told) = (0, 0);
    while number < total {
        match next(&world, &mut subscription).await? {
            Received::Message(body) => {
                ensure!(body == numbered(number), "{body:?} instead of {number}");
                number += 1;
            }
            Received::Lost(count) => {
                told += count;
                number += usize::try_from(count)?;
            }
        }
    }
    ensure!(told > 0, "none was lost: the queue has no bound");
    ensure!(number == total, "told of more than were lost");
    bus.publish(&subject, Bytes::from_static(b"goes on")).await?;
    ensure!(
        next(&world, &mut subscription).await? == Received::Message(Bytes::from_static(b"goes on")),
        "it does not go on"
    );
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_slow_subscriber_harms_no_other(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::notice(&fresh_name(&world, "harm"));
    let _slow = bus.subscribe(&subject).await?;
    let mut quick = bus.subscribe(&subject).await?;
    for number in 0..NOTICE_QUEUE * 2 {
        bus.publish(&subject, numbered(number)).await?;
        let notice = next(&world, &mut quick).await?;
        ensure!(notice == Received::Message(numbered(number)), "{notice:?} instead of {number}");
    }
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_notice_over_the_limit_is_refused(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::notice(&fresh_name(&world, "large"));
    let outcome = bus.publish(&subject, Bytes::from(vec![0; MAXIMUM_MESSAGE_BYTES + 1])).await;
    ensure!(matches!(outcome, Err(BusError::TooLarge { .. })), "{outcome:?}");
    Ok(())
}
