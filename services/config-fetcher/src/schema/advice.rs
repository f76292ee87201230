//! What in a file stands on what it meant before `allow_agent_identity` was known, and the lines that say the same today.
//!
//! GitLab's agent reads files in that way, too: as the agent where `access_as` is left out, and with jobs of the agent's own project let in.

use events::configuration::Mode;
use objects::yaml::{Node, Value};

use super::ALLOW_AGENT_IDENTITY;
use super::report::Report;

/// Stands for the path of the agent's own project where that is not known.
const OWN_PROJECT: &str = "<group/name of the agent's own project>";
const AS_AGENT: &str = "access_as: {agent: {}}";
const LISTS: [&str; 2] = ["projects", "groups"];

/// Lines to add to a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Addition {
    /// Behind this line of the file, from 1; 0 for its beginning. Nothing where the place is written in one line with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_line: Option<u32>,
    /// In what, such as `user_access`; empty for the top of the file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The lines, indented as they stand there.
    pub lines: Vec<String>,
}

/// A place of the file that stands on the former meaning.
enum Reliance<'n> {
    /// `access_as` of people or of an entry for jobs is left out.
    LeftOut { path: String, node: &'n Node, instead: &'static str },
    /// `access_as` says the agent.
    Agent { path: String, node: &'n Node },
}

/// Warns of all that stands on the former meaning of a file that is in force.
pub(super) fn warn(report: &mut Report, root: &Node, mode: Mode) {
    for reliance in reliances(root, mode) {
        match reliance {
            Reliance::LeftOut { path, node, instead } => report.odd(
                node,
                &format!("{path}.access_as"),
                format!(
                    "is left out, which means the agent for this file, as it did when the file came into force; in a file that changes it means `{instead}`: `kasbah config check` prints the lines that keep it"
                ),
            ),
            Reliance::Agent { path, node } => report.odd(
                node,
                &format!("{path}.access_as.agent"),
                "stays in force as it did before it needed `allow_agent_identity: true`; a file that changes is refused without that",
            ),
        }
    }
    let message = "jobs of the agent's own project are let in as the agent without an entry, as they were when this file came into force; name the project in ci_access to keep that, or write `allow_agent_identity: false` to end it";
    report.odd(root, "ci_access", message);
}

/// The lines that give a file its former meaning, with the path of the agent's own project if that is known. None where the file names
/// `allow_agent_identity`, and so was written for what it means today.
pub(super) fn additions(text: &str, root: &Node, mode: Mode, own_project: Option<&str>) -> Vec<Addition> {
    if root.as_mapping().is_none() || root.get(ALLOW_AGENT_IDENTITY).is_some() {
        return Vec::new();
    }
    let text = Text(text.lines().collect());
    let reliances = reliances(root, mode);
    let own = own_entry(&text, root, own_project);
    let mut additions = Vec::new();
    if mode == Mode::Cluster && (own.is_some() || !reliances.is_empty()) {
        additions.push(text.first_in(root, "", &[format!("{ALLOW_AGENT_IDENTITY}: true")]));
    }
    if root.get("sources").is_none() {
        additions.push(text.first_in(root, "", &["sources: []".to_owned()]));
    }
    let own_is_first = own.as_ref().is_some_and(|own| own.place.is_empty());
    let (first, last) = if own_is_first { (own, None) } else { (None, own) };
    additions.extend(first);
    for reliance in reliances {
        match reliance {
            Reliance::LeftOut { path, node, .. } if path == "user_access" => {
                additions.push(text.first_in(node, &path, &[AS_AGENT.to_owned()]));
            }
            Reliance::LeftOut { path, node, .. } => additions.push(text.second_in(node, &path, AS_AGENT)),
            Reliance::Agent { .. } => {}
        }
    }
    additions.extend(last);
    additions
}

fn reliances(root: &Node, mode: Mode) -> Vec<Reliance<'_>> {
    let mut found = Vec::new();
    if mode != Mode::Cluster {
        return found;
    }
    let mut look = |path: String, node, instead| match agent_of(node) {
        Some(node) => found.push(Reliance::Agent { path, node }),
        None if node.get("access_as").is_none() => found.push(Reliance::LeftOut { path, node, instead }),
        None => {}
    };
    if let Some(user) = root.get("user_access")
        && LISTS.iter().any(|list| user.get(list).is_some())
    {
        look("user_access".to_owned(), user, "user");
    }
    for list in LISTS {
        for (index, entry) in entries(root, list).iter().enumerate() {
            look(format!("ci_access.{list}[{index}]"), entry, "ci_job");
        }
    }
    found
}

