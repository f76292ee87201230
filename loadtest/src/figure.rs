//! One figure: a value beside the baseline that was measured in the same run.

use std::fmt;

use serde::Serialize;

/// Whether a figure is right when it is small or when it is large, and compared with what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// value / baseline is at most this.
    RatioAtMost(f64),
    /// value / baseline is at least this.
    RatioAtLeast(f64),
    /// value - baseline is at most this.
    AddsAtMost(f64),
    /// value is at most this.
    AtMost(f64),
    /// value is at least this.
    AtLeast(f64),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RatioAtMost(limit) => write!(f, "<={limit}x"),
            Self::RatioAtLeast(limit) => write!(f, ">={limit}x"),
            Self::AddsAtMost(limit) => write!(f, "<=+{limit}"),
            Self::AtMost(limit) => write!(f, "<={limit}"),
            Self::AtLeast(limit) => write!(f, ">={limit}"),
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// `<scenario>.<figure>`.
    pub name: String,
    /// Median of the runs.
    pub value: f64,
    /// Of value and baseline.
    pub unit: &'static str,
    /// Median of the baseline in the same runs; absent where there is none.
    pub baseline: Option<f64>,
    /// What it should be.
    pub target: Target,
    /// Each run: value and baseline.
    pub runs: Vec<(f64, Option<f64>)>,
}

impl Figure {
    /// The medians of some runs. `runs` has at least one.
    #[must_use]
    pub fn of(name: &str, unit: &'static str, target: Target, runs: Vec<(f64, Option<f64>)>) -> Self {
        let value = median(runs.iter().map(|run| run.0).collect());
        let baselines: Vec<f64> = runs.iter().filter_map(|run| run.1).collect();
        let baseline = (!baselines.is_empty()).then(|| median(baselines));
        Self { name: name.to_owned(), value, unit, baseline, target, runs }
    }

    /// value / baseline.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        self.baseline.map(|baseline| self.value / baseline)
    }

    /// Whether the target is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match self.target {
            Target::RatioAtMost(limit) => self.ratio().is_some_and(|ratio| ratio <= limit),
            Target::RatioAtLeast(limit) => self.ratio().is_some_and(|ratio| ratio >= limit),
            Target::AddsAtMost(limit) => self.value - self.baseline.unwrap_or(0.0) <= limit,
            Target::AtMost(limit) => self.value <= limit,
            Target::AtLeast(limit) => self.value >= limit,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
        write!(
            f,
            "{} {} {} baseline={} ratio={} target={} {}",
            self.name,
            significant(self.value),
            self.unit,
            number(self.baseline),
            number(self.ratio()),
            self.target,
            if self.is_met() { "ok" } else { "short" }
        )
    }
}

/// Three significant digits.
fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The middle value; the lower one of two. 0 of nothing.
#[must_use]
pub fn median(values: Vec<f64>) -> f64 {
    percentile(values, 50.0)
}

/// The value below which `percent` of the values lie (nearest rank). 0 of nothing.
#[must_use]
pub fn percentile(mut values: Vec<f64>, percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank is a small whole number"
    )]
    let rank = ((percent / 100.0 * values.len() as f64).ceil() as usize).max(1);
    values.get(rank - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_value_baseline_ratio_target_and_verdict() {
        let runs = vec![(90.0, Some(100.0)), (70.0, Some(100.0)), (80.0, Some(100.0))];
        let figure = Figure::of("log.append-1", "appends/s", Target::RatioAtLeast(0.7), runs);
        assert_eq!(
            figure.to_string(),
            "log.append-1 80.0 appends/s baseline=100 ratio=0.800 target=>=0.7x ok"
        );
    }

    #[test]
    fn what_falls_short_says_so() {
        let short = |target, value| !Figure::of("x", "ms", target, vec![(value, Some(10.0))]).is_met();
        assert!(short(Target::RatioAtMost(2.0), 20.1));
        assert!(short(Target::RatioAtLeast(0.7), 6.9));
        assert!(short(Target::AddsAtMost(5.0), 15.1));
        assert!(short(Target::AtMost(5.0), 5.1));
        assert!(short(Target::AtLeast(5.0), 4.9));
        assert!(!short(Target::AddsAtMost(5.0), 15.0));
    }

    #[test]
    fn percentiles_take_the_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(hundred.clone(), 50.0), 50.0);
        assert_eq!(percentile(hundred, 99.0), 99.0);
        assert_eq!(percentile(vec![7.0], 99.0), 7.0);
    }
}
