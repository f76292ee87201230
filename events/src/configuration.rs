//! What an agent's configuration file says, once it was checked; and the events of config-fetcher.

use serde::{Deserialize, Serialize};

use crate::catalogue::context;
use crate::digest::Sha256;
use crate::environment::Tier;
use crate::grants::Grants;
use crate::id::{AgentId, ProjectId, SourceId};

/// The folder of a repository in which configuration files lie.
pub const FOLDER: &str = ".kasbah";

/// The path of an agent's configuration file in its configuration project.
#[must_use]
pub fn file_of(agent_name: &str) -> String {
    format!("{FOLDER}/agents/{agent_name}/config.yaml")
}

context! {
    /// What config-fetcher decided.
    ConfigurationEvent {
        /// A new configuration is in force.
        ConfigurationChanged(ConfigurationChanged) = "kasbah.configuration.changed" v 1,
        /// A file was refused; the last good one stays in force.
        ConfigurationRejected(ConfigurationRejected) = "kasbah.configuration.rejected" v 1,
    }
}

/// See [`ConfigurationEvent::ConfigurationChanged`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationChanged {
    /// Whose.
    pub agent: AgentId,
    /// The Git commit it was read at.
    pub commit: String,
    /// What is in force from now on.
    pub configuration: AgentConfiguration,
    /// What is odd but harmless, such as an unknown key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<FileFinding>,
}

/// See [`ConfigurationEvent::ConfigurationRejected`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationRejected {
    /// Whose.
    pub agent: AgentId,
    /// The Git commit it was read at, if one could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Everything that is wrong with it.
    pub findings: Vec<FileFinding>,
    /// What is odd but harmless in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<FileFinding>,
}

/// One thing wrong in a file of a repository.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFinding {
    /// Path from the repository's root.
    pub file: String,
    /// Line, from 1; 0 when the file as a whole is meant.
    pub line: u32,
    /// Column, from 1; 0 when the line as a whole is meant.
    pub column: u32,
    /// The field, such as `sources[0].ref`; empty when none is meant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl FileFinding {
    /// Where it is, as `file:line:column`, as far as that is known; empty where no file is meant.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.file.as_str(), self.line, self.column) {
            (file, 0, _) => file.to_owned(),
            (file, line, 0) => format!("{file}:{line}"),
            (file, line, column) => format!("{file}:{line}:{column}"),
        }
    }
}

/// A checked agent configuration: defaults filled in, projects resolved.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentConfiguration {
    /// What the agent may touch.
    pub mode: Mode,
    /// Kinds that the agent may manage.
    pub resources: ResourceRules,
    /// What the agent observes.
    #[serde(default, skip_serializing_if = "ObserveRules::is_default")]
    pub observe: ObserveRules,
    /// How the health of kinds is judged that have rules of their own here.
    #[serde(default, skip_serializing_if = "HealthSettings::is_default")]
    pub health: HealthSettings,
    /// How objects are related, beyond what is known of their kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relations: Vec<DeclaredRelation>,
    /// What can be done with objects of kinds that have no actions of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<DeclaredAction>,
    /// What it is to keep applied.
    pub sources: Vec<SourceConfiguration>,
    /// Each request must impersonate a source's service account.
    #[serde(default)]
    pub lockdown: bool,
    /// Who may use the cluster's API.
    #[serde(default, skip_serializing_if = "Grants::is_empty")]
    pub grants: Grants,
    /// Jobs of the agent's own project are let in as the agent without an entry: so it was for files that were put into force
    /// before `allow_agent_identity` was known, and so it stays for them.
    #[serde(default = "formerly", skip_serializing_if = "is_so")]
    pub implicit_rights: bool,
}

const fn formerly() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_so(implicit_rights: &bool) -> bool {
    *implicit_rights
}

/// How far the agent reaches.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Only objects in namespaces that a Role gives it.
    Namespaced,
    /// The whole cluster.
    Cluster,
}

