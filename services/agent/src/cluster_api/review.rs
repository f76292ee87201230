//! What somebody may list in the cluster, asked of the API server as the one whom their pass names.
//!
//! The API server answers such questions to everybody about themselves (the cluster role `system:basic-user`), so that the agent needs no
//! right but that to impersonate them, which it has for their requests.

use std::time::Duration;

use bytes::Bytes;
use events::AgentId;
use events::pass::{AccessAs, Impersonated, Pass};
use events::requests::rights::{ReviewRights, ReviewedRights};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use futures::stream::{self, StreamExt as _};
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;
use tower::BoxError;

use super::answer::Failure;
use super::forward::unreachable_by;
use super::{ClusterApi, headers};
use crate::kubernetes::ApiServer;
use crate::kubernetes::api_server::Expected;
use crate::kubernetes::status::ApiStatus;
use crate::model::list_rights::{
    Asking, Reviewed, Rules, access_review, check, in_all_namespaces, in_namespace, is_allowed, rules_review,
};

/// Reviews that are under way at once; the next one waits.
pub(super) const REVIEWS: usize = 4;
/// Requests to the API server for one review at once.
const REQUESTS: usize = 16;
/// What is not answered within this time is unknown.
const REVIEW_TIME: Duration = Duration::from_secs(8);
/// Largest answer of the API server, in bytes.
const MAXIMUM_ANSWER: usize = 4 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const AS_AGENT: HeaderValue = HeaderValue::from_static(concat!("kasbah-agent/", env!("CARGO_PKG_VERSION")));
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const RULES_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
/// The text for namespaces in which not all that decides says what it would decide.
const INCOMPLETE: &str =
    "the cluster does not list all rules, as something besides RBAC decides there (a webhook, for instance)";

/// What is known of the kinds of one [`Asking`].
struct KnownRules {
    namespace: String,
    kinds: Vec<usize>,
    unknown: Option<Failure>,
    is_incomplete: bool,
}

impl ClusterApi {
    /// Answers a question to `agent`.
    ///
    /// # Errors
    /// When the pass is not good here, or the API server takes no such question from the agent.
    pub(crate) async fn review(
        &self,
        question: &ReviewRights,
        agent: Option<AgentId>,
    ) -> Result<ReviewedRights, Failure> {
        let now = self.world.clock.now_millis();
        let pass = self.passes.admit_review(&question.pass, &question.roots, agent, now)?;
        check(question)?;
        let api_server = self.api_server.as_ref().ok_or(Failure::NoApiServer)?;
        if pass.access_as == AccessAs::Agent {
            return Err(Failure::ReviewOfAgent);
        }
        if api_server.impersonates() {
            return Err(Failure::ImpersonatesAlready);
        }
        let _place = self.reviews.acquire().await;
        let mut reviewed = Reviewed::default();
        let late = self.world.clock.sleep(REVIEW_TIME).boxed().shared();
        let asking = About { api_server, pass: &pass, question };
        collect(Box::new(asking.of_kinds()), &late, &mut reviewed).await?;
        let rest = reviewed.rest(question);
        collect(Box::new(asking.of_namespaces(&rest)), &late, &mut reviewed).await?;
        Ok(reviewed.answer())
    }
}

/// What is asked of an API server.
#[derive(Clone, Copy)]
struct About<'a> {
    api_server: &'a ApiServer,
    pass: &'a Pass,
    question: &'a ReviewRights,
}

impl<'a> About<'a> {
    /// Each kind in all namespaces.
    fn of_kinds(self) -> impl Iterator<Item = BoxFuture<'a, KnownRules>> + Send + 'a {
        let Self { api_server, pass, question } = self;
        let asked = in_all_namespaces(pass, question).into_iter();
        asked.map(move |asking| ask_of_kind(api_server, question, asking).boxed())
    }

    /// The other kinds in each namespace.
    fn of_namespaces(self, rest: &'a [usize]) -> impl Iterator<Item = BoxFuture<'a, KnownRules>> + Send + 'a {
        let Self { api_server, pass, question } = self;
        let asked = question.namespaces.iter();
        let asked = asked.flat_map(move |namespace| in_namespace(pass, question, rest, namespace));
        asked.map(move |asking| ask_of_namespace(api_server, question, asking).boxed())
    }
}

