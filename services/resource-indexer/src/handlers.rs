//! Requests that the resource indexer answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use bus::{Dispatcher, Service, Serving};
use events::request::RequestContext;
use events::requests::index::{
    AsOf, Coverage, EnvironmentHealth, EnvironmentTree, ExplainHealth, FindObjects, HealthExplained,
    IndexedObject, ListEnvironmentHealth, Moment, Network, ObjectDetail, ObjectFilter, ObjectTree,
    ShowCoverage, ShowEnvironmentTree, ShowIndexed, ShowNetwork, ShowTiers, ShowTree, Tiers, TreeNode,
};
use events::requests::page::Page;
use events::{InstanceId, Position, Refusal, RefusalKind, Request, Timestamp};
use world::spawn::blocking;

use crate::driver::{Driver, State};
use crate::model::query::{Finding, Planting};
use crate::model::{Index, RULES, Rights, Sight, View, Writer, query};
use crate::past::{Past, Reach, body_of};
use crate::store::{Reader, StoreError};

/// Serves every request until the guards are dropped.
pub(crate) async fn serve(driver: &Arc<Driver>) -> anyhow::Result<Vec<Serving>> {
    let mut requests = Dispatcher::new(&*driver.deps.bus, Arc::clone(driver));
    requests.answer(Driver::find_objects).await?;
    requests.answer(Driver::show_tree).await?;
    requests.answer(Driver::explain_health).await?;
    requests.answer(Driver::show_indexed).await?;
    requests.answer(Driver::list_changes).await?;
    requests.answer(Driver::show_coverage).await?;
    requests.answer(Driver::list_environment_health).await?;
    requests.answer(Driver::show_tiers).await?;
    requests.answer(Driver::show_environment_tree).await?;
    requests.answer(Driver::diff_environment).await?;
    requests.answer(Driver::show_network).await?;
    Ok(requests.serving())
}

impl Service for Driver {
    async fn answer<R, F, A>(&self, _: &RequestContext, attempt: F) -> Result<R::Reply, Refusal>
    where
        R: Request,
        F: Fn() -> A + Send + Sync,
        A: Future<Output = Result<R::Reply, Refusal>> + Send,
    {
        let began = self.deps.world.clock.monotonic();
        let answered = attempt().await;
        let took = self.deps.world.clock.monotonic().saturating_sub(began);
        self.counts.answer_seconds.with([R::NAME]).observe(took.as_secs_f64());
        answered
    }
}

/// What a question is about, besides its own fields.
#[derive(Clone, Default)]
pub(crate) struct Asked {
    pub(crate) filter: ObjectFilter,
    pub(crate) at: Option<Moment>,
    pub(crate) todays_rules: bool,
    pub(crate) at_least: Option<Position>,
    pub(crate) reach: Reach,
}

impl Driver {
    async fn find_objects(
        self: Arc<Self>,
        context: RequestContext,
        request: FindObjects,
    ) -> Result<Page<IndexedObject>, Refusal> {
        let FindObjects { filter, at, todays_rules, at_least, .. } = request.clone();
        if at.is_some() {
            let asked = Asked { filter, at, todays_rules, at_least, reach: Reach::Named };
            return self.ask(&context, asked, move |view, _| query::find(&request, view)).await;
        }
        let rights = self.ready(&context, &Asked { filter, at_least, ..Asked::default() }).await?;
        self.beside(move |driver| {
            let mut finding = driver.look(&rights, |view, _| Finding::begin(&request, view))?;
            // Folding goes on in between.
            while driver.look(&rights, |view, _| finding.go_on(view))? {}
            finding.finish()
        })
        .await
    }

    async fn show_tree(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowTree,
    ) -> Result<ObjectTree, Refusal> {
        let (filter, at) = (request.filter.clone(), request.at.clone());
        let asked = Asked { filter, at, todays_rules: request.todays_rules, ..Asked::default() };
        let mut tree = self.ask(&context, asked, move |view, _| query::tree(&request, view)).await?;
        let left_out = fit(&mut tree.nodes)?;
        tree.left_out = tree.left_out.saturating_add(left_out);
        Ok(tree)
    }

