//! What an agent's sources are to be, as those who push have it in mind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use events::grants::{Grants, UserAccessAs};

use super::PROJECTS;
use crate::dice::Dice;
use crate::forge::Files;

/// Objects of a source: the value of each, by its number.
type Objects = BTreeMap<u64, u64>;

/// Sources that an agent may have.
pub(crate) const SOURCES: u64 = 4;
/// Objects that a source may have; few enough that no prune has to be confirmed.
const OBJECTS: u64 = 9;
/// From this number on they are Deployments, those before it ConfigMaps.
const DEPLOYMENTS: u64 = 6;
/// So long a sync waits for them, in seconds, and so long their rollouts may stand still.
const PATIENCE: u64 = 15;
const DEADLINE: u64 = 10;

/// A source as it is to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Source {
    pub(crate) configured: bool,
    pub(crate) objects: Objects,
    /// A file that cannot be read lies beside them.
    pub(crate) broken: bool,
}

/// Whom a configuration lets use the cluster's API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VisitorAccess {
    /// The people of these projects, by their numbers.
    pub(crate) projects: BTreeSet<usize>,
    /// The cluster sees them, and not the agent.
    pub(crate) as_themselves: bool,
}

/// All sources of an agent.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    agent: String,
    /// Nothing is asked of its cluster that is not recorded before.
    fail_closed: bool,
    pub(crate) lets_in: VisitorAccess,
    pub(crate) sources: BTreeMap<u64, Source>,
    /// Changes without a meaning, so that files differ.
    interval: u64,
}

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Objects(u64),
    Broken(u64),
    Configuration,
}

impl Model {
    pub(crate) fn first(number: usize, agent: &str) -> Self {
        let objects = |count: u64| (0..count).chain([DEPLOYMENTS]).map(|number| (number, 0)).collect();
        let sources = (0..SOURCES).map(|number| {
            let source = Source { configured: number < 2, objects: objects(1 + number), broken: false };
            (number, source)
        });
        Self {
            agent: agent.to_owned(),
            fail_closed: number.is_multiple_of(2),
            lets_in: VisitorAccess { projects: BTreeSet::from([0, 1]), as_themselves: true },
            sources: sources.collect(),
            interval: 60,
        }
    }

    /// The repository in which a source lies: the agent's own, or the other project's.
    pub(crate) const fn repository_of(source: u64) -> usize {
        if source.is_multiple_of(2) { 0 } else { 1 }
    }

    fn folder(&self, source: u64) -> String {
        format!("manifests/{}/source-{source}", self.agent)
    }

    /// Changes something by chance.
    pub(crate) fn change(&mut self, dice: &mut Dice) -> Change {
        let number = dice.below(SOURCES);
        let kind = dice.below(100);
        let Some(source) = self.sources.get_mut(&number) else { return Change::Configuration };
        if kind < 70 {
            let object = dice.below(OBJECTS);
            if source.objects.len() > 1 && dice.permille(300) {
                source.objects.remove(&object);
            } else {
                source.objects.insert(object, dice.below(1_000_000));
            }
            if source.objects.is_empty() {
                source.objects.insert(0, 0);
            }
            source.broken = false;
            Change::Objects(number)
        } else if kind < 76 {
            source.broken = true;
            Change::Broken(number)
        } else {
            if dice.permille(500) {
                source.configured = !source.configured;
            } else {
                self.lets_in.change(dice);
            }
            self.interval = dice.between(20, 90);
            Change::Configuration
        }
    }

    /// Nothing is broken any more, and everybody is let in who ever is. Something may be wanted that never becomes available.
    pub(crate) fn tidy(&mut self, dice: &mut Dice) {
        self.lets_in.projects.extend(0..PROJECTS.len());
        for source in self.sources.values_mut() {
            source.broken = false;
        }
        let configured = self.sources.values_mut().find(|source| source.configured);
        if let Some(source) = configured.filter(|_| dice.permille(400)) {
            source.objects.insert(DEPLOYMENTS, dice.below(1_000) * 8 + 5);
        }
    }

    /// What never becomes available is wanted no more; whether anything was.
    pub(crate) fn mend(&mut self) -> bool {
        let objects = self.sources.values_mut().flat_map(|source| &mut source.objects);
        let never = objects.filter(|(object, value)| **object >= DEPLOYMENTS && never_available(**value));
        never.map(|(_, value)| *value += 1).count() > 0
    }

    /// The sources that are configured.
    pub(crate) fn configured(&self) -> Vec<u64> {
        let configured = self.sources.iter().filter(|(_, source)| source.configured);
        configured.map(|(number, _)| *number).collect()
    }

    /// Writes all files of one repository, in place of those that are there of this agent.
    pub(crate) fn write(&self, repository: usize, files: &mut Files) {
        let own = format!("manifests/{}/", self.agent);
        files.retain(|path, _| !path.starts_with(&own));
        for (number, source) in
            self.sources.iter().filter(|(number, _)| Self::repository_of(**number) == repository)
        {
            let folder = self.folder(*number);
            for (object, value) in &source.objects {
                files.insert(format!("{folder}/object-{object}.yaml"), manifest(*number, *object, *value));
            }
            if source.broken {
                files.insert(format!("{folder}/broken.yaml"), "kind: [\n".to_owned());
            }
        }
        if repository == 0 {
            files.insert(format!(".kasbah/agents/{}/config.yaml", self.agent), self.configuration());
        }
    }

