//! The key `definitions`, the files that it names, and how what these declare comes beside what the agent's own file declares.

use events::commit::MAXIMUM_COMMIT_BYTES;
use events::configuration::{
    AgentConfiguration, DeclaredAction, DeclaredRelation, FileFinding, HealthSettings,
};
use objects::action::MAXIMUM_ACTIONS;
use objects::health::MAXIMUM_RULES;
use objects::yaml::{Limits, Node};

use super::fields::{bounded_list, join, required, strict_mapping, text};
use super::relations::MAXIMUM_RELATIONS;
use super::report::{Report, finding};
use super::source::project_of;
use super::{
    Checked, Draft, MAXIMUM_BYTES, MAXIMUM_FINDINGS, MAXIMUM_NODES, actions, health, relations, root_within,
    rule_tests,
};

/// Most files of definitions of one agent.
pub const MAXIMUM_FILES: usize = 20;
/// Longest path of such a file, in bytes.
const MAXIMUM_PATH: usize = 1_024;
/// Most bytes of all that is declared for one agent, as JSON: the event that puts it into force has to fit into a commit of the log.
pub const MAXIMUM_DECLARED_BYTES: usize = 256 * 1024;
/// Most bytes of a configuration with definitions, as JSON, for the same reason: its sources and grants may have more than usual. The event
/// has warnings besides.
const MAXIMUM_CONFIGURATION_BYTES: usize = MAXIMUM_COMMIT_BYTES - 64 * 1024;
/// Deepest nesting: tests hold whole objects.
const MAXIMUM_DEPTH: usize = 32;
/// The key in an agent's file.
const KEY: &str = "definitions";

/// The files of definitions that an agent's file names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DraftDefinitions {
    /// In their order.
    pub files: Vec<DefinitionsFile>,
    /// Where the key stands: line and column.
    pub place: (u32, u32),
}

/// A file of definitions, its project still by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionsFile {
    /// `group/name` of the project and where that stands (line, column); `None` for the agent's own.
    pub project: Option<(String, u32, u32)>,
    /// Its path from the repository's root.
    pub path: String,
    /// Its field in the agent's file, such as `definitions[0]`.
    pub field: String,
    /// Where its path stands: line and column.
    pub place: (u32, u32),
}

impl DraftDefinitions {
    /// What is wrong if a configuration with these definitions is too large for the log. `file` is the agent's own.
    #[must_use]
    pub fn too_large(&self, file: &str, configuration: &AgentConfiguration) -> Option<FileFinding> {
        if self.files.is_empty() {
            return None;
        }
        // Serialization of plain values does not fail.
        let bytes = serde_json::to_vec(configuration).unwrap_or_default().len();
        let message = || {
            format!(
                "{bytes} bytes of configuration as JSON, with what is defined here; at most {MAXIMUM_CONFIGURATION_BYTES} are allowed"
            )
        };
        let (line, column) = self.place;
        (bytes > MAXIMUM_CONFIGURATION_BYTES).then(|| finding(file, line, column, KEY, message()))
    }
}

impl DefinitionsFile {
    /// What findings call it: the path, behind the path of another project.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.project {
            Some((project, ..)) => format!("{project}:{}", self.path),
            None => self.path.clone(),
        }
    }

    /// Something is wrong with the file as a whole.
    #[must_use]
    pub fn wrong(&self, message: &str) -> FileFinding {
        finding(&self.name(), 0, 0, "", format!("{message} ({} of the agent's file names it)", self.field))
    }

    /// Something is wrong with what the agent's file says of it.
    #[must_use]
    pub fn wrong_entry(&self, file: &str, message: String) -> FileFinding {
        match &self.project {
            Some((_, line, column)) => finding(file, *line, *column, &join(&self.field, "project"), message),
            None => finding(file, self.place.0, self.place.1, &join(&self.field, "path"), message),
        }
    }
}

/// What a file declares.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Definitions {
    /// How health is judged, beyond the built-in rules.
    pub health: HealthSettings,
    /// How objects are related, beyond what is known of their kinds.
    pub relations: Vec<DeclaredRelation>,
    /// What can be done with objects, beyond what is built in.
    pub actions: Vec<DeclaredAction>,
}

/// Reads a file of definitions.
///
/// # Errors
/// Everything that is wrong with it.
pub fn definitions(file: &str, content: &[u8]) -> Result<Definitions, Vec<FileFinding>> {
    let mut report = Report::new(file);
    let limits = Limits {
        bytes: usize::try_from(MAXIMUM_BYTES).unwrap_or(usize::MAX),
        depth: MAXIMUM_DEPTH,
        nodes_after_aliases: MAXIMUM_NODES,
    };
    let advice = "the file is empty; write 'health', 'relations' or 'actions'";
    let root = root_within(&mut report, content, &limits, advice);
    let read = root.map(|root| definitions_of(&mut report, &root));
    let (findings, _) = report.finish();
    read.filter(|_| findings.is_empty()).ok_or(findings)
}

fn definitions_of(report: &mut Report, root: &Node) -> Definitions {
    let known = strict_mapping(report, root, "", &["health", "relations", "actions", "tests"]);
    if let Some(tests) = known.get("tests") {
        rule_tests::tests(report, tests);
    }
    let health = known.get("health").map(|node| health::settings(report, node));
    let relations = known.get("relations").map(|node| relations::relations(report, node));
    let actions = known.get("actions").map(|node| actions::actions(report, node, "actions"));
    Definitions {
        health: health.unwrap_or_default(),
        relations: relations.unwrap_or_default(),
        actions: actions.unwrap_or_default(),
    }
}

