//! Which objects belong to which environments, asked of delivery once something was decided about environments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::ask;
use events::requests::environments::{ListResourceGroups, ResourceGroup};
use events::requests::page::{PageLimit, Paged as _};
use events::{OrganizationId, Refusal, RefusalKind};
use tokio::sync::watch;
use world::spawn::blocking;

use super::{COVERED_WITHIN, Driver};
use crate::model::{Group, project_labels};

/// Between two rounds of questions: what is decided meanwhile is asked for at once.
const PAUSE: Duration = Duration::from_millis(200);
/// Before delivery is asked again that did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// How well the environments of an organization are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Known {
    /// How often something was decided about them.
    decided: u64,
    /// How often something had been, when delivery answered last; absent while it never did.
    answered: Option<u64>,
}

impl Known {
    fn is_current(self) -> bool {
        self.answered == Some(self.decided)
    }
}

/// How well environments are known, by organization.
#[derive(Default)]
pub(crate) struct Environments(watch::Sender<BTreeMap<OrganizationId, Known>>);

impl Environments {
    /// Something was decided that may touch them.
    pub(super) fn touch(&self, organization: OrganizationId) {
        self.0.send_modify(|all| {
            let known = all.entry(organization).or_default();
            known.decided = known.decided.saturating_add(1);
        });
    }

    /// There are such organizations.
    pub(super) fn add(&self, organizations: impl IntoIterator<Item = OrganizationId>) {
        self.0.send_modify(|all| {
            for organization in organizations {
                all.entry(organization).or_default();
            }
        });
    }

    fn answered(&self, organization: OrganizationId, decided: u64) {
        self.0.send_modify(|all| all.entry(organization).or_default().answered = Some(decided));
    }

    /// Those that have to be asked for.
    fn due(&self) -> Vec<(OrganizationId, u64)> {
        let all = self.0.borrow();
        let due = all.iter().filter(|(_, known)| !known.is_current());
        due.map(|(organization, known)| (*organization, known.decided)).collect()
    }
}

impl Driver {
    /// Asks until shutdown.
    pub(super) async fn follow_environments(
        self: &Arc<Self>,
        shutdown: &chassis::Shutdown,
    ) -> anyhow::Result<()> {
        let mut caught_up = self.caught_up.subscribe();
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            _ = caught_up.wait_for(|caught_up| *caught_up) => {}
        }
        let mut changes = self.environments.0.subscribe();
        let mut is_failing = false;
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                changed = changes.wait_for(|all| all.values().any(|known| !known.is_current())) => {
                    changed.map(|_| ())?;
                }
            }
            let asked = tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                asked = self.ask_for_environments() => asked,
            };
            let pause = match asked {
                Ok(()) => PAUSE,
                Err(refusal) => {
                    if !is_failing {
                        tracing::warn!(%refusal, "environments are not known, and delivery is asked again");
                    }
                    RETRY
                }
            };
            is_failing = pause == RETRY;
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                () = self.deps.world.clock.sleep(pause) => {}
            }
        }
    }

    /// Asks for all that are due.
    async fn ask_for_environments(self: &Arc<Self>) -> Result<(), Refusal> {
        for (organization, decided) in self.environments.due() {
            let groups = self.resource_groups(organization).await?;
            let driver = Arc::clone(self);
            let group = move || driver.group_objects(organization, groups);
            let done = blocking(&*self.deps.world.spawner, "index-groups", group).await;
            done.map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
            self.environments.answered(organization, decided);
        }
        Ok(())
    }

    async fn resource_groups(&self, organization: OrganizationId) -> Result<Vec<ResourceGroup>, Refusal> {
        let mut request = ListResourceGroups { limit: Some(PageLimit::MAXIMUM), cursor: None };
        let mut groups = Vec::new();
        loop {
            let context = bus::context_for_service(&self.deps.world, "resource-indexer", organization);
            let page = ask(&*self.deps.bus, &context, &request).await?;
            groups.extend(page.items);
            let Some(next) = page.next else { return Ok(groups) };
            request = request.at(next);
        }
    }

    /// Groups objects by these environments. Folding and answers go on between two of them.
    fn group_objects(&self, organization: OrganizationId, resources: Vec<ResourceGroup>) {
        let (groups, changed) = {
            let state = self.state.read();
            let directory = &state.directory;
            let group = |resource: ResourceGroup| {
                let project = resource.project;
                let (path, external) = (directory.path_of(project), directory.external_id_of(project));
                Group { organization, project_labels: project_labels(project, path, external), resource }
            };
            let groups = resources.into_iter().map(group).collect();
            state.fold.index.groups().with(organization, groups)
        };
        // Only this task sets them.
        self.state.write().fold.index.set_groups(Arc::new(groups));
        for environment in changed {
            self.state.write().fold.index.regroup(environment);
        }
    }

    /// Refuses as long as the environments of an organization are not known.
    pub(crate) fn environments_are_known(&self, organization: OrganizationId) -> Result<(), Refusal> {
        let known = self.environments.0.borrow().get(&organization).copied();
        if known.is_none_or(|known| known.answered.is_some()) {
            return Ok(());
        }
        let message = "which objects belong to which environment is not known yet; retry";
        Err(Refusal::new(RefusalKind::Unavailable, message))
    }

    /// Returns once everything counts that was decided about environments.
    pub(crate) async fn environments_are_current(&self, organization: OrganizationId) -> Result<(), Refusal> {
        let mut known = self.environments.0.subscribe();
        let decided = known.borrow().get(&organization).map_or(0, |known| known.decided);
        let is_current = |all: &BTreeMap<OrganizationId, Known>| {
            all.get(&organization).is_none_or(|known| known.answered.is_some_and(|by| by >= decided))
        };
        tokio::select! {
            biased;
            _ = known.wait_for(is_current) => Ok(()),
            () = self.deps.world.clock.sleep(COVERED_WITHIN) => {
                let message = "the index does not know the environments of this position yet; retry";
                Err(Refusal::new(RefusalKind::Unavailable, message))
            }
        }
    }
}
