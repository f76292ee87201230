//! Batches single questions into requests to another service: questions that arrive while requests are under way share the next one.
//! When thousands of agents connect at once, one request for each of them would be most of the work.

use std::sync::Arc;
use std::time::Duration;

use chassis::Shutdown;
use events::desired::DesiredPlan;
use events::requests::authz::{Admission, Admit};
use events::requests::delivery::ShowDesired;
use events::{AgentId, OrganizationId, Refusal, RefusalKind, Request, Sha256};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::gateway::Gateway;

/// Requests under way at once: one that gets no answer holds up nobody else.
const UNDER_WAY: usize = 8;
/// How long more is gathered for the next request while others are under way: each costs both services about as much as what it asks
/// about fifty things.
const GATHER: Duration = Duration::from_millis(25);
/// Items that wait for a request; a caller with one more waits to enqueue it.
const WAITING: usize = 1024;

/// A request about many items.
pub(crate) trait BatchRequest: Request + Send + Sync + 'static {
    /// One of them.
    type Item: Clone + Send + 'static;
    /// The answer about one item.
    type Answer: Send + 'static;
    /// Items of one request.
    const MAXIMUM_ITEMS: usize;

    fn from_items(those: Vec<Self::Item>) -> Self;

    /// The answers about the first items, in their order: at least one. The rest is asked about again.
    fn into_answers(reply: Self::Reply) -> Vec<Self::Answer>;

    /// The answer about an item when the request failed.
    fn failed(refusal: Refusal) -> Self::Answer;
}

/// Takes items.
pub(crate) struct Batcher<R: BatchRequest> {
    waiting: mpsc::Sender<Waiting<R>>,
}

/// Asks about the items that were taken.
pub(crate) struct BatchWorker<R: BatchRequest>(mpsc::Receiver<Waiting<R>>);

struct Waiting<R: BatchRequest> {
    one: R::Item,
    answer: oneshot::Sender<R::Answer>,
}

pub(crate) fn batcher<R: BatchRequest>() -> (Batcher<R>, BatchWorker<R>) {
    let (waiting, queue) = mpsc::channel(WAITING);
    (Batcher { waiting }, BatchWorker(queue))
}

impl<R: BatchRequest> Batcher<R> {
    pub(crate) async fn ask(&self, one: R::Item) -> R::Answer {
        let (answer, answered) = oneshot::channel();
        let failed = || R::failed(Refusal::new(RefusalKind::Unavailable, "this gateway is stopping"));
        if self.waiting.send(Waiting { one, answer }).await.is_err() {
            return failed();
        }
        answered.await.unwrap_or_else(|_| failed())
    }
}

impl<R: BatchRequest> BatchWorker<R> {
    /// Runs until shutdown is requested: then nothing is answered any more.
    pub(crate) async fn run(mut self, gateway: Arc<Gateway>, shutdown: Shutdown) -> anyhow::Result<()> {
        let under_way = Arc::new(Semaphore::new(UNDER_WAY));
        let mut waiting = Vec::new();
        loop {
            let permit = tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                permit = async {
                    let permit = Arc::clone(&under_way).acquire_owned().await;
                    self.0.recv_many(&mut waiting, R::MAXIMUM_ITEMS).await;
                    if under_way.available_permits() + 1 < UNDER_WAY && waiting.len() < R::MAXIMUM_ITEMS {
                        gateway.world.clock.sleep(GATHER).await;
                        let room = R::MAXIMUM_ITEMS - waiting.len();
                        waiting.extend(std::iter::from_fn(|| self.0.try_recv().ok()).take(room));
                    }
                    permit
                } => permit?,
            };
            let (asked, asking) = (std::mem::take(&mut waiting), Arc::clone(&gateway));
            let question = Box::pin(async move {
                ask(&asking, asked).await;
                drop(permit);
            });
            gateway.world.spawner.spawn(R::NAME, question);
        }
    }
}

async fn ask<R: BatchRequest>(gateway: &Gateway, mut waiting: Vec<Waiting<R>>) {
    while !waiting.is_empty() {
        let request = R::from_items(waiting.iter().map(|waiting| waiting.one.clone()).collect());
        let context = gateway.context(OrganizationId::SYSTEM);
        let refusal = match bus::ask(&*gateway.bus, &context, &request).await.map(R::into_answers) {
            Ok(answers) if !answers.is_empty() => {
                for (waiting, answer) in waiting.drain(..answers.len().min(waiting.len())).zip(answers) {
                    // The caller may have gone.
                    let _heard = waiting.answer.send(answer);
                }
                continue;
            }
            Ok(_) => Refusal::new(RefusalKind::Unavailable, "no answer; retry"),
            // A refusal of the whole request is not about any single item.
            Err(refusal) => Refusal { kind: RefusalKind::Unavailable, ..refusal },
        };
        for waiting in waiting.drain(..) {
            let _heard = waiting.answer.send(R::failed(refusal.clone()));
        }
    }
}

/// Whose tokens connecting agents show.
impl BatchRequest for Admit {
    type Item = Sha256;
    type Answer = Admission;
    const MAXIMUM_ITEMS: usize = Self::MOST;

    fn from_items(hashes: Vec<Sha256>) -> Self {
        Self { hashes }
    }

    fn into_answers(admissions: Vec<Admission>) -> Vec<Admission> {
        admissions
    }

    fn failed(refusal: Refusal) -> Admission {
        Admission::Refused(refusal)
    }
}

/// What agents are to have.
impl BatchRequest for ShowDesired {
    type Item = AgentId;
    type Answer = Result<Option<DesiredPlan>, Refusal>;
    const MAXIMUM_ITEMS: usize = Self::MOST;

    fn from_items(agents: Vec<AgentId>) -> Self {
        Self { agents }
    }

    fn into_answers(plans: Vec<Option<DesiredPlan>>) -> Vec<Self::Answer> {
        plans.into_iter().map(Ok).collect()
    }

    fn failed(refusal: Refusal) -> Self::Answer {
        Err(refusal)
    }
}