fn agent_of(node: &Node) -> Option<&Node> {
    node.get("access_as")?.get("agent")
}

fn entries<'n>(root: &'n Node, list: &str) -> &'n [Node] {
    let items = root.get("ci_access").and_then(|access| access.get(list)).and_then(Node::as_sequence);
    items.unwrap_or_default()
}

/// An entry for jobs of the agent's own project; none where there is one.
fn own_entry(text: &Text<'_>, root: &Node, own_project: Option<&str>) -> Option<Addition> {
    let names = |entry: &Node| {
        let id = entry.get("id").and_then(Node::as_str);
        id.zip(own_project).is_some_and(|(id, own)| id.eq_ignore_ascii_case(own))
    };
    let projects = entries(root, "projects");
    if projects.iter().any(names) {
        return None;
    }
    let entry = [format!("- id: {}", own_project.unwrap_or(OWN_PROJECT)), format!("  {AS_AGENT}")];
    let below = |indent: &str, keys: &[&str]| {
        let keys = keys.iter().enumerate().map(|(depth, key)| format!("{}{key}:", "  ".repeat(depth)));
        let entry = entry.iter().map(|line| format!("{indent}{line}"));
        keys.chain(entry).collect::<Vec<_>>()
    };
    Some(match root.get("ci_access") {
        Some(access) if access.get("projects").is_some() => {
            text.before_item(projects.first(), "ci_access.projects", &entry)
        }
        Some(access) if access.as_mapping().is_some_and(|keys| !keys.is_empty()) => {
            text.first_in(access, "ci_access", &below("  ", &["projects"]))
        }
        // A key without anything behind it may stand in the file.
        Some(_) => {
            Addition { after_line: None, place: "ci_access".to_owned(), lines: below("  ", &["projects"]) }
        }
        None => text.first_in(root, "", &below("    ", &["ci_access", "projects"])),
    })
}

/// The lines of a file.
struct Text<'t>(Vec<&'t str>);

impl Text<'_> {
    fn line(&self, number: u32) -> Option<&str> {
        self.0.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }

    /// What stands in front of a node in its line, if that is what the other keys of its mapping begin with.
    fn indent_of(&self, node: &Node) -> Option<String> {
        let before = usize::try_from(node.column).ok()?.checked_sub(1)?;
        let line = self.line(node.line)?;
        let begins_flow = line.chars().nth(before).is_none_or(|first| "{[&*!".contains(first));
        (!begins_flow).then(|| " ".repeat(before))
    }

    /// In front of the first key of a mapping.
    fn first_in(&self, mapping: &Node, place: &str, lines: &[String]) -> Addition {
        let indent = self.indent_of(mapping);
        let stands_alone = |indent: &String| {
            self.line(mapping.line)
                .is_some_and(|line| line.chars().take(indent.chars().count()).all(|c| c == ' '))
        };
        Self::at(indent.filter(stands_alone).zip(mapping.line.checked_sub(1)), place, lines)
    }

    /// Behind the first key of a mapping, which may stand behind the dash of a list.
    fn second_in(&self, mapping: &Node, place: &str, line: &str) -> Addition {
        let keys = mapping.as_mapping().unwrap_or_default();
        let after_line = match keys {
            [(_, value)] if !matches!(value.value, Value::Mapping(_) | Value::Sequence(_)) => {
                Some(value.line)
            }
            [_, (second, _), ..] if second.line > mapping.line => second.line.checked_sub(1),
            _ => None,
        };
        Self::at(self.indent_of(mapping).zip(after_line), place, &[line.to_owned()])
    }

    /// In front of the first item of a list.
    fn before_item(&self, item: Option<&Node>, place: &str, lines: &[String]) -> Addition {
        let found = item.and_then(|item| {
            let line = self.line(item.line)?;
            let dash = line.trim_start();
            let indent = line.len().checked_sub(dash.len())?;
            dash.starts_with("- ").then(|| " ".repeat(indent)).zip(item.line.checked_sub(1))
        });
        Self::at(found, place, lines)
    }

    fn at(found: Option<(String, u32)>, place: &str, lines: &[String]) -> Addition {
        let (indent, after_line) = match found {
            Some((indent, line)) => (indent, Some(line)),
            None => (String::new(), None),
        };
        let lines = lines.iter().map(|line| format!("{indent}{line}")).collect();
        Addition { after_line, place: place.to_owned(), lines }
    }
}

#[cfg(test)]
mod tests;