/// The key `definitions` of an agent's file.
pub(super) fn files(report: &mut Report, node: &Node) -> DraftDefinitions {
    let items = bounded_list(report, node, KEY, (MAXIMUM_FILES, "files of definitions"));
    let mut files: Vec<DefinitionsFile> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let field = format!("{KEY}[{index}]");
        let Some(file) = file(report, item, field) else { continue };
        if let Some(first) = files.iter().find(|known| is_same(known, &file)) {
            let message = format!("{} names this file already; remove one of the two", first.field);
            report.at(file.place.0, file.place.1, &join(&file.field, "path"), message);
        }
        files.push(file);
    }
    DraftDefinitions { files, place: (node.line, node.column) }
}

/// Paths of projects are not case-sensitive.
fn is_same(known: &DefinitionsFile, file: &DefinitionsFile) -> bool {
    let same_project = match (&known.project, &file.project) {
        (Some((known, ..)), Some((project, ..))) => known.eq_ignore_ascii_case(project),
        (None, None) => true,
        _ => false,
    };
    same_project && known.path == file.path
}

/// A key that is not understood would name another file than was meant.
fn file(report: &mut Report, node: &Node, field: String) -> Option<DefinitionsFile> {
    let known = strict_mapping(report, node, &field, &["project", "path"]);
    node.as_mapping()?;
    let path = required(
        report,
        node,
        &known,
        &field,
        "path",
        "write the file's path, such as definitions/databases.yaml",
    );
    let project = known.get("project").map(|node| project_of(report, node, &join(&field, "project")));
    let node = path?;
    let path = path_of(report, node, &join(&field, "path"))?;
    // Without the project that was meant it would be another file.
    let project = if let Some(project) = project { Some(project?) } else { None };
    Some(DefinitionsFile { project, path, field, place: (node.line, node.column) })
}

fn path_of(report: &mut Report, node: &Node, field: &str) -> Option<String> {
    let path = text(report, node, field, false)?;
    if path.len() > MAXIMUM_PATH {
        let message = format!("a path of {} bytes; at most {MAXIMUM_PATH} are allowed", path.len());
        report.wrong(node, field, message);
        return None;
    }
    if path.contains('\0') || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        let message = format!(
            "'{path}' is not the path of a file from the repository's root; write it without '/' in front or at the end, '.' and '..'"
        );
        report.wrong(node, field, message);
        return None;
    }
    Some(path)
}

impl Checked {
    /// Takes in what files of definitions declare, in their order, and what is wrong with them. `file` is the agent's own.
    pub fn take_in(&mut self, file: &str, definitions: &[Definitions], wrong: Vec<FileFinding>) {
        self.findings.extend(self.draft.take_in(file, definitions));
        self.findings.extend(wrong);
        self.findings.truncate(MAXIMUM_FINDINGS);
        if let Some(former) = &mut self.former {
            // The same as above.
            let _ = former.draft.take_in(file, definitions);
        }
        // Without what cannot be read it may be what is in force, and would hide that.
        self.former = self.former.take().filter(|_| self.findings.is_empty());
    }
}

impl Draft {
    /// Takes in what files of definitions declare, behind what the draft itself declares: of the same, the first counts. Gives what is
    /// then too much.
    fn take_in(&mut self, file: &str, definitions: &[Definitions]) -> Vec<FileFinding> {
        for Definitions { health, relations, actions } in definitions {
            add_new(&mut self.health.rules, &health.rules, |known, rule| {
                (&known.group, &known.kind) == (&rule.group, &rule.kind)
            });
            add_new(&mut self.health.imported, &health.imported, |known, rule| {
                (&known.group, &known.kind) == (&rule.group, &rule.kind)
            });
            add_new(&mut self.relations, relations, |known, relation| known.name == relation.name);
            add_new(&mut self.actions, actions, |known, action| {
                (&known.group, &known.kind, &known.name) == (&action.group, &action.kind, &action.name)
            });
        }
        // What the agent's file alone may have is checked where it is read.
        if definitions.is_empty() { Vec::new() } else { self.too_much(file) }
    }

    fn too_much(&self, file: &str) -> Vec<FileFinding> {
        let counts = [
            (self.health.rules.len(), MAXIMUM_RULES, "health rules"),
            (self.health.imported.len(), MAXIMUM_RULES, "imported health rules"),
            (self.relations.len(), MAXIMUM_RELATIONS, "relations"),
            (self.actions.len(), MAXIMUM_ACTIONS, "actions"),
            (
                self.declared_bytes(),
                MAXIMUM_DECLARED_BYTES,
                "bytes of health rules, relations and actions as JSON",
            ),
        ];
        let (line, column) = self.definitions.place;
        let above = counts.into_iter().filter(|(count, most, _)| count > most);
        let message = |count, most, what| {
            format!("{count} {what} in this file and its files of definitions; at most {most} are allowed")
        };
        above
            .map(|(count, most, what)| finding(file, line, column, KEY, message(count, most, what)))
            .collect()
    }

    fn declared_bytes(&self) -> usize {
        // Serialization of plain values does not fail.
        let health = serde_json::to_vec(&self.health).unwrap_or_default();
        let relations = serde_json::to_vec(&self.relations).unwrap_or_default();
        let actions = serde_json::to_vec(&self.actions).unwrap_or_default();
        health.len() + relations.len() + actions.len()
    }
}

/// Adds what is not among those that came before. The new ones are not compared with each other: their file was checked.
fn add_new<T: Clone>(known: &mut Vec<T>, new: &[T], is_same: impl Fn(&T, &T) -> bool) {
    let before = known.len();
    for item in new {
        if !known.iter().take(before).any(|known| is_same(known, item)) {
            known.push(item.clone());
        }
    }
}
