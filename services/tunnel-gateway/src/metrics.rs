//! What is counted.

chassis::metrics! {
    /// The gateway's metrics.
    pub struct Counts in "kasbah_tunnel_gateway" {
        /// Agents that have at least one tunnel here
        pub(crate) agents: Gauge,
        /// Tunnels that are open here
        pub(crate) tunnels: Gauge,
        /// Connections beside tunnels, on which requests to clusters' APIs go
        pub(crate) bulk_connections: Gauge,
        /// Connections of agents that came in, by how TLS was agreed on
        pub(crate) connections: Counter { tls: "`full`, `resumed`: with a ticket from before, `none`: plain text" },
        /// Tunnels that were refused
        pub(crate) refusals: Counter,
        /// Bytes through tunnels, as they are on the wire
        pub(crate) tunnel_bytes: Counter { direction: "`received`, `sent`" },
        /// Desired states on their way to agents
        pub(crate) pushes: Counter { outcome: "`taken`, `failed`, `had`: by an agent that came back with it" },
        /// How long it takes until an agent has taken a desired state, with what it lacks of it
        pub(crate) push_seconds: Seconds,
        /// Pages and objects sent to agents
        pub(crate) objects_sent: Counter,
        /// Observations that came from agents
        pub(crate) observations: Counter,
        /// Batches of observations that were refused
        pub(crate) batches_refused: Counter,
        /// Requests to clusters' APIs
        pub(crate) cluster_requests: Counter { code: "`1xx` for sessions, `2xx`, `3xx`, `4xx`, `5xx`" },
        /// Requests to clusters' APIs that came from other gateways
        pub(crate) cluster_hops: Counter,
        /// Requests to clusters' APIs that were over a limit
        pub(crate) cluster_limited: Counter { whose: "`user`, `agent`, `organization`", limit: "`open` (too many at once), `rate` (too many a second)" },
        /// Requests to clusters' APIs that waited for an agent which was there a moment ago
        pub(crate) cluster_waits: Counter { outcome: "`back`, `away` (it did not come in time)" },
        /// Requests to clusters' APIs that are open here, watches and sessions among them
        pub(crate) cluster_requests_open: Gauge,
    }
}