/// Which kinds may be managed: included and not excluded. An empty include list includes all.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct ResourceRules {
    /// Kinds that may be managed.
    #[serde(default)]
    pub include: Vec<KindPattern>,
    /// Kinds that may not.
    #[serde(default)]
    pub exclude: Vec<KindPattern>,
}

/// A pattern over group and kind; `*` stands for any run of characters.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KindPattern {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// What is observed: included and not excluded. An empty include list includes everything that is readable, except Leases.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct ObserveRules {
    /// What is observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<ObservePattern>,
    /// What is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<ObservePattern>,
}

impl ObserveRules {
    /// Whether nothing was chosen.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }
}

/// A pattern over group, kind and namespace; `*` stands for any run of characters.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObservePattern {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace. Objects without a namespace match only the pattern `*`.
    #[serde(default = "any_text")]
    pub namespace: String,
}

fn any_text() -> String {
    "*".to_owned()
}

/// How health is judged, beyond the built-in rules.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct HealthSettings {
    /// Rules for kinds, instead of the built-in ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<HealthRule>,
    /// Rules of Argo CD for kinds that have none of those. They are for what is shown: no sync waits by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imported: Vec<ImportedRule>,
}

impl HealthSettings {
    /// Whether nothing was said.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        self.rules.is_empty() && self.imported.is_empty()
    }

    /// What of it agents judge by.
    #[must_use]
    pub fn for_agents(&self) -> Self {
        Self { rules: self.rules.clone(), imported: Vec::new() }
    }
}

/// A health rule of Argo CD for kinds.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImportedRule {
    /// API group, empty for the core group; `*` stands for any run of characters.
    pub group: String,
    /// Kind; `*` stands for any run of characters.
    pub kind: String,
    /// A script that finds the object in `obj`, and returns a table with `status` and `message`.
    pub lua: String,
}

/// A health rule for kinds: expressions of the Common Expression Language over an object. The first that holds decides, in this order:
/// progressing, degraded, suspended, healthy; where none holds, the object is progressing.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HealthRule {
    /// API group, empty for the core group; `*` stands for any run of characters.
    pub group: String,
    /// Kind; `*` stands for any run of characters.
    pub kind: String,
    /// When what was asked for is there.
    pub healthy: String,
    /// When it is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressing: Option<String>,
    /// When it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// When it is stopped on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<String>,
    /// What gives the message for people: a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A relation between objects of two kinds: an expression over the one names the other, or selects it by labels.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeclaredRelation {
    /// What it is called, such as `uses-database`.
    pub name: String,
    /// The objects over which the expressions are.
    pub from: KindPattern,
    /// The objects that they name or select.
    pub to: KindPattern,
    /// Gives a name, or a list of names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<String>,
    /// Gives labels and their values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// Gives the namespace of the other objects, empty for those without; that of the object itself if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Something that can be done with objects of one kind: one patch of the object itself, by anybody who may patch it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredAction {
    /// What it is called, such as `pause`.
    pub name: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// What it does, for people.
    pub text: String,
    /// An expression over the object: the action is offered where it holds; always if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What it changes. A mapping with the one key `$cel` stands for what the expression below that key gives.
    pub patch: ObjectPatch,
    /// The subresource that is patched: `status` or `scale`; the object itself if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
}

/// A patch of one object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectPatch {
    /// A JSON merge patch (RFC 7396).
    Merge(serde_json::Value),
    /// Operations of a JSON patch (RFC 6902).
    Json(Vec<serde_json::Value>),
}

impl ObjectPatch {
    /// The media type of such a patch.
    #[must_use]
    pub const fn media_type(&self) -> &'static str {
        match self {
            Self::Merge(_) => "application/merge-patch+json",
            Self::Json(_) => "application/json-patch+json",
        }
    }

    /// The patch as it is sent.
    #[must_use]
    pub fn document(&self) -> serde_json::Value {
        match self {
            Self::Merge(patch) => patch.clone(),
            Self::Json(operations) => serde_json::Value::Array(operations.clone()),
        }
    }
}

