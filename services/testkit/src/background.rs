//! One runtime for the harness' own servers, so that a test's runtime may pause its clock, block or end.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{AbortHandle, JoinSet};

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

/// A listener for [`accept`].
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts until aborted; the connections end with it.
pub(crate) async fn accept<F>(listener: TcpListener, mut serve: impl FnMut(TcpStream) -> Option<F>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                if let Some(serving) = serve(stream) {
                    connections.spawn(serving);
                }
            }
            Some(_) = connections.join_next() => {}
        }
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
