//! `kasbah get -w`: what changes of the objects that match, as it changes.
//!
//! The whole list is asked for again and again, so what it may hold is limited to a page. A change between two questions is seen as the last
//! state; every single one is in `kasbah history`.

use std::collections::BTreeMap;
use std::time::Duration;

use events::requests::index::IndexedObject;
use events::requests::page::{Page, PageLimit};
use events::{AgentId, Timestamp};

use super::super::selection::Fields;
use super::super::text::argument;
use super::{Columns, rows};
use crate::client::failure::Failure;
use crate::client::print::Format;
use crate::client::session::Session;

/// Between two questions.
const PAUSE: Duration = Duration::from_secs(2);

/// Prints all that match, and then each that changes, until it is interrupted.
///
/// # Errors
/// When the server refuses, or more match than a page holds.
pub(super) async fn run(
    session: &Session,
    mut query: Fields,
    names_environments: bool,
) -> Result<(), Failure> {
    query.push(("limit", PageLimit::MAXIMUM.items().to_string()));
    let mut known = Known::default();
    let mut printed = session.printer.list();
    let format = session.printer.format;
    let columns = Columns::with(format, names_environments);
    let mut is_first = true;
    loop {
        match session.api.get::<Page<IndexedObject>>(&["objects"], &query).await {
            Ok(Page { next: Some(_), .. }) => return Err(too_many()),
            Ok(Page { items, next: None }) => {
                let changed = known.changed(items, Timestamp(session.world.clock.now_millis()));
                match format {
                    Format::Table | Format::Wide => {
                        printed.page(changed, |objects, style| rows(objects, columns, style))?;
                    }
                    Format::Json | Format::Yaml | Format::Name => {
                        for object in &changed {
                            session.printer.show_line(object, |object, _| argument(&object.identity))?;
                        }
                    }
                }
            }
            Err(failure) if is_first || !failure.is_transient() => return Err(failure),
            Err(failure) => eprintln!("warning: {failure}"),
        }
        is_first = false;
        session.world.clock.sleep(PAUSE).await;
    }
}

fn too_many() -> Failure {
    let limit = PageLimit::MAXIMUM.items();
    Failure::usage("--watch", format!("more than {limit} objects match; name a kind, a namespace or labels"))
}

/// What was printed.
#[derive(Default)]
struct Known(BTreeMap<(AgentId, String), IndexedObject>);

impl Known {
    /// Those that are other than they were printed, and those that are not among them any more.
    fn changed(&mut self, all: Vec<IndexedObject>, now: Timestamp) -> Vec<IndexedObject> {
        let mut before = std::mem::take(&mut self.0);
        let mut changed = Vec::new();
        for object in all {
            let key = (object.agent, object.uid.clone());
            if before.remove(&key).as_ref() != Some(&object) {
                changed.push(object.clone());
            }
            self.0.insert(key, object);
        }
        changed.extend(before.into_values().map(|gone| IndexedObject { gone_at: Some(now), ..gone }));
        changed
    }
}

#[cfg(test)]
mod tests {
    use events::requests::index::HealthState;

    use super::super::super::text::tests::object;
    use super::*;

    #[test]
    fn what_changed_and_what_is_gone_is_printed_again() {
        let pod = |name: &str, state| object("Pod", name, state, "");
        let (progressing, healthy) = (HealthState::Progressing, HealthState::Healthy);
        let mut known = Known::default();
        let all = vec![pod("a", progressing), pod("b", healthy), pod("c", healthy)];
        assert_eq!(known.changed(all.clone(), Timestamp(1)), all);
        assert_eq!(known.changed(all, Timestamp(2)), []);
        let changed =
            known.changed(vec![pod("a", healthy), pod("b", healthy), pod("d", healthy)], Timestamp(3));
        let gone = IndexedObject { gone_at: Some(Timestamp(3)), ..pod("c", healthy) };
        assert_eq!(changed, [pod("a", healthy), pod("d", healthy), gone]);
    }
}
