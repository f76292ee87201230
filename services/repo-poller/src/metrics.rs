//! What is counted.

chassis::metrics! {
    /// The poller's metrics.
    pub struct Counts in "kasbah_repo_poller" {
        /// Looks at repositories
        pub(crate) looks: Counter {
            outcome: "`read`, `refused` (nobody may read it), `failed` (no ref could be read), `not_now` (authz or the log were away, or a result was not recorded; tried again)",
        },
        /// How long a look takes, with what it fetches and builds
        pub(crate) look_seconds: Seconds,
        /// Repositories that this process watches
        pub(crate) repositories: Gauge { state: "`readable`, `failing` (at least one ref that somebody wants cannot be read)" },
    }
}
