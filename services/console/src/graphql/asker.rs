//! Who asks, and everything that one operation asks other services on the way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_graphql::{Context, Error, Result};
use events::request::RequestContext;
use events::requests::index::{
    AsOf, Coverage, EnvironmentHealth, FindObjects, ListEnvironmentHealth, Moment, ObjectFilter, ShowCoverage,
};
use events::requests::page::{PageCursor, PageLimit, Paged};
use events::requests::status::{AgentStatus, ListAgentStatuses};
use events::{AgentId, EnvironmentId, Position, Refusal, RefusalKind, Request, Sha256, Stream, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};

use super::failure;
use super::limits::MAXIMUM_REQUESTS;
use crate::app::App;
use crate::log::cursor::{Cursor, Cursors};
use crate::objects::parse_time;

/// Requests that one operation has on the way at a time.
const AT_ONCE: usize = 8;
/// How often an answer that does not cover enough is asked for again.
const ATTEMPTS: usize = 5;
/// What the index folds.
const FOLDED: [Stream; 3] = [Stream::Decisions, Stream::Observations, Stream::Objects];

/// One operation of one caller.
pub(crate) struct Asker {
    pub(crate) app: Arc<App>,
    pub(crate) context: RequestContext,
    pub(crate) token: Sha256,
    /// Where a subscription goes on, if its transport says so.
    pub(crate) resume: Option<String>,
    /// Where a subscription begins that goes on nowhere.
    start: OnceCell<Position>,
    /// Behind the event that was given last.
    reached: Mutex<Option<String>>,
    asked: AtomicUsize,
    running: Semaphore,
    cursors: OnceCell<Cursors>,
    coverage: OnceCell<Coverage>,
    statuses: OnceCell<BTreeMap<AgentId, AgentStatus>>,
    environments: OnceCell<BTreeMap<EnvironmentId, EnvironmentHealth>>,
}

