//! `cargo xtask test`: gets what the tests need, then runs every check in the order in which they fail fastest.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use testkit::{LONG_TESTS, SHARED_KUBECONFIG, STATIC_AGENT, SharedControlPlane};

use crate::changed::{self, Crates};
use crate::report::{self, spent, step};
use crate::{testbed, tools};

/// Tests that run at once, for each processor: about half of their time they wait for other programs.
const TESTS_AT_ONCE: usize = 2;

#[derive(clap::Args)]
pub struct Arguments {
    /// Run only tests whose name contains this text, and no other checks.
    filter: Vec<String>,
    /// Check only the crates that changes since `main` (commits and the work tree) can affect.
    #[arg(long)]
    changed: bool,
    /// Include long tests: more seeds of the simulation, a soak of half an hour, older clients (`KASBAH_LONG_TESTS`).
    #[arg(long)]
    long: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let start = Instant::now();
    let root = report::root()?;
    let crates = match arguments.changed {
        true => changed::affected(&root)?,
        false => Crates::All,
    };
    if let Crates::These(names) = &crates {
        println!(
            "==> changes since main can affect: {}",
            names.iter().cloned().collect::<Vec<_>>().join(", ")
        );
        if names.is_empty() {
            return Ok(());
        }
    }
    if arguments.filter.is_empty() {
        step("format", || report::run(cargo(&root).args(["fmt", "--all", "--check"])))?;
        step("lints", || {
            let clippy = ["--all-targets", "--locked", "--", "-D", "warnings"];
            report::run(cargo(&root).arg("clippy").args(crates.selection()).args(clippy))
        })?;
        if matches!(crates, Crates::All) {
            step("licences, bans, sources, advisories", || deny(&root))?;
        }
        step("documentation", || {
            let doc = ["--no-deps", "--locked", "--quiet"];
            let mut command = cargo(&root);
            report::run(
                command.arg("doc").args(crates.selection()).args(doc).env("RUSTDOCFLAGS", "-D warnings"),
            )
        })?;
        if matches!(crates, Crates::All) {
            step("documentation's examples", || {
                report::run(cargo(&root).args(["test", "--workspace", "--doc", "--locked", "--quiet"]))
            })?;
        }
    }
    let static_agent = step("what the tests run on", || {
        testbed::build_for_tests(arguments.long)?;
        tools::NEXTEST.path()?;
        programs(&root)
    })?;
    let outcome = step("tests", || tests(&root, arguments, &crates, &static_agent));
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

/// Kasbah's own programs: the tests drive them as processes, and the agent as a pod too, where it has no libraries.
fn programs(root: &Path) -> Result<PathBuf> {
    let static_agent = testkit::build_static_agent("dev")?;
    report::run(cargo(root).args(["build", "--locked", "--bin", "kasbah", "--bin", "kasbah-agent"]))?;
    Ok(static_agent)
}

/// All tests with one control plane that those share which keep to a namespace of their own.
fn tests(root: &Path, arguments: &Arguments, crates: &Crates, static_agent: &Path) -> Result<()> {
    let nextest = tools::NEXTEST.path()?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    let run = || {
        let mut command = testkit::as_at_a_prompt(&nextest);
        command.current_dir(root).args(["nextest", "run"]).args(crates.selection()).arg("--locked");
        command.args(&arguments.filter);
        if arguments.long {
            command.env(LONG_TESTS, "1");
        }
        command
    };
    report::run(run().arg("--no-run"))?;
    let plane = runtime.block_on(SharedControlPlane::start())?;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get) * TESTS_AT_ONCE;
    let status = run()
        .args(["--test-threads", &threads.to_string()])
        .env(SHARED_KUBECONFIG, plane.kubeconfig())
        .env(STATIC_AGENT, static_agent)
        .status()
        .context("cannot start nextest")?;
    drop(plane);
    if !status.success() {
        bail!("tests failed");
    }
    Ok(())
}
