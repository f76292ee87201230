//! What the readiness page says of the applier.
//!
//! An agent that cannot work on a part of what it has, for want of rights or because that part was refused, does its job for the rest:
//! that is a warning, and the agent is ready. So is one that stands by without the Lease.

use std::sync::Arc;

use chassis::Readiness;
use chassis::readiness::Finding;
use events::observation::MissingRight;
use events::{SourceId, Timestamp};

use super::Shared;
use super::report::Report;
use crate::desired::View;

/// Rights, or sources, that are named on the page.
const NAMED: usize = 10;

/// Rights for want of which syncs fail, and since when.
#[derive(Debug, Default)]
pub(super) struct Lacking {
    rights: Vec<MissingRight>,
    since: Timestamp,
}

impl Shared {
    /// Adds the checks of the applier to those of the process.
    pub fn add_checks(self: &Arc<Self>, readiness: &Readiness) {
        self.add_check(readiness, "api-server", |shared| shared.reach.finding());
        self.add_check(readiness, "lease", Self::find_lease);
        self.add_check(readiness, "configuration", |shared| {
            find_configuration(shared.desired.view().as_deref())
        });
        self.add_check(readiness, "rights", Self::find_rights);
    }

    fn add_check(
        self: &Arc<Self>,
        readiness: &Readiness,
        name: &'static str,
        look: impl Fn(&Self) -> Finding + Send + Sync + 'static,
    ) {
        let shared = Arc::clone(self);
        readiness.check(name, move || look(&shared));
    }

    /// Which rights a run of a sync lacked; none once one went without.
    pub(super) fn note_lacking(&self, source: SourceId, report: &Report) {
        let mut lacking = self.lacking.lock();
        if report.missing.is_empty() {
            lacking.remove(&source);
            return;
        }
        let now = Timestamp(self.world.clock.now_millis());
        let known = lacking.entry(source).or_insert_with(|| Lacking { rights: Vec::new(), since: now });
        known.rights.clone_from(&report.missing);
    }

    fn find_lease(&self) -> Finding {
        Finding::passed(match (self.holding.is_held(), self.holding.may_write()) {
            (true, true) => "held: this instance applies",
            (true, false) => "held: the server has not named this instance yet",
            (false, _) => "not held: this instance stands by",
        })
    }

    fn find_rights(&self) -> Finding {
        if !self.holding.may_write() {
            return Finding::passed("this instance needs none while it stands by");
        }
        let broken = self.broken.lock();
        let lacking = self.lacking.lock();
        let (mut rights, of_watches) = broken.missing_rights();
        rights.extend(lacking.values().flat_map(|lacking| &lacking.rights));
        let since = lacking.values().map(|lacking| lacking.since).chain(of_watches).min();
        let texts: Vec<String> = rights.iter().map(ToString::to_string).collect();
        match since {
            Some(since) if !texts.is_empty() => Finding::warning(some_of(&texts)).since(since),
            _ => Finding::passed("none was found missing"),
        }
    }
}

/// What of the wanted state is not in force, here or at the server.
fn find_configuration(view: Option<&View>) -> Finding {
    let Some(view) = view else { return Finding::passed("the server has sent none yet") };
    if let Some(rejected) = &view.rejected {
        let message = format!("{}; the configuration before it stays in force", rejected.reason);
        return Finding::warning(message).since(rejected.since);
    }
    let refused: Vec<String> = view
        .sources
        .iter()
        .filter_map(|source| Some(format!("source {}: {}", source.head.name, source.refused.as_ref()?)))
        .collect();
    if refused.is_empty() {
        return Finding::passed("as the server sent it");
    }
    Finding::warning(some_of(&refused))
}

fn some_of(all: &[String]) -> String {
    let more = all.len().saturating_sub(NAMED);
    let named = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    if more > 0 { format!("{named}; and {more} more") } else { named }
}
