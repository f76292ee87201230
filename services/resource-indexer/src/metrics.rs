//! What is counted.

chassis::metrics! {
    /// The resource indexer's metrics.
    pub struct Counts in "kasbah_resource_indexer" {
        /// Records of the log that were folded
        pub(crate) records: Counter,
        /// Changes of objects that were folded
        pub(crate) changes: Counter { what: "`first-seen`, `created`, `changed`, `deleted`, `vanished`, `gap`, `unobserved`" },
        /// Objects that are kept, those that are gone included
        pub(crate) objects: Gauge,
        /// Changes that left with the log's horizon
        pub(crate) pruned: Counter,
        /// Times that the index was made anew because its database did not work
        pub(crate) rebuilt: Counter,
        /// Questions to clusters what a user may list there
        pub(crate) cluster_reviews: Counter { outcome: "`known`, `partly` (of some kinds or namespaces it is unknown), `unknown` (nothing of the cluster is shown to the user)" },
        /// How long an answer takes
        pub(crate) answer_seconds: Seconds { request: "its name, such as `resource-indexer.find-objects`" },
    }
}
