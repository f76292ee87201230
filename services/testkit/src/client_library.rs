//! A client library of Kubernetes that is not kubectl's: the one for JavaScript, and a program that uses it.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::node_js::CLIENT_LIBRARY;

const PROGRAM: &str = include_str!("../kubernetes-client/uses.mjs");

/// The program, written into `folder`. It takes a kubeconfig and a namespace with a pod `web`, and prints in JSON what it was told.
///
/// # Errors
/// When the library is not installed.
pub fn client_library(folder: &Path) -> Result<Command> {
    CLIENT_LIBRARY.program(folder, "uses.mjs", PROGRAM)
}
