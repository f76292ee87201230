//! What went through a recorded session, opened.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use events::position::Stream;
use events::recording::{RecordingBatch, SessionChannel, SessionPiece};
use events::subject::partition_of_writer;
use events::{OrganizationId, Position, Refusal, RefusalKind};
use futures::stream;
use schemars::JsonSchema;
use serde::Serialize;
use store::{ReadFilter, RecordReader, Sealing};
use uuid::Uuid;

use crate::app::App;

/// A line of the answer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum RecordingLine {
    /// Something that went through.
    Piece {
        /// Milliseconds since the session began.
        at_millis: u64,
        /// Where.
        channel: SessionChannel,
        /// What, in base64.
        bytes: String,
    },
    /// A part of it is lost, or cannot be opened any more.
    Gap,
    /// The last line.
    End {
        /// Whether the session was over. Else it goes on, or its gateway died.
        is_over: bool,
    },
}

/// The answer: all that is there of a session.
///
/// # Errors
/// When there is nothing of it, or it cannot be read.
pub async fn answer(
    app: &Arc<App>,
    organization: OrganizationId,
    session: Uuid,
) -> Result<Response, Refusal> {
    let away =
        |error: &dyn std::fmt::Display| Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"));
    let sealing = Sealing::of(&*app.keys, organization, RecordingBatch::PURPOSE).await;
    let sealing = sealing.map_err(|error| away(&error))?;
    let filter =
        ReadFilter { organization: Some(organization), ..ReadFilter::streams(&[Stream::Recordings]) };
    let records = app.log.read(&behind_other_partitions(app, session).await?, &filter).await;
    let records = records.map_err(|error| away(&error))?;
    let mut opened = Opened { sealing, organization, session, records, next: 0, is_over: false };
    let first = opened.batch().await.map_err(|error| away(&error))?;
    let first = first.ok_or_else(|| Refusal::not_found(format!("recording of a session {session}")))?;
    let lines = stream::unfold((Some(opened), VecDeque::from(first)), |(opened, mut lines)| async {
        let mut opened = opened?;
        if let Some(line) = lines.pop_front() {
            return Some((Ok(text(&line)), (Some(opened), lines)));
        }
        match opened.batch().await {
            Ok(Some(more)) => Some((Ok(Bytes::new()), (Some(opened), VecDeque::from(more)))),
            Ok(None) => Some((Ok(text(&RecordingLine::End { is_over: opened.is_over })), (None, lines))),
            Err(error) => Some((Err(error), (None, lines))),
        }
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A position from which nothing comes but what is in the partition of the session.
async fn behind_other_partitions(app: &App, session: Uuid) -> Result<Position, Refusal> {
    let end = app.log.position(&[Stream::Recordings]).await;
    let mut end = end.map_err(|error| Refusal::new(RefusalKind::Unavailable, format!("{error}; retry")))?;
    let partition = partition_of_writer(&session.to_string(), app.log.partitions());
    end.0.remove(&(Stream::Recordings, partition));
    Ok(end)
}

fn text(line: &RecordingLine) -> Bytes {
    Bytes::from(serde_json::to_string(line).unwrap_or_default() + "\n")
}

/// A session's batches, as they are read.
struct Opened {
    sealing: Sealing,
    organization: OrganizationId,
    session: Uuid,
    records: RecordReader,
    /// The number that the next batch has.
    next: u32,
    is_over: bool,
}

impl Opened {
    /// The lines of the next batch of the session; `None` at the end.
    async fn batch(&mut self) -> Result<Option<Vec<RecordingLine>>, store::ReadError> {
        while let Some(record) = self.records.recv().await {
            let record = record?;
            let batch = events::decode::<RecordingBatch>(&record.bytes).ok();
            let batch = batch.filter(|batch| {
                // One that was stored twice has a number that was had.
                record.organization == self.organization
                    && batch.session == self.session
                    && batch.number >= self.next
            });
            if let Some(batch) = batch {
                return Ok(Some(self.lines(&batch)));
            }
        }
        Ok(None)
    }

    fn lines(&mut self, batch: &RecordingBatch) -> Vec<RecordingLine> {
        let is_gap = batch.number > self.next;
        self.next = batch.number.saturating_add(1);
        let bound_to = RecordingBatch::bound_to(batch.session, batch.number, batch.is_last);
        let pieces = self.sealing.open(&bound_to, &batch.sealed);
        let pieces = pieces.and_then(|pieces| events::decode::<Vec<SessionPiece>>(&pieces).ok());
        self.is_over |= batch.is_last && pieces.is_some();
        let gap = (is_gap || pieces.is_none()).then_some(RecordingLine::Gap);
        let pieces = pieces.unwrap_or_default().into_iter().map(|piece| RecordingLine::Piece {
            at_millis: piece.at_millis,
            channel: piece.channel,
            bytes: STANDARD.encode(&piece.bytes),
        });
        gap.into_iter().chain(pieces).collect()
    }
}
