//! The bus with traces: a request carries the trace of whoever asks, and runs in a span of it where it is answered.

use std::sync::Arc;

use async_trait::async_trait;
use bus::{Bus, BusError, ByteStream, Handler, RequestError, Serving, StreamHandler, Subscription};
use bytes::Bytes;
use chassis::traces;
use events::request::RequestContext;
use events::subject::Subject;
use tracing::Instrument;

/// A bus that carries traces.
pub(super) struct TracedBus {
    inner: Arc<dyn Bus>,
}

impl TracedBus {
    pub(super) const fn new(inner: Arc<dyn Bus>) -> Self {
        Self { inner }
    }
}

/// The context with the current span's trace, or with that which it came with.
fn with_trace(context: &RequestContext) -> RequestContext {
    let mut context = context.clone();
    context.traceparent = traces::current_traceparent().or(context.traceparent);
    context
}

#[async_trait]
impl Bus for TracedBus {
    async fn request(
        &self,
        subject: &Subject,
        context: &RequestContext,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        self.inner.request(subject, &with_trace(context), body).await
    }

    async fn serve(&self, subject: &Subject, group: &str, handler: Handler) -> Result<Serving, BusError> {
        let name = subject.to_string();
        let traced: Handler = Arc::new(move |context: RequestContext, body| {
            let span = tracing::info_span!("request", subject = name, organization = %context.organization);
            traces::set_parent(&span, context.traceparent.as_deref());
            let handling = span.in_scope(|| handler(context, body));
            Box::pin(handling.instrument(span))
        });
        self.inner.serve(subject, group, traced).await
    }

    async fn publish(&self, subject: &Subject, body: Bytes) -> Result<(), BusError> {
        self.inner.publish(subject, body).await
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, BusError> {
        self.inner.subscribe(subject).await
    }

    async fn open_stream(
        &self,
        subject: &Subject,
        context: &RequestContext,
        window: u32,
    ) -> Result<ByteStream, RequestError> {
        self.inner.open_stream(subject, &with_trace(context), window).await
    }

    async fn serve_streams(
        &self,
        subject: &Subject,
        group: &str,
        handler: StreamHandler,
    ) -> Result<Serving, BusError> {
        self.inner.serve_streams(subject, group, handler).await
    }
}
