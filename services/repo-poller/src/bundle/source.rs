//! Sources with the same rules at the last commit that was built.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::bundle::{BundleEntry, OBJECT_BYTES};
use events::configuration::FileFinding;
use events::object::ObjectKey;
use objects::identity::key_in;
use objects::kinds::kind_allowed;
use objects::manifest::refused_folder;

use crate::bundle::files::{FileCache, ParsedFile, ParsedObject};
use crate::bundle::pages::{Encoded, Pages};
use crate::bundle::rules::{GlobError, Globs, Rules, is_manifest_name};
use crate::bundle::unread::{Judged, Unread};
use crate::bundle::{BuildLimits, Built, MAXIMUM_FINDINGS, Outcome};
use crate::git::objects::Reader;
use crate::git::tree::Change;
use crate::git::{GitError, ObjectId};

/// Longest message of a finding, in characters, so that a commit of the log never grows over its limit.
const MESSAGE_LENGTH: usize = 600;

/// Sources with the same rules at the last commit that was built, good or bad.
#[derive(Debug)]
pub struct SourceBuild {
    rules: Rules,
    globs: Globs,
    files: BTreeMap<String, Arc<ParsedFile>>,
    bytes: u64,
    /// What the objects take in an agent.
    size: usize,
    /// Files whose folder has to be rendered, whether the globs take them or not.
    rendered: BTreeSet<String>,
    /// What the globs take and cannot be read.
    unread: Unread,
    /// What of that is left out of the bundle.
    left_out: Vec<String>,
    /// Where each object stands; more than one place is a duplicate.
    places: BTreeMap<ObjectKey, BTreeSet<(String, u32)>>,
    duplicates: BTreeSet<ObjectKey>,
    pages: Pages,
    /// What is wrong in single files.
    findings: BTreeMap<String, Vec<FileFinding>>,
}

impl SourceBuild {
    /// Sources of which nothing is known yet.
    ///
    /// # Errors
    /// For a glob that cannot be understood.
    pub fn new(rules: Rules) -> Result<Self, GlobError> {
        Ok(Self {
            globs: Globs::of(&rules)?,
            rules,
            files: BTreeMap::new(),
            bytes: 0,
            size: 0,
            rendered: BTreeSet::new(),
            unread: Unread::default(),
            left_out: Vec::new(),
            places: BTreeMap::new(),
            duplicates: BTreeSet::new(),
            pages: Pages::default(),
            findings: BTreeMap::new(),
        })
    }

    /// Takes one changed path into account.
    ///
    /// # Errors
    /// When the file cannot be read from the repository.
    pub fn apply(
        &mut self,
        change: &Change,
        reader: &mut Reader,
        cache: &mut FileCache,
        limits: &BuildLimits,
        built: &mut Built,
    ) -> Result<(), GitError> {
        self.unread.forget(&change.path);
        if let Ok(path) = std::str::from_utf8(&change.path) {
            self.forget(path);
        }
        let Some(entry) = change.now else { return Ok(()) };
        if let Ok(path) = std::str::from_utf8(&change.path)
            && refused_folder(name_of(path)).is_some()
            && !self.globs.leave_out(path)
        {
            self.rendered.insert(path.to_owned());
            return Ok(());
        }
        let Some(path) = self.unread.add(&change.path, entry, &self.globs) else { return Ok(()) };
        if is_manifest_name(path) && self.globs.take(path) {
            let file = cache.parse(entry.id, path, reader, &limits.file, built)?;
            self.insert(path, file);
        }
        Ok(())
    }

    fn forget(&mut self, path: &str) {
        self.rendered.remove(path);
        self.findings.remove(path);
        let Some(file) = self.files.remove(path) else { return };
        self.bytes = self.bytes.saturating_sub(file.bytes);
        for object in file.content.iter().flatten() {
            self.size = self.size.saturating_sub(OBJECT_BYTES + object.bytes);
            let key = key_in(&object.identity, &self.rules.default_namespace);
            if let Some(places) = self.places.get_mut(&key) {
                places.remove(&(path.to_owned(), object.line));
                if places.len() < 2 {
                    self.duplicates.remove(&key);
                }
                if places.is_empty() {
                    self.places.remove(&key);
                }
            }
            self.pages.remove(&(object.identity.clone(), path.to_owned(), object.line));
        }
    }

