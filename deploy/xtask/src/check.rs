//! `cargo xtask test`: gets what the tests need, then runs every check in the order in which they fail fastest.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use testkit::{SHARED_KUBECONFIG, STATIC_AGENT, SharedControlPlane};

use crate::report::{self, spent, step};
use crate::{testbed, tools};

#[derive(clap::Args)]
pub struct Arguments {
    /// Only tests whose name contains this; the other checks are left out.
    filter: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let start = Instant::now();
    let root = report::root()?;
    if arguments.filter.is_empty() {
        step("format", || report::run(cargo(&root).args(["fmt", "--all", "--check"])))?;
        step("lints", || {
            let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
            report::run(cargo(&root).args(clippy))
        })?;
        step("licences, bans, sources, advisories", || deny(&root))?;
        step("documentation", || {
            let doc = ["doc", "--workspace", "--no-deps", "--locked", "--quiet"];
            report::run(cargo(&root).args(doc).env("RUSTDOCFLAGS", "-D warnings"))
        })?;
        step("documentation's examples", || {
            report::run(cargo(&root).args(["test", "--workspace", "--doc", "--locked", "--quiet"]))
        })?;
    }
    step("what the tests run on", || {
        testbed::build_for_tests(false)?;
        tools::NEXTEST.path()?;
        programs(&root)
    })?;
    let outcome = step("tests", || tests(&root, &arguments.filter));
    println!("==> all checks took {}", spent(start.elapsed()));
    outcome
}

fn cargo(root: &Path) -> Command {
    let mut command = testkit::cargo();
    command.current_dir(root);
    command
}

/// Advisories need a database from the network: where it cannot be had, the rest is checked all the same.
fn deny(root: &Path) -> Result<()> {
    let deny = tools::DENY.path()?;
    let check = |what: &[&str]| {
        let mut command = Command::new(&deny);
        command
            .current_dir(root)
            .args(["--workspace", "--locked", "check", "--hide-inclusion-graph"])
            .args(what);
        command
    };
    report::run(&mut check(&["licenses", "bans", "sources"]))?;
    let mut fetch = Command::new(&deny);
    fetch.current_dir(root).args(["--workspace", "--locked", "fetch", "db"]);
    match report::output(&mut fetch) {
        Ok(_) => report::run(check(&["advisories"]).arg("--disable-fetch")),
        Err(_) => {
            println!("    advisories: NOT CHECKED, their database cannot be reached from here");
            Ok(())
        }
    }
}

/// Kasbah's own programs: the tests drive them as processes, and the agent as a pod.
fn programs(root: &Path) -> Result<()> {
    report::run(cargo(root).args(["build", "--locked", "--bin", "kasbah", "--bin", "kasbah-agent"]))?;
    testkit::build_static_agent("dev").map(|_| ())
}

/// All tests with one control plane that those share which keep to a namespace of their own.
fn tests(root: &Path, filter: &[String]) -> Result<()> {
    let nextest = tools::NEXTEST.path()?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    let run = || {
        let mut command = testkit::as_at_a_prompt(&nextest);
        command.current_dir(root).args(["nextest", "run", "--workspace", "--locked"]).args(filter);
        command
    };
    report::run(run().arg("--no-run"))?;
    let plane = runtime.block_on(SharedControlPlane::start())?;
    let status = run()
        .env(SHARED_KUBECONFIG, plane.kubeconfig())
        .env(STATIC_AGENT, testkit::build_static_agent("dev")?)
        .status()
        .context("cannot start nextest")?;
    drop(plane);
    if !status.success() {
        bail!("tests failed");
    }
    Ok(())
}
