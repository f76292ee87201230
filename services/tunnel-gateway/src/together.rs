//! Asking another service about many things in one request: what comes while requests are under way is asked together. When
//! thousands of agents come at once, requests for each of them would be most of the work.

use std::sync::Arc;
use std::time::Duration;

use chassis::Shutdown;
use events::{OrganizationId, Refusal, RefusalKind, Request};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::gateway::Gateway;

/// Requests under way at once: one that gets no answer holds up nobody else.
const UNDER_WAY: usize = 8;
/// How long more is gathered for the next request while others are under way: each costs both services about as much as what it asks
/// about fifty things.
const GATHER: Duration = Duration::from_millis(25);
/// Things that wait for a request; whoever has one more waits before.
const WAITING: usize = 1024;

/// A request about many things.
pub(crate) trait AboutMany: Request + Send + Sync + 'static {
    /// One of them.
    type One: Clone + Send + 'static;
    /// What is said about one.
    type Answer: Send + 'static;
    /// About so many at once.
    const MOST: usize;

    fn about(those: Vec<Self::One>) -> Self;

    /// What is said about the first ones, in their order: at least one. The rest is asked about again.
    fn answers(reply: Self::Reply) -> Vec<Self::Answer>;

    /// Nothing is said.
    fn unanswered(refusal: Refusal) -> Self::Answer;
}

/// Takes what is to be asked about.
pub(crate) struct Together<R: AboutMany> {
    waiting: mpsc::Sender<Waiting<R>>,
}

/// What was not asked about yet.
pub(crate) struct Queue<R: AboutMany>(mpsc::Receiver<Waiting<R>>);

struct Waiting<R: AboutMany> {
    one: R::One,
    answer: oneshot::Sender<R::Answer>,
}

pub(crate) fn together<R: AboutMany>() -> (Together<R>, Queue<R>) {
    let (waiting, queue) = mpsc::channel(WAITING);
    (Together { waiting }, Queue(queue))
}

impl<R: AboutMany> Together<R> {
    pub(crate) async fn ask(&self, one: R::One) -> R::Answer {
        let (answer, answered) = oneshot::channel();
        let unanswered = || R::unanswered(Refusal::new(RefusalKind::Unavailable, "this gateway is going"));
        if self.waiting.send(Waiting { one, answer }).await.is_err() {
            return unanswered();
        }
        answered.await.unwrap_or_else(|_| unanswered())
    }
}

impl<R: AboutMany> Queue<R> {
    /// Asks until shutdown is asked for: then nothing is answered any more.
    pub(crate) async fn run(mut self, gateway: Arc<Gateway>, shutdown: Shutdown) -> anyhow::Result<()> {
        let under_way = Arc::new(Semaphore::new(UNDER_WAY));
        let mut waiting = Vec::new();
        loop {
            let permit = tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                permit = async {
                    let permit = Arc::clone(&under_way).acquire_owned().await;
                    self.0.recv_many(&mut waiting, R::MOST).await;
                    if under_way.available_permits() + 1 < UNDER_WAY && waiting.len() < R::MOST {
                        gateway.world.clock.sleep(GATHER).await;
                        let room = R::MOST - waiting.len();
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

async fn ask<R: AboutMany>(gateway: &Gateway, mut waiting: Vec<Waiting<R>>) {
    while !waiting.is_empty() {
        let request = R::about(waiting.iter().map(|waiting| waiting.one.clone()).collect());
        let context = gateway.context(OrganizationId::SYSTEM);
        let refusal = match bus::ask(&*gateway.bus, &context, &request).await.map(R::answers) {
            Ok(answers) if !answers.is_empty() => {
                for (waiting, answer) in waiting.drain(..answers.len().min(waiting.len())).zip(answers) {
                    // Whoever asked may have gone.
                    let _heard = waiting.answer.send(answer);
                }
                continue;
            }
            Ok(_) => Refusal::new(RefusalKind::Unavailable, "nothing was answered; retry"),
            // A refusal of the whole question is nobody's own fault.
            Err(refusal) => Refusal { kind: RefusalKind::Unavailable, ..refusal },
        };
        for waiting in waiting.drain(..) {
            let _heard = waiting.answer.send(R::unanswered(refusal.clone()));
        }
    }
}
