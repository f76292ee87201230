//! What is neither kubectl nor made of its libraries: the client library for JavaScript.

use serde_json::{Value, json};
use testkit::client_library;

use super::There;
use crate::scene::LIMIT;

/// It lists, follows, writes, reads logs, runs commands and forwards ports as it would without a tunnel.
pub(super) async fn works(there: &There<'_>) {
    let folder = tempfile::tempdir().unwrap();
    let mut program = tokio::process::Command::from(client_library(folder.path()).unwrap());
    program
        .arg(there.person.kubeconfig())
        .arg(there.namespace)
        .envs(there.person.variables())
        .kill_on_drop(true);
    let ended = tokio::time::timeout(LIMIT, program.output()).await.expect("it ends in time").unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}: {errors}", ended.status);
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(told["pods"], json!(["web"]), "{told:#}");
    assert_eq!(told["heard"], json!(["add first", "update second", "delete second"]), "{told:#}");
    assert_eq!(told["log"], "begun\n", "{told:#}");
    assert_eq!(told["said"], json!(["heard sesame\n", "not well\n"]), "{told:#}");
    assert_eq!(
        told["outcome"]["details"]["causes"],
        json!([{"reason": "ExitCode", "message": "7"}]),
        "{told:#}"
    );
    assert_eq!((&told["fetched"], &told["missing"]), (&json!("hello\n"), &json!(404)), "{told:#}");
}
