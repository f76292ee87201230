//! Kasbah's command line, as a person types it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::report;

/// The program, and what it is told of the server.
#[derive(Debug, Clone)]
pub struct Client {
    pub program: PathBuf,
    pub variables: Vec<(String, PathBuf)>,
}

impl Client {
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).env_remove("KASBAH_TOKEN");
        command
    }

    /// What it prints; an error with what it said when it fails.
    pub fn call(&self, arguments: &[&str]) -> Result<String> {
        report::output(self.command().args(arguments))
    }

    /// The same as JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.call(&[arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
    }
}
