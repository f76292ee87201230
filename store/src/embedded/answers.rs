//! Answers to those who appended.
//!
//! To wake somebody from outside the runtime takes long, and the next group waits for it; among tasks of one runtime it
//! takes little. So a group's writer wakes one task, which answers all.

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::log::{AppendError, Appended};

/// To one who waits.
pub(super) type Reply = oneshot::Sender<Result<Appended, AppendError>>;

/// A group's replies with what became of each append.
pub(super) type Replies = Vec<(Reply, Result<Appended, AppendError>)>;

/// Answers groups; one who is alone in a group is answered at once.
#[derive(Clone)]
pub(super) struct Answers(mpsc::UnboundedSender<Replies>);

impl Answers {
    /// With the task that gives the answers; it ends when the last writer has.
    pub(super) fn pair() -> (Self, BoxFuture<'static, ()>) {
        let (groups, mut to_answer) = mpsc::unbounded_channel();
        let task = async move {
            while let Some(replies) = to_answer.recv().await {
                answer(replies);
            }
        };
        (Self(groups), Box::pin(task))
    }

    pub(super) fn give(&self, replies: Replies) {
        if replies.len() == 1 {
            answer(replies);
        } else if let Err(mpsc::error::SendError(replies)) = self.0.send(replies) {
            answer(replies);
        }
    }
}

/// Whoever asked may have gone; then nobody wants the answer.
fn answer(replies: Replies) {
    for (reply, outcome) in replies {
        drop(reply.send(outcome));
    }
}
