//! The files of definitions that an agent's file names, as far as they lie in the same checkout.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use config_fetcher::schema::{self, DefinitionsFile};
use events::configuration::FOLDER;
use serde::Serialize;
use world::World;

use crate::client::failure::Failure;

/// A file that was not looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct NotChecked {
    /// Its path, behind that of its project.
    pub(super) file: String,
    /// Why.
    pub(super) reason: &'static str,
}

/// Checks the files that lie in the checkout of an agent's file, and takes in what they declare. `project` is the agent's own project, if
/// that is known. Gives those that it did not look at.
pub(super) fn take_in(
    world: &World,
    file: &Path,
    project: Option<&str>,
    checked: &mut schema::Checked,
) -> Result<Vec<NotChecked>, Failure> {
    let files = &checked.draft.definitions.files;
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let root = root_of(world, file);
    let (mut definitions, mut wrong, mut not_checked) = (Vec::new(), Vec::new(), Vec::new());
    for named in files {
        let is_other =
            |(path, ..): &(String, u32, u32)| !project.is_some_and(|own| own.eq_ignore_ascii_case(path));
        let reason = match &root {
            _ if named.project.as_ref().is_some_and(is_other) => "it is in another project",
            None => "the agent's file is in no checkout, whose root has a folder .kasbah",
            Some(root) => {
                match read(world, root, named)? {
                    Some((place, content)) => match schema::definitions(&place, &content) {
                        Ok(read) => definitions.push(read),
                        Err(findings) => wrong.extend(findings),
                    },
                    None => wrong.push(named.wrong("there is no such file in this checkout")),
                }
                continue;
            }
        };
        not_checked.push(NotChecked { file: named.name(), reason });
    }
    checked.take_in(&file.display().to_string(), &definitions, wrong);
    Ok(not_checked)
}

/// A file's place and content; `None` where there is no such file.
fn read(world: &World, root: &Path, named: &DefinitionsFile) -> Result<Option<(String, Vec<u8>)>, Failure> {
    let path = root.join(&named.path);
    let place = path.display().to_string();
    match world.disk.read(&path) {
        Ok(content) => Ok(Some((place, content))),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory
            ) =>
        {
            Ok(None)
        }
        Err(detail) => Err(Failure::Io { doing: format!("read {place}"), detail }),
    }
}

/// The root of the checkout that a file lies in: the folder that has `.kasbah`.
fn root_of(world: &World, file: &Path) -> Option<PathBuf> {
    let above = |path: &Path| {
        let folder = path.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == FOLDER));
        folder.and_then(Path::parent).map(Path::to_owned)
    };
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let is_root = |folder: &&Path| world.disk.list(&folder.join(FOLDER)).is_ok_and(|names| !names.is_empty());
    above(file)
        .or_else(|| above(&absolute))
        .or_else(|| absolute.ancestors().skip(1).find(is_root).map(Path::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "health: {rules: [{group: a, kind: B, healthy: 'status.ok'}]}\n";

    /// A checkout with these files and an agent's file that names definitions; what a check of that finds, and does not look at.
    fn check(at: &str, lines: &str, files: &[(&str, &str)]) -> (schema::Checked, Vec<NotChecked>) {
        let folder = testkit::Folder::temporary().unwrap();
        let text = format!("sources: []\ndefinitions:\n{lines}");
        for (path, text) in files.iter().copied().chain([(at, text.as_str())]) {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let file = folder.path().join(at);
        let mut checked = schema::check(at, text.as_bytes());
        let not_checked = take_in(&World::real(), &file, Some("shop/deploy"), &mut checked).unwrap();
        (checked, not_checked)
    }

    const AT: &str = ".kasbah/agents/staging/config.yaml";

    #[test]
    fn files_of_the_checkout_are_checked_and_others_are_named() {
        let lines = "  - path: definitions/a.yaml\n  - {project: platform/charts, path: b.yaml}\n  - {project: Shop/Deploy, path: c.yaml}\n";
        let wrong = "health:\n  rules: [{group: a, kind: C, healthy: 'status =='}]\n";
        let files = [("definitions/a.yaml", RULES), ("c.yaml", wrong)];
        for at in [AT, "elsewhere/config.yaml"] {
            let (checked, not_checked) = check(at, lines, &[files[0], files[1], (".kasbah/README", "")]);
            assert_eq!(checked.findings.len(), 1, "{checked:?}");
            let found = &checked.findings[0];
            assert!(found.file.ends_with("/c.yaml") && !found.file.contains("elsewhere"), "{found:?}");
            assert_eq!((found.line, found.column), (2, 40), "{found:?}");
            assert_eq!(checked.draft.health.rules.len(), 1);
            let expected =
                NotChecked { file: "platform/charts:b.yaml".to_owned(), reason: "it is in another project" };
            assert_eq!(not_checked, [expected]);
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_wrong_in_a_checkout_alone() {
        let lines = "  - path: definitions/a.yaml\n  - path: definitions\n";
        let (checked, not_checked) = check(AT, lines, &[("definitions/b.yaml", RULES)]);
        let messages: Vec<&str> = checked.findings.iter().map(|found| found.message.as_str()).collect();
        assert_eq!((messages.len(), not_checked.len()), (2, 0), "{messages:?}");
        assert!(
            messages.iter().all(|message| message.contains("no such file in this checkout")),
            "{messages:?}"
        );
        let (checked, not_checked) = check("config.yaml", lines, &[]);
        assert_eq!((checked.findings.len(), not_checked.len()), (0, 2), "{not_checked:?}");
        assert!(not_checked[0].reason.contains("in no checkout"), "{not_checked:?}");
    }
}
