//! The first process of `cargo xtask`: it has no dependencies, so it speaks before anything large is compiled.
//!
//! It says what a first start compiles and for how long, then cargo compiles and runs `xtask` in its place.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

const FIRST_START: &str = "\
==> first start: cargo compiles the tasks first, about three minutes on two cores.
    Each task then says what else it needs; everything is kept for the next start.";

fn main() -> ExitCode {
    let compiled = env::current_exe().is_ok_and(|own| own.with_file_name("xtask").is_file());
    if !compiled {
        eprintln!("{FIRST_START}");
    }
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Build scripts that look at cargo's words on this package would run again with each change between `cargo xtask` and cargo.
    for (name, _) in env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"CARGO_PKG_") || bytes.starts_with(b"CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../xtask/Cargo.toml");
    command.args(["run", "--package", "xtask", "--manifest-path"]).arg(manifest);
    if compiled {
        command.arg("--quiet");
    }
    let error = command.arg("--").args(env::args_os().skip(1)).exec();
    eprintln!("error: cannot start cargo: {error}");
    ExitCode::FAILURE
}
