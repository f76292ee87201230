//! The agent's configuration file: from its text to checked values, or to everything that is wrong with it.
//!
//! Pure. Projects stay names here; [`Draft::resolve`] takes what they turned out to be.

mod actions;
mod advice;
mod definitions;
mod fields;
mod granted;
mod grants;
mod health;
mod observe;
mod relations;
mod report;
mod rule_tests;
mod source;

use std::collections::BTreeMap;

use events::audit::AuditMode;
use events::configuration::{
    AgentConfiguration, DeclaredAction, DeclaredRelation, FileFinding, HealthSettings, KindPattern, Mode,
    ObserveRules, ResourceRules, SourceConfiguration, SourceEnvironment,
};
use events::grants::Grants;
use events::recording::RecordSessions;
use events::{AgentId, ProjectId, SourceId};
use objects::yaml::{Limits, Node, load_documents};

pub use advice::Addition;
pub use definitions::{
    Definitions, DefinitionsFile, DraftDefinitions, MAXIMUM_DECLARED_BYTES, MAXIMUM_FILES, definitions,
};
use fields::{choice, list, mapping, required, strict_mapping, text, truth};
pub use granted::{GrantTarget, Granted, granted};
use grants::{Identity, Reading};
use report::Report;
pub use report::{MAXIMUM as MAXIMUM_FINDINGS, finding};
pub use rule_tests::{Expected, RuleFrom, RuleTest, RuleTests, TestedRules, declared_rules, rule_tests};
pub use source::{DraftEnvironment, DraftSource};

/// Largest file, in bytes.
pub const MAXIMUM_BYTES: u32 = 256 * 1024;
/// Deepest nesting.
const MAXIMUM_DEPTH: usize = 16;
/// Most nodes, counting what every alias repeats.
const MAXIMUM_NODES: usize = 50_000;
/// Most sources of one agent.
const MAXIMUM_SOURCES: usize = 500;
/// The key without which nobody is let in as the agent where that is the whole cluster.
const ALLOW_AGENT_IDENTITY: &str = "allow_agent_identity";

/// A file as far as it can be understood by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// What it says; meaningful only when there are no findings.
    pub draft: Draft,
    /// What is wrong with it.
    pub findings: Vec<FileFinding>,
    /// What is odd but harmless.
    pub warnings: Vec<FileFinding>,
    /// The same file as it was read before `allow_agent_identity` was known; none where it names that key, or would not have been
    /// good then.
    pub former: Option<LegacyReading>,
}

/// A file as it was read before `allow_agent_identity` was known: as the agent where `access_as` is left out, and with rights for
/// jobs of the agent's own project. What was put into force so keeps that meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct LegacyReading {
    /// What it says.
    pub draft: Draft,
    /// What is odd, and what in it stands on the former meaning.
    pub warnings: Vec<FileFinding>,
}

/// What a file says, with projects by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// How far the agent reaches.
    pub mode: Mode,
    /// Each request must impersonate.
    pub lockdown: bool,
    /// Kinds that the agent may manage.
    pub resources: ResourceRules,
    /// What the agent observes.
    pub observe: ObserveRules,
    /// How health is judged, beyond the built-in rules.
    pub health: HealthSettings,
    /// How objects are related, beyond what is known of their kinds.
    pub relations: Vec<DeclaredRelation>,
    /// What can be done with objects, beyond what is built in.
    pub actions: Vec<DeclaredAction>,
    /// Files that declare more of these three.
    pub definitions: DraftDefinitions,
    /// Its sources.
    pub sources: Vec<DraftSource>,
    /// Who may use the cluster's API.
    pub grants: Grants,
    /// Jobs of the agent's own project need no entry.
    pub implicit_rights: bool,
}

impl Draft {
    /// The configuration, with the projects that the sources turned out to name, in the order of the sources, and those of environments
    /// by their paths.
    #[must_use]
    pub fn resolve(
        self,
        agent: AgentId,
        projects: &[ProjectId],
        of_environments: &BTreeMap<String, ProjectId>,
    ) -> AgentConfiguration {
        let environment = |draft: DraftEnvironment| SourceEnvironment {
            name: draft.name,
            tier: draft.tier,
            project: draft.project.and_then(|(path, ..)| of_environments.get(&path).copied()),
        };
        let sources = self.sources.into_iter().zip(projects).map(|(draft, project)| SourceConfiguration {
            id: SourceId::derive(agent, &draft.name),
            name: draft.name,
            project: *project,
            reference: draft.reference,
            include: draft.include,
            exclude: draft.exclude,
            interval_seconds: draft.interval_seconds,
            default_namespace: draft.namespace,
            service_account: draft.service_account,
            policies: draft.policies,
            environment: draft.environment.map(environment),
            line: draft.line,
        });
        AgentConfiguration {
            mode: self.mode,
            resources: self.resources,
            observe: self.observe,
            health: self.health,
            relations: self.relations,
            actions: self.actions,
            lockdown: self.lockdown,
            sources: sources.collect(),
            grants: self.grants,
            implicit_rights: self.implicit_rights,
        }
    }
}