/// Takes answers until all are there, or it is late.
async fn collect<'a>(
    asked: Box<dyn Iterator<Item = BoxFuture<'a, KnownRules>> + Send + 'a>,
    late: &Shared<BoxFuture<'_, ()>>,
    reviewed: &mut Reviewed,
) -> Result<(), Failure> {
    let mut answers = stream::iter(asked).buffer_unordered(REQUESTS);
    let mut late = late.clone();
    loop {
        let known = tokio::select! {
            biased;
            known = answers.next() => known,
            () = &mut late => {
                reviewed.unknown(&Failure::Late(REVIEW_TIME).to_string());
                return Ok(());
            }
        };
        let Some(KnownRules { namespace, kinds, unknown, is_incomplete }) = known else { return Ok(()) };
        match unknown {
            // It would be the same with all others.
            Some(failure @ Failure::ReviewRefused { .. }) => return Err(failure),
            Some(failure) => reviewed.unknown(&failure.to_string()),
            None if is_incomplete => reviewed.unknown(INCOMPLETE),
            None => reviewed.permit(&namespace, kinds),
        }
    }
}

/// Whether a kind may be listed in all namespaces.
async fn ask_of_kind(api_server: &ApiServer, question: &ReviewRights, asking: Asking) -> KnownRules {
    let Asking { whom, namespace, mut kinds } = asking;
    let kind = kinds.first().and_then(|place| question.kinds.get(*place));
    let asked = match kind {
        Some(kind) => ask(api_server, ACCESS_REVIEWS, whom, &access_review(kind, &namespace)).await,
        None => return KnownRules { namespace, kinds, unknown: None, is_incomplete: false },
    };
    let unknown = match asked.and_then(|body| is_allowed(&body).map_err(|error| unreachable_by(&error))) {
        Ok(true) => None,
        Ok(false) => {
            kinds.clear();
            None
        }
        Err(failure) => Some(failure),
    };
    KnownRules { namespace, kinds, unknown, is_incomplete: false }
}

/// Which kinds may be listed in a namespace.
async fn ask_of_namespace(api_server: &ApiServer, question: &ReviewRights, asking: Asking) -> KnownRules {
    let Asking { whom, namespace, mut kinds } = asking;
    let asked = ask(api_server, RULES_REVIEWS, whom, &rules_review(&namespace)).await;
    match asked.and_then(|body| Rules::read(&body).map_err(|error| unreachable_by(&error))) {
        Ok(rules) => {
            kinds.retain(|place| {
                question.kinds.get(*place).is_some_and(|kind| rules.permit(kind, &namespace))
            });
            KnownRules { namespace, kinds, unknown: None, is_incomplete: rules.incomplete }
        }
        Err(failure) => KnownRules { namespace, kinds, unknown: Some(failure), is_incomplete: false },
    }
}

/// Asks the API server as somebody.
async fn ask(
    api_server: &ApiServer,
    path: &str,
    whom: Impersonated,
    review: &Value,
) -> Result<Bytes, Failure> {
    let mut headers = headers::to_api_server(&HeaderMap::new(), &AccessAs::Impersonated(whom))?;
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(ACCEPT, JSON);
    headers.insert(USER_AGENT, AS_AGENT);
    let body = Full::from(review.to_string()).map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().map_err(|error| unreachable_by(&error))?;
    *request.headers_mut() = headers;
    let unreachable = |error: BoxError| unreachable_by(error.as_ref());
    let (response, _lane) = api_server.send(request, Expected::Own).await.map_err(unreachable)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAXIMUM_ANSWER).collect().await.map_err(unreachable)?;
    let body = body.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let said = serde_json::from_slice::<ApiStatus>(&body).map(|status| status.message).unwrap_or_default();
    let message = if said.is_empty() { status.to_string() } else { said };
    Err(match status {
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Failure::ReviewRefused { message },
        _ => Failure::Unreachable { detail: message },
    })
}
