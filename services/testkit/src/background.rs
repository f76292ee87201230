//! One runtime for the harness' own servers, so that a test's runtime may pause its clock, block or end.

use std::future::Future;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, channel};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;

static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).thread_name("testkit").enable_all().build().ok()
});

/// The harness' runtime. Panics when the machine has no thread left for it.
pub(crate) fn runtime() -> &'static Handle {
    match RUNTIME.as_ref() {
        Some(runtime) => runtime.handle(),
        None => panic!("no threads left for the harness' runtime"),
    }
}

/// A server on that runtime. Dropping it ends the server, and waits until its socket is closed.
#[derive(Debug)]
pub(crate) struct Server {
    task: AbortHandle,
    ended: Mutex<Receiver<()>>,
}

impl Server {
    pub(crate) fn start(serve: impl Future<Output = ()> + Send + 'static) -> Self {
        let (lives, ended) = channel();
        let task = runtime().spawn(async move {
            let _lives = lives;
            serve.await;
        });
        Self { task: task.abort_handle(), ended: Mutex::new(ended) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        // Answered by the sender's end, never by a message.
        let _ = self.ended.get_mut().recv();
    }
}
