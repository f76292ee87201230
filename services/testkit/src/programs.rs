//! Kasbah's own programs, as the tests drive them: from outside.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Environment variable with a static `kasbah-agent`, built beforehand; `cargo xtask test` sets it.
pub const STATIC_AGENT: &str = "KASBAH_STATIC_AGENT";
/// This machine's own target, said aloud: musl's cannot be linked on a plain machine.
const STATIC_TARGET: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

/// The path of one of the workspace's programs (`kasbah`, `kasbah-agent`), from the build folder that this test or
/// tool itself lies in. Not built here: `cargo xtask test` does it before the tests, `cargo build` does it by hand.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = env::current_exe().context("no path of this program")?;
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    match found {
        Some(path) => Ok(path),
        None => bail!("{name} is not built: run `cargo build --package kasbah --package agent` once"),
    }
}

/// Cargo, as somebody at a prompt starts it ([`as_at_a_prompt`]).
pub fn cargo() -> Command {
    as_at_a_prompt("cargo")
}

/// A program that builds, without what cargo says to the programs that it runs of their own package (this one may be such a
/// program): a build script that looks at it builds anew each time that another package is named, or none, and with it
/// everything that stands on it.
pub fn as_at_a_prompt(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let said = name.as_encoded_bytes();
        if said.starts_with(b"CARGO_PKG_") || said.starts_with(b"CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// A `kasbah-agent` without any library, for an image of its own ([`crate::Image::of_program`]). Built here where
/// nobody did it beforehand, which takes minutes the first time.
pub fn static_agent() -> Result<PathBuf> {
    match env::var_os(STATIC_AGENT) {
        Some(path) => Ok(path.into()),
        None => build_static_agent("dev"),
    }
}

/// Builds it with one of cargo's profiles.
pub fn build_static_agent(profile: &str) -> Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = own.ancestors().nth(2).context("not in a checkout")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = cargo();
    command.current_dir(root).args(["build", "--quiet", "--locked", "--package", "agent"]);
    command.args(["--bin", "kasbah-agent", "--profile", profile]);
    if profile == "dev" {
        beside_the_others(command, own, &target)
    } else {
        as_it_ships(command, &target.join("static"), profile)
    }
}

/// With the features that development builds have, from the crates that they have compiled.
fn beside_the_others(mut command: Command, own: &Path, target: &Path) -> Result<PathBuf> {
    command.args(["--package", "unified-features"]);
    command.env("RUSTC_WORKSPACE_WRAPPER", own.join("static-rustc.sh"));
    run(command)?;
    // The next build puts the program with libraries there again.
    let (built, kept) = (target.join("debug/kasbah-agent"), target.join("static/kasbah-agent"));
    let copied = std::fs::create_dir_all(target.join("static")).and_then(|()| std::fs::copy(&built, &kept));
    copied.with_context(|| format!("cannot copy {} to {}", built.display(), kept.display()))?;
    Ok(kept)
}

/// With the features that ship, in a target folder of its own.
fn as_it_ships(mut command: Command, target: &Path, profile: &str) -> Result<PathBuf> {
    command.args(["--target", STATIC_TARGET]).arg("--target-dir").arg(target);
    // With the target named, the flag does not reach build scripts and macros, which must stay dynamic.
    command.env("RUSTFLAGS", "-C target-feature=+crt-static").env_remove("CARGO_ENCODED_RUSTFLAGS");
    run(command)?;
    Ok(target.join(STATIC_TARGET).join(profile).join("kasbah-agent"))
}

fn run(mut command: Command) -> Result<()> {
    let output = command.output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the static agent: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::cargo;

    #[test]
    fn cargo_is_not_told_whose_program_starts_it() {
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(std::env::var_os(name).is_some(), "cargo says {name} to the tests that it runs");
            assert!(
                cargo().get_envs().any(|(left_out, value)| left_out == name && value.is_none()),
                "{name}"
            );
        }
    }
}
