//! What a declaration says, and the macro that makes one.

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size.
    Histogram,
}

/// What tells the series of a metric apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Which values there are, for people.
    pub values: &'static str,
}

/// A metric as it was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared {
    name: &'static str,
    kind: Kind,
    labels: &'static [Label],
    help: &'static str,
}

impl Declared {
    /// For [`metrics!`](crate::metrics!) alone.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, kind: Kind, labels: &'static [Label], help: &'static str) -> Self {
        Self { name, kind, labels, help }
    }

    /// The name of the family, for a counter without `_total`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The name under which it is asked for; that of a histogram further has `_bucket`, `_sum` or `_count`.
    #[must_use]
    pub fn series(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }

    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What tells its series apart.
    #[must_use]
    pub const fn labels(&self) -> &'static [Label] {
        self.labels
    }

    /// What it tells.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help.trim()
    }
}

/// Declares metrics, and the struct that holds them. `in` says what their names begin with; a field's name is the rest of
/// the metric's, with its unit, for a counter without `_total`; its documentation is the metric's help, on one line and without
/// a final dot.
///
/// The types are `Counter`, `Gauge`, `Seconds` (a histogram), `Time` (a counter of seconds) and `Top` (a gauge of the first few of many
/// named things); labels stand behind them in braces, each with its values in words. The struct has `register(&Metrics)`, `Default` (counts, but is not shown) and
/// `DECLARED`.
#[macro_export]
macro_rules! metrics {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident in $prefix:literal {
            $(
                #[doc = $help:literal]
                $field_visible:vis $field:ident: $kind:ident $({ $($label:ident: $values:literal),+ $(,)? })?
            ),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone)]
        $visible struct $name {
            $(
                #[doc = $help]
                $field_visible $field: $crate::metrics!(@type $kind $($($label)+)?),
            )+
        }

        impl $name {
            /// What is declared here.
            $visible const DECLARED: &'static [$crate::metrics::Declared] = &[
                $(
                    $crate::metrics::Declared::new(
                        concat!($prefix, "_", stringify!($field)),
                        $crate::metrics!(@kind $kind),
                        &[$($($crate::metrics::Label { name: stringify!($label), values: $values }),+)?],
                        $help,
                    ),
                )+
            ];

            /// All of them, at nothing, shown with the process's metrics.
            #[must_use]
            $visible fn register(metrics: &$crate::Metrics) -> Self {
                let made = Self::default();
                let mut declared = Self::DECLARED.iter();
                $(
                    if let Some(declared) = declared.next() {
                        metrics.register(declared, $crate::metrics::Shown::metric(&made.$field));
                    }
                )+
                made
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::metrics!(@new $kind $($($label)+)?)),+ }
            }
        }
    };
    (@type Counter) => { $crate::metrics::Counter };
    (@type Gauge) => { $crate::metrics::Gauge };
    (@type Seconds) => { $crate::metrics::Seconds };
    (@type Time) => { $crate::metrics::Time };
    (@type Counter $($label:ident)+) => { $crate::metrics::Counters<{ $crate::metrics!(@count $($label)+) }> };
    (@type Gauge $($label:ident)+) => { $crate::metrics::Gauges<{ $crate::metrics!(@count $($label)+) }> };
    (@type Seconds $($label:ident)+) => { $crate::metrics::SecondsBy<{ $crate::metrics!(@count $($label)+) }> };
    (@type Top $($label:ident)+) => { $crate::metrics::Ranked<{ $crate::metrics!(@count $($label)+) }> };
    (@new $kind:ident) => { <$crate::metrics!(@type $kind)>::default() };
    (@new $kind:ident $($label:ident)+) => {
        <$crate::metrics!(@type $kind $($label)+)>::new([$(stringify!($label)),+])
    };
    (@kind Counter) => { $crate::metrics::Kind::Counter };
    (@kind Time) => { $crate::metrics::Kind::Counter };
    (@kind Top) => { $crate::metrics::Kind::Gauge };
    (@kind Gauge) => { $crate::metrics::Kind::Gauge };
    (@kind Seconds) => { $crate::metrics::Kind::Histogram };
    (@count $($label:ident)+) => { [$(stringify!($label)),+].len() };
}
