//! What can be counted with. All of it is cheap to clone; clones count together.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::{counter, gauge, histogram};
use prometheus_client::registry::Metric;

/// Upper ends of the buckets, in seconds: from a sync of the disk to what a person would call stuck.
const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Only grows.
pub type Counter = counter::Counter;
/// Goes up and down.
pub type Gauge = gauge::Gauge<i64, AtomicI64>;
/// A counter of seconds.
pub type Time = counter::Counter<f64, AtomicU64>;

/// How long something takes.
#[derive(Debug, Clone)]
pub struct Seconds(histogram::Histogram);

impl Default for Seconds {
    fn default() -> Self {
        Self(Buckets.new_metric())
    }
}

impl Deref for Seconds {
    type Target = histogram::Histogram;

    fn deref(&self) -> &histogram::Histogram {
        &self.0
    }
}

/// One counter for each set of values of `N` labels.
pub type Counters<const N: usize> = Labelled<counter::Counter, N>;
/// One gauge for each set of values.
pub type Gauges<const N: usize> = Labelled<Gauge, N>;
/// Durations for each set of values.
pub type SecondsBy<const N: usize> = Labelled<histogram::Histogram, N, Buckets>;

/// Makes histograms.
#[derive(Debug, Clone, Copy)]
pub struct Buckets;

impl MetricConstructor<histogram::Histogram> for Buckets {
    fn new_metric(&self) -> histogram::Histogram {
        histogram::Histogram::new(BUCKETS)
    }
}

/// Labels with their values.
type Values<const N: usize> = [(&'static str, &'static str); N];

/// A metric for each set of values of its labels.
#[derive(Clone)]
pub struct Labelled<M, const N: usize, C = fn() -> M> {
    names: [&'static str; N],
    family: Family<Values<N>, M, C>,
}

impl<M, const N: usize, C> fmt::Debug for Labelled<M, N, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Labelled").field("names", &self.names).finish_non_exhaustive()
    }
}

impl<M: Default, const N: usize> Labelled<M, N> {
    /// For [`metrics!`](crate::metrics!) alone.
    #[doc(hidden)]
    #[must_use]
    pub fn new(names: [&'static str; N]) -> Self {
        Self { names, family: Family::new_with_constructor(M::default) }
    }
}

impl<const N: usize> SecondsBy<N> {
    /// For [`metrics!`](crate::metrics!) alone.
    #[doc(hidden)]
    #[must_use]
    pub fn new(names: [&'static str; N]) -> Self {
        Self { names, family: Family::new_with_constructor(Buckets) }
    }
}

impl<M: Clone, const N: usize, C: MetricConstructor<M>> Labelled<M, N, C> {
    /// The one for these values, in the order of the labels' declaration.
    #[must_use]
    pub fn with(&self, values: [&'static str; N]) -> M {
        let mut values = values.into_iter();
        let labels = self.names.map(|name| (name, values.next().unwrap_or_default()));
        self.family.get_or_create_owned(&labels)
    }
}

/// For [`metrics!`](crate::metrics!) alone.
#[doc(hidden)]
pub trait Shown {
    /// What is registered.
    fn metric(&self) -> impl Metric;
}

macro_rules! shown {
    ($($type:ty),+) => {$(
        impl Shown for $type {
            fn metric(&self) -> impl Metric {
                self.clone()
            }
        }
    )+};
}
shown!(Counter, Gauge, Time);

impl Shown for Seconds {
    fn metric(&self) -> impl Metric {
        self.0.clone()
    }
}

impl<const N: usize> Shown for Counters<N> {
    fn metric(&self) -> impl Metric {
        self.family.clone()
    }
}

impl<const N: usize> Shown for Gauges<N> {
    fn metric(&self) -> impl Metric {
        self.family.clone()
    }
}

impl<const N: usize> Shown for SecondsBy<N> {
    fn metric(&self) -> impl Metric {
        self.family.clone()
    }
}
