//! `kasbah config …`.

mod definitions;

use std::path::{Path, PathBuf};

use clap::ValueHint;
use config_fetcher::schema::{self, Addition};
use events::configuration::{FOLDER, FileFinding, file_of};
use serde::Serialize;
use world::World;

use self::definitions::NotChecked;
use super::finding;
use crate::client::failure::Failure;
use crate::client::print::{Paint, Printer, Style};

/// What to do with agents' configuration files.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check agents' configuration files as the server does, without a server; exits with 1 if a file is wrong
    Check(Check),
}

/// Which files.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// Files to check; by default .kasbah/agents/*/config.yaml below the current folder
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// The agents' own project, whose jobs formerly needed no entry in ci_access; in GitLab CI by default the job's project
    #[arg(long, env = "CI_PROJECT_PATH", value_name = "GROUP/NAME")]
    project: Option<String>,
}

/// What a check of one file found.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    findings: Vec<FileFinding>,
    warnings: Vec<FileFinding>,
    additions: Vec<Addition>,
    /// Files of definitions that were not looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_checked: Vec<NotChecked>,
}

/// Runs it. What was found is an answer; that a file is wrong is a failure as well.
///
/// # Errors
/// When a file is wrong, or cannot be read.
pub fn run(command: Command, printer: Printer, world: &World) -> Result<(), Failure> {
    let Command::Check(Check { files, project }) = command;
    let project = project.filter(|path| !path.is_empty());
    let files = if files.is_empty() { files_here(world)? } else { files };
    let checked: Result<Vec<Checked>, Failure> =
        files.iter().map(|file| check(world, file, project.as_deref())).collect();
    let checked = checked?;
    printer.show(&checked, |checked, style| {
        checked.iter().map(|one| text(one, style)).collect::<Vec<_>>().join("\n")
    })?;
    match checked.iter().filter(|one| !one.findings.is_empty()).count() {
        0 => Ok(()),
        wrong => Err(Failure::Unsuccessful(format!("{wrong} of {} files would be refused", checked.len()))),
    }
}

fn check(world: &World, file: &Path, project: Option<&str>) -> Result<Checked, Failure> {
    let name = file.display().to_string();
    let failure = |detail| Failure::Io { doing: format!("read {name}"), detail };
    let content = world.disk.read(file).map_err(failure)?;
    let mut checked = schema::check(&name, &content);
    let not_checked = definitions::take_in(world, file, project, &mut checked)?;
    let schema::Checked { findings, warnings, .. } = checked;
    let additions = schema::additions(&content, project);
    Ok(Checked { file: name, findings, warnings, additions, not_checked })
}

/// The configuration files of the repository whose root is the current folder.
fn files_here(world: &World) -> Result<Vec<PathBuf>, Failure> {
    let agents = Path::new(FOLDER).join("agents");
    let none = || {
        let example = file_of("<name>");
        Failure::usage("FILE", format!("there is no {example} below this folder; name the file"))
    };
    let folders = world.disk.list(&agents).map_err(|_| none())?;
    let names = folders.iter().filter_map(|folder| folder.file_name()?.to_str().map(file_of));
    let mut files: Vec<PathBuf> =
        names.map(PathBuf::from).filter(|file| world.disk.read(file).is_ok()).collect();
    files.sort();
    if files.is_empty() { Err(none()) } else { Ok(files) }
}

fn text(checked: &Checked, style: Style) -> String {
    let mut text = String::new();
    let mut add = |word: &str, paint: Paint, found: &FileFinding| {
        text.push_str(&format!("{} {}\n", paint.on(word, style.colour), finding(found)));
    };
    checked.findings.iter().for_each(|found| add("error", Paint::Bad, found));
    checked.warnings.iter().for_each(|found| add("warning", Paint::Odd, found));
    if checked.findings.is_empty() {
        text.push_str(&format!("{}: {}\n", checked.file, Paint::Good.on("good", style.colour)));
    }
    for NotChecked { file, reason } in &checked.not_checked {
        text.push_str(&format!("{} {file}: {reason}\n", Paint::Odd.on("not checked", style.colour)));
    }
    if !checked.additions.is_empty() {
        text.push_str(
            "\nIn GitLab, and in earlier versions of Kasbah, a file without `allow_agent_identity` granted more: users and jobs with access acted as the agent, and jobs of the agent's own project had access without an entry. If you rely on this, add the following lines. If not, add only `allow_agent_identity: false`.\n",
        );
    }
    for Addition { after_line, place, lines } in &checked.additions {
        let place = if place.is_empty() { "the top of the file" } else { place.as_str() };
        let at = match after_line {
            Some(0) => "at the beginning of the file".to_owned(),
            Some(line) => format!("behind line {line}, in {place}"),
            None => format!("in {place}"),
        };
        text.push_str(&format!("  {at}:\n"));
        lines.iter().for_each(|line| text.push_str(&format!("    | {line}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use events::Timestamp;

    use super::*;

    const STYLE: Style = Style { colour: false, now: Timestamp(0) };

    fn checked(content: &str) -> Checked {
        let folder = testkit::Folder::temporary().unwrap();
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, content).unwrap();
        Checked {
            file: "config.yaml".to_owned(),
            ..check(&World::real(), &file, Some("shop/config")).unwrap()
        }
    }

    #[test]
    fn a_good_file_is_called_good_and_the_lines_that_it_may_need_stand_with_their_places() {
        let found = checked("sources: []\nuser_access:\n  projects:\n    - id: shop/web\n");
        assert!(found.findings.is_empty(), "{found:?}");
        let text = text(&found, STYLE);
        assert!(text.starts_with("config.yaml: good\n"), "{text}");
        let places = "  at the beginning of the file:\n    | allow_agent_identity: true\n  at the beginning of the file:\n    | ci_access:\n    |   projects:\n    |     - id: shop/config\n    |       access_as: {agent: {}}\n  behind line 2, in user_access:\n    |   access_as: {agent: {}}\n";
        assert!(text.ends_with(places), "{text}");
        let stands = checked("allow_agent_identity: false\nsources: []\n");
        assert_eq!(super::text(&stands, STYLE), "config.yaml: good\n");
    }

    #[test]
    fn files_of_definitions_that_were_not_looked_at_are_named() {
        let found = checked(
            "allow_agent_identity: false\nsources: []\ndefinitions: [{project: platform/charts, path: a.yaml}]\n",
        );
        let expected = "config.yaml: good\nnot checked platform/charts:a.yaml: it is in another project\n";
        assert_eq!(text(&found, STYLE), expected);
        assert_eq!(serde_json::to_value(&found).unwrap()["not_checked"][0]["file"], "platform/charts:a.yaml");
    }

    #[test]
    fn a_file_that_the_server_would_refuse_is_a_failure_and_says_where() {
        let folder = testkit::Folder::temporary().unwrap();
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, "sources: []\nuser_access: {access_as: {agent: {}}}\n").unwrap();
        let wanted = Command::Check(Check { files: vec![file], project: None });
        let printer = Printer { format: crate::client::print::Format::Json, style: STYLE };
        let failure = run(wanted, printer, &World::real()).unwrap_err();
        assert_eq!((failure.code(), failure.to_string().as_str()), (1, "1 of 1 files would be refused"));
        let shown = text(&checked("sources: []\nuser_access: {access_as: {agent: {}}}\n"), STYLE);
        assert!(shown.starts_with("error ") && shown.contains("config.yaml:2:"), "{shown}");
    }
}
