//! Names the features of every package that some crate of the workspace turns on.
//!
//! Cargo compiles a package once for each set of features, and the set depends on which crates are selected. With this crate
//! among them, `cargo xtask`, the demo, `cargo test --package <any>` and `cargo test --workspace` share all dependencies.
//! It is a development dependency of each crate (most have it through `testkit`), so nothing of it is in what ships.
