//! Programs of cargo's own world, pinned, built into the cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{cache, report};

/// A program that `cargo install` gets.
pub struct Tool {
    name: &'static str,
    version: &'static str,
    /// Arguments that leave out what is not used here.
    features: &'static [&'static str],
}

/// The test runner: a process a test, a time limit each.
pub const NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    version: "0.9.151",
    features: &["--no-default-features", "--features", "default-no-update"],
};
/// Licences, bans, sources, advisories.
pub const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", features: &[] };

impl Tool {
    /// Its path; it is built where it is missing.
    pub fn path(&self) -> Result<PathBuf> {
        let folder = cache::once(&format!("{}-{}", self.name, self.version), |folder| self.install(folder))?;
        Ok(folder.join("bin").join(self.name))
    }

    /// Unoptimized: it saves minutes of building and costs seconds of running.
    fn install(&self, folder: &Path) -> Result<()> {
        println!("    {} {}: built from source, once; one to three minutes", self.name, self.version);
        let build = folder.join("build");
        let mut command = testkit::cargo();
        command.args(["install", "--locked", "--debug", "--version", self.version]).args(self.features);
        command.arg("--root").arg(folder).arg(self.name);
        command.env("CARGO_TARGET_DIR", &build).env("CARGO_PROFILE_DEV_DEBUG", "0");
        // Settings of the checkout are for the checkout.
        command.current_dir(folder).env_remove("RUSTFLAGS");
        command.env("RUSTUP_TOOLCHAIN", toolchain()?);
        report::counted(&mut command, self.name, "steps", None)?;
        std::fs::remove_dir_all(&build).context("cannot remove the build folder")
    }
}

/// The checkout's pinned toolchain, so that tools do not ask for another one.
fn toolchain() -> Result<String> {
    let text = std::fs::read_to_string(report::root()?.join("rust-toolchain.toml"))?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("channel"));
    let value = line.and_then(|line| line.split('"').nth(1)).context("no channel in rust-toolchain.toml")?;
    Ok(value.to_owned())
}
