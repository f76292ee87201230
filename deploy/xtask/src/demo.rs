//! `cargo xtask demo`.

use std::path::PathBuf;

use anyhow::Result;

#[derive(clap::Args)]
pub struct Arguments {
    /// A cluster that exists, instead of one on this machine.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let _ = &arguments.kubeconfig;
    Ok(())
}
