//! Watches repositories and builds bundles.
