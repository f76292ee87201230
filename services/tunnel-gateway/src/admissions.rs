//! Asking authz whose tokens those are that are shown at the door: what comes while it answers is asked together.

use std::sync::Arc;

use chassis::Shutdown;
use events::requests::authz::{Admission, Admit};
use events::{OrganizationId, Refusal, RefusalKind, Sha256};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::gateway::Gateway;

/// Questions under way at once: one that gets no answer holds up nobody else.
const UNDER_WAY: usize = 8;
/// Tokens that wait for a question; whoever shows one more waits at the door.
const WAITING: usize = 1024;

/// Takes tokens to ask about.
pub(crate) struct Admissions {
    shown: mpsc::Sender<Shown>,
}

/// What was shown and not asked about yet.
pub(crate) struct Queue(mpsc::Receiver<Shown>);

struct Shown {
    hash: Sha256,
    answer: oneshot::Sender<Admission>,
}

pub(crate) fn admissions() -> (Admissions, Queue) {
    let (shown, queue) = mpsc::channel(WAITING);
    (Admissions { shown }, Queue(queue))
}

impl Admissions {
    /// What authz says of the token with this hash.
    pub(crate) async fn ask(&self, hash: Sha256) -> Admission {
        let (answer, answered) = oneshot::channel();
        let unanswered =
            || Admission::Refused(Refusal::new(RefusalKind::Unavailable, "this gateway is going"));
        if self.shown.send(Shown { hash, answer }).await.is_err() {
            return unanswered();
        }
        answered.await.unwrap_or_else(|_| unanswered())
    }
}

impl Queue {
    /// Asks until shutdown is asked for: then nobody is let in any more.
    pub(crate) async fn run(mut self, gateway: Arc<Gateway>, shutdown: Shutdown) -> anyhow::Result<()> {
        let under_way = Arc::new(Semaphore::new(UNDER_WAY));
        let mut shown = Vec::new();
        loop {
            let permit = tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                permit = async {
                    let permit = Arc::clone(&under_way).acquire_owned().await;
                    self.0.recv_many(&mut shown, Admit::MOST).await;
                    permit
                } => permit?,
            };
            let (asked, asking) = (std::mem::take(&mut shown), Arc::clone(&gateway));
            let question = Box::pin(async move {
                ask(&asking, asked).await;
                drop(permit);
            });
            gateway.world.spawner.spawn("admissions", question);
        }
    }
}

async fn ask(gateway: &Gateway, asked: Vec<Shown>) {
    let request = Admit { hashes: asked.iter().map(|shown| shown.hash).collect() };
    let context = gateway.context(OrganizationId::SYSTEM);
    let answered = bus::ask(&*gateway.bus, &context, &request).await;
    let answers = match answered {
        Ok(answers) if answers.len() == asked.len() => answers,
        Ok(_) => vec![of_all(Refusal::new(RefusalKind::Internal, "authz left tokens out")); asked.len()],
        Err(refusal) => vec![of_all(refusal); asked.len()],
    };
    for (shown, admission) in asked.into_iter().zip(answers) {
        // Whoever showed it may have gone.
        let _heard = shown.answer.send(admission);
    }
}

/// A refusal of the whole question is nobody's own fault.
fn of_all(refusal: Refusal) -> Admission {
    Admission::Refused(Refusal { kind: RefusalKind::Unavailable, ..refusal })
}
