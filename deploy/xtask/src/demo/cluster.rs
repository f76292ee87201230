//! The cluster of the demo.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use testkit::{Audit, Tools};

use crate::report;
use crate::testbed::{Testbed, kubeconfig_in};

/// One on this machine, or one that exists.
pub struct Cluster {
    testbed: Option<Testbed>,
    kubeconfig: PathBuf,
}

impl Cluster {
    pub async fn on_this_machine(directory: &Path, fake_nodes: bool) -> Result<Self> {
        let testbed = Testbed::start(directory, fake_nodes, Audit::Off).await?;
        Ok(Self { testbed: Some(testbed), kubeconfig: kubeconfig_in(directory) })
    }

    /// Takes one context out of a kubeconfig, so that nothing changes for the demo when its owner switches contexts.
    pub fn existing(path: &Path, context: Option<&str>, state: &Path) -> Result<Self> {
        let path = path.canonicalize().with_context(|| format!("cannot read {}", path.display()))?;
        let found = Tools::find().and_then(|tools| tools.path("kubectl"));
        let mut command = Command::new(found.unwrap_or_else(|_| "kubectl".into()));
        command.arg("--kubeconfig").arg(&path);
        command.args(["config", "view", "--minify", "--flatten"]);
        command.args(context.map(|name| format!("--context={name}")));
        let text = report::output(&mut command).context("kubectl is needed to read the kubeconfig")?;
        let kubeconfig = state.join("existing.kubeconfig");
        std::fs::write(&kubeconfig, text).context("cannot write the kubeconfig")?;
        Ok(Self { testbed: None, kubeconfig })
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub fn describe(&self) -> String {
        match &self.testbed {
            Some(testbed) => format!("a control plane on this machine with {}", testbed.nodes()),
            None => "yours, as the kubeconfig says".to_owned(),
        }
    }

    /// The pinned kubectl, or the one that the person has.
    pub fn kubectl(&self) -> PathBuf {
        Tools::find().and_then(|tools| tools.path("kubectl")).unwrap_or_else(|_| "kubectl".into())
    }

    pub fn stop(self) -> Result<()> {
        self.testbed.map_or(Ok(()), Testbed::stop)
    }
}
