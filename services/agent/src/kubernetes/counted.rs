//! Connections to a server within the test, counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tower::BoxError;
use tower::util::BoxCloneSyncService;
use world::World;

/// The near end of a connection, or why there is none.
pub(super) type Connected = Result<TokioIo<DuplexStream>, BoxError>;
pub(super) type Connector = BoxCloneSyncService<Uri, TokioIo<DuplexStream>, BoxError>;

/// Connects so, wherever to.
pub(super) fn connector(connect: impl Fn() -> Connected + Clone + Send + Sync + 'static) -> Connector {
    BoxCloneSyncService::new(tower::service_fn(move |_: Uri| std::future::ready(connect())))
}

#[derive(Clone, Default)]
pub(super) struct CountedConnections {
    all: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl CountedConnections {
    pub(super) fn all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) async fn until_none_is_open(&self) {
        while self.open() > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// One more, which is open until `serve` has ended; at most `room` bytes are on their way in it.
    pub(super) fn connect<Serving>(
        &self,
        room: usize,
        serve: impl FnOnce(DuplexStream) -> Serving,
    ) -> TokioIo<DuplexStream>
    where
        Serving: Future<Output = ()> + Send + 'static,
    {
        let (near, far) = tokio::io::duplex(room);
        self.all.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        let (open, serving) = (Arc::clone(&self.open), serve(far));
        let serving = async move {
            serving.await;
            open.fetch_sub(1, Ordering::Relaxed);
        };
        World::real().spawner.spawn("server", Box::pin(serving));
        TokioIo::new(near)
    }
}
