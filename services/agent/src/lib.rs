//! kasbah-agent: applies bundles in its cluster.
