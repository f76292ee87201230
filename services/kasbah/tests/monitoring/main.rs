//! Metrics: their reference, and that dashboard and alerts use nothing else.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod declared;
mod expressions;
mod shipped;

use std::path::{Path, PathBuf};

/// The folder of the whole source.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap().to_owned()
}