impl Asker {
    /// Makes it.
    pub(crate) fn new(
        app: Arc<App>,
        context: RequestContext,
        token: Sha256,
        resume: Option<String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            app,
            context,
            token,
            resume,
            start: OnceCell::new(),
            reached: Mutex::new(None),
            asked: AtomicUsize::new(0),
            running: Semaphore::new(AT_ONCE),
            cursors: OnceCell::new(),
            coverage: OnceCell::new(),
            statuses: OnceCell::new(),
            environments: OnceCell::new(),
        })
    }

    /// That of a resolver.
    pub(crate) fn of<'a>(context: &Context<'a>) -> Result<&'a Arc<Self>> {
        context.data::<Arc<Self>>()
    }

    /// Asks as the caller.
    ///
    /// # Errors
    /// What the service refuses, or that the operation has asked enough.
    pub(crate) async fn ask<R: Request>(&self, request: &R) -> Result<R::Reply> {
        if self.asked.fetch_add(1, Ordering::Relaxed) >= MAXIMUM_REQUESTS {
            let advice = "ask for fewer things at once";
            return Err(failure::limit_of_field("requests", MAXIMUM_REQUESTS, advice));
        }
        let _running = self.running.acquire().await;
        self.put(&self.context, request).await.map_err(|refusal| failure::error(&refusal))
    }

    async fn put<R: Request>(&self, context: &RequestContext, request: &R) -> Result<R::Reply, Refusal> {
        bus::ask(&*self.app.bus, context, request).await
    }

    /// Asks as the caller for an operation that never ends, each time with a deadline of its own.
    ///
    /// # Errors
    /// What the service refuses.
    pub(crate) async fn ask_again<R: Request>(&self, request: &R) -> Result<R::Reply, Refusal> {
        let fresh = bus::context_for(&self.app.world, self.context.actor.clone(), self.context.organization);
        let context = RequestContext { correlation_id: self.context.correlation_id, ..fresh };
        self.put(&context, request).await
    }

    /// Asks until the answer covers a position.
    ///
    /// # Errors
    /// What the service refuses, or that no replica gets so far.
    pub(crate) async fn ask_covering<R: Request>(
        &self,
        request: &R,
        at_least: Option<&Position>,
        as_of: impl Fn(&R::Reply) -> &AsOf,
    ) -> Result<R::Reply> {
        let Some(position) = at_least else { return self.ask(request).await };
        for _ in 0..ATTEMPTS {
            self.wait_for(position).await?;
            let reply = self.ask(request).await?;
            // Another replica may have answered than the one that was waited for.
            if as_of(&reply).position.covers(&position.in_streams(&FOLDED)) {
                return Ok(reply);
            }
        }
        let message = "the index does not cover `atLeast` yet; retry";
        Err(failure::error(&Refusal::new(RefusalKind::Unavailable, message)))
    }

    /// Returns once a replica of the index covers a position.
    ///
    /// # Errors
    /// That it does not in time.
    pub(crate) async fn wait_for(&self, position: &Position) -> Result<()> {
        self.ask(&barrier(position)).await.map(|_| ())
    }

    /// All items of a list.
    ///
    /// # Errors
    /// What the service refuses, or that they are too many.
    pub(crate) async fn all<R: Paged + Clone>(&self, request: R) -> Result<Vec<R::Item>> {
        let (mut items, mut next): (Vec<_>, Option<PageCursor>) = (Vec::new(), None);
        loop {
            let page = match next.take() {
                Some(cursor) => self.ask(&request.clone().at(cursor)).await?,
                None => self.ask(&request).await?,
            };
            items.extend(page.items);
            match page.next {
                Some(cursor) => next = Some(cursor),
                None => return Ok(items),
            }
        }
    }

    /// What the index covers, once for each operation.
    ///
    /// # Errors
    /// What the index refuses.
    pub(crate) async fn coverage(&self) -> Result<&Coverage> {
        let request = ShowCoverage::default();
        self.coverage.get_or_try_init(|| self.ask(&request)).await
    }

    /// How an agent stands. All are asked for at once, as a list that needs one needs the others.
    ///
    /// # Errors
    /// What delivery refuses.
    pub(crate) async fn status_of(&self, agent: AgentId) -> Result<Option<AgentStatus>> {
        let ask = || async {
            let statuses = self
                .all(ListAgentStatuses { limit: Some(PageLimit::MAXIMUM), ..ListAgentStatuses::default() });
            let by_agent = statuses.await?.into_iter().map(|status| (status.agent, status));
            Ok::<_, Error>(by_agent.collect())
        };
        Ok(self.statuses.get_or_try_init(ask).await?.get(&agent).cloned())
    }

    /// How an environment's objects are doing; `None` while nothing was deployed into it. All are asked for at once, as for agents.
    ///
    /// # Errors
    /// What the index refuses.
    pub(crate) async fn environment_health(&self, id: EnvironmentId) -> Result<Option<EnvironmentHealth>> {
        let ask = || async {
            let limit = Some(PageLimit::MAXIMUM);
            let all = self.all(ListEnvironmentHealth { limit, ..ListEnvironmentHealth::default() });
            let by_id = all.await?.into_iter().map(|health| (health.environment, health));
            Ok::<_, Error>(by_id.collect())
        };
        Ok(self.environments.get_or_try_init(ask).await?.get(&id).cloned())
    }

    async fn cursors(&self) -> Result<&Cursors> {
        let of = || Cursors::of(&*self.app.keys, &*self.app.log, self.context.organization);
        self.cursors.get_or_try_init(of).await.map_err(|refusal| failure::error(&refusal))
    }

    /// A position as it leaves the server.
    ///
    /// # Errors
    /// When the key ring is away.
    pub(crate) async fn seal(&self, position: &Position) -> Result<String> {
        self.seal_within(&Cursor { position: position.clone(), within: None }).await
    }

    /// The same of a place within a record.
    ///
    /// # Errors
    /// When the key ring is away.
    pub(crate) async fn seal_within(&self, cursor: &Cursor) -> Result<String> {
        Ok(self.cursors().await?.seal(&*self.app.world.random, cursor))
    }

    /// A place that was given out.
    ///
    /// # Errors
    /// When it was not.
    pub(crate) async fn open(&self, field: &str, text: &str) -> Result<Cursor> {
        self.cursors().await?.open(field, text).map_err(|refusal| failure::error(&refusal))
    }

    /// The argument `atLeast`.
    ///
    /// # Errors
    /// When it is no position of this log.
    pub(crate) async fn at_least(&self, text: Option<&str>) -> Result<Option<Position>> {
        match text {
            Some(text) => self.open("atLeast", text).await.map(|cursor| Some(cursor.covering())),
            None => Ok(None),
        }
    }

    /// A moment: a time, how long ago it was, or a position.
    ///
    /// # Errors
    /// When it is none of these.
    pub(crate) async fn moment(&self, field: &str, text: &str) -> Result<Moment> {
        if let Some(time) = parse_time(text, self.now()) {
            return Ok(Moment::Time(time));
        }
        let wrong = "must be a time such as 2026-01-31T12:00:00Z, how long ago such as -15m, or a position of this log";
        let opened = self.cursors().await?.open(field, text);
        opened.map(|cursor| Moment::Position(cursor.position)).map_err(|_| failure::invalid(field, wrong))
    }

    /// The argument `at`.
    ///
    /// # Errors
    /// When it is no moment.
    pub(crate) async fn at(&self, text: Option<&str>) -> Result<Option<Moment>> {
        match text {
            Some(text) => self.moment("at", text).await.map(Some),
            None => Ok(None),
        }
    }

    /// A time, or how long ago it was.
    ///
    /// # Errors
    /// When it is neither.
    pub(crate) fn time(&self, field: &str, text: &str) -> Result<Timestamp> {
        let wrong = "must be a time such as 2026-01-31T12:00:00Z, or how long ago such as -15m";
        parse_time(text, self.now()).ok_or_else(|| failure::invalid(field, wrong))
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.app.world.clock.now_millis())
    }

    /// Whether the caller's token still counts.
    pub(crate) async fn is_live(&self) -> bool {
        self.app.callers.is_live(&self.app.world, &*self.app.bus, self.token).await
    }

    /// Where a subscription begins that goes on nowhere: here, once this was called, so that its client misses nothing of what comes after.
    ///
    /// # Errors
    /// When the log is away.
    pub(crate) async fn start(&self) -> Result<&Position, Refusal> {
        let here = || self.app.log.position(&[Stream::Objects]);
        let started = self.start.get_or_try_init(here).await;
        started.map_err(|error| Refusal::new(RefusalKind::Unavailable, format!("{error}; retry")))
    }

    /// An event is about to be given, with this position behind it.
    pub(crate) fn reach(&self, position: &str) {
        *self.reached.lock() = Some(position.to_owned());
    }

    /// The position behind the event that was given last.
    pub(crate) fn reached(&self) -> Option<String> {
        self.reached.lock().clone()
    }

    /// Waits.
    pub(crate) async fn sleep(&self, pause: Duration) {
        self.app.world.clock.sleep(pause).await;
    }
}

/// A request that is answered once the index covers a position, and else asks nothing much.
pub(crate) fn barrier(position: &Position) -> FindObjects {
    // No object has this name.
    let filter = ObjectFilter { name: Some("!".to_owned()), ..ObjectFilter::default() };
    FindObjects {
        filter,
        at_least: Some(position.clone()),
        limit: PageLimit::new(1),
        ..FindObjects::default()
    }
}
