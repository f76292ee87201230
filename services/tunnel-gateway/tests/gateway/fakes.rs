//! Answerers in place of authz and delivery.

use std::sync::Arc;

use bus::{LocalBus, Serving};
use events::desired::Applier;
use events::requests::authz::{Admit, Decide, Decision};
use events::requests::delivery::{NameApplier, ShowDesired, ShowNext};
use events::{Refusal, RefusalKind};
use parking_lot::Mutex;

use super::{Delivery, Directory};

pub async fn authz(bus: &LocalBus, directory: &Arc<Mutex<Directory>>) -> Vec<Serving> {
    let known = Arc::clone(directory);
    let admit = bus::answer::<Admit, _>(bus, move |_, request| {
        let known = Arc::clone(&known);
        Box::pin(async move {
            let directory = known.lock();
            if directory.away {
                return Err(Refusal::new(RefusalKind::Unavailable, "away"));
            }
            Ok(request.hashes.iter().map(|hash| directory.admit(hash)).collect())
        })
    });
    let known = Arc::clone(directory);
    let decide = bus::answer::<Decide, _>(bus, move |_, request| {
        let known = Arc::clone(&known);
        Box::pin(async move {
            let strange = known.lock().strangers.contains(&request.actor);
            Ok(Decision { allowed: !strange, visible: !strange, reason: "by the test".to_owned() })
        })
    });
    vec![admit.await.unwrap(), decide.await.unwrap()]
}

pub async fn delivery(bus: &LocalBus, delivery: &Arc<Mutex<Delivery>>) -> Vec<Serving> {
    let known = Arc::clone(delivery);
    let show = bus::answer::<ShowDesired, _>(bus, move |_, request| {
        let known = Arc::clone(&known);
        Box::pin(async move {
            let mut held = known.lock().held.subscribe();
            held.wait_for(|held| !held).await.unwrap();
            let mut delivery = known.lock();
            let asked = request.agents.len();
            delivery.asked += asked;
            delivery.asked_at_once = delivery.asked_at_once.max(asked);
            let answered = request.agents.iter().take(delivery.answers_at_most.unwrap_or(asked));
            Ok(answered.map(|agent| delivery.plans.get(agent).cloned()).collect())
        })
    });
    let known = Arc::clone(delivery);
    let name = bus::answer::<NameApplier, _>(bus, move |_, request| {
        let known = Arc::clone(&known);
        Box::pin(async move {
            let mut delivery = known.lock();
            delivery.namings += 1;
            let NameApplier { agent, instance } = request;
            let former = delivery.appliers.get(&agent).copied();
            let applier = match former {
                Some(former) if former.instance == instance => former,
                former => Applier { instance, epoch: former.map_or(0, |former| former.epoch) + 1 },
            };
            delivery.appliers.insert(agent, applier);
            if let Some(plan) = delivery.plans.get_mut(&agent) {
                plan.applier = Some(applier);
            }
            Ok(applier)
        })
    });
    let known = Arc::clone(delivery);
    let next = bus::answer::<ShowNext, _>(bus, move |_, request| {
        let next = known.lock().next.get(&request.source).cloned();
        Box::pin(async move { next.ok_or_else(|| Refusal::not_found("source")) })
    });
    vec![show.await.unwrap(), name.await.unwrap(), next.await.unwrap()]
}
