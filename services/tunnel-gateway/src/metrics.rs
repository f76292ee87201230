//! What is counted.

chassis::metrics! {
    /// The gateway's metrics.
    pub struct Counts in "kasbah_tunnel_gateway" {
        /// Agents that have at least one tunnel here
        pub(crate) agents: Gauge,
        /// Tunnels that are open here
        pub(crate) tunnels: Gauge,
        /// Bulk connections, which carry requests to clusters' APIs
        pub(crate) bulk_connections: Gauge,
        /// Incoming connections of agents, by TLS handshake
        pub(crate) connections: Counter { tls: "`full`, `resumed` (with an earlier session ticket), `none` (plain text)" },
        /// Tunnels that were refused
        pub(crate) refusals: Counter,
        /// Bytes through tunnels, as they are on the wire
        pub(crate) tunnel_bytes: Counter { direction: "`received`, `sent`" },
        /// Desired states sent to agents
        pub(crate) pushes: Counter { outcome: "`taken`, `failed`, `had` (by an agent that reconnected with it)" },
        /// Time until an agent has accepted a desired state with its missing objects
        pub(crate) push_seconds: Seconds,
        /// Pages and objects sent to agents
        pub(crate) objects_sent: Counter,
        /// Observations that came from agents
        pub(crate) observations: Counter,
        /// Object changes that came from agents
        pub(crate) object_changes: Counter,
        /// Bodies of objects that are too large for a frame
        pub(crate) object_bodies: Counter { outcome: "`stored`, `known` (stored before), `missing` (the agent did not have it any more), `too_large`" },
        /// Observations that were replaced by a gap, because they are about other agents' sources or belong elsewhere
        pub(crate) observations_removed: Counter { stream: "`observations`, `objects`" },
        /// Batches of observations that were refused
        pub(crate) batches_refused: Counter,
        /// Requests to clusters' APIs
        pub(crate) cluster_requests: Counter { code: "`1xx` for sessions, `2xx`, `3xx`, `4xx`, `5xx`" },
        /// Requests to clusters' APIs that came from other gateways
        pub(crate) cluster_hops: Counter,
        /// Requests to clusters' APIs that were over a limit
        pub(crate) cluster_limited: Counter { whose: "`user`, `agent`, `organization`", limit: "`open` (too many at once), `rate` (too many per second)" },
        /// Requests to clusters' APIs that waited for a recently connected agent
        pub(crate) cluster_waits: Counter { outcome: "`back`, `away` (it did not reconnect in time)" },
        /// Open requests to clusters' APIs, including watches and sessions
        pub(crate) cluster_requests_open: Gauge,
    }
}
