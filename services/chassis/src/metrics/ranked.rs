//! Gauges of named things: of all that there are only the first few are shown, so that the number of series stays bounded whatever a fleet
//! grows to.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Metric;

use super::kinds::Shown;

/// Values of `N` labels, and what is shown for them.
type Series<const N: usize> = ([String; N], i64);

/// One value for each of a few sets of `N` labels, whose values are names. All of them are replaced together. Cheap to clone; clones
/// share what they show.
#[derive(Clone)]
pub struct Ranked<const N: usize> {
    names: [&'static str; N],
    first: Arc<Mutex<Vec<Series<N>>>>,
}

impl<const N: usize> fmt::Debug for Ranked<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranked").field("names", &self.names).finish_non_exhaustive()
    }
}

impl<const N: usize> Ranked<N> {
    /// Sets of labels that are shown at most.
    pub const MOST: usize = 20;
    /// Letters of a label's value that are shown at most.
    const LETTERS: usize = 100;

    /// For [`metrics!`](crate::metrics!) alone.
    #[doc(hidden)]
    #[must_use]
    pub fn new(names: [&'static str; N]) -> Self {
        Self { names, first: Arc::default() }
    }

    /// Shows these and no others: the first [`Self::MOST`] of them, each set of labels once.
    pub fn replace(&self, all: impl IntoIterator<Item = ([String; N], i64)>) {
        let mut seen = BTreeSet::new();
        let all = all.into_iter().map(|(values, value)| {
            (values.map(|value| value.chars().take(Self::LETTERS).collect::<String>()), value)
        });
        let first = all.filter(|(values, _)| seen.insert(values.clone())).take(Self::MOST).collect();
        *self.first.lock() = first;
    }
}

impl<const N: usize> EncodeMetric for Ranked<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (values, value) in self.first.lock().iter() {
            let labels: Vec<(&str, &str)> =
                self.names.iter().copied().zip(values.iter().map(String::as_str)).collect();
            encoder.encode_family(&labels)?.encode_gauge(value)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        self.first.lock().is_empty()
    }
}

impl<const N: usize> Shown for Ranked<N> {
    fn metric(&self) -> impl Metric {
        self.clone()
    }
}