    fn insert(&mut self, path: &str, file: Arc<ParsedFile>) {
        self.bytes = self.bytes.saturating_add(file.bytes);
        let mut findings = Vec::new();
        match &file.content {
            Err((line, column, message)) => findings.push(finding(path, *line, *column, message)),
            Ok(objects) => {
                for object in objects {
                    self.insert_object(path, object, &mut findings);
                }
            }
        }
        if !findings.is_empty() {
            self.findings.insert(path.to_owned(), findings);
        }
        self.files.insert(path.to_owned(), file);
    }

    fn insert_object(&mut self, path: &str, object: &ParsedObject, findings: &mut Vec<FileFinding>) {
        let identity = &object.identity;
        let rules = &self.rules.resources;
        let pairs = |patterns: &[events::configuration::KindPattern]| -> Vec<(String, String)> {
            patterns.iter().map(|pattern| (pattern.group.clone(), pattern.kind.clone())).collect()
        };
        if !kind_allowed(&pairs(&rules.include), &pairs(&rules.exclude), identity) {
            let group = if identity.group.is_empty() { "the core group" } else { &identity.group };
            let message = format!(
                "{} of {group} may not be managed by this agent: its configuration's resources do not allow it",
                identity.kind
            );
            findings.push(finding(path, object.line, 0, &message));
        }
        self.size = self.size.saturating_add(OBJECT_BYTES + object.bytes);
        let key = key_in(identity, &self.rules.default_namespace);
        let places = self.places.entry(key.clone()).or_default();
        if !places.insert((path.to_owned(), object.line)) || places.len() > 1 {
            self.duplicates.insert(key);
        }
        self.pages.insert((identity.clone(), path.to_owned(), object.line), object.digest);
    }

    /// What comes of each of the sources now, at this tree.
    ///
    /// # Errors
    /// When an object of the repository is missing or damaged.
    pub fn finish(
        &mut self,
        reader: &mut Reader,
        root: ObjectId,
        limits: &BuildLimits,
        built: &mut Built,
    ) -> Result<Outcome, GitError> {
        let files = &self.files;
        let judged = self.unread.judge(&self.globs, |path| files.contains_key(path), reader, root)?;
        let Judged { mut findings, warnings, left_out } = judged;
        self.left_out = left_out;
        findings.extend(self.findings.values().flatten().cloned());
        findings.extend(self.rendered_findings());
        findings.extend(self.duplicates.iter().filter_map(|key| self.duplicate_finding(key)));
        findings.extend(self.over_limits(limits));
        let warnings = self.warnings(warnings);
        if !findings.is_empty() {
            return Ok(Outcome::rejected(findings, warnings));
        }
        let encoded = self.pages.encode(&mut built.contents);
        built.statistics.pages += encoded.pages;
        if let Some(found) = self.over_agent_limits(limits, &encoded) {
            return Ok(Outcome::rejected(vec![found], warnings));
        }
        Ok(Outcome::Bundle {
            root: encoded.root,
            objects: u32::try_from(self.pages.objects()).unwrap_or(u32::MAX),
            takes_no_file: self.files.is_empty(),
            warnings,
        })
    }

    fn over_limits(&self, limits: &BuildLimits) -> Vec<FileFinding> {
        let (objects, bytes) = (self.pages.objects(), self.bytes);
        let mut findings = Vec::new();
        let mut over = |message: String| findings.push(finding("", 0, 0, &message));
        if objects > limits.objects {
            let most = limits.objects;
            over(format!("the source has {objects} objects, more than the maximum of {most}"));
        }
        if bytes > limits.bytes {
            let most = limits.bytes;
            over(format!("the source's files have {bytes} bytes, more than the maximum of {most}"));
        }
        findings
    }

