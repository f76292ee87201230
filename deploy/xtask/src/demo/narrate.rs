//! What happens, as it happens: the event log, read by Kasbah's own command line.

use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};

use super::kasbah::Kasbah;

pub struct Narrator {
    child: Child,
}

impl Narrator {
    pub fn start(kasbah: &Kasbah, color: bool) -> Result<Self> {
        let mut command = kasbah.cli();
        command.args(["log", "tail", "--follow"]).stdin(Stdio::null());
        if !color {
            command.env("NO_COLOR", "1");
        }
        Ok(Self { child: command.spawn().context("cannot start kasbah log tail")? })
    }

    pub fn must_run(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "kasbah log tail ended: {ended:?}");
        Ok(())
    }
}

impl Drop for Narrator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
