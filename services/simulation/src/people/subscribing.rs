//! What people have sent to programs outside.

use events::export::{EventFilter, TypePattern};
use events::requests::subscriptions::{
    CreateSubscription, DeadLetterList, ListDeadLetters, NewSubscription, ReplaySubscription,
};

use super::Person;
use crate::receivers::{RECEIVERS, Receiver, port_of};

impl Person {
    /// Has all receivers sent what they want, from the first event on.
    pub(super) async fn subscribe(&self) {
        for (number, Receiver { name, types }) in RECEIVERS.iter().enumerate() {
            let types: Vec<TypePattern> = types.iter().filter_map(|types| types.parse().ok()).collect();
            let create = CreateSubscription {
                name: (*name).to_owned(),
                url: Some(format!("http://{name}.example:{}/events", port_of(number))),
                nats: false,
                format: None,
                types: types.clone(),
                project: None,
                environment: None,
                from: Some("start".to_owned()),
            };
            let created: Option<NewSubscription> = self.insist("subscription", &create).await;
            let owner = self.facts.lock().owner;
            if let (Some(NewSubscription { secret, .. }), Some((organization, _))) = (created, owner) {
                self.facts.lock().secrets.extend(secret);
                self.receivers.subscribed(
                    number,
                    organization,
                    EventFilter { types, ..EventFilter::default() },
                );
            }
        }
    }

    /// Has each receiver tried again at once, and not when its pause is over.
    pub(crate) async fn resume_subscriptions(&self) {
        for Receiver { name, .. } in &RECEIVERS {
            let replay = ReplaySubscription { subscription: (*name).to_owned(), from: None };
            self.insist("going on with a subscription", &replay).await;
        }
    }

    /// Looks at what was given up.
    pub(crate) async fn list_dead_letters(&self) {
        for (number, Receiver { name, .. }) in RECEIVERS.iter().enumerate() {
            let list = ListDeadLetters { subscription: (*name).to_owned() };
            let letters: Option<DeadLetterList> = self.insist("a list of dead letters", &list).await;
            let letters = letters.into_iter().flat_map(|letters| letters.items);
            self.receivers.dead_letters(number, letters.map(|letter| letter.event));
        }
    }
}