    fn configuration(&self) -> String {
        let mut text = "sources:\n".to_owned();
        let configured = self.sources.iter().filter(|(_, source)| source.configured);
        let mut any = false;
        for (number, _) in configured {
            any = true;
            let folder = self.folder(*number);
            let project = PROJECTS.get(Self::repository_of(*number)).copied().unwrap_or_default();
            // Writing into a text does not fail.
            let _written = write!(
                text,
                "  - name: source-{number}\n    project: {project}\n    include: [\"{folder}\"]\n    interval: {}s\n    policies: {{on_removal: prune, health_timeout: {PATIENCE}s}}\n",
                self.interval
            );
        }
        if !any {
            text.clear();
            text.push_str("sources: []\n");
        }
        text.push_str(if self.fail_closed { "audit: fail_closed\n" } else { "" });
        text + &self.lets_in.configuration()
    }

    /// Objects that left their source, or whose source is in no configuration any more.
    pub(crate) fn left_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = String> + 'a {
        self.sources.iter().flat_map(|(number, source)| {
            let former = before.sources.get(number).into_iter().flat_map(|former| former.objects.keys());
            let gone = former.filter(|object| !source.objects.contains_key(object));
            let unconfigured = source.objects.keys().filter(|_| !source.configured);
            gone.chain(unconfigured).map(|object| object_name(*number, *object))
        })
    }

    /// What each object of a repository that there may be is to be.
    pub(crate) fn objects_in(&self, repository: usize) -> impl Iterator<Item = (String, Option<u64>)> {
        let there =
            self.sources.iter().filter(move |(number, _)| Self::repository_of(**number) == repository);
        there.flat_map(|(number, source)| {
            (0..OBJECTS).map(|object| (object_name(*number, object), source.objects.get(&object).copied()))
        })
    }

    /// What is to be in the cluster: the value of each object by its name.
    pub(crate) fn wanted(&self) -> BTreeMap<String, u64> {
        let configured = self.sources.iter().filter(|(_, source)| source.configured);
        let objects = configured.flat_map(|(number, source)| {
            source.objects.iter().map(|(object, value)| (object_name(*number, *object), *value))
        });
        objects.collect()
    }
}

impl VisitorAccess {
    fn change(&mut self, dice: &mut Dice) {
        let project = dice.index(PROJECTS.len());
        if dice.permille(300) {
            self.as_themselves = !self.as_themselves;
        } else if !self.projects.remove(&project) {
            self.projects.insert(project);
        }
    }

    fn configuration(&self) -> String {
        let projects = self.projects.iter().filter_map(|number| PROJECTS.get(*number));
        let projects: String = projects.map(|path| format!("    - id: {path}\n")).collect();
        if projects.is_empty() {
            return projects;
        }
        let access_as = if self.as_themselves { "user" } else { "agent" };
        format!(
            "allow_agent_identity: {}\nuser_access:\n  access_as: {{{access_as}: {{}}}}\n  projects:\n{projects}",
            !self.as_themselves
        )
    }

    /// The same as a configuration in force says.
    pub(crate) fn is_in(&self, grants: &Grants) -> bool {
        let paths = |number: &usize| PROJECTS.get(*number).copied();
        let in_force: BTreeSet<&str> = grants.user_projects.iter().map(|grant| grant.path.as_str()).collect();
        let as_themselves = grants.users_access_as == UserAccessAs::User;
        self.projects.iter().filter_map(paths).collect::<BTreeSet<_>>() == in_force
            && (self.projects.is_empty() || as_themselves == self.as_themselves)
    }
}

/// The number of the source that an object belongs to, by its name.
pub(crate) fn source_of(object: &str) -> Option<u64> {
    object.strip_prefix("source-")?.split_once("-object-")?.0.parse().ok()
}

/// Whether a Deployment has this name.
pub(crate) fn is_deployment(name: &str) -> bool {
    let number = name.split_once("-object-").and_then(|(_, number)| number.parse::<u64>().ok());
    number.is_some_and(|number| number >= DEPLOYMENTS)
}

/// Deployments of this value start, and their pods never become available.
pub(crate) const fn never_available(value: u64) -> bool {
    value % 8 == 5
}

fn object_name(source: u64, object: u64) -> String {
    format!("source-{source}-object-{object}")
}

fn manifest(source: u64, object: u64, value: u64) -> String {
    let name = object_name(source, object);
    if object >= DEPLOYMENTS {
        return deployment(&name, value);
    }
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: \"{value}\"\n")
}

fn deployment(name: &str, value: u64) -> String {
    // Most are as many as before: then nothing but its generation tells a status that is old from one that is new.
    let replicas = if value.is_multiple_of(5) { 3 } else { 2 };
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: {replicas}
  progressDeadlineSeconds: {DEADLINE}
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
      annotations: {{value: \"{value}\"}}
    spec:
      containers:
        - {{name: web, image: registry.example/web:{value}}}
"
    )
}
