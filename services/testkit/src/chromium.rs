//! A real browser without a screen: Chromium, for what only a browser decides, such as which page gets to read an answer.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::node_js::CHROMIUM;
use crate::{Folder, Process};

const DRIVE: &str = include_str!("../browser/drive.mjs");
/// A script that waits for something that never comes ends with this.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs a script in a browser of its own, in which nobody has been before; what it returns.
///
/// The script is an ECMAScript module. Its default export is called with a function that opens an empty page
/// (puppeteer's) of the origin `http://localhost:<port>`, and with `given`. No certificate is looked at.
///
/// # Errors
/// When Chromium is not installed, or the script throws: with what it and the browser said.
pub async fn drive_chromium(script: &str, given: &Value) -> Result<Value> {
    drive_chromium_for(LIMIT, script, given).await
}

/// The same with a script that may take longer.
///
/// # Errors
/// See [`drive_chromium`].
pub async fn drive_chromium_for(limit: Duration, script: &str, given: &Value) -> Result<Value> {
    let folder = Folder::temporary()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("script.mjs"), script)?;
    std::fs::write(path("given.json"), given.to_string())?;
    let mut command = CHROMIUM.program(folder.path(), "drive.mjs", DRIVE)?;
    command.arg(CHROMIUM.installed()?.join("unpacked"));
    let mut process = Process::spawn("chromium", command, &path("log"))?;
    let (process, ended) = tokio::task::spawn_blocking(move || {
        let ended = process.wait(limit);
        (process, ended)
    })
    .await?;
    let said = || process.log_tail(30);
    let status = ended?.with_context(|| format!("the script does not end: {}", said()))?;
    ensure!(status.success(), "the script failed: {}", said());
    let result = std::fs::read(path("result.json")).context("the script has no result")?;
    serde_json::from_slice(&result).context("the script's result is no JSON")
}
