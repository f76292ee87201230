//! One control plane for all tests of a run.

use std::env;
use std::path::Path;

use anyhow::Result;
use tokio::sync::OnceCell;

use crate::{Cluster, ControlPlane, ControlPlaneOptions, FakeNodes};

/// Environment variable with the kubeconfig of the run's shared control plane; `cargo xtask test` sets it.
pub const SHARED_KUBECONFIG: &str = "KASBAH_TESTBED_KUBECONFIG";

/// A control plane with fake nodes on which pods become ready, for many tests at once.
#[derive(Debug)]
pub struct SharedControlPlane {
    _nodes: FakeNodes,
    plane: ControlPlane,
}

impl SharedControlPlane {
    /// Starts it; whoever runs the tests does so once and sets [`SHARED_KUBECONFIG`] for them.
    pub async fn start() -> Result<Self> {
        let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
        let nodes = FakeNodes::start(&plane, 2, &[]).await?;
        Ok(Self { _nodes: nodes, plane })
    }

    /// The kubeconfig of its administrator.
    pub fn kubeconfig(&self) -> &Path {
        self.plane.kubeconfig()
    }
}

/// The control plane that the tests of this run share, as its administrator: for tests that keep to a namespace of
/// their own ([`Cluster::namespace`]). Outside `cargo xtask test` each test process starts one for itself.
///
/// Two fake nodes play there. Nobody may restart it or read its audit log: tests that need such things start a
/// [`ControlPlane`].
pub async fn shared_control_plane() -> Result<Cluster> {
    static OWN: OnceCell<SharedControlPlane> = OnceCell::const_new();
    if let Some(path) = env::var_os(SHARED_KUBECONFIG) {
        return Cluster::open(Path::new(&path));
    }
    let shared = OWN.get_or_try_init(SharedControlPlane::start).await?;
    Ok(Cluster::clone(&shared.plane))
}