    async fn list_environment_health(
        self: Arc<Self>,
        context: RequestContext,
        request: ListEnvironmentHealth,
    ) -> Result<Page<EnvironmentHealth>, Refusal> {
        self.environments_are_known(context.organization)?;
        self.ask(&context, Asked::default(), move |view, _| query::list_health(&request, view)).await
    }

    async fn show_tiers(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowTiers,
    ) -> Result<Tiers, Refusal> {
        self.environments_are_known(context.organization)?;
        self.ask(&context, Asked::default(), move |view, _| query::tiers(&request, view)).await
    }

    async fn show_environment_tree(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowEnvironmentTree,
    ) -> Result<EnvironmentTree, Refusal> {
        let filter = ObjectFilter::of_environment(request.environment);
        let (at, todays_rules) = (request.at.clone(), request.todays_rules);
        let asked = Asked { filter, at, todays_rules, ..Asked::default() };
        let mut tree = match request.at {
            Some(_) => {
                self.ask(&context, asked, move |view, _| query::environment_tree(&request, view)).await
            }
            None => {
                let rights = self.ready(&context, &asked).await?;
                self.beside(move |driver| {
                    let mut planting = driver.look(&rights, |view, _| Planting::begin(&request, view))?;
                    // Folding goes on in between.
                    while driver.look(&rights, |view, _| Ok(planting.go_on(view)))? {}
                    driver.look(&rights, |view, _| planting.finish(view))
                })
                .await
            }
        }?;
        let left_out = fit(&mut tree.nodes)?;
        tree.left_out = tree.left_out.saturating_add(left_out);
        Ok(tree)
    }

    async fn explain_health(
        self: Arc<Self>,
        context: RequestContext,
        request: ExplainHealth,
    ) -> Result<HealthExplained, Refusal> {
        let (filter, at) = (request.filter.clone(), request.at.clone());
        let asked = Asked { filter, at, todays_rules: request.todays_rules, ..Asked::default() };
        self.ask(&context, asked, move |view, _| query::explain(&request, view)).await
    }

