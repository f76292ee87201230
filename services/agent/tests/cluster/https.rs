//! A server that the API server calls: a webhook, or an API server behind it.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use testkit::Authority;
use tokio_rustls::TlsAcceptor;
use world::World;

/// Serves on a port of this machine, under a certificate of `authority` for 127.0.0.1, as long as the test's runtime lives; gives the port.
pub async fn serve<A, F, B>(authority: &Authority, answer: A) -> u16
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response<B>, hyper::Error>> + Send + 'static,
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let world = World::real();
    let shown = authority.server(&[], &[[127, 0, 0, 1].into()]).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(testkit::tls_showing(&shown).unwrap()));
    let listener = world.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let port = listener.local_address().unwrap().port();
    let spawner = Arc::clone(&world.spawner);
    let accepting = async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            let serving = async move {
                let Ok(socket) = acceptor.accept(socket).await else { return };
                let connection = hyper::server::conn::http1::Builder::new();
                let _gone = connection.serve_connection(TokioIo::new(socket), service_fn(answer)).await;
            };
            spawner.spawn("test server's connection", Box::pin(serving));
        }
    };
    world.spawner.spawn("test server", Box::pin(accepting));
    port
}
