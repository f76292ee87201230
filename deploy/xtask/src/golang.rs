//! Programs built from Go modules whose versions and sums are checked in (`deploy/testbed`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cache, report};

/// Builds packages of the module in `deploy/testbed/<module>` into `bin` of the cache folder `name`.
pub struct Build<'a> {
    /// The folder in the cache.
    pub name: String,
    /// The module's folder in `deploy/testbed`.
    pub module: &'a str,
    /// The packages to build, and as what; an empty name keeps the package's own.
    pub packages: &'a [(&'a str, &'a str)],
    /// `-ldflags`, empty for none.
    pub linker_flags: String,
    /// How long that takes.
    pub takes: &'a str,
}

impl Build<'_> {
    /// Whether it is in the cache.
    pub fn is_done(&self) -> Result<bool> {
        Ok(testkit::cache_folder()?.join(&self.name).exists())
    }

    /// Does it where it has not been done.
    pub fn run(&self) -> Result<()> {
        cache::once(&self.name, |folder| {
            println!("    {}: built from source, once; {}", self.name, self.takes);
            let module = report::root()?.join("deploy/testbed").join(self.module);
            let mut download = go(&module);
            download.args(["mod", "download", "-x"]);
            report::counted(&mut download, "fetching sources", "steps", None)?;
            let packages: Vec<&str> = self.packages.iter().map(|(package, _)| *package).collect();
            let listed = report::output(go(&module).args(["list", "-deps"]).args(&packages))?;
            let bin = folder.join("bin");
            std::fs::create_dir_all(&bin)?;
            let mut build = go(&module);
            build.args(["build", "-trimpath", "-v"]);
            if !self.linker_flags.is_empty() {
                build.args(["-ldflags", &self.linker_flags]);
            }
            match self.packages {
                [(package, name)] if !name.is_empty() => build.arg("-o").arg(bin.join(name)).arg(package),
                _ => build.arg("-o").arg(&bin).args(&packages),
            };
            report::counted(&mut build, "compiling", "packages", Some(listed.lines().count()))
        })
        .map(|_| ())
    }
}

fn go(module: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(module).env("GOFLAGS", "-mod=readonly").env("GOWORK", "off");
    command
}

/// A program without any dependency, static, for use in a container.
pub fn build_static(module: &str, to: &Path) -> Result<()> {
    let module = report::root()?.join("deploy/testbed").join(module);
    let mut build = go(&module);
    build.env("CGO_ENABLED", "0").args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(to).arg(".");
    report::output(&mut build).map(|_| ())
}

/// Fails in plain words where Go is missing.
pub fn check() -> Result<()> {
    let found = report::output(Command::new("go").arg("version"));
    found
        .map(|_| ())
        .context("Go is needed to build the control plane: install it from https://go.dev/doc/install")
}
