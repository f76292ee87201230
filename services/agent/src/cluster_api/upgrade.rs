//! Connections that become another protocol: a WebSocket or SPDY, for exec, attach and port-forward.

use std::future::ready;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::header;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tower::BoxError;
use tunnel::wire::cluster::UPGRADE;
use world::spawn::TaskHandle;

use super::answer::Failure;
use super::forward::{answered, unreachable_by};
use super::{ClusterApi, Open, headers};
use crate::kubernetes::ApiServer;
use crate::kubernetes::api_server::RequestBody;
use crate::link::AnswerBody;

/// Room for what is read at once; a piece is never larger.
const PIECE_BYTES: usize = 32 * 1024;
/// With less room than this there is new room.
const LITTLE_ROOM_BYTES: usize = 4 * 1024;

type Connection = TokioIo<Upgraded>;

impl ClusterApi {
    pub(super) async fn upgrade(
        &self,
        api_server: &ApiServer,
        request: Request<()>,
        body: RequestBody,
        open: Open,
    ) -> Result<Response<AnswerBody>, Failure> {
        let asked = request.headers().get(header::UPGRADE).cloned();
        let mut response = self.in_time(api_server.upgrade(request), ready(())).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return answered(response, open);
        }
        let connection = hyper::upgrade::on(&mut response).await.map_err(|error| unreachable_by(&error))?;
        let mut answered_headers = headers::from_api_server(response.headers());
        let protocol = response.headers().get(header::UPGRADE).cloned().or(asked);
        answered_headers.extend(protocol.map(|protocol| (UPGRADE, protocol)));
        let (from_api_server, to_api_server) = tokio::io::split(TokioIo::new(connection));
        let task = Box::pin(write_all(body, to_api_server));
        let writing = Writing(Some(self.world.spawner.spawn("upgraded connection to the API server", task)));
        let mut answer = Response::new(read_all(Reading {
            connection: from_api_server,
            room: BytesMut::new(),
            writing,
            _open: open,
        }));
        *answer.headers_mut() = answered_headers;
        Ok(answer)
    }
}

/// Writes what the client says; the end of that is the end of what the API server hears, and of no more.
async fn write_all(mut body: RequestBody, mut connection: WriteHalf<Connection>) {
    while let Some(frame) = body.frame().await {
        // A client that broke off ended nothing in order: the connection ends with its other half.
        let Ok(frame) = frame else { return };
        let Ok(data) = frame.into_data() else { continue };
        if connection.write_all(&data).await.is_err() || connection.flush().await.is_err() {
            return;
        }
    }
    // Whoever closed already needs no end.
    let _ended = connection.shutdown().await;
}

/// The task that writes. It ends with the answer, unless the API server ended that in order: then it goes on by itself.
struct Writing(Option<TaskHandle>);

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

struct Reading {
    connection: ReadHalf<Connection>,
    room: BytesMut,
    writing: Writing,
    _open: Open,
}

fn read_all(reading: Reading) -> AnswerBody {
    let pieces = stream::unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        match read(&mut reading).await {
            Ok(Some(piece)) => Some((Ok(Frame::data(piece)), Some(reading))),
            Ok(None) => {
                reading.writing.0.take();
                None
            }
            Err(error) => Some((Err(error), None)),
        }
    });
    BodyExt::boxed_unsync(StreamBody::new(pieces))
}

async fn read(reading: &mut Reading) -> Result<Option<Bytes>, BoxError> {
    let room = &mut reading.room;
    if room.capacity() < LITTLE_ROOM_BYTES {
        room.reserve(PIECE_BYTES);
    }
    let bytes = reading.connection.read_buf(room).await?;
    Ok((bytes > 0).then(|| room.split().freeze()))
}