/// Checks a file's content.
#[must_use]
pub fn check(file: &str, content: &[u8]) -> Checked {
    let mut report = Report::new(file);
    let root = root(&mut report, content);
    let draft = root.as_ref().map(|root| configuration(&mut report, root, Reading::Explicit));
    let (findings, warnings) = report.finish();
    let nothing = || Draft {
        mode: Mode::Cluster,
        lockdown: false,
        resources: ResourceRules::default(),
        observe: ObserveRules::default(),
        health: HealthSettings::default(),
        relations: Vec::new(),
        actions: Vec::new(),
        definitions: DraftDefinitions::default(),
        sources: Vec::new(),
        grants: Grants::default(),
        implicit_rights: false,
    };
    Checked { draft: draft.unwrap_or_else(nothing), findings, warnings, former: former(file, content) }
}

fn former(file: &str, content: &[u8]) -> Option<LegacyReading> {
    let mut report = Report::new(file);
    let root = root(&mut report, content).filter(|root| root.get(ALLOW_AGENT_IDENTITY).is_none())?;
    let draft = configuration(&mut report, &root, Reading::LegacyReading);
    advice::warn(&mut report, &root, draft.mode);
    let (findings, warnings) = report.finish();
    findings.is_empty().then_some(LegacyReading { draft, warnings })
}

/// The lines that give a file the meaning that it had before `allow_agent_identity` was known, and has in GitLab; none where it names that
/// key, or cannot be read. `own_project` is the path of the agent's own project, if that is known.
#[must_use]
pub fn additions(content: &[u8], own_project: Option<&str>) -> Vec<Addition> {
    let (mut report, text) = (Report::new(""), String::from_utf8_lossy(content));
    let Some(root) = root(&mut report, content) else { return Vec::new() };
    let mode = if root.get("mode").and_then(Node::as_str) == Some("namespaced") {
        Mode::Namespaced
    } else {
        Mode::Cluster
    };
    advice::additions(&text, &root, mode, own_project)
}

fn root(report: &mut Report, content: &[u8]) -> Option<Node> {
    let limits = Limits {
        bytes: usize::try_from(MAXIMUM_BYTES).unwrap_or(usize::MAX),
        depth: MAXIMUM_DEPTH,
        nodes_after_aliases: MAXIMUM_NODES,
    };
    let advice = "the file is empty; write 'sources: []' if the agent is to have none";
    root_within(report, content, &limits, advice)
}

/// The one document of a file; `empty` is said of a file without any.
fn root_within(report: &mut Report, content: &[u8], limits: &Limits, empty: &str) -> Option<Node> {
    let Ok(text) = std::str::from_utf8(content) else {
        report.whole_file("the file is not UTF-8");
        return None;
    };
    let documents = match load_documents(text, limits) {
        Ok(documents) => documents,
        Err(error) => {
            report.at(error.line, error.column, "", error.message);
            return None;
        }
    };
    let mut documents = documents.into_iter();
    let Some(document) = documents.next() else {
        report.whole_file(empty);
        return None;
    };
    if let Some(second) = documents.next() {
        report.wrong(&second.root, "", "a second document; the file holds one");
    }
    for duplicate in &document.duplicates {
        let field = if duplicate.path.is_empty() {
            duplicate.key.clone()
        } else {
            format!("{}.{}", duplicate.path, duplicate.key)
        };
        let message =
            format!("the key stands in line {} already; remove one of the two", duplicate.first_line);
        report.at(duplicate.line, duplicate.column, &field, message);
    }
    for (line, column) in &document.false_separators {
        let message = "text that ends in '---', which separates documents only on a line of its own; write it in quotes";
        report.at(*line, *column, "", message);
    }
    Some(document.root)
}