    /// What an agent could not take, which would stop it at the bundle before.
    fn over_agent_limits(&self, limits: &BuildLimits, encoded: &Encoded) -> Option<FileFinding> {
        let size = self.size.saturating_add(encoded.bytes);
        if size > limits.agent_bytes {
            let (size, room) = (size >> 10, limits.agent_bytes >> 10);
            let message = format!(
                "the source's objects take {size} KiB in an agent, which has {room} KiB for them; split the source over several \
                 agents, or remove large objects"
            );
            return Some(finding("", 0, 0, &message));
        }
        (encoded.largest > limits.page_bytes).then(|| {
            let message = format!(
                "the names and paths of objects take {} bytes on one page of the bundle, more than the {} that are sent to an agent; \
                 shorten the paths, or split the source",
                encoded.largest, limits.page_bytes
            );
            finding("", 0, 0, &message)
        })
    }

    /// Objects that would go only because what the last good bundle read them from cannot be read any more.
    #[must_use]
    pub fn lost(&self, last: &[BundleEntry]) -> Vec<FileFinding> {
        let is_at = |file: &str, path: &str| {
            file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut findings = Vec::new();
        for path in &self.left_out {
            for entry in last.iter().filter(|entry| is_at(&entry.file, path)) {
                let identity = &entry.identity;
                if !self.places.contains_key(&key_in(identity, &self.rules.default_namespace)) {
                    let message = format!(
                        "a symbolic link stands where {} {} was read from ({} line {}), which is in no other file; \
                         commit the file itself, or remove the link if the object is to go",
                        identity.kind, identity.name, entry.file, entry.line
                    );
                    findings.push(finding(path, 0, 0, &message));
                }
            }
        }
        findings
    }

    /// Whether something that the globs take is left out of the bundle.
    #[must_use]
    pub const fn leaves_out(&self) -> bool {
        !self.left_out.is_empty()
    }

    /// A kustomization speaks for the files beside it, a chart for everything below it.
    fn rendered_findings(&self) -> Vec<FileFinding> {
        let concerns = |path: &str| {
            let folder = path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
            let beside = name_of(path) != "Chart.yaml";
            self.files
                .range(folder.clone()..)
                .take_while(|(file, _)| file.starts_with(&folder))
                .any(|(file, _)| !beside || file.get(folder.len()..).is_some_and(|rest| !rest.contains('/')))
        };
        self.rendered
            .iter()
            .filter(|path| self.globs.take(path) || concerns(path))
            .filter_map(|path| refused_folder(name_of(path)).map(|message| finding(path, 0, 0, message)))
            .collect()
    }

    fn duplicate_finding(&self, key: &ObjectKey) -> Option<FileFinding> {
        let mut places = self.places.get(key)?.iter();
        let (first_file, first_line) = places.next()?;
        let (file, line) = places.next().unwrap_or(&(first_file.clone(), *first_line)).clone();
        // Whether the kind has namespaces at all is the cluster's to say, so the default one is not named.
        let name = if key.namespace.is_empty() || key.namespace == self.rules.default_namespace {
            key.name.clone()
        } else {
            format!("{}/{}", key.namespace, key.name)
        };
        let message = format!(
            "{} {name} is already in {first_file} line {first_line}; remove one of the two",
            key.kind
        );
        Some(finding(&file, line, 0, &message))
    }

    fn warnings(&self, unread: Vec<FileFinding>) -> Vec<FileFinding> {
        let in_files = self.files.iter().flat_map(|(path, file)| {
            let objects = file.content.iter().flatten();
            objects
                .flat_map(|object| &object.warnings)
                .map(|warning| finding(path, warning.line, 0, &warning.message))
        });
        let nothing = self.files.is_empty().then(|| self.takes_no_file());
        nothing.into_iter().chain(unread).chain(in_files).take(MAXIMUM_FINDINGS).collect()
    }

    fn takes_no_file(&self) -> FileFinding {
        let message =
            format!("no file that ends in .yaml, .yml or .json is taken by {}", self.rules.describe_globs());
        finding("", 0, 0, &message)
    }
}

pub(super) fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

pub(super) fn finding(file: &str, line: u32, column: u32, message: &str) -> FileFinding {
    let message = message.chars().take(MESSAGE_LENGTH).collect();
    FileFinding { file: file.to_owned(), line, column, field: String::new(), message }
}
