//! One control plane for all tests of a run.

use std::env;
use std::path::Path;

use anyhow::Result;
use tokio::sync::OnceCell;

use crate::{Cluster, ControlPlane, ControlPlaneOptions};

/// Environment variable with the kubeconfig of the run's shared control plane; `cargo xtask test` sets it.
pub const SHARED_KUBECONFIG: &str = "KASBAH_TESTBED_KUBECONFIG";

/// The control plane that the tests of this run share, as its administrator: for tests that keep to a namespace of
/// their own ([`Cluster::namespace`]). Outside `cargo xtask test` each test process starts one for itself.
///
/// It has an audit log of nobody's, fake nodes do not run there, and nobody may restart it: tests that need such
/// things start a [`ControlPlane`].
pub async fn shared_control_plane() -> Result<Cluster> {
    static OWN: OnceCell<ControlPlane> = OnceCell::const_new();
    if let Some(path) = env::var_os(SHARED_KUBECONFIG) {
        return Cluster::open(Path::new(&path));
    }
    let plane = OWN.get_or_try_init(|| ControlPlane::start(ControlPlaneOptions::default())).await?;
    Ok(Cluster::clone(plane))
}