    async fn show_indexed(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowIndexed,
    ) -> Result<ObjectDetail, Refusal> {
        let (filter, at, todays_rules) = (request.filter, request.at, request.todays_rules);
        let (about, reach) = (filter.clone(), Reach::Around);
        let asked = Asked { filter: about, at, todays_rules, reach, ..Asked::default() };
        let answer = move |view: &View<'_>, reader: &Arc<Reader>| {
            let record = query::one(&filter, view)?;
            let detail = ObjectDetail {
                object: view.line(record),
                body: None,
                writer: record.writer.as_ref().map(Writer::answer),
                environments: view.environments_of(record),
                related: query::related(view, record),
                mesh: query::security(view, record),
                actions: Vec::new(),
                as_of: view.as_of.clone(),
            };
            Ok((detail, query::actions(view, record), record.clone(), Arc::clone(reader)))
        };
        let (detail, actions, record, reader) = self.ask(&context, asked, answer).await?;
        self.beside(move |driver| {
            let body = body_of(&reader, &record).map_err(|error| driver.broken(&error))?;
            let body = body.and_then(|body| String::from_utf8(body.into()).ok());
            let parsed = body.as_deref().filter(|_| !actions.is_empty());
            let parsed = parsed.and_then(|body| serde_json::from_str(body).ok());
            let actions = parsed.map(|body| actions.offered(body, driver.now())).unwrap_or_default();
            Ok(ObjectDetail { body: body.filter(|body| body.len() <= LONGEST_BODY), actions, ..detail })
        })
        .await
    }

    async fn show_network(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowNetwork,
    ) -> Result<Network, Refusal> {
        let (filter, at, reach) = (request.filter.clone(), request.at.clone(), Reach::Around);
        let asked = Asked { filter, at, reach, ..Asked::default() };
        self.ask(&context, asked, move |view, _| query::network(&request, view)).await
    }

    async fn show_coverage(
        self: Arc<Self>,
        context: RequestContext,
        request: ShowCoverage,
    ) -> Result<Coverage, Refusal> {
        if request.fresh {
            self.ask_clusters_anew(&context);
        }
        let filter = ObjectFilter { agent: request.agent.clone(), ..ObjectFilter::default() };
        let asked = Asked { filter, ..Asked::default() };
        self.ask(&context, asked, move |view, _| query::coverage(&request, view)).await
    }

    /// Waits for what a question asks to be folded, and only then asks what the asker may see.
    pub(crate) async fn ready(
        self: &Arc<Self>,
        context: &RequestContext,
        asked: &Asked,
    ) -> Result<Arc<Rights>, Refusal> {
        if let Some(position) = &asked.at_least {
            self.covers(position).await?;
        }
        if let Some(moment) = &asked.at {
            self.check_moment(moment)?;
            self.reaches(moment).await?;
        }
        let rights = self.rights(context, asked.filter.agent.as_deref()).await?;
        self.is_whole()?;
        if asked.filter.names_environments() {
            self.environments_are_known(context.organization)?;
            if asked.at_least.is_some() {
                self.environments_are_current(context.organization).await?;
            }
        }
        Ok(rights)
    }

    /// Works on a thread of its own: what reads much holds nobody up.
    pub(crate) async fn beside<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let driver = Arc::clone(self);
        let done = blocking(&*self.deps.world.spawner, "index-answer", move || work(&driver)).await;
        done.map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?
    }

    /// Answers from the index as it is, or as it was at the moment that is asked about.
    async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        context: &RequestContext,
        asked: Asked,
        answer: impl FnOnce(&View<'_>, &Arc<Reader>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let rights = self.ready(context, &asked).await?;
        self.beside(move |driver| {
            let Some(moment) = &asked.at else {
                return driver.look(&rights, |view, state| answer(view, &state.reader));
            };
            let past = driver.then(&rights, (&asked.filter, asked.reach), (moment, asked.todays_rules))?;
            driver.look_back(&rights, &past, |view| answer(view, &past.reader))
        })
        .await
    }

    /// Looks at the index as it was; names and rights are those of now, so that folding waits meanwhile.
    pub(crate) fn look_back<T>(
        &self,
        rights: &Rights,
        past: &Past,
        look: impl FnOnce(&View<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.look(rights, |now, _| {
            let as_of = AsOf { judged_at: past.judged.at, ..now.as_of.clone() };
            let sight = Sight::of(rights);
            look(&View { index: &past.judged.index, gateways: None, sight, as_of, ..*now })
        })
    }

    /// Looks at the index as it is; folding waits meanwhile.
    pub(crate) fn look<T>(
        &self,
        rights: &Rights,
        look: impl FnOnce(&View<'_>, &State) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let state = self.state.read();
        let gateways = self.live_gateways();
        look(&view_of(&state, &gateways, rights, self.now()), &state)
    }

    /// The database does not answer: it is made anew soon.
    pub(crate) fn broken(&self, error: &StoreError) -> Refusal {
        self.suspect(error);
        let message = "the index cannot be read; its operator finds the reason in its log";
        Refusal::new(RefusalKind::Internal, message)
    }

    fn live_gateways(&self) -> BTreeSet<InstanceId> {
        let live = self.gateways.get().map(|live| live.borrow().replicas().clone());
        live.into_iter().flatten().map(InstanceId).collect()
    }
}

fn view_of<'a>(
    state: &'a State,
    gateways: &'a BTreeSet<InstanceId>,
    rights: &'a Rights,
    now: Timestamp,
) -> View<'a> {
    let index: &Index = &state.fold.index;
    let position: Position = state.standing.position.clone();
    View {
        index,
        now: index,
        observed: &state.fold.observed,
        directory: &state.directory,
        tunnels: &state.tunnels,
        gateways: Some(gateways),
        sight: Sight::of(rights),
        as_of: AsOf { position, judged_at: now, rules: RULES, horizon: state.standing.horizon },
    }
}

/// Longest body that is answered, in bytes: an answer is one message.
const LONGEST_BODY: usize = bus::MAXIMUM_MESSAGE_BYTES / 2;

/// Leaves out nodes at the end until they fit into a message; says how many.
fn fit(nodes: &mut Vec<TreeNode>) -> Result<u64, Refusal> {
    let (mut bytes, mut fitting) = (0, 0);
    for node in &*nodes {
        bytes += events::encoded_length(node)
            .map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
        if bytes > LONGEST_BODY {
            break;
        }
        fitting += 1;
    }
    let left_out = nodes.len().saturating_sub(fitting);
    nodes.truncate(fitting);
    Ok(u64::try_from(left_out).unwrap_or(u64::MAX))
}
