//! What is exported of what is in the log: all that is to be, in order, and numbered without gaps.

use std::collections::BTreeMap;
use std::time::Duration;

use events::cloud_event::{Recorded, of_record};
use events::export::{Counted, ExportLane, is_exported};
use events::{CloudEvent, OrganizationId};
use serde_json::Value;

/// An event of the log that is to be exported.
struct Due {
    id: String,
    /// Whose, and of which aggregate or writer.
    subject: (OrganizationId, String),
    at: Duration,
    is_exported: bool,
}

/// An export that counts.
pub(crate) struct Exported {
    pub(crate) organization: OrganizationId,
    /// Without its data.
    pub(crate) event: CloudEvent,
    /// When it was stored.
    pub(crate) at: Duration,
}

/// All of them, in the order in which they were stored.
#[derive(Default)]
pub(crate) struct Exports {
    due: Vec<Due>,
    places: BTreeMap<String, usize>,
    /// Everything before this place is exported.
    whole: usize,
    /// The place of the last one of each subject that was exported.
    reached: BTreeMap<(OrganizationId, String), usize>,
    lanes: BTreeMap<OrganizationId, ExportLane>,
    all: Vec<Exported>,
}

impl Exports {
    /// The exports so far.
    pub(crate) fn all(&self) -> &[Exported] {
        &self.all
    }

    /// A record was stored of which exports are made.
    pub(crate) fn stored(&mut self, record: &Recorded<'_>, at: Duration) {
        let events = of_record(record).into_iter().filter(|event| is_exported(&event.event_type));
        for CloudEvent { id, subject, .. } in events {
            // Observations may be in the log twice.
            if self.places.contains_key(&id) {
                continue;
            }
            self.places.insert(id.clone(), self.due.len());
            let subject = (record.organization, subject);
            self.due.push(Due { id, subject, at, is_exported: false });
        }
    }

    /// An export was stored.
    pub(crate) fn exported(&mut self, event: CloudEvent, at: Duration) -> Result<(), String> {
        let organization = event.source.strip_prefix("/organizations/").and_then(|id| id.parse().ok());
        let organization = organization.ok_or_else(|| format!("export {} is nobody's", event.id))?;
        let lane = self.lanes.entry(organization).or_default();
        let before = lane.sequence;
        if lane.take(&event) != Counted::Event {
            return Ok(());
        }
        if lane.sequence != before.saturating_add(1) {
            return Err(format!("export {} follows {before} of organization {organization}", lane.sequence));
        }
        let place = self.places.get(&event.id).copied();
        let due = place.and_then(|place| Some((place, self.due.get_mut(place)?)));
        let (place, due) = due.ok_or_else(|| format!("{} is exported and not in the log", event.id))?;
        // A lost checkpoint repeats events.
        if !std::mem::replace(&mut due.is_exported, true) {
            let last = self.reached.insert(due.subject.clone(), place);
            if last.is_some_and(|last| last > place) {
                return Err(format!("{} is exported after a later event of {}", event.id, due.subject.1));
            }
        }
        self.all.push(Exported { organization, event: CloudEvent { data: Value::Null, ..event }, at });
        Ok(())
    }

    /// An event that is not exported, of those that were stored until then.
    pub(crate) fn missing(&mut self, until: Duration) -> Option<String> {
        while self.due.get(self.whole).is_some_and(|due| due.is_exported) {
            self.whole += 1;
        }
        let due = self.due.get(self.whole).filter(|due| due.at <= until)?;
        Some(format!("{} of {} is not exported", due.id, due.subject.1))
    }
}
