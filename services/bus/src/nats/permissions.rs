//! What a service may do on the servers to say and hear what it says it does.

use events::access::{Access, Permissions, inbox};
use events::subject::Subject;

/// What a service may do on the servers. Answers go to subjects that only their askers know.
#[must_use]
pub fn permissions(access: &Access) -> Permissions {
    let mut may = Permissions::default();
    may.allow_publish(format!("{}.>", inbox("*")));
    may.allow_subscribe(format!("{}.>", inbox(access.service)));
    may.allow_subscribe(format!("{}.>", Subject::request(access.service)));
    for name in access.asks {
        let subject = Subject::request(name);
        // The second is of one replica, or of one agent's.
        may.allow_publish(subject.to_string());
        may.allow_publish(format!("{subject}.*"));
    }
    let own = access.shares_work.then_some(access.service);
    for service in own.iter().chain(access.knows) {
        let name = crate::presence::name(service);
        for subject in [Subject::notice(&name), Subject::request(&name)] {
            may.allow_publish(subject.to_string());
            may.allow_subscribe(subject.to_string());
        }
    }
    access.announces.iter().for_each(|name| may.allow_publish(Subject::notice(name).to_string()));
    access.hears.iter().for_each(|name| may.allow_subscribe(Subject::notice(name).to_string()));
    may
}
