//! Logs: lines for people on a terminal, JSON objects otherwise, on standard error.

use std::io::IsTerminal;

use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput as _};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::format::{DefaultVisitor, FormatFields, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt};
use world::World;

use crate::Metrics;
use crate::traces::{FOR_COLLECTORS, Process, TraceArgs, TraceError, Traces};

/// What goes into the log, and in which form.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// Log level (error, warn, info, debug, trace), or levels by target such as `info,bus=debug`
    #[arg(long, env = "KASBAH_LOG", default_value = "info", value_name = "FILTER", value_parser = parse_filter)]
    pub log_level: String,
    /// Format of log lines; auto means human on a terminal and json otherwise
    #[arg(long, env = "KASBAH_LOG_FORMAT", default_value = "auto", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// At `debug` it says what it was sent that is malformed, whatever secrets stand in it; so it is heard only where it is named.
const SAYS_WHAT_WAS_SENT: &str = "h2";

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is wrong.
    #[error("log filter is wrong")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Logging was set up before.
    #[error("logging is already set up")]
    Twice(#[from] TryInitError),
    /// Traces cannot be sent.
    #[error("traces cannot be set up")]
    Traces(#[from] TraceError),
}

fn parse_filter(text: &str) -> Result<String, tracing_subscriber::filter::ParseError> {
    filter(text).map(|_| text.to_owned())
}

fn filter(text: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    EnvFilter::builder().parse(format!("{SAYS_WHAT_WAS_SENT}=off,{text}"))
}

/// Sets up logs, and traces where an endpoint is configured, for the rest of the process. Keep what it returns: on drop, the
/// last spans are sent. Call inside a tokio runtime.
///
/// # Errors
/// A wrong filter or endpoint, or when logging was set up before.
pub fn init(
    world: &World,
    logs: &LogArgs,
    traces: &TraceArgs,
    process: &Process,
    metrics: &Metrics,
) -> Result<Traces, LogError> {
    let for_collectors = format!("{FOR_COLLECTORS}=off").parse()?;
    let filter = filter(&logs.log_level)?.add_directive(for_collectors);
    let human = match logs.log_format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let lines: Box<dyn Layer<Registry> + Send + Sync> = if human {
        let colours = std::io::stderr().is_terminal();
        Box::new(
            fmt::layer()
                .fmt_fields(ForPeople)
                .with_writer(std::io::stderr)
                .with_ansi(colours)
                .with_target(false)
                .with_filter(filter),
        )
    } else {
        let layer =
            fmt::layer().with_writer(std::io::stderr).json().flatten_event(true).with_current_span(true);
        Box::new(layer.with_span_list(false).with_filter(filter))
    };
    let (traces, spans) = Traces::new(world, traces, process, metrics)?;
    let layers: Vec<_> = [Some(lines), spans].into_iter().flatten().collect();
    tracing_subscriber::registry().with(layers).try_init()?;
    Ok(traces)
}

/// Fields for people: without those that only tell a collector what a span is.
struct ForPeople;

impl<'writer> FormatFields<'writer> for ForPeople {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> std::fmt::Result {
        let mut visitor = WithoutCollectors(DefaultVisitor::new(writer, true));
        fields.record(&mut visitor);
        visitor.0.finish()
    }
}

struct WithoutCollectors<'writer>(DefaultVisitor<'writer>);

fn is_for_collectors(field: &Field) -> bool {
    field.name().starts_with("otel.")
}

impl Visit for WithoutCollectors<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if !is_for_collectors(field) {
            self.0.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0.record_error(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if !is_for_collectors(field) {
            self.0.record_debug(field, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_for_collectors_is_not_for_people() {
        let lines = Lines::default();
        let written = lines.clone();
        let layer = fmt::layer().fmt_fields(ForPeople).with_ansi(false).with_writer(move || written.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let span = tracing::info_span!("http", otel.name = "GET /a", otel.kind = "server", route = "/a");
            span.in_scope(|| tracing::info!(answer = 7, "asked"));
        });
        let line = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert!(line.ends_with("http{route=\"/a\"}: chassis::logs::tests: asked answer=7\n"), "{line}");
    }
    #[test]
    fn a_library_that_says_what_was_sent_is_heard_only_where_it_is_named() {
        let heard = |text: &str| {
            let (lines, filter) = (Lines::default(), filter(text).unwrap());
            let written = lines.clone();
            let layer = fmt::layer().with_writer(move || written.clone()).with_filter(filter);
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                tracing::debug!(target: "h2::server", "malformed");
                tracing::debug!("ours");
            });
            let text = String::from_utf8(lines.0.lock().clone()).unwrap();
            (text.contains("malformed"), text.contains("ours"))
        };
        assert_eq!(heard("debug"), (false, true));
        assert_eq!(heard("error"), (false, false));
        assert_eq!(heard("debug,h2=debug"), (true, true));
        assert_eq!(heard("h2=debug"), (true, false));
    }
}
