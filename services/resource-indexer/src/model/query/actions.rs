//! What can be done with an object.

use events::Timestamp;
use events::configuration::DeclaredAction;
use events::requests::index::OfferedAction;
use objects::action::{Offer, Seen, of_kind, offer};
use serde_json::Value;

use crate::model::kinds::resource_name;
use crate::model::record::Record;
use crate::model::view::View;

/// The actions for objects of a kind, to be tried on the body of one.
#[derive(Debug, Clone, Default)]
pub struct Actions {
    resource: String,
    all: Vec<(DeclaredAction, bool)>,
}

/// The actions for an object's kind: none of the past, and none where its resource is not known.
#[must_use]
pub fn actions(view: &View<'_>, record: &Record) -> Actions {
    let resource = resource_name(&record.kind, view.resource(record.agent, &record.kind));
    let is_now = view.gateways.is_some() && record.is_there();
    let Some(resource) = resource.filter(|_| is_now) else { return Actions::default() };
    let declared = view.directory.actions_of(record.agent);
    let all = of_kind(declared, (&*record.kind.group, &*record.kind.kind));
    let all = all.map(|(action, declared)| (action.clone(), declared)).collect();
    Actions { resource: resource.to_string(), all }
}

impl Actions {
    /// Those that are offered for an object as it is.
    #[must_use]
    pub fn offered(self, body: Value, now: Timestamp) -> Vec<OfferedAction> {
        let (resource, seen) = (self.resource, Seen::at(body, &now.to_string()));
        let offered = self.all.into_iter().filter_map(|(action, declared)| {
            let Offer::Patch(patch) = offer(&action, &seen) else { return None };
            let DeclaredAction { name, text, subresource, .. } = action;
            Some(OfferedAction { name, text, resource: resource.clone(), subresource, patch, declared })
        });
        offered.collect()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
