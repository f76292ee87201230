//! Prometheus metrics: declared in one place each, by [`metrics!`](crate::metrics!), and nowhere else.
//!
//! A declaration has name, type, labels and help; the reference in `docs/` is made of the declarations, and a metric that is
//! not declared cannot be made. Values of labels are texts of the program itself, so that there are only so many: an agent's
//! or a repository's name cannot become one. The exception is [`Ranked`], which shows the first few of what may be many.

mod declare;
mod kinds;
mod process;
mod ranked;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::registry::{Metric, Registry};

pub use declare::{Declared, Kind, Label};
#[doc(hidden)]
pub use kinds::Shown;
pub use kinds::{Counter, Counters, Gauge, Gauges, Labelled, Seconds, SecondsBy, Time};
pub use process::{BuildMetrics, ProcessMetrics, RuntimeMetrics, show_version, watch_process};
pub use ranked::Ranked;

/// Brings a gauge up to date.
type Look = Box<dyn Fn() + Send + Sync>;

/// The process's metrics. Cheap to clone; what is registered stays.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    looks: Arc<Mutex<Vec<Look>>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self { registry: Arc::new(Mutex::new(Registry::default())), looks: Arc::default() }
    }

    /// For [`metrics!`](crate::metrics!) alone.
    #[doc(hidden)]
    pub fn register(&self, declared: &'static Declared, metric: impl Metric) {
        self.registry.lock().register(declared.name(), declared.help(), metric);
    }

    /// Calls `look` before metrics are shown, to bring up to date what nobody counts as it happens. It must not block.
    pub fn before_shown(&self, look: impl Fn() + Send + Sync + 'static) {
        self.looks.lock().push(Box::new(look));
    }

    /// All metrics in the text format of OpenMetrics.
    #[must_use]
    pub fn encode(&self) -> String {
        self.looks.lock().iter().for_each(|look| look());
        let mut text = String::new();
        // Writing into a string fails only when a metric's own encoding does: what was written so far is still worth showing.
        let _written = prometheus_client::encoding::text::encode(&mut text, &self.registry.lock());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::metrics! {
        /// What the tests count.
        struct Counts in "kasbah_test" {
            /// Pushes announced by webhooks
            pushes: Counter,
            /// Requests that were answered
            requests: Counter { route: "the path's pattern", status: "the code of HTTP" },
            /// Agents that wait
            waiting: Gauge,
            /// How long an answer takes
            answer_seconds: Seconds { kind: "what was asked" },
            /// Time that was slept
            slept_seconds: Time,
            /// Since when agents wait, of the 20 that wait longest
            waiting_since_timestamp_seconds: Top { agent: "its name", project: "its path" },
        }
    }

    #[test]
    fn what_is_declared_is_shown_under_its_name_with_its_labels() {
        let metrics = Metrics::new();
        let counts = Counts::register(&metrics);
        counts.pushes.inc_by(3);
        counts.requests.with(["/api", "200"]).inc();
        counts.answer_seconds.with(["read"]).observe(0.002);
        counts.slept_seconds.inc_by(1.5);
        let waiting = counts.waiting.clone();
        metrics.before_shown(move || {
            waiting.set(7);
        });
        let text = metrics.encode();
        for line in [
            "# HELP kasbah_test_pushes Pushes announced by webhooks.\n",
            "# TYPE kasbah_test_pushes counter\n",
            "\nkasbah_test_pushes_total 3\n",
            "\nkasbah_test_requests_total{route=\"/api\",status=\"200\"} 1\n",
            "\nkasbah_test_waiting 7\n",
            "\nkasbah_test_answer_seconds_bucket{le=\"0.0025\",kind=\"read\"} 1\n",
            "\nkasbah_test_slept_seconds_total 1.5\n",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
    }

    #[test]
    fn of_many_names_only_the_first_are_shown() {
        let metrics = Metrics::new();
        let counts = Counts::register(&metrics);
        let since = &counts.waiting_since_timestamp_seconds;
        let agent = |number: usize| [format!("edge-{number}"), "a \"b\"".to_owned()];
        since.replace((0..1_000).map(|number| (agent(number / 2), 7)));
        let series = |text: &str| text.matches("\nkasbah_test_waiting_since_timestamp_seconds{").count();
        let text = metrics.encode();
        assert_eq!(series(&text), Ranked::<2>::MOST, "{text}");
        let line =
            "\nkasbah_test_waiting_since_timestamp_seconds{agent=\"edge-19\",project=\"a \\\"b\\\"\"} 7\n";
        assert!(text.contains(line), "{text}");
        since.replace([(agent(5), 9)]);
        assert_eq!(series(&metrics.encode()), 1, "the others are gone");
        since.replace([]);
        assert_eq!(series(&metrics.encode()), 0);
    }

    #[test]
    fn a_declaration_says_all_of_it() {
        let shown: Vec<_> = Counts::DECLARED
            .iter()
            .map(|declared| (declared.series(), declared.kind(), declared.labels().len()))
            .collect();
        assert_eq!(
            shown,
            [
                ("kasbah_test_pushes_total".to_owned(), Kind::Counter, 0),
                ("kasbah_test_requests_total".to_owned(), Kind::Counter, 2),
                ("kasbah_test_waiting".to_owned(), Kind::Gauge, 0),
                ("kasbah_test_answer_seconds".to_owned(), Kind::Histogram, 1),
                ("kasbah_test_slept_seconds_total".to_owned(), Kind::Counter, 0),
                ("kasbah_test_waiting_since_timestamp_seconds".to_owned(), Kind::Gauge, 2),
            ]
        );
        assert_eq!(Counts::DECLARED[1].help(), "Requests that were answered");
        assert_eq!(Counts::DECLARED[1].labels()[1].values, "the code of HTTP");
    }
}
