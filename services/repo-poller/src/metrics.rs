//! What is counted.

chassis::metrics! {
    /// The poller's metrics.
    pub struct Counts in "kasbah_repo_poller" {
        /// Polls of repositories
        pub(crate) looks: Counter {
            outcome: "`read`, `refused` (no permission to read it), `failed` (no ref could be read), `not_now` (authz or the log did not answer, or a result was not recorded; retried)",
        },
        /// Duration of a poll, with its fetches and builds
        pub(crate) look_seconds: Seconds,
        /// Repositories that this process watches
        pub(crate) repositories: Gauge { state: "`readable`, `failing` (at least one wanted ref cannot be read)" },
    }
}
