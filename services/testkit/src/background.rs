//! One runtime for the harness' own servers, so that a test's runtime may pause its clock, block or end.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Handle, Runtime};

static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).thread_name("testkit").enable_all().build().ok()
});

/// The harness' runtime. Panics when the machine has no thread left for it.
pub(crate) fn runtime() -> &'static Handle {
    match RUNTIME.as_ref() {
        Some(runtime) => runtime.handle(),
        None => panic!("no threads left for the harness' runtime"),
    }
}
