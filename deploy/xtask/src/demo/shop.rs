//! The Git server of the demo, the shop's repository in it, and the clone that the person works in.

use std::path::{Path, PathBuf};

use anyhow::Result;
use testkit::{GitServer, GitServerOptions, Webhook, WorkTree};

use crate::report;

const NAME: &str = "shop";

pub struct Shop {
    server: GitServer,
    clone: WorkTree,
}

impl Shop {
    /// The first start fills the repository; later ones leave it as the person made it.
    pub fn start(state: &Path, port: u16) -> Result<Self> {
        let options = GitServerOptions { directory: Some(state.join("git")), port: Some(port) };
        let server = GitServer::start_with(options)?;
        let first = !server.has(NAME);
        if first {
            server.create(NAME)?;
        }
        let clone = WorkTree::clone_kept(&server.url(NAME), &state.join("shop"))?;
        if first {
            clone.copy_from(&report::root()?.join("deploy/demo/shop"), ".")?;
            clone.commit_and_push("The shop opens")?;
        }
        Ok(Self { server, clone })
    }

    pub fn url(&self) -> String {
        self.server.url(NAME)
    }

    pub fn clone_path(&self) -> PathBuf {
        self.clone.path().to_owned()
    }

    /// From now on each push is told at once.
    pub fn tell(&self, webhook: Webhook) -> Result<()> {
        self.server.add_webhook(NAME, webhook)
    }
}
