//! Clients that people use besides the newest kubectl and helm. They take minutes to build, so only who asks for them has them.

use std::path::PathBuf;

use crate::{Skipped, cache_folder};

/// A client at a pinned release, in the cache where it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct OptionalClient {
    /// What people call it.
    pub program: &'static str,
    /// The pinned release.
    pub release: &'static str,
}

/// Its exec, attach and cp are SPDY, unless it is told otherwise.
pub const KUBECTL_1_29: OptionalClient = OptionalClient { program: "kubectl", release: "v1.29.15" };
/// Its exec, attach, cp and port-forward are WebSockets, unless it is told otherwise.
pub const KUBECTL_1_31: OptionalClient = OptionalClient { program: "kubectl", release: "v1.31.14" };
/// A cluster in a terminal.
pub const K9S: OptionalClient = OptionalClient { program: "k9s", release: "v0.51.0" };

impl OptionalClient {
    /// The folder's name in the cache.
    pub fn cache_name(&self) -> String {
        format!("{}-{}", self.program, self.release)
    }

    /// Its path, or why tests of it are left out.
    ///
    /// # Panics
    /// Where it is missing although tests are to be long: what was asked for is not left out quietly.
    pub fn path(&self) -> Result<PathBuf, Skipped> {
        let name = self.cache_name();
        let missing = |why: &str| Skipped(format!("{name}: {why}"));
        let cache = cache_folder().map_err(|error| missing(&format!("{error:#}")))?;
        let path = cache.join(&name).join("bin").join(self.program);
        if path.is_file() {
            return Ok(path);
        }
        let skipped = missing("not built yet; `cargo xtask testbed build --all-clients` does it, once");
        assert!(!tests_are_long(), "{skipped}");
        Err(skipped)
    }
}

/// Environment variable that says that there is time for everything, and that nothing runs beside the tests; `cargo xtask test --long` sets it.
pub const LONG_TESTS: &str = "KASBAH_LONG_TESTS";

/// Whether [`LONG_TESTS`] is set.
pub fn tests_are_long() -> bool {
    std::env::var_os(LONG_TESTS).is_some()
}
