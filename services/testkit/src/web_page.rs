//! The web page's build, and what looks at the page for those who cannot see it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Folder;
use crate::node_js::{WEB_PAGE, node_js};

/// What belongs to nobody's sources.
const MADE: [&str; 2] = ["dist", "node_modules"];
/// What Node.js is started with.
const STEPS: [&[&str]; 3] = [
    &["node_modules/typescript/bin/tsc", "--noEmit"],
    &["--test", "tests/*.test.ts"],
    &["node_modules/vite/bin/vite.js", "build"],
];

/// Checks the page's types, runs its tests, and builds it from its sources, in a folder of its own, below `dist`.
///
/// # Errors
/// When its packages are not installed, or with what the build says.
pub fn build_web_page() -> Result<Folder> {
    let folder = Folder::temporary()?;
    copy(WEB_PAGE.description(), folder.path())?;
    symlink(WEB_PAGE.installed()?.join("node_modules"), folder.path().join("node_modules"))?;
    for program in STEPS {
        let mut command = Command::new(node_js()?);
        command.current_dir(folder.path()).args(program);
        let output = command.output().with_context(|| format!("cannot start {}", program.join(" ")))?;
        let said = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        ensure!(
            output.status.success(),
            "{}: {}{}",
            program.join(" "),
            said(&output.stdout),
            said(&output.stderr)
        );
    }
    Ok(folder)
}

/// axe-core as a script: run in a page, it says what of the page cannot be used by everybody.
///
/// # Errors
/// When the page's packages are not installed.
pub fn axe() -> Result<String> {
    let path = WEB_PAGE.installed()?.join("node_modules/axe-core/axe.min.js");
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (name, target) = (entry.file_name(), to.join(entry.file_name()));
        if MADE.iter().any(|made| name == *made) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
