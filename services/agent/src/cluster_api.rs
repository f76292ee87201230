//! The proxy to the cluster's API: requests of people and jobs, which the server sends through the tunnel below
//! [`wire::path::CLUSTER`].
//!
//! Each carries a pass that the root signed. The agent verifies it against the root key that it pins (`pass`), so that no server
//! and no tunnel alone gets anything done here, takes away what would make the request another's (`headers`), and streams it to
//! the API server and the answer back (`forward`, `upgrade`). What it answers by itself is a `Status` (`answer`). What somebody may list
//! there it asks by itself (`review`).

mod answer;
mod forward;
mod headers;
mod pass;
mod review;
mod root_key;
mod roots;
mod upgrade;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use chassis::metrics::Gauge;
use events::AgentId;
use events::pass::AccessAs;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body::Body;
use http_body_util::BodyExt;
use objects::attributes::attributes;
use objects::pass::{check_pass, spares_own_namespace};
use tokio::sync::Semaphore;
use tower::BoxError;
use tunnel::wire;
use tunnel::wire::cluster::UPGRADE;
use world::World;

use crate::kubernetes::ApiServer;
use crate::kubernetes::api_server::RequestBody;
use crate::link::AnswerBody;
use crate::metrics::Counts;
pub(crate) use answer::Failure;
use pass::Passes;
use root_key::RootKeyFile;
pub use root_key::{NotARootKey, RootKey};

/// Longer paths are refused. HTTP libraries end at 64 KiB, and a kubeconfig may put something in front.
const MAXIMUM_TARGET_BYTES: usize = 60_000;

/// Answers requests to the cluster's API. Cheap to clone.
#[derive(Clone)]
pub struct ClusterApi {
    world: World,
    passes: Arc<Passes>,
    api_server: Option<Arc<ApiServer>>,
    /// The agent's own namespace.
    home: Arc<str>,
    /// Places for reviews.
    reviews: Arc<Semaphore>,
    counts: Counts,
}

/// A stream that is counted while it is open.
struct Open(Gauge);

impl Open {
    fn begin(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Whether a path is one of the cluster's API.
#[must_use]
pub fn is_cluster_path(path: &str) -> bool {
    path.strip_prefix(wire::path::CLUSTER).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl ClusterApi {
    /// Lets nobody through yet.
    #[must_use]
    pub fn new(world: World, api_server: Option<Arc<ApiServer>>, home: &str, counts: Counts) -> Self {
        let (passes, reviews) =
            (Arc::new(Passes::new(None, None)), Arc::new(Semaphore::new(review::REVIEWS)));
        Self { world, passes, api_server, home: home.into(), reviews, counts }
    }

    /// Lets those through whose passes this root key signed; nobody without one. The file that it stands in is looked at for another one.
    #[must_use]
    pub fn pinning(self, root: Option<RootKey>, file: Option<PathBuf>) -> Self {
        let file = root.zip(file).map(|(root, path)| RootKeyFile::new(self.world.clone(), path, root));
        Self { passes: Arc::new(Passes::new(root, file)), ..self }
    }

    /// Answers one request to `agent`.
    pub async fn answer<B>(&self, request: Request<B>, agent: Option<AgentId>) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let open = Open::begin(&self.counts.cluster_api_streams);
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let answer = self.forwarded(request, agent, open).await;
        let outcome = answer.as_ref().err().map_or("answered", Failure::outcome);
        self.counts.cluster_api_requests.with([outcome]).inc();
        answer.unwrap_or_else(|failure| {
            tracing::debug!(failure = %failure, "no answer from the cluster's API");
            answer::status(&failure)
        })
    }

    async fn forwarded(
        &self,
        request: Request<RequestBody>,
        agent: Option<AgentId>,
        open: Open,
    ) -> Result<Response<AnswerBody>, Failure> {
        let (mut parts, body) = request.into_parts();
        let pass = self.passes.admit(&parts.headers, agent, self.world.clock.now_millis())?;
        let protocol = parts.headers.get(UPGRADE).cloned();
        parts.uri = target_of(&parts)?;
        let asked =
            attributes(parts.method.as_str(), parts.uri.path(), parts.uri.query(), protocol.is_some())?;
        let through = check_pass(&pass, &asked)?;
        spares_own_namespace(&pass, &asked, &self.home)?;
        let api_server = self.api_server.as_ref().ok_or(Failure::NoApiServer)?;
        if api_server.impersonates() && through.access_as != AccessAs::Agent {
            return Err(Failure::ImpersonatesAlready);
        }
        parts.headers = headers::to_api_server(&parts.headers, &through.access_as)?;
        match protocol {
            Some(protocol) => self.upgrade(api_server, replayed(&parts, protocol), body, open).await,
            None => {
                let request = Request::from_parts(sent(parts), body);
                self.forward(api_server, request, open, &asked).await
            }
        }
    }
}

/// Path and query behind the prefix, as they came.
fn target_of(parts: &Parts) -> Result<Uri, Failure> {
    if parts.method == Method::CONNECT {
        return Err(Failure::Connect);
    }
    let whole = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let target = whole.strip_prefix(wire::path::CLUSTER).unwrap_or_default();
    if target.len() > MAXIMUM_TARGET_BYTES {
        return Err(Failure::LongTarget);
    }
    // A `*` or a bare query would be read as another form of address.
    if !target.starts_with('/') {
        return Err(objects::attributes::PathError::Relative.into());
    }
    target.parse().map_err(|_| objects::attributes::PathError::Encoding.into())
}

/// A request as it goes on: of the one that came, only what the API server is to see.
fn sent(parts: Parts) -> Parts {
    let (mut sent, ()) = Request::new(()).into_parts();
    (sent.method, sent.uri, sent.headers) = (parts.method, parts.uri, parts.headers);
    sent
}

fn replayed(parts: &Parts, protocol: HeaderValue) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.headers_mut() = parts.headers.clone();
    headers::ask_for_upgrade(request.headers_mut(), protocol);
    request
}
