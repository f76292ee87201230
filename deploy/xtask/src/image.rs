//! `cargo xtask image`: the agent as a container image, without a container engine.

use std::path::PathBuf;

use anyhow::{Context, Result};
use testkit::Image;

use crate::report::{self, step};

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the image.
    #[arg(long, default_value = concat!("kasbah-agent:", env!("CARGO_PKG_VERSION")))]
    reference: String,
    /// Path of the tar file: an OCI layout for `skopeo copy oci-archive:…` and `ctr images import`.
    #[arg(long, default_value = "target/kasbah-agent.tar")]
    output: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let program = step("the agent, one static program (the first time takes some minutes)", || {
        testkit::build_static_agent("agent")
    })?;
    let output = report::root()?.join(&arguments.output);
    Image::of_program(&arguments.reference, &program)
        .write(&output)
        .with_context(|| format!("cannot write {}", output.display()))?;
    println!("{} is in {}", arguments.reference, output.display());
    Ok(())
}
