//! The bus trait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use events::request::RequestContext;
use events::subject::Subject;
use futures::future::BoxFuture;

/// Largest message in bytes, headers included, as NATS has it by default.
pub const MAXIMUM_MESSAGE_BYTES: usize = 1024 * 1024;

/// The largest piece of a byte stream that crosses at once.
pub(crate) const LARGEST_PIECE: usize = MAXIMUM_MESSAGE_BYTES / 4;

/// Most that goes with the opening of a byte stream, in bytes.
pub const MAXIMUM_FIRST_BYTES: usize = LARGEST_PIECE;

/// Longest subject in bytes.
pub const MAXIMUM_SUBJECT_BYTES: usize = 255;

/// Notices that wait for a subscriber that does not read; those after them are lost.
pub const NOTICE_QUEUE: usize = 4096;

/// Bytes of notices that wait for a subscriber that does not read; those after them are lost.
pub const NOTICE_QUEUE_BYTES: usize = 8 * MAXIMUM_MESSAGE_BYTES;

/// Requests, or streams, that one member serves at the same time; more wait within their deadlines.
pub(crate) const MAXIMUM_CONCURRENT: usize = 1024;

/// Requests, notices and byte streams.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Sends a request and waits for the one reply.
    async fn request(
        &self,
        subject: &Subject,
        context: &RequestContext,
        body: Bytes,
    ) -> Result<Bytes, RequestError>;

    /// Serves a subject as a member of a queue group until the returned guard is dropped. Requests run concurrently.
    async fn serve(&self, subject: &Subject, group: &str, handler: Handler) -> Result<Serving, BusError>;

    /// Sends a notice to all who subscribe now.
    async fn publish(&self, subject: &Subject, body: Bytes) -> Result<(), BusError>;

    /// Receives notices from now on.
    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, BusError>;

    /// Opens a byte stream to whoever serves it under this subject ([`Bus::serve_streams`]). In each direction at most
    /// `window` bytes are under way; at least one.
    ///
    /// An opening may reach a second one who serves when nothing is heard of the first, so what stands in it has to be what may be done
    /// twice.
    async fn open_stream(
        &self,
        subject: &Subject,
        context: &RequestContext,
        window: u32,
        opening: Opening,
    ) -> Result<ByteStream, RequestError>;

    /// Accepts byte streams under a subject.
    async fn serve_streams(
        &self,
        subject: &Subject,
        group: &str,
        handler: StreamHandler,
    ) -> Result<Serving, BusError>;

    /// Serves requests under some subjects and byte streams under another, as a member of the same group. For the many that serve
    /// both, such as one for each agent: it may cost as little as serving one.
    async fn serve_together(
        &self,
        group: &str,
        requests: Vec<(Subject, Handler)>,
        (streams, stream_handler): (&Subject, StreamHandler),
    ) -> Result<Serving, BusError> {
        let mut serving = vec![self.serve_streams(streams, group, stream_handler).await?];
        for (subject, handler) in requests {
            serving.push(self.serve(&subject, group, handler).await?);
        }
        Ok(Serving(Box::new(serving)))
    }
}

/// Answers one request with the encoded `Result<Reply, Refusal>`.
pub type Handler = Arc<dyn Fn(RequestContext, Bytes) -> BoxFuture<'static, Bytes> + Send + Sync>;

/// Takes one byte stream.
pub type StreamHandler = Arc<dyn Fn(RequestContext, ByteStream) -> BoxFuture<'static, ()> + Send + Sync>;

/// Serves while it lives; dropping it ends the serving.
pub struct Serving(pub Box<dyn std::any::Any + Send + Sync>);

/// Notices as they come.
pub struct Subscription {
    /// Queue of notices; bounded.
    pub receiver: tokio::sync::mpsc::Receiver<Received>,
    /// Ends the subscription when dropped.
    pub guard: Box<dyn std::any::Any + Send + Sync>,
}

/// What a subscriber gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A message.
    Message(Bytes),
    /// The subscriber was too slow: this many were lost.
    Lost(u64),
}

/// What goes with the opening of a byte stream, so that whoever serves need not wait for it; likewise what goes back with its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opening {
    /// What is said first: at most as much as the window, and as [`MAXIMUM_FIRST_BYTES`].
    pub first: Bytes,
    /// No more than that is said: the direction has ended. Where it is the opener's, a short answer may come as quickly as that to a request.
    pub is_all: bool,
}

/// An ordered byte stream in both directions.
pub struct ByteStream {
    /// What the other side wrote; ends with `None` after its end, or with an error after a reset.
    pub reader: ByteReader,
    /// What goes to the other side.
    pub writer: ByteWriter,
}

