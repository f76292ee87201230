//! Who may see what, asked of authz and remembered for a short time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::ask;
use events::request::RequestContext;
use events::requests::authz::{Action, ListAllowedProjects, ListUsableAgents};
use events::requests::page::{PageLimit, Paged as _};
use events::{Actor, OrganizationId, Position, ProjectId, Refusal, RefusalKind};
use parking_lot::Mutex;

use crate::driver::Driver;
use crate::model::Rights;

/// How long an answer counts, if nothing that touches it happens before.
const COUNTS_FOR: Duration = Duration::from_secs(60);
/// Askers whose rights are remembered.
const ASKERS: usize = 1_000;

type Asker = (OrganizationId, Actor);

/// Rights by who asked.
#[derive(Default)]
pub(crate) struct RightsCache(Mutex<Cache>);

#[derive(Default)]
struct Cache {
    known: BTreeMap<Asker, (Duration, Arc<Rights>)>,
    /// What was folded last of each organization that may touch rights.
    touched: BTreeMap<OrganizationId, Position>,
}

impl RightsCache {
    /// Something was decided in an organization: rights in it are asked for anew.
    pub(crate) fn forget(&self, organization: OrganizationId, record: &::store::Record) {
        let mut cache = self.0.lock();
        cache.known.retain(|(of, _), _| *of != organization);
        let (stream, partition) = record.shard;
        cache.touched.insert(organization, Position::of(stream, partition, record.sequence));
    }

    /// Rights that count now, if any do, and as of what they are, or have to be asked.
    fn known(&self, asker: &Asker, now: Duration) -> (Option<Arc<Rights>>, Position) {
        let cache = self.0.lock();
        let known = cache.known.get(asker).filter(|(asked, _)| now.saturating_sub(*asked) < COUNTS_FOR);
        let since = cache.touched.get(&asker.0).cloned().unwrap_or_default();
        (known.map(|(_, rights)| Arc::clone(rights)), since)
    }

    /// Remembers rights that were asked for at `asked` as of `since`, if nothing was decided meanwhile.
    fn remember(&self, asker: Asker, asked: Duration, since: &Position, rights: &Arc<Rights>) {
        let mut cache = self.0.lock();
        if cache.touched.get(&asker.0).cloned().unwrap_or_default() != *since {
            return;
        }
        if cache.known.len() >= ASKERS && !cache.known.contains_key(&asker) {
            let oldest = cache.known.iter().min_by_key(|(_, (asked, _))| *asked);
            if let Some(oldest) = oldest.map(|(asker, _)| asker.clone()) {
                cache.known.remove(&oldest);
            }
        }
        cache.known.insert(asker, (asked, Arc::clone(rights)));
    }
}

impl Driver {
    /// What the asker may see; of clusters that see them as themselves, only of the one that is named, if one is.
    pub(crate) async fn rights(
        self: &Arc<Self>,
        context: &RequestContext,
        named: Option<&str>,
    ) -> Result<Arc<Rights>, Refusal> {
        let (rights, since) = self.rights_by_configuration(context).await?;
        self.with_clusters(context, (&rights, since), named).await
    }

    /// What agents' configurations leave to the asker, as of what.
    async fn rights_by_configuration(
        &self,
        context: &RequestContext,
    ) -> Result<(Arc<Rights>, Position), Refusal> {
        if !matches!(context.actor, Actor::User(_) | Actor::Job(_)) {
            return Err(Refusal::new(
                RefusalKind::Denied,
                "only users and jobs may look at clusters' objects",
            ));
        }
        let asker = (context.organization, context.actor.clone());
        let now = self.deps.world.clock.monotonic();
        let (known, since) = self.rights.known(&asker, now);
        if let Some(rights) = known {
            return Ok((rights, since));
        }
        let own = RequestContext { actor: Actor::service("resource-indexer"), ..context.clone() };
        let actor = context.actor.clone();
        let limit = Some(PageLimit::MAXIMUM);
        let mut request = ListUsableAgents { actor, since: since.clone(), limit, cursor: None };
        let mut usable = Vec::new();
        loop {
            let page = ask(&*self.deps.bus, &own, &request).await?;
            usable.extend(page.items);
            let Some(next) = page.next else { break };
            request = request.at(next);
        }
        let projects = self.projects_with_environments(context, &own).await?;
        let rights = Arc::new(Rights::of(usable).seeing(projects));
        self.rights.remember(asker, now, &since, &rights);
        Ok((rights, since))
    }

    /// The projects whose environments the asker may see.
    async fn projects_with_environments(
        &self,
        context: &RequestContext,
        own: &RequestContext,
    ) -> Result<Vec<ProjectId>, Refusal> {
        let (actor, organization) = (context.actor.clone(), context.organization);
        let action = Action::ReadEnvironment;
        let mut request = ListAllowedProjects { actor, organization, action, from: None };
        let mut projects = Vec::new();
        loop {
            let found = ask(&*self.deps.bus, own, &request).await?;
            let next = found.last().and_then(|last| last.0.as_u128().checked_add(1));
            let is_last = found.len() < ListAllowedProjects::MOST;
            projects.extend(found);
            match next {
                Some(next) if !is_last => request.from = Some(ProjectId(uuid::Uuid::from_u128(next))),
                _ => return Ok(projects),
            }
        }
    }
}