fn configuration(report: &mut Report, root: &Node, reading: Reading) -> Draft {
    let keys = [
        "mode",
        "lockdown",
        "resources",
        "observe",
        "health",
        "relations",
        "actions",
        "definitions",
        "sources",
        "audit",
        "record_sessions",
        "ci_access",
        "user_access",
        ALLOW_AGENT_IDENTITY,
    ];
    let known = mapping(report, root, "", &keys);
    let modes = [("cluster", Mode::Cluster), ("namespaced", Mode::Namespaced)];
    let mode = known.get("mode").and_then(|node| choice(report, node, "mode", &modes));
    let lockdown = known.get("lockdown").and_then(|node| truth(report, node, "lockdown")).unwrap_or(false);
    let resources = known.get("resources").map(|node| resources(report, node)).unwrap_or_default();
    let observe = known.get("observe").map(|node| observe::rules(report, node)).unwrap_or_default();
    let health = known.get("health").map(|node| health::settings(report, node)).unwrap_or_default();
    let relations = known.get("relations").map(|node| relations::relations(report, node)).unwrap_or_default();
    let actions =
        known.get("actions").map(|node| actions::actions(report, node, "actions")).unwrap_or_default();
    let definitions =
        known.get("definitions").map(|node| definitions::files(report, node)).unwrap_or_default();
    let sources = if root.as_mapping().is_some() {
        required(report, root, &known, "", "sources", "write 'sources: []' if the agent is to have none")
    } else {
        None
    };
    let sources = sources.map(|node| sources_of(report, node, lockdown)).unwrap_or_default();
    let allowed = known.get(ALLOW_AGENT_IDENTITY).and_then(|node| truth(report, node, ALLOW_AGENT_IDENTITY));
    let identity = Identity::of(reading, mode.unwrap_or(Mode::Cluster), allowed.unwrap_or(false));
    let (ci, user) = (known.get("ci_access").copied(), known.get("user_access").copied());
    let grants = grants::grants(report, ci, user, identity);
    let (audit, record_sessions) = recording(report, &known);
    let grants = Grants { audit, record_sessions, ..grants };
    let (mode, implicit_rights) = (mode.unwrap_or(Mode::Cluster), reading == Reading::LegacyReading);
    Draft {
        mode,
        lockdown,
        resources,
        observe,
        health,
        relations,
        actions,
        definitions,
        sources,
        grants,
        implicit_rights,
    }
}

/// What happens to a request that cannot be recorded, and what is recorded of sessions.
fn recording(report: &mut Report, known: &BTreeMap<String, &Node>) -> (AuditMode, RecordSessions) {
    let audits = [("fail_open", AuditMode::FailOpen), ("fail_closed", AuditMode::FailClosed)];
    let audit = known.get("audit").and_then(|node| choice(report, node, "audit", &audits));
    let recorded =
        [("none", RecordSessions::None), ("output", RecordSessions::Output), ("all", RecordSessions::All)];
    let record_sessions =
        known.get("record_sessions").and_then(|node| choice(report, node, "record_sessions", &recorded));
    (audit.unwrap_or_default(), record_sessions.unwrap_or_default())
}

fn resources(report: &mut Report, node: &Node) -> ResourceRules {
    let known = strict_mapping(report, node, "resources", &["include", "exclude"]);
    let patterns = |report: &mut Report, key: &str| {
        let path = format!("resources.{key}");
        let Some(node) = known.get(key) else { return Vec::new() };
        let items = list(report, node, &path);
        let patterns = items.iter().enumerate();
        patterns.filter_map(|(index, item)| kind_pattern(report, item, &format!("{path}[{index}]"))).collect()
    };
    ResourceRules { include: patterns(report, "include"), exclude: patterns(report, "exclude") }
}

fn kind_pattern(report: &mut Report, node: &Node, path: &str) -> Option<KindPattern> {
    let known = strict_mapping(report, node, path, &["group", "kind"]);
    node.as_mapping()?;
    let group = required(report, node, &known, path, "group", "write '' for the core group, '*' for all");
    let kind = required(report, node, &known, path, "kind", "write '*' for all kinds of the group");
    let group = group.and_then(|node| text(report, node, &format!("{path}.group"), true));
    let kind = kind.and_then(|node| text(report, node, &format!("{path}.kind"), false));
    Some(KindPattern { group: group?, kind: kind? })
}

fn sources_of(report: &mut Report, node: &Node, lockdown: bool) -> Vec<DraftSource> {
    let items = list(report, node, "sources");
    if items.len() > MAXIMUM_SOURCES {
        report.wrong(
            node,
            "sources",
            format!("{} sources; at most {MAXIMUM_SOURCES} are allowed", items.len()),
        );
    }
    let mut sources: Vec<DraftSource> = Vec::new();
    for (index, item) in items.iter().take(MAXIMUM_SOURCES).enumerate() {
        let path = format!("sources[{index}]");
        let Some(source) = source::source(report, item, &path, lockdown) else { continue };
        if let Some(first) = sources.iter().find(|known| known.name == source.name) {
            let place = item.get("name").unwrap_or(item);
            let message =
                format!("the source of line {} has this name already; names are unique", first.line);
            report.wrong(place, &format!("{path}.name"), message);
        }
        sources.push(source);
    }
    sources
}

#[cfg(test)]
mod tests;