/// Reading half. Dropping it before the end resets its direction.
pub struct ByteReader(pub Box<dyn ReadBytes>);
/// Writing half. Dropping it without [`WriteBytes::finish`] resets its direction.
pub struct ByteWriter(pub Box<dyn WriteBytes>);

/// See [`ByteReader`].
#[async_trait]
pub trait ReadBytes: Send {
    /// The next bytes; `None` at the orderly end. Reading gives credit back to the writer.
    async fn read(&mut self) -> Result<Option<Bytes>, StreamReset>;
    /// Whether all was read, and that is known without waiting.
    fn has_ended(&self) -> bool;
}

/// See [`ByteWriter`].
#[async_trait]
pub trait WriteBytes: Send {
    /// Writes all bytes, waiting for credit.
    async fn write(&mut self, bytes: Bytes) -> Result<(), StreamReset>;
    /// Returns once the other side reads no more, or the stream was reset.
    async fn closed(&mut self);
    /// Ends this direction in order.
    async fn finish(&mut self) -> Result<(), StreamReset>;
    /// Ends both directions at once; the other side gets the reason.
    async fn reset(&mut self, reason: &str);
}

/// A byte stream ended before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stream was reset: {reason}")]
pub struct StreamReset {
    /// Why.
    pub reason: String,
}

/// A request got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Nobody serves the subject.
    #[error("{} does not answer", service(.subject))]
    NoResponder {
        /// Which subject.
        subject: String,
    },
    /// The deadline passed.
    #[error("{} did not answer within {deadline:?}", service(.subject))]
    Deadline {
        /// Which subject.
        subject: String,
        /// How long was waited.
        deadline: Duration,
    },
    /// The message is larger than the bus takes.
    #[error("message of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The subject is none: an empty token, a wildcard, a blank, or too long.
    #[error("{subject:?} is not a subject")]
    BadSubject {
        /// Which subject.
        subject: String,
    },
    /// The bus cannot be reached.
    #[error("the bus is not available: {detail}")]
    Away {
        /// What happened.
        detail: String,
    },
}

/// The bus could not take or give something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// The message is larger than the bus takes.
    #[error("message of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The subject is none: an empty token, a wildcard, a blank, or too long.
    #[error("{subject:?} is not a subject")]
    BadSubject {
        /// Which subject.
        subject: String,
    },
    /// The bus cannot be reached.
    #[error("the bus is not available: {detail}")]
    Away {
        /// What happened.
        detail: String,
    },
}

/// The service behind a request's subject, as error messages name it.
fn service(subject: &str) -> String {
    match subject.strip_prefix("kasbah.request.").and_then(|name| name.split('.').next()) {
        Some(name) => format!("the {name} service"),
        None => "the service".to_owned(),
    }
}

/// Whether a subject is one that every bus takes: tokens joined by dots, none empty, no blanks, control letters or wildcards.
#[must_use]
pub fn is_valid(subject: &Subject) -> bool {
    let text = subject.as_str();
    let fine = |byte: u8| byte.is_ascii_graphic() && byte != b'*' && byte != b'>';
    text.len() <= MAXIMUM_SUBJECT_BYTES
        && text.split('.').all(|token| !token.is_empty() && token.bytes().all(fine))
}

/// Refuses what [`is_valid`] does not take.
pub(crate) fn checked(subject: &Subject) -> Result<(), BusError> {
    if is_valid(subject) { Ok(()) } else { Err(BusError::BadSubject { subject: subject.to_string() }) }
}

/// Refuses a message, headers included, that is over [`MAXIMUM_MESSAGE_BYTES`].
pub(crate) fn fits(bytes: usize) -> Result<(), BusError> {
    if bytes <= MAXIMUM_MESSAGE_BYTES {
        Ok(())
    } else {
        Err(BusError::TooLarge { bytes, limit: MAXIMUM_MESSAGE_BYTES })
    }
}

/// Refuses more with an opening than there is credit for, or than one piece may have.
pub(crate) fn fits_first(bytes: usize, window: u32) -> Result<(), RequestError> {
    let limit = MAXIMUM_FIRST_BYTES.min(usize::try_from(window).unwrap_or(usize::MAX));
    if bytes <= limit { Ok(()) } else { Err(RequestError::TooLarge { bytes, limit }) }
}

impl From<BusError> for RequestError {
    fn from(error: BusError) -> Self {
        match error {
            BusError::TooLarge { bytes, limit } => Self::TooLarge { bytes, limit },
            BusError::BadSubject { subject } => Self::BadSubject { subject },
            BusError::Away { detail } => Self::Away { detail },
        }
    }
}