/// One manifest source.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceConfiguration {
    /// Derived from agent and name.
    pub id: SourceId,
    /// Its name, unique in the configuration.
    pub name: String,
    /// Whose repository.
    pub project: ProjectId,
    /// Which ref of it.
    pub reference: GitReference,
    /// Globs from the repository's root of the files to take; at least one.
    pub include: Vec<String>,
    /// Globs of files to leave out.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Seconds between polls.
    pub interval_seconds: u32,
    /// Namespace for objects that name none.
    pub default_namespace: String,
    /// The service account to impersonate, `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccount>,
    /// What to do in the cases that people want differently.
    pub policies: SyncPolicies,
    /// The environment that its syncs are deployments into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<SourceEnvironment>,
    /// Line of the entry in the configuration file.
    pub line: u32,
}

impl SourceConfiguration {
    /// Digest over what decides which files the source takes: project, ref and globs.
    #[must_use]
    pub fn selection(&self) -> Sha256 {
        let reference = self.reference.to_string();
        let globs = [&self.include, &self.exclude].map(|globs| (globs.len() as u64, globs));
        let mut bytes = self.project.0.as_bytes().to_vec();
        let mut add = |text: &str| {
            bytes.extend((text.len() as u64).to_be_bytes());
            bytes.extend(text.as_bytes());
        };
        add(&reference);
        for (count, globs) in globs {
            add(&count.to_string());
            globs.iter().for_each(|glob| add(glob));
        }
        Sha256::of(&bytes)
    }
}

/// The environment that a source's syncs are deployments into.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceEnvironment {
    /// Its name.
    pub name: String,
    /// Its tier, where it is created by the first deployment; guessed from the name if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// The project that it belongs to; the agent's configuration project if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
}

/// A ref of a repository.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GitReference {
    /// The project's default branch.
    Default,
    /// A branch.
    Branch(String),
    /// A tag.
    Tag(String),
    /// A commit, in full.
    Commit(String),
}

impl std::fmt::Display for GitReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default branch"),
            Self::Branch(name) => write!(f, "branch {name}"),
            Self::Tag(name) => write!(f, "tag {name}"),
            Self::Commit(id) => write!(f, "commit {id}"),
        }
    }
}

/// A service account to impersonate.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Choices of a source. `Default` is what applies when the file says nothing.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncPolicies {
    /// Which existing objects may be taken over.
    pub adoption: Adoption,
    /// What to do when another manager owns a field.
    pub conflicts: Conflicts,
    /// Whether adopted objects may be pruned.
    pub prune_adopted: bool,
    /// Whether objects that left Git are deleted at all.
    pub prune: bool,
    /// What happens to the objects when the source leaves the configuration.
    pub on_removal: OnRemoval,
    /// Whether drift is corrected.
    pub correct_drift: bool,
    /// Whether fields that Git does not state are removed, too, when kubectl or one of `strict_managers` added them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Field managers besides kubectl's whose additions are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strict_managers: Vec<String>,
    /// Seconds that a sync waits for health.
    pub health_timeout_seconds: u32,
}

impl Default for SyncPolicies {
    fn default() -> Self {
        Self {
            adoption: Adoption::AdoptIfNoInventory,
            conflicts: Conflicts::Force,
            prune_adopted: false,
            prune: true,
            on_removal: OnRemoval::Keep,
            correct_drift: true,
            strict: false,
            strict_managers: Vec::new(),
            health_timeout_seconds: 300,
        }
    }
}

/// Which existing objects may be taken over.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Adoption {
    /// Only objects that carry this source's mark.
    MustMatch,
    /// Those, and objects that carry no mark.
    AdoptIfNoInventory,
    /// Any object.
    AdoptAll,
}

/// What to do when another manager owns a field.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflicts {
    /// Take the field over and report its former manager.
    Force,
    /// Stop and report.
    Refuse,
}

/// What happens to the objects of a source that leaves the configuration.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRemoval {
    /// They stay.
    Keep,
    /// They are pruned.
    Prune,
}
