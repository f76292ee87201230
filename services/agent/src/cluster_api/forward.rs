//! Requests and their answers, streamed.

use std::future::{Future, pending};
use std::time::Duration;

use bytes::Bytes;
use events::attributes::Attributes;
use futures::future::{Either, select};
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use objects::attributes::{is_answered_by_others, is_long_running};
use tokio::sync::oneshot;
use tower::BoxError;
use tunnel::body::Held;
use tunnel::settings::MAXIMUM_HEADER_LIST_BYTES;

use super::answer::Failure;
use super::headers;
use super::{ClusterApi, Open};
use crate::kubernetes::ApiServer;
use crate::kubernetes::api_server::{Expected, RequestBody};
use crate::kubernetes::client::chain;
use crate::link::AnswerBody;

/// How long the head of an answer is waited for, once the request is there whole, unless it may take as long as it likes. The API
/// server itself gives up after a minute.
const ANSWER_DEADLINE: Duration = Duration::from_secs(90);

/// Longer lists of headers do not go back: the gateway takes none that are longer, and room is left for the status.
pub(super) const MAXIMUM_ANSWER_HEADERS: usize = MAXIMUM_HEADER_LIST_BYTES as usize - 1024;
/// What HTTP/2 counts for each header beside its name and value (RFC 9113, section 6.5.2).
const BYTES_BESIDE_A_HEADER: usize = 32;

impl ClusterApi {
    pub(super) async fn forward(
        &self,
        api_server: &ApiServer,
        request: Request<RequestBody>,
        open: Open,
        asked: &Attributes,
    ) -> Result<Response<AnswerBody>, Failure> {
        // Without a body there is nothing to wait for, however long the connection may take to take the request.
        let (coming, came) = oneshot::channel::<()>();
        let expected = expected(&request, asked);
        let coming = (!request.body().is_end_stream()).then_some(coming);
        let request = request.map(|body| Held::new(body, coming).boxed_unsync());
        let whole = async {
            // Dropped with the body: nobody sends.
            let _end = came.await;
            if is_long_running(asked) {
                pending::<()>().await;
            }
        };
        let (response, lane) = self.in_time(api_server.send(request, expected), whole).await?;
        answered(response, (lane, open))
    }

    /// Waits for the head of an answer to a request that is there once `whole` is.
    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, BoxError>>,
        whole: impl Future<Output = ()>,
    ) -> Result<T, Failure> {
        let late = async {
            whole.await;
            self.world.clock.sleep(ANSWER_DEADLINE).await;
        };
        match select(std::pin::pin!(answer), std::pin::pin!(late)).await {
            Either::Left((answer, _)) => answer.map_err(|error| unreachable_by(error.as_ref())),
            Either::Right(_) => Err(Failure::Late(ANSWER_DEADLINE)),
        }
    }
}

fn expected(request: &Request<RequestBody>, asked: &Attributes) -> Expected {
    if is_answered_by_others(asked) {
        return Expected::OfOthers;
    }
    let is_question = request.method().is_safe() && request.body().is_end_stream();
    if is_question && !is_long_running(asked) { Expected::Soon } else { Expected::Own }
}

pub(super) fn unreachable_by(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::Unreachable { detail: chain(error) }
}

/// The API server's answer as it goes back. A body that breaks off ends as broken there, too.
pub(super) fn answered<B, T>(response: Response<B>, held: T) -> Result<Response<AnswerBody>, Failure>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    T: Send + Unpin + 'static,
{
    let status = response.status();
    if status.is_informational() {
        return Err(Failure::Unreachable { detail: format!("it answered {status}") });
    }
    let headers = headers::from_api_server(response.headers());
    let length = list_length(&headers);
    if length > MAXIMUM_ANSWER_HEADERS {
        return Err(Failure::LongHead { length });
    }
    let body = Held::new(response.into_body(), held);
    let mut answer = Response::new(body.map_err(Into::into).boxed_unsync());
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    Ok(answer)
}

fn list_length(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + BYTES_BESIDE_A_HEADER).sum()
}
